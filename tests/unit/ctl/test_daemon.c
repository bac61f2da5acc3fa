#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "ctl/daemon.h"
#include "ev/ev.h"
#include "http/client.h"

static const char *server, *with_default;
static bool flag;
static const struct daemon_option options[] = {
	{"server", "URL", "where", .text = &server, .is_required = true},
	{"place", "PLACE", "which", .text = &with_default},
	{"dry-run", NULL, "only say", .flag = &flag},
	{NULL},
};

static void reset(void)
{
	server = NULL;
	with_default = "here";
	flag = false;
}

static int start(struct daemon **d, const char *health, int argc, ...)
{
	struct daemon_def def = {"ferry-test", "tests", options, .health = health};
	static struct daemon_def kept;
	char *argv[16] = {(char *)(uintptr_t) "ferry-test"};
	va_list ap;

	va_start(ap, argc);
	for (int i = 0; i < argc; i++)
		argv[i + 1] = va_arg(ap, char *);
	va_end(ap);
	kept = def;
	reset();
	return daemon_new(d, &kept, argc + 1, argv);
}

static void options_are_read_and_checked(void **state)
{
	struct daemon *d = NULL;

	(void)state;
	assert_int_equal(start(&d, "none", 2, "--server", "x"), 0);
	assert_non_null(d);
	assert_string_equal(server, "x");
	assert_string_equal(with_default, "here");
	assert_false(flag);
	d = daemon_free(d);
	assert_int_equal(start(&d, "none", 3, "--server=y", "--dry-run", "--place=there"), 0);
	assert_string_equal(server, "y");
	assert_string_equal(with_default, "there");
	assert_true(flag);
	d = daemon_free(d);
	assert_int_equal(start(&d, "none", 0), 2); /* required */
	assert_int_equal(start(&d, "none", 1, "--server"), 2);
	assert_int_equal(start(&d, "none", 2, "--server=x", "--what"), 2);
	assert_int_equal(start(&d, "none", 2, "--server=x", "--dry-run=1"), 2);
	assert_int_equal(start(&d, "none", 2, "--server=x", "plain"), 2);
	assert_int_equal(start(&d, "none", 2, "--server=x", "--log-level=loud"), 2);
	assert_int_equal(start(&d, "none", 2, "--server=x", "--health=nowhere"), 1);
	assert_int_equal(start(&d, "none", 1, "--version"), 0);
	assert_int_equal(start(&d, "none", 1, "--help"), 0);
	assert_null(d);
	assert_null(daemon_free(NULL));
}

struct get {
	struct daemon *d;
	int status;
	char body[16384];
};

static void on_done(const struct http_result *r, void *arg)
{
	struct get *g = arg;

	g->status = r->status;
	snprintf(g->body, sizeof(g->body), "%s", r->body);
	daemon_quit(g->d, 7);
}

static void fetch(struct get *g, const char *socket, const char *path)
{
	struct http_client *c = NULL;
	struct http_slot *slot = NULL;
	char url[64];

	snprintf(url, sizeof(url), "http://localhost%s", path);
	assert_int_equal(http_client_new(&c, daemon_loop(g->d),
					 &(struct http_client_config){.unix_path = socket}, NULL),
			 RC_OK);
	assert_int_equal(http_call(c, &slot,
				   &(struct http_call){.url = url, .done = on_done, .arg = g},
				   NULL),
			 RC_OK);
	assert_int_equal(daemon_run(g->d), 7);
	http_slot_free(slot);
	http_client_free(c);
}

static void metrics(struct sbuf *out, void *arg)
{
	sbuf_adds(out, arg);
}

static void health_and_metrics_are_served(void **state)
{
	static struct get g;
	char dir[] = "/tmp/ferry-daemon-XXXXXX", socket[64], where[80];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(socket, sizeof(socket), "%s/health", dir);
	snprintf(where, sizeof(where), "unix:%s", socket);
	assert_int_equal(start(&g.d, where, 1, "--server=x"), 0);
	daemon_on_metrics(g.d, metrics, (void *)(uintptr_t) "ferry_mine 1\n");
	daemon_set_unready(g.d, "still loading");
	fetch(&g, socket, "/healthz");
	assert_int_equal(g.status, 200);
	fetch(&g, socket, "/readyz");
	assert_int_equal(g.status, 503);
	assert_string_equal(g.body, "still loading");
	daemon_set_unready(g.d, NULL);
	fetch(&g, socket, "/readyz");
	assert_int_equal(g.status, 200);
	fetch(&g, socket, "/metrics");
	assert_int_equal(g.status, 200);
	assert_non_null(strstr(g.body, "ferry_mine 1\n"));
	assert_non_null(strstr(g.body, "\nprocess_resident_memory_bytes "));
	fetch(&g, socket, "/else");
	assert_int_equal(g.status, 404);
	g.d = daemon_free(g.d);
	unlink(socket);
	rmdir(dir);
}

static unsigned stops, reloads;

static void on_stop(void *arg)
{
	stops++;
	daemon_quit(arg, 0);
}

static void on_reload(void *arg)
{
	(void)arg;
	reloads++;
	raise(SIGTERM);
}

static void signals_reload_and_stop(void **state)
{
	struct daemon *d = NULL;

	(void)state;
	assert_int_equal(start(&d, "none", 1, "--server=x"), 0);
	daemon_on_stop(d, on_stop, d);
	daemon_on_reload(d, on_reload, d);
	raise(SIGHUP);
	assert_int_equal(daemon_run(d), 0);
	assert_int_equal(stops, 1);
	assert_int_equal(reloads, 1);
	daemon_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_are_read_and_checked),
		cmocka_unit_test(health_and_metrics_are_served),
		cmocka_unit_test(signals_reload_and_stop),
	};

	return cmocka_run_group_tests_name("daemon", tests, NULL, NULL);
}
