#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/failpoint.h"
#include "base/file.h"

static char dir[] = "/tmp/failpoint.XXXXXX";

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return file_remove_tree(dir, NULL) ? -1 : 0;
}

static int listen_at(const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", dir, name);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

static void turn_on(void)
{
	assert_int_equal(setenv(FAILPOINT_ENV, dir, 1), 0);
	assert_int_equal(failpoint_setup(NULL), RC_OK);
	assert_true(failpoint_is_on);
}

static void without_the_variable_nobody_is_asked(void **state)
{
	int fd = listen_at("quiet");
	struct pollfd p = {.fd = fd, .events = POLLIN};

	(void)state;
	unsetenv(FAILPOINT_ENV);
	assert_int_equal(failpoint_setup(NULL), RC_OK);
	assert_false(failpoint_is_on);
	assert_false(failpoint_fails("quiet"));
	assert_int_equal(poll(&p, 1, 0), 0); /* nobody waits to be accepted */
	close(fd);
}

static void a_folder_that_others_may_write_to_is_refused(void **state)
{
	struct err err = {0};

	(void)state;
	setenv(FAILPOINT_ENV, dir, 1);
	assert_int_equal(chmod(dir, 0770), 0);
	assert_int_equal(failpoint_setup(&err), RC_FORBIDDEN);
	assert_false(failpoint_is_on);
	assert_non_null(strstr(err.msg, dir));
	assert_int_equal(chmod(dir, 0700), 0);
	setenv(FAILPOINT_ENV, "relative", 1);
	assert_int_equal(failpoint_setup(&err), RC_INVALID);
	setenv(FAILPOINT_ENV, "/no/such/folder", 1);
	assert_int_equal(failpoint_setup(&err), RC_NOT_FOUND);
	assert_false(failpoint_is_on);
}

static void a_link_to_a_folder_is_refused(void **state)
{
	char link[64];

	(void)state;
	(void)snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(symlink("/", link), 0);
	setenv(FAILPOINT_ENV, link, 1);
	assert_int_equal(failpoint_setup(NULL), RC_FORBIDDEN);
	assert_false(failpoint_is_on);
}

static void a_point_that_nobody_wants_goes_on(void **state)
{
	(void)state;
	turn_on();
	assert_false(failpoint_fails("nobody"));
	close(listen_at("gone")); /* its socket is left, and nobody listens */
	assert_false(failpoint_fails("gone"));
}

/* The child is the process under test: its exit code says what the point told it.  listener: not its own. */
static pid_t hit_in_child(const char *name, int listener)
{
	pid_t pid = fork();

	if (pid == 0) {
		close(listener);
		_exit(failpoint_fails(name) ? 7 : 3);
	}
	return pid;
}

static void held_until_it_is_let_go(void **state)
{
	struct ucred who;
	socklen_t n = sizeof(who);
	int status;

	(void)state;
	turn_on();
	int fd = listen_at("held");
	pid_t pid = hit_in_child("held", fd);
	int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC); /* the event: it has got there */

	assert_true(c >= 0);
	assert_int_equal(getsockopt(c, SOL_SOCKET, SO_PEERCRED, &who, &n), 0);
	assert_int_equal(who.pid, pid);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0); /* and stands there */
	close(c);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 3);
	close(fd);
}

static void a_step_can_be_told_to_fail(void **state)
{
	int status;

	(void)state;
	turn_on();
	int fd = listen_at("fails");
	pid_t pid = hit_in_child("fails", fd);
	int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

	assert_int_equal(write(c, "f", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 7);
	close(c);
	close(fd);
}

static void a_tester_that_dies_holds_nobody(void **state)
{
	int status;

	(void)state;
	turn_on();
	int fd = listen_at("orphan");
	pid_t pid = hit_in_child("orphan", fd);

	close(fd); /* accepted or not */
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_the_variable_nobody_is_asked),
		cmocka_unit_test(a_folder_that_others_may_write_to_is_refused),
		cmocka_unit_test(a_link_to_a_folder_is_refused),
		cmocka_unit_test(a_point_that_nobody_wants_goes_on),
		cmocka_unit_test(held_until_it_is_let_go),
		cmocka_unit_test(a_step_can_be_told_to_fail),
		cmocka_unit_test(a_tester_that_dies_holds_nobody),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
