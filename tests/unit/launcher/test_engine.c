/* The launcher against a scripted QEMU: the test writes the record of a VM that runs already, listens on
 * its monitor's sockets, and lets the launcher adopt it. */
#include "virt/launcher/launcher.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "ipc/ipc.h"
#include "json/json.h"
#include "virt/launcher/launcher_int.h"

struct rig {
	struct loop *loop;
	struct launcher *l;
	struct ipc_client *c;
	char dir[64];
	pid_t child; /* stands for QEMU and its reaper */
	int listen_fd[2], fd;
	int socket_used;
	struct sbuf in;
	char sent[8192]; /* names of the commands, in order, each followed by a blank */
	char said[8192]; /* their arguments */
	char run_state[32], mig[512]; /* what query-status and query-migrate say */
	const char *fails;	      /* this command is refused */
	unsigned fail_times;
	const char *mute; /* this command is not answered */
	int major;
	const char
		*dropped; /* what QEMU drops of the CPU that was asked for; NULL: it knows no CPU */
	bool has_devices; /* there is one virtio device */
	const char *block_stats; /* what query-blockstats says; NULL: {} */
	int run_state_delay;	 /* query-status says finish-migrate this often first */
	const char *measured;	 /* what query-dirty-rate says; NULL: {} */
	bool is_ready_early;	 /* a mirror is in step before its command is answered */
	unsigned old_moves;	 /* query-yank tells of a connection this often */
	int later_us;		 /* than 5: the microseconds of QEMU's stamps */
	int got_fd;		 /* the last descriptor that came; 0: none */
	size_t picture;		 /* bytes that a screendump writes */
	/* what the node hears */
	struct json *events;
	struct ev_src *tick;
};

struct answer {
	bool done;
	enum rc rc;
	char message[300];
	struct json *result;
	int fd;
};

/* --- the scripted QEMU --- */

static void qsay(struct rig *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void qsay(struct rig *r, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof(text) - 2, fmt, ap);

	va_end(ap);
	text[n] = '\n';
	assert_int_equal(send(r->fd, text, (size_t)n + 1, MSG_NOSIGNAL), n + 1);
}

static void qevent(struct rig *r, const char *name, const char *data)
{
	qsay(r,
	     "{\"event\": \"%s\", \"data\": %s, \"timestamp\": {\"seconds\": 1700000000, "
	     "\"microseconds\": %d}}",
	     name, data, 5 + r->later_us);
}

static void qstatus(struct rig *r, const char *status)
{
	char data[80];

	snprintf(data, sizeof(data), "{\"status\": \"%s\"}", status);
	qevent(r, "MIGRATION", data);
}

/* Asked for are avx2, aes and pcid; what is dropped is not on the vCPU. */
static bool qcpu(struct rig *r, const char *cmd, long long id, const struct json *args)
{
	const char *property = js_get_str(args, "property");

	if (!r->dropped)
		return false;
	if (str_eq(cmd, "query-cpus-fast"))
		qsay(r,
		     "{\"id\": %lld, \"return\": [{\"qom-path\": \"/cpu\", \"thread-id\": 12}, "
		     "{\"qom-path\": \"/cpu2\", \"thread-id\": 13}]}",
		     id);
	else if (str_eq(cmd, "query-cpu-model-expansion"))
		qsay(r,
		     "{\"id\": %lld, \"return\": {\"model\": {\"name\": \"base\", \"props\": "
		     "{\"pcid\": true, \"vmx\": false, \"level\": 13, \"avx2\": true, \"aes\": true}}}}",
		     id);
	else if (str_eq(property, "filtered-features"))
		qsay(r, "{\"id\": %lld, \"return\": [{\"features\": 0}, {\"features\": %d}]}", id,
		     *r->dropped ? 131072 : 0);
	else if (str_eq(cmd, "qom-get"))
		qsay(r, "{\"id\": %lld, \"return\": %s}", id,
		     str_eq(property, r->dropped) ? "false" : "true");
	else
		return false;
	return true;
}

static bool qdevices(struct rig *r, const char *cmd, long long id)
{
	if (!r->has_devices)
		return false;
	if (str_eq(cmd, "x-query-virtio"))
		qsay(r,
		     "{\"id\": %lld, \"return\": [{\"name\": \"virtio-net\", \"path\": \"/nic\"}]}",
		     id);
	else if (str_eq(cmd, "x-query-virtio-status"))
		qsay(r,
		     "{\"id\": %lld, \"return\": {\"host-features\": {\"dev-features\": "
		     "[\"NET_MAC: an address\", \"NET_MTU\"], \"transports\": [\"V1: yes\"], "
		     "\"unknown-dev-features\": 5}, \"guest-features\": {\"dev-features\": "
		     "[\"NET_MAC: an address\"], \"transports\": []}}}",
		     id);
	else
		return false;
	return true;
}

/* Into the file that came with add-fd, which is for writing only. */
static void qdraw(const struct rig *r)
{
	char bytes[4096];

	memset(bytes, 'p', sizeof(bytes));
	assert_int_equal(fcntl(r->got_fd, F_GETFL) & O_ACCMODE, O_WRONLY);
	assert_int_equal(ftruncate(r->got_fd, 0), 0);
	if (r->picture > sizeof(bytes))
		assert_int_equal(ftruncate(r->got_fd, (off_t)r->picture), 0);
	else if (r->picture)
		assert_int_equal(write(r->got_fd, bytes, r->picture), r->picture);
}

static void qready(struct rig *r, const char *job)
{
	char data[160];

	(void)snprintf(data, sizeof(data),
		       "{\"device\": \"%s\", \"len\": 512, \"offset\": 512, \"speed\": 0, "
		       "\"type\": \"mirror\"}",
		       job);
	qevent(r, "BLOCK_JOB_READY", data);
}

static void qanswer(struct rig *r, const struct json *msg)
{
	const char *cmd = js_get_str(msg, "execute");
	long long id = js_get_int(msg, "id", -1);

	if (!cmd)
		cmd = js_get_str(msg, "exec-oob");
	size_t n = strlen(r->sent);

	if (n + strlen(cmd) + 2 > sizeof(r->sent))
		n = 0; /* what is asked again and again: the newest is looked at */
	(void)snprintf(r->sent + n, sizeof(r->sent) - n, "%s ", cmd);
	CLEANUP(mem_freep) char *args = js_to_text(js_get(msg, "arguments"));

	if (args)
		strncat(r->said, args, sizeof(r->said) - strlen(r->said) - 1);
	if (str_eq(r->mute, cmd))
		return;
	if (str_eq(r->fails, cmd) && r->fail_times) {
		r->fail_times--;
		qsay(r,
		     "{\"id\": %lld, \"error\": {\"class\": \"GenericError\", \"desc\": \"refused "
		     "by script\"}}",
		     id);
	} else if (qcpu(r, cmd, id, js_get(msg, "arguments")) || qdevices(r, cmd, id)) {
		return;
	} else if (str_eq(cmd, "query-status")) {
		const char *s = r->run_state_delay > 0 ? "finish-migrate" : r->run_state;

		r->run_state_delay--;
		qsay(r, "{\"id\": %lld, \"return\": {\"status\": \"%s\", \"running\": true}}", id,
		     s);
	} else if (r->measured && str_eq(cmd, "query-dirty-rate")) {
		qsay(r, "{\"id\": %lld, \"return\": %s}", id, r->measured);
	} else if (r->block_stats && str_eq(cmd, "query-blockstats")) {
		qsay(r, "{\"id\": %lld, \"return\": %s}", id, r->block_stats);
	} else if (r->old_moves && str_eq(cmd, "query-yank")) {
		r->old_moves--;
		qsay(r,
		     "{\"id\": %lld, \"return\": [{\"type\": \"block-node\", \"node-name\": \"n\"}, "
		     "{\"type\": \"migration\"}]}",
		     id);
	} else if (str_eq(cmd, "add-fd")) {
		qsay(r, "{\"id\": %lld, \"return\": {\"fd\": 20, \"fdset-id\": 7}}", id);
	} else if (str_eq(cmd, "query-migrate")) {
		qsay(r, "{\"id\": %lld, \"return\": %s}", id, r->mig);
	} else {
		if (r->is_ready_early && str_eq(cmd, "blockdev-mirror"))
			qready(r, js_get_str(js_get(msg, "arguments"), "job-id"));
		if (str_eq(cmd, "screendump"))
			qdraw(r);
		if (str_eq(cmd, "cont"))
			qevent(r, "RESUME", "{}");
		if (str_eq(cmd, "stop"))
			qevent(r, "STOP", "{}");
		qsay(r, "{\"id\": %lld, \"return\": {}}", id);
	}
}

static void qaccept(struct rig *r)
{
	for (int i = 0; i < 2 && r->fd < 0; i++) {
		r->fd = accept4(r->listen_fd[i], NULL, NULL, SOCK_CLOEXEC);
		if (r->fd < 0)
			continue;
		r->socket_used = i;
		sbuf_reset(&r->in);
		qsay(r,
		     "{\"QMP\": {\"version\": {\"qemu\": {\"major\": %d, \"minor\": 0, \"micro\": "
		     "2}}, "
		     "\"capabilities\": [\"oob\"]}}",
		     r->major);
	}
}

static ssize_t qreceive(struct rig *r, char *buf, size_t size)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {buf, size};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	ssize_t n = recvmsg(r->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	if (c && c->cmsg_type == SCM_RIGHTS) {
		if (r->got_fd)
			close(r->got_fd);
		memcpy(&r->got_fd, CMSG_DATA(c), sizeof(int));
	}
	return n;
}

static void qread(struct rig *r)
{
	char buf[4096];
	ssize_t n;

	qaccept(r);
	while (r->fd >= 0 && (n = qreceive(r, buf, sizeof(buf))) > 0)
		sbuf_add(&r->in, buf, (size_t)n);
	for (char *nl; r->in.n && (nl = memchr(r->in.p, '\n', r->in.n));) {
		struct json *msg = NULL;

		assert_int_equal(js_parse(r->in.p, (size_t)(nl - r->in.p), &msg, NULL), RC_OK);
		sbuf_drop(&r->in, (size_t)(nl - r->in.p) + 1);
		qanswer(r, msg);
		js_unref(msg);
	}
}

/* --- the node --- */

static void on_event(const char *name, const struct json *data, void *arg)
{
	struct rig *r = arg;

	assert_int_equal(js_append(r->events, js_pack("{s:s, s:O}", "event", name, "data", data)),
			 RC_OK);
}

static const struct ipc_client_ops client_ops = {.on_event = on_event};

static void on_tick(void *arg)
{
	struct rig *r = arg;

	ev_timer_rearm(r->tick, 2000);
}

/* Turns both sides until *flag, or fails after ten seconds. */
static void turn_until(struct rig *r, const bool *flag)
{
	usec_t end = loop_now(r->loop) + 10 * USEC_PER_SEC;

	while (!*flag) {
		assert_true(loop_now(r->loop) < end);
		assert_int_equal(loop_step(r->loop, 5000, NULL, NULL), RC_OK);
		qread(r);
	}
}

static void turn(struct rig *r, int ms)
{
	usec_t end = loop_now(r->loop) + (usec_t)ms * 1000;

	while (loop_now(r->loop) < end) {
		assert_int_equal(loop_step(r->loop, 1000, NULL, NULL), RC_OK);
		qread(r);
	}
}

static void on_answer(const struct ipc_reply *reply, void *arg)
{
	struct answer *a = arg;

	a->done = true;
	a->rc = reply->rc;
	a->result = js_ref(reply->result);
	a->fd = ipc_fds_take(reply->fds, 0);
	snprintf(a->message, sizeof(a->message), "%s", reply->message ? reply->message : "");
}

static void ask(struct rig *r, struct answer *a, const char *method, struct json *params)
{
	*a = (struct answer){.done = false};
	assert_int_equal(ipc_call(r->c, NULL, method, params, NULL, 0, 20 * USEC_PER_SEC, on_answer,
				  a, NULL),
			 RC_OK);
}

static enum rc call(struct rig *r, const char *method, struct json *params)
{
	struct answer a;

	ask(r, &a, method, params);
	turn_until(r, &a.done);
	js_unref(a.result);
	fd_close(a.fd);
	return a.rc;
}

/* The last event of this name with data.key == value; borrowed. */
static const struct json *heard(const struct rig *r, const char *name, const char *key,
				const char *value)
{
	for (size_t i = js_len(r->events); i-- > 0;) {
		const struct json *e = js_item(r->events, i);

		if (str_eq(js_get_str(e, "event"), name) &&
		    str_eq(js_get_str(js_get(e, "data"), key), value))
			return js_get(e, "data");
	}
	return NULL;
}

static const struct json *await(struct rig *r, const char *name, const char *key, const char *value)
{
	usec_t end = loop_now(r->loop) + 10 * USEC_PER_SEC;
	const struct json *e;

	while (!(e = heard(r, name, key, value))) {
		if (loop_now(r->loop) > end)
			fail_msg("never heard of %s %s=%s; sent: %s", name, key, value, r->sent);
		assert_int_equal(loop_step(r->loop, 5000, NULL, NULL), RC_OK);
		qread(r);
	}
	return e;
}

/* --- setting up --- */

static int listen_at(const struct rig *r, const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", r->dir, name);
	unlink(a.sun_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

/* More of the VM's spec; tests set it before rig_up(). */
static const char *more_spec = "";

static void write_record(const struct rig *r, const char *accel)
{
	static const char spec[] =
		"{\"name\": \"default/vm\", \"vmiUid\": \"u\", \"machine\": \"pc-q35-10.0\", "
		"\"cpuModel\": \"max\", "
		"\"memoryBytes\": 1048576, \"uid\": 65534, \"gid\": 65534, \"netnsFd\": \"n\"";
	CLEANUP(mem_freep) char *boot = NULL;
	struct proc p = {.pid = r->child, .pidfd = -1};
	char text[1024], path[100];
	size_t n;

	assert_true(proc_identify(&p));
	assert_int_equal(file_read("/proc/sys/kernel/random/boot_id", 64, &boot, &n, NULL), RC_OK);
	n = (size_t)snprintf(text, sizeof(text),
			     "{\"version\": 1, \"bootId\": \"%.36s\", \"mode\": \"run\", "
			     "\"accel\": \"%s\", \"accelReason\": "
			     "\"\", \"machine\": \"m\", \"cgroup\": false, \"reaper\": {\"pid\": "
			     "%d, \"start\": %llu}, "
			     "\"qemu\": {\"pid\": %d, \"start\": %llu}, \"spec\": %s%s}}",
			     boot, accel, (int)p.pid, (unsigned long long)p.start, (int)p.pid,
			     (unsigned long long)p.start, spec, more_spec);
	snprintf(path, sizeof(path), "%s/vm.json", r->dir);
	assert_int_equal(file_write_durable(path, text, n, 0600, NULL), RC_OK);
}

static void start_launcher(struct rig *r)
{
	struct launcher_config config = {
		.dir = r->dir, .qemu = "/nonexistent", .kvm_cache = "/nonexistent"};
	char path[100];

	assert_int_equal(launcher_new(&r->l, r->loop, &config, NULL), RC_OK);
	snprintf(path, sizeof(path), "%s/launcher.sock", r->dir);
	assert_int_equal(ipc_client_open(&r->c, r->loop, path, "test", (struct ipc_version){1, 1},
					 USEC_PER_SEC, &client_ops, r, NULL),
			 RC_OK);
}

static void stop_launcher(struct rig *r)
{
	r->c = ipc_client_free(r->c);
	r->l = launcher_free(r->l);
	r->fd = fd_close(r->fd);
}

static void rig_up(struct rig *r, const char *run_state)
{
	char path[100];

	*r = (struct rig){.fd = -1, .major = 10};
	sbuf_init(&r->in, 65536);
	snprintf(r->dir, sizeof(r->dir), "/tmp/test_engine.XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	snprintf(path, sizeof(path), "%s/creds", r->dir);
	assert_int_equal(mkdir(path, 0750), 0);
	snprintf(r->run_state, sizeof(r->run_state), "%s", run_state);
	snprintf(r->mig, sizeof(r->mig), "{}");
	r->child = fork();
	if (r->child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
		for (;;)
			pause();
	}
	r->listen_fd[0] = listen_at(r, "qmp0.sock");
	r->listen_fd[1] = listen_at(r, "qmp1.sock");
	r->events = js_new_array();
	assert_int_equal(loop_new(&r->loop, LOOP_REAL, NULL), RC_OK);
	assert_int_equal(ev_timer_after(r->loop, &r->tick, 2000, on_tick, r, NULL), RC_OK);
	write_record(r, "tcg");
	start_launcher(r);
	turn(r, 30);
}

static void rig_down(struct rig *r)
{
	stop_launcher(r);
	if (r->got_fd)
		close(r->got_fd);
	kill(r->child, SIGKILL);
	waitpid(r->child, NULL, 0);
	close(r->listen_fd[0]);
	close(r->listen_fd[1]);
	sbuf_fini(&r->in);
	js_unref(r->events);
	ev_src_free(r->tick);
	loop_free(r->loop);
	assert_int_equal(file_remove_tree(r->dir, NULL), RC_OK);
}

static void expect_state(struct rig *r, const char *state, const char *reason)
{
	struct answer a;

	ask(r, &a, "query", NULL);
	turn_until(r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	assert_string_equal(js_get_str(a.result, "state"), state);
	if (reason)
		assert_string_equal(js_get_str(a.result, "reason"), reason);
	js_unref(a.result);
}

static struct json *record(const struct rig *r)
{
	CLEANUP(mem_freep) char *text = NULL;
	struct json *j = NULL;
	char path[100];
	size_t n;

	snprintf(path, sizeof(path), "%s/migration.json", r->dir);
	assert_int_equal(file_read(path, 4096, &text, &n, NULL), RC_OK);
	assert_int_equal(js_parse(text, n, &j, NULL), RC_OK);
	return j;
}

static struct json *uid_params(void)
{
	return js_pack("{s:s}", "migrationUid", "m1");
}

static struct json *out_params(int switch_ms, int max_pause_ms)
{
	return js_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:i, s:i}}", "migrationUid", "m1", "address",
		       "10.0.0.2", "tls", "user", "ferry", "key",
		       "00112233445566778899aabbccddeeff", "options", "switchoverTimeoutMs",
		       switch_ms, "maxPauseMs", max_pause_ms);
}

static void forget(struct rig *r)
{
	js_unref(r->events);
	r->events = js_new_array();
	assert_non_null(r->events);
}

/* Turns until the command has been sent so often. */
static void until_sent(struct rig *r, const char *command, unsigned times)
{
	usec_t end = loop_now(r->loop) + 10 * USEC_PER_SEC;

	for (unsigned n = 0; n < times;) {
		n = 0;
		for (const char *p = r->sent; (p = strstr(p, command)); p++)
			n++;
		assert_true(loop_now(r->loop) < end);
		turn(r, 5);
	}
}

static void to_memory(struct rig *r, int switch_ms)
{
	assert_int_equal(call(r, "startOutgoing", out_params(switch_ms, 0)), RC_OK);
	qstatus(r, "setup");
	qstatus(r, "active");
	await(r, "migration", "phase", "memory");
}

static void to_pre_switchover(struct rig *r, int switch_ms, int max_pause_ms)
{
	assert_int_equal(call(r, "startOutgoing", out_params(switch_ms, max_pause_ms)), RC_OK);
	qstatus(r, "setup");
	qstatus(r, "active");
	qevent(r, "STOP", "{}");
	qstatus(r, "pre-switchover");
	await(r, "preSwitchover", "migrationUid", "m1");
	await(r, "migration", "phase", "pre-switchover");
}

/* --- tests: life --- */

static void a_running_vm_is_adopted_and_paused(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	expect_state(&r, "running", "Adopted");
	assert_int_equal(call(&r, "pause", NULL), RC_OK);
	expect_state(&r, "paused", "PausedByUser");
	assert_int_equal(call(&r, "unpause", NULL), RC_OK);
	expect_state(&r, "running", "Unpaused");
	assert_int_equal(call(&r, "start", js_pack("{s:s, s:{}}", "mode", "run", "spec")),
			 RC_CONFLICT);
	assert_int_equal(call(&r, "exit", NULL), RC_CONFLICT);
	assert_int_equal(call(&r, "nothing", NULL), RC_METHOD);
	assert_int_equal(call(&r, "pause", js_pack("{s:i}", "surprise", 1)), RC_INVALID);
	rig_down(&r);
}

static void the_other_socket_is_used_when_one_hangs(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	assert_int_equal(r.socket_used, 0);
	stop_launcher(&r);
	/* a dead launcher's connection holds the first one: nobody answers there */
	close(r.listen_fd[0]);
	r.listen_fd[0] = -1;
	start_launcher(&r);
	turn(&r, 600);
	assert_int_equal(r.socket_used, 1);
	expect_state(&r, "running", "Adopted");
	r.listen_fd[0] = listen_at(&r, "qmp0.sock");
	rig_down(&r);
}

static void requests_wait_until_an_adopted_vms_state_is_known(void **state)
{
	struct rig r;
	struct answer a, q;

	rig_up(&r, "running");
	stop_launcher(&r);
	r.mute = "query-status";
	start_launcher(&r);
	turn(&r, 50);
	ask(&r, &a, "pause", NULL);
	ask(&r, &q, "query", NULL); /* is told what is known: that nothing is */
	turn(&r, 50);
	assert_true(q.done);
	assert_string_equal(js_get_str(q.result, "state"), "starting");
	js_unref(q.result);
	assert_false(a.done);
	r.mute = NULL;
	r.fd = fd_close(r.fd); /* asked again over a new connection */
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	js_unref(a.result);
	expect_state(&r, "paused", NULL);
	rig_down(&r);
}

static void a_lost_monitor_is_opened_again_and_asked(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	snprintf(r.run_state, sizeof(r.run_state), "paused"); /* happens while nobody listens */
	r.fd = fd_close(r.fd);
	await(&r, "state", "state", "paused");
	rig_down(&r);
}

static void the_end_of_qemu_is_told_with_its_exit(void **state)
{
	struct rig r;
	char path[100];

	rig_up(&r, "running");
	snprintf(path, sizeof(path), "%s/exit.json", r.dir);
	assert_int_equal(file_write_durable(path, "{\"signal\": 9}", 13, 0600, NULL), RC_OK);
	kill(r.child, SIGKILL);
	const struct json *e = await(&r, "state", "state", "gone");

	assert_string_equal(js_get_str(e, "reason"), "QemuKilled");
	assert_int_equal(js_get_int(js_get(e, "exit"), "signal", 0), 9);
	assert_int_equal(call(&r, "pause", NULL), RC_CONFLICT);
	assert_int_equal(call(&r, "exit", NULL), RC_OK);
	rig_down(&r);
}

static void a_guest_that_powers_off_is_ended(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	qevent(&r, "SHUTDOWN", "{\"guest\": true, \"reason\": \"guest-shutdown\"}");
	const struct json *e = await(&r, "state", "state", "shutdown");

	assert_string_equal(js_get_str(e, "reason"), "GuestShutdown");
	e = await(&r, "state", "state", "gone"); /* SIGTERM has ended the child */
	assert_string_equal(js_get_str(e, "reason"), "GuestShutdown");
	rig_down(&r);
}

/* --- tests: the source --- */

/* The power button, the guest's power-off, a reset, and it goes on: never told as a pause or an end. */
static void a_soft_reboot_keeps_the_vm(void **state)
{
	struct rig r;

	(void)state;
	rig_up(&r, "running");
	assert_int_equal(call(&r, "softReboot", NULL), RC_OK);
	until_sent(&r, "system_powerdown", 1);
	forget(&r);
	qevent(&r, "POWERDOWN", "{}");
	qevent(&r, "SHUTDOWN", "{\"guest\": true, \"reason\": \"guest-shutdown\"}");
	qevent(&r, "STOP", "{}");
	until_sent(&r, "system_reset", 1);
	qevent(&r, "RESET", "{\"guest\": false, \"reason\": \"host-qmp-system-reset\"}");
	until_sent(&r, "cont", 1); /* RESUME comes with it */
	turn(&r, 30);
	assert_null(heard(&r, "state", "state", "paused"));
	assert_null(heard(&r, "state", "state", "shutdown"));
	expect_state(&r, "running", NULL);
	/* The next power-off is one again. */
	qevent(&r, "SHUTDOWN", "{\"guest\": true, \"reason\": \"guest-shutdown\"}");
	await(&r, "state", "state", "shutdown");
	rig_down(&r);
}

static void a_reboot_of_the_guests_own_ends_the_wait_for_its_power_off(void **state)
{
	struct rig r;

	(void)state;
	rig_up(&r, "running");
	assert_int_equal(call(&r, "softReboot", NULL), RC_OK);
	assert_int_equal(call(&r, "softReboot", NULL), RC_OK); /* pressed again */
	until_sent(&r, "system_powerdown", 2);
	qevent(&r, "RESET", "{\"guest\": true, \"reason\": \"guest-reset\"}");
	await(&r, "guest", "what", "reset");
	qevent(&r, "SHUTDOWN", "{\"guest\": true, \"reason\": \"guest-shutdown\"}");
	await(&r, "state", "state", "shutdown");
	rig_down(&r);
}

static void a_shutdown_counts_more_than_a_soft_reboot(void **state)
{
	struct rig r;

	(void)state;
	rig_up(&r, "running");
	assert_int_equal(call(&r, "softReboot", NULL), RC_OK);
	assert_int_equal(call(&r, "shutdown", js_pack("{s:i}", "graceSeconds", 30)), RC_OK);
	assert_int_equal(call(&r, "softReboot", NULL), RC_CONFLICT);
	qevent(&r, "SHUTDOWN", "{\"guest\": true, \"reason\": \"guest-shutdown\"}");
	await(&r, "state", "reason", "HostShutdown");
	rig_down(&r);
}

static void a_guest_that_cannot_be_started_again_has_ended(void **state)
{
	struct rig r;

	(void)state;
	rig_up(&r, "running");
	r.fails = "cont";
	r.fail_times = 1;
	assert_int_equal(call(&r, "softReboot", NULL), RC_OK);
	qevent(&r, "SHUTDOWN", "{\"guest\": true, \"reason\": \"guest-shutdown\"}");
	await(&r, "state", "reason", "GuestShutdown");
	rig_down(&r);
}

/* While the guest is nobody's the same is to be asked again (busy); what can never be is a conflict. */
static void reboots_have_their_states(void **state)
{
	struct rig r;

	(void)state;
	rig_up(&r, "running");
	assert_int_equal(call(&r, "reset", NULL), RC_OK);
	until_sent(&r, "system_reset", 1);
	to_memory(&r, 10000);
	assert_int_equal(call(&r, "reset", NULL), RC_OK);
	assert_int_equal(call(&r, "softReboot", NULL), RC_CONFLICT);
	rig_down(&r);
	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_int_equal(call(&r, "reset", NULL), RC_BUSY);
	assert_int_equal(call(&r, "softReboot", NULL), RC_BUSY);
	rig_down(&r);
	rig_up(&r, "paused");
	assert_int_equal(call(&r, "reset", NULL), RC_OK);
	assert_int_equal(call(&r, "softReboot", NULL), RC_CONFLICT);
	rig_down(&r);
}

/* --- the guest's agent --- */

struct scripted_agent {
	int listen_fd, fd;
	char line[4096];
	size_t n;
	char asked[4096];
	bool frozen;
	const char *mute;
};

static void agent_answer(struct scripted_agent *a)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	const char *cmd;
	char text[1024] = "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no\"}}\n";

	assert_int_equal(js_parse(a->line, a->n, &j, NULL), RC_OK);
	cmd = js_get_str(j, "execute");
	if (str_eq(cmd, "guest-sync-delimited")) {
		snprintf(text, sizeof(text), "\xff{\"return\": %lld}\n",
			 (long long)js_int(js_at(j, "arguments", "id", NULL), 0));
	} else {
		strncat(a->asked, cmd, sizeof(a->asked) - strlen(a->asked) - 2);
		strcat(a->asked, " ");
		if (str_eq(cmd, "guest-info"))
			snprintf(text, sizeof(text),
				 "{\"return\": {\"version\": \"7.2.0\", \"supported_commands\": "
				 "[{\"name\": \"guest-fsfreeze-status\", \"enabled\": true}, "
				 "{\"name\": \"guest-get-users\", \"enabled\": true}]}}\n");
		if (str_eq(cmd, "guest-fsfreeze-freeze") || str_eq(cmd, "guest-fsfreeze-thaw")) {
			a->frozen = str_eq(cmd, "guest-fsfreeze-freeze");
			snprintf(text, sizeof(text), "{\"return\": 1}\n");
		}
		if (str_eq(cmd, "guest-fsfreeze-status"))
			snprintf(text, sizeof(text), "{\"return\": \"%s\"}\n",
				 a->frozen ? "frozen" : "thawed");
		if (str_eq(cmd, "guest-get-users"))
			snprintf(text, sizeof(text), "{\"return\": [{\"user\": \"root\"}]}\n");
		if (str_eq(cmd, a->mute))
			return;
	}
	assert_int_equal(send(a->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void agent_turn(struct rig *r, struct scripted_agent *a)
{
	char c;

	turn(r, 2);
	if (a->fd < 0)
		a->fd = accept4(a->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	for (ssize_t k; a->fd >= 0 && (k = recv(a->fd, &c, 1, 0)) >= 0;) {
		if (k == 0) {
			a->fd = fd_close(a->fd);
		} else if ((unsigned char)c == 0xff) {
			a->n = 0;
		} else if (c != '\n') {
			a->line[a->n++] = c;
		} else {
			agent_answer(a);
			a->n = 0;
		}
	}
}

static void agent_open(struct rig *r, struct scripted_agent *a)
{
	*a = (struct scripted_agent){.fd = -1};
	more_spec = ", \"guestAgent\": true";
	rig_up(r, "running");
	more_spec = "";
	a->listen_fd = listen_at(r, GUEST_AGENT_SOCKET);
	qevent(r, "VSERPORT_CHANGE", "{\"id\": \"agent-port0\", \"open\": true}");
	for (int i = 0; i < 2000 && !heard(r, "agent", "version", "7.2.0"); i++)
		agent_turn(r, a);
	assert_non_null(heard(r, "agent", "version", "7.2.0"));
}

static void agent_down(struct rig *r, struct scripted_agent *a)
{
	rig_down(r);
	close(a->listen_fd);
	fd_close(a->fd);
}

static enum rc agent_call(struct rig *r, struct scripted_agent *a, const char *method,
			  struct json *params, struct json **result)
{
	struct answer got;

	ask(r, &got, method, params);
	for (int i = 0; i < 4000 && !got.done; i++)
		agent_turn(r, a);
	assert_true(got.done);
	if (result)
		*result = STEAL(got.result);
	js_unref(got.result);
	return got.rc;
}

static const struct json *agent_said(const struct rig *r)
{
	for (size_t i = js_len(r->events); i-- > 0;)
		if (str_eq(js_get_str(js_item(r->events, i), "event"), "agent"))
			return js_get(js_item(r->events, i), "data");
	return NULL;
}

static void an_agent_is_asked_for_what_it_can(void **state)
{
	struct scripted_agent a;
	struct rig r;
	struct json *users = NULL;

	(void)state;
	agent_open(&r, &a);
	assert_true(js_get_bool(agent_said(&r), "connected", false));
	assert_null(strstr(a.asked, "guest-get-osinfo")); /* it does not have that */
	assert_int_equal(agent_call(&r, &a, "guestUsers", NULL, &users), RC_OK);
	assert_string_equal(js_get_str(js_item(js_get(users, "items"), 0), "userName"), "root");
	js_unref(users);
	assert_int_equal(agent_call(&r, &a, "guestFilesystems", NULL, NULL), RC_CONFLICT);
	/* Silence is told, and costs nothing else. */
	a.mute = "guest-get-users";
	assert_int_equal(agent_call(&r, &a, "guestUsers", NULL, NULL), RC_TIMEOUT);
	a.mute = NULL;
	assert_int_equal(agent_call(&r, &a, "guestUsers", NULL, NULL), RC_OK);
	qevent(&r, "STOP", "{}");
	await(&r, "state", "state", "paused");
	assert_int_equal(agent_call(&r, &a, "guestUsers", NULL, NULL), RC_CONFLICT);
	qevent(&r, "RESUME", "{}");
	await(&r, "state", "state", "running");
	forget(&r);
	qevent(&r, "VSERPORT_CHANGE", "{\"id\": \"agent-port0\", \"open\": false}");
	for (int i = 0; i < 2000 && !agent_said(&r); i++)
		agent_turn(&r, &a);
	assert_false(js_get_bool(agent_said(&r), "connected", true));
	assert_int_equal(agent_call(&r, &a, "guestUsers", NULL, NULL), RC_CONFLICT);
	agent_down(&r, &a);
}

static void a_freeze_ends_by_itself(void **state)
{
	struct scripted_agent a;
	struct rig r;

	(void)state;
	agent_open(&r, &a);
	assert_int_equal(agent_call(&r, &a, "guestFreeze",
				    js_pack("{s:i}", "unfreezeTimeoutSeconds", -1), NULL),
			 RC_INVALID);
	assert_int_equal(agent_call(&r, &a, "guestFreeze",
				    js_pack("{s:i}", "unfreezeTimeoutSeconds", 1), NULL),
			 RC_OK);
	assert_true(a.frozen);
	assert_true(js_get_bool(agent_said(&r), "frozen", false));
	assert_true(js_get_int(agent_said(&r), "thawAt", 0) > 0);
	assert_int_equal(agent_call(&r, &a, "guestFreeze", NULL, NULL), RC_OK); /* as once */
	assert_int_equal(agent_call(&r, &a, "guestUsers", NULL, NULL), RC_CONFLICT);
	assert_int_equal(agent_call(&r, &a, "guestFilesystems", NULL, NULL), RC_CONFLICT);
	for (int i = 0; i < 4000 && js_get_bool(agent_said(&r), "frozen", true); i++)
		agent_turn(&r, &a);
	assert_false(a.frozen);
	assert_null(js_get(agent_said(&r), "thawAt"));
	/* For good; then somebody says when. */
	assert_int_equal(agent_call(&r, &a, "guestFreeze", NULL, NULL), RC_OK);
	assert_null(js_get(agent_said(&r), "thawAt"));
	assert_int_equal(agent_call(&r, &a, "guestThawAt", js_pack("{s:i}", "at", 1), NULL), RC_OK);
	for (int i = 0; i < 4000 && js_get_bool(agent_said(&r), "frozen", true); i++)
		agent_turn(&r, &a);
	assert_false(a.frozen);
	assert_int_equal(agent_call(&r, &a, "guestFreeze", NULL, NULL), RC_OK);
	assert_int_equal(agent_call(&r, &a, "guestThaw", NULL, NULL), RC_OK);
	assert_false(a.frozen);
	agent_down(&r, &a);
}

static void a_guest_that_leaves_is_not_asked(void **state)
{
	struct scripted_agent a;
	struct rig r;
	struct answer got;

	(void)state;
	agent_open(&r, &a);
	to_memory(&r, 10000);
	assert_int_equal(agent_call(&r, &a, "guestUsers", NULL, NULL), RC_OK);
	a.mute = "guest-get-users";
	ask(&r, &got, "guestUsers", NULL);
	agent_turn(&r, &a);
	qevent(&r, "STOP", "{}");
	qstatus(&r, "pre-switchover");
	for (int i = 0; i < 2000 && !got.done; i++)
		agent_turn(&r, &a);
	assert_int_equal(got.rc, RC_BUSY);
	assert_int_equal(agent_call(&r, &a, "guestUsers", NULL, NULL), RC_BUSY);
	agent_down(&r, &a);
}

static void a_soft_reboot_is_the_agents_work_where_there_is_one(void **state)
{
	struct scripted_agent a;
	struct rig r;
	struct answer got;

	(void)state;
	agent_open(&r, &a);
	/* It refuses: the button is next. */
	assert_int_equal(agent_call(&r, &a, "softReboot", NULL, NULL), RC_OK);
	assert_non_null(strstr(a.asked, "guest-shutdown"));
	until_sent(&r, "system_powerdown", 1);
	agent_down(&r, &a);
	agent_open(&r, &a);
	/* Silence is its answer, or that it goes. */
	a.mute = "guest-shutdown";
	assert_int_equal(agent_call(&r, &a, "softReboot", NULL, NULL), RC_OK);
	a.asked[0] = '\0';
	ask(&r, &got, "softReboot", NULL);
	for (int i = 0; i < 2000 && !strstr(a.asked, "guest-shutdown"); i++)
		agent_turn(&r, &a);
	qevent(&r, "VSERPORT_CHANGE", "{\"id\": \"agent-port0\", \"open\": false}");
	turn_until(&r, &got.done);
	assert_int_equal(got.rc, RC_OK);
	js_unref(got.result);
	assert_null(strstr(r.sent, "system_powerdown"));
	agent_down(&r, &a);
}

static void released_is_durable_before_completed_is_told(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_non_null(strstr(r.sent, "object-add migrate-set-capabilities migrate-set-parameters "
				       "query-migrate-parameters query-yank migrate "));
	expect_state(&r, "pre-switchover", NULL);
	assert_int_equal(call(&r, "pause", NULL), RC_CONFLICT);
	assert_int_equal(
		call(&r, "release", js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
		RC_CONFLICT);
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_OK);
	assert_non_null(strstr(r.sent, "migrate-continue "));
	r.later_us = 900;
	qstatus(&r, "device");
	r.later_us = 9000;
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	snprintf(r.mig, sizeof(r.mig),
		 "{\"status\": \"completed\", \"downtime\": 7, \"ram\": {\"transferred\": 42}}");
	r.run_state_delay = 3;
	qstatus(&r, "completed");
	const struct json *e = await(&r, "migration", "phase", "completed");
	CLEANUP(js_unrefp) struct json *rec = record(&r);

	assert_true(js_get_bool(rec, "released", false));
	assert_int_equal(js_get_int(rec, "epoch", -1), 4);
	assert_true(js_get_bool(e, "released", false));
	assert_int_equal(js_get_int(e, "downtimeMs", -1), 7);
	assert_int_equal(js_get_int(e, "stopAt", -1), 1700000000000005);
	assert_int_equal(js_get_int(e, "waitedUs", -1), 900); /* from pre-switchover on */
	assert_int_equal(js_int(js_at(e, "stats", "memory", "transferred", NULL), -1), 42);
	expect_state(&r, "postmigrate", "MigrationCompleted");
	assert_int_equal(call(&r, "resumeSource", uid_params()), RC_CONFLICT);
	assert_int_equal(call(&r, "cancelOutgoing", uid_params()), RC_CONFLICT);
	assert_null(strstr(r.sent, "cont "));

	/* nor does a launcher that comes after forget it */
	stop_launcher(&r);
	start_launcher(&r);
	turn(&r, 50);
	ask(&r, &a, "resumeSource", uid_params());
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_CONFLICT);
	assert_non_null(strstr(a.message, "released"));
	rig_down(&r);
}

/* The agent's part is done while QEMU gets there, and QEMU is let go on the moment it has. */
static void the_agent_hears_of_the_stop_before_qemu_is_ready(void **state)
{
	struct rig r;
	struct answer a;
	size_t n = 0;

	rig_up(&r, "running");
	to_memory(&r, 10000);
	qevent(&r, "STOP", "{}");
	const struct json *e = await(&r, "preSwitchover", "migrationUid", "m1");

	assert_int_equal(js_get_int(e, "stopAt", -1), 1700000000000005);
	ask(&r, &a, "continueOutgoing", js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4));
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_CONFLICT);
	assert_false(a.done);
	assert_null(strstr(r.sent, "migrate-continue "));
	qstatus(&r, "pre-switchover");
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	assert_non_null(strstr(r.sent, "migrate-continue "));
	expect_state(&r, "pre-switchover", NULL);
	for (size_t i = 0; i < js_len(r.events); i++)
		n += str_eq(js_get_str(js_item(r.events, i), "event"), "preSwitchover");
	assert_int_equal(n, 1);
	js_unref(a.result);
	rig_down(&r);
}

static void a_stop_that_leads_nowhere_has_a_deadline(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	to_memory(&r, 100);
	qevent(&r, "STOP", "{}");
	await(&r, "preSwitchover", "migrationUid", "m1");
	ask(&r, &a, "continueOutgoing", js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4));
	until_sent(&r, "migrate_cancel ", 1);
	snprintf(r.run_state, sizeof(r.run_state), "running");
	qevent(&r, "RESUME", "{}");
	qstatus(&r, "cancelled");
	const struct json *e = await(&r, "migration", "phase", "failed");

	assert_string_equal(js_get_str(js_get(e, "failure"), "reason"), "SwitchoverTimeout");
	assert_non_null(strstr(js_get_str(js_get(e, "failure"), "message"), "did not get to"));
	expect_state(&r, "running", NULL);
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_CONFLICT);
	js_unref(a.result);
	rig_down(&r);
}

/* QEMU has died, and its end has not been noticed yet. */
static void a_switch_without_a_monitor_is_refused(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	r.fd = fd_close(r.fd);
	turn(&r, 20);
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_BUSY);
	assert_int_equal(call(&r, "cancelOutgoing", uid_params()), RC_OK);
	rig_down(&r);
}

static void a_disk_that_stops_the_guest_is_not_the_switch(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_memory(&r, 10000);
	qevent(&r, "BLOCK_IO_ERROR",
	       "{\"node-name\": \"d\", \"operation\": \"write\", \"action\": \"stop\"}");
	qevent(&r, "STOP", "{}");
	turn(&r, 30);
	assert_null(heard(&r, "preSwitchover", "migrationUid", "m1"));
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_CONFLICT);
	qstatus(&r, "pre-switchover");
	await(&r, "preSwitchover", "migrationUid", "m1");
	rig_down(&r);
}

/* QEMU's word that it is in postmigrate is not waited for: `completed` is final. */
static void a_release_needs_no_more_than_completed(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_OK);
	snprintf(r.run_state, sizeof(r.run_state), "finish-migrate");
	snprintf(r.mig, sizeof(r.mig),
		 "{\"status\": \"completed\", \"downtime\": 7, \"ram\": {\"transferred\": 42}}");
	qstatus(&r, "completed");
	const struct json *e = await(&r, "migration", "phase", "completed");

	assert_true(js_get_bool(e, "released", false));
	assert_int_equal(js_get_int(e, "downtimeMs", -1), 7);
	expect_state(&r, "postmigrate", "MigrationCompleted");
	rig_down(&r);
}

static void a_record_that_cannot_be_written_releases_nothing(void **state)
{
	struct rig r;
	char path[100];

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_OK);
	snprintf(path, sizeof(path), "%s/migration.json", r.dir);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0); /* a folder cannot be replaced by a file */
	snprintf(path, sizeof(path), "%s/migration.json/x", r.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	qstatus(&r, "completed");
	const struct json *e = await(&r, "migration", "phase", "completed");

	assert_false(js_get_bool(e, "released", false));
	/* then the source may still go on */
	assert_int_equal(call(&r, "resumeSource", uid_params()), RC_OK);
	expect_state(&r, "running", NULL);
	rig_down(&r);
}

static void a_source_that_goes_on_leaves_no_release_behind(void **state)
{
	static const char half_written[] =
		"{\"migrationUid\": \"m1\", \"role\": \"source\", \"phase\": \"switching\", "
		"\"epoch\": 4, \"released\": true}";
	struct rig r;
	char path[100];

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_OK);
	snprintf(path, sizeof(path), "%s/migration.json", r.dir);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0); /* a folder cannot be replaced by a file */
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	qstatus(&r, "completed");
	await(&r, "migration", "phase", "completed");
	rmdir(path);
	assert_int_equal(file_write_durable(path, half_written, strlen(half_written), 0600, NULL),
			 RC_OK);
	assert_int_equal(call(&r, "resumeSource", uid_params()), RC_OK);
	await(&r, "migration", "phase", "failed");
	CLEANUP(js_unrefp) struct json *rec = record(&r);

	assert_false(js_get_bool(rec, "released", true));
	assert_string_equal(js_get_str(rec, "phase"), "failed");
	rig_down(&r);
}

static void a_record_of_a_release_is_a_completed_move(void **state)
{
	struct rig r;
	char path[100];

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_OK);
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	qstatus(&r, "completed");
	await(&r, "migration", "phase", "completed");
	stop_launcher(&r); /* QEMU dies while no launcher is there */
	kill(r.child, SIGKILL);
	waitpid(r.child, NULL, 0);
	r.child = fork(); /* for rig_down() */
	if (r.child == 0)
		for (;;)
			pause();
	start_launcher(&r);
	struct answer a;

	ask(&r, &a, "query", NULL);
	turn_until(&r, &a.done);
	snprintf(path, sizeof(path), "%s", js_get_str(js_get(a.result, "migration"), "phase"));
	assert_string_equal(js_get_str(a.result, "state"), "gone");
	assert_string_equal(path, "completed");
	assert_true(js_get_bool(js_get(a.result, "migration"), "released", false));
	js_unref(a.result);
	rig_down(&r);
}

static void a_cancel_before_the_move_is_found_reaches_qemu(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_OK);
	stop_launcher(&r);
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"completed\"}");
	r.events = js_unref(r.events);
	r.events = js_new_array();
	start_launcher(&r);
	ask(&r, &a, "cancelOutgoing", uid_params()); /* waits for the state only */
	turn_until(&r, &a.done);
	const struct json *e = await(&r, "migration", "phase", "completed");

	assert_true(js_get_bool(e, "released", false));
	assert_null(heard(&r, "migration", "phase", "cancelled"));
	js_unref(a.result);
	rig_down(&r);
}

static void a_cancel_at_the_switch_lets_the_source_go_on(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_int_equal(call(&r, "cancelOutgoing", uid_params()), RC_OK);
	turn(&r, 20);
	assert_non_null(strstr(r.sent, "migrate_cancel "));
	qstatus(&r, "cancelling");
	qstatus(&r, "cancelled");
	qevent(&r, "RESUME", "{}");
	const struct json *e = await(&r, "migration", "phase", "cancelled");

	assert_string_equal(js_get_str(js_get(e, "failure"), "reason"), "Cancelled");
	expect_state(&r, "running", NULL);
	turn(&r, 30);
	assert_non_null(strstr(r.sent, "object-del "));
	/* and it can move again */
	r.events = js_unref(r.events);
	r.events = js_new_array();
	to_pre_switchover(&r, 10000, 0);
	rig_down(&r);
}

/* The rest goes over while the guest stands: by the same switch, only that no pause is too long for it. */
static void a_move_can_be_finished_with_a_pause(void **state)
{
	struct rig r;
	struct json *later = js_pack("{s:s, s:i}", "migrationUid", "m1", "timeoutMs", 60000);

	rig_up(&r, "running");
	assert_int_equal(call(&r, "finishOutgoing", uid_params()), RC_CONFLICT); /* no move */
	assert_int_equal(call(&r, "startOutgoing", out_params(100, 0)), RC_OK);
	qstatus(&r, "setup");
	assert_int_equal(call(&r, "finishOutgoing", uid_params()), RC_CONFLICT); /* too early */
	qstatus(&r, "active");
	await(&r, "migration", "phase", "memory");
	r.sent[0] = '\0';
	assert_int_equal(call(&r, "finishOutgoing", later), RC_OK);
	assert_non_null(strstr(r.sent, "migrate-set-parameters "));
	qevent(&r, "STOP", "{}");
	qstatus(&r, "pre-switchover");
	const struct json *e = await(&r, "migration", "phase", "pre-switchover");

	assert_int_equal(js_get_int(e, "downtimeLimitMs", 0), 2000000);
	assert_int_equal(call(&r, "finishOutgoing", uid_params()), RC_CONFLICT); /* it stands */
	turn(&r, 300); /* the first deadline would have ended it by now */
	assert_null(strstr(r.sent, "yank "));
	assert_null(strstr(r.sent, "migrate_cancel "));
	assert_int_equal(call(&r, "cancelOutgoing", uid_params()), RC_OK); /* nor is it final */
	qstatus(&r, "cancelled");
	qevent(&r, "RESUME", "{}");
	await(&r, "migration", "phase", "cancelled");
	expect_state(&r, "running", NULL);
	rig_down(&r);
}

/* A launcher that dies right after it was told, before QEMU was or after it. */
static void a_finish_is_gone_on_with_by_the_next_launcher(void **state)
{
	struct rig r;
	struct json *later = js_pack("{s:s, s:i}", "migrationUid", "m1", "timeoutMs", 60000);

	rig_up(&r, "running");
	assert_int_equal(call(&r, "startOutgoing", out_params(100, 0)), RC_OK);
	qstatus(&r, "setup");
	qstatus(&r, "active");
	await(&r, "migration", "phase", "memory");
	assert_int_equal(call(&r, "finishOutgoing", later), RC_OK);
	assert_int_equal(call(&r, "finishOutgoing", uid_params()), RC_OK); /* twice is as once */
	stop_launcher(&r);
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"active\"}");
	r.sent[0] = '\0';
	r.events = js_unref(r.events);
	r.events = js_new_array();
	start_launcher(&r);
	const struct json *e = await(&r, "migration", "phase", "memory");

	assert_int_equal(js_get_int(e, "downtimeLimitMs", 0), 2000000);
	turn(&r, 20);
	assert_non_null(strstr(r.sent, "migrate-set-parameters "));
	/* and it may take the time that it was given */
	qevent(&r, "STOP", "{}");
	qstatus(&r, "pre-switchover");
	await(&r, "migration", "phase", "pre-switchover");
	turn(&r, 300);
	assert_null(strstr(r.sent, "migrate_cancel "));
	rig_down(&r);
}

static void a_completion_that_overtakes_the_cancel_counts(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 2)),
			 RC_OK);
	assert_int_equal(call(&r, "cancelOutgoing", uid_params()), RC_OK);
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	qstatus(&r, "completed");
	const struct json *e = await(&r, "migration", "phase", "completed");

	assert_true(js_get_bool(e, "released", false));
	assert_null(heard(&r, "migration", "phase", "cancelled"));
	rig_down(&r);
}

static void nobody_allows_the_switch(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	r.mute = "migrate_cancel"; /* QEMU's main loop hangs */
	to_pre_switchover(&r, 100, 0);
	usec_t end = loop_now(r.loop) + 5 * USEC_PER_SEC;

	while (!strstr(r.sent, " yank ") && loop_now(r.loop) < end)
		turn(&r, 20);
	assert_non_null(strstr(r.sent, "migrate_cancel yank "));
	qstatus(&r, "failed");
	const struct json *e = await(&r, "migration", "phase", "failed");

	assert_string_equal(js_get_str(js_get(e, "failure"), "reason"), "SwitchoverTimeout");
	rig_down(&r);
}

static void a_pause_beyond_its_limit_is_given_up(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 1); /* the scripted stop lies years back */
	assert_int_equal(call(&r, "continueOutgoing", uid_params()), RC_CONFLICT);
	qstatus(&r, "cancelled");
	qevent(&r, "RESUME", "{}");
	const struct json *e = await(&r, "migration", "phase", "failed");

	assert_string_equal(js_get_str(js_get(e, "failure"), "reason"), "PauseLimitExceeded");
	expect_state(&r, "running", NULL);
	rig_down(&r);
}

static void a_pause_that_was_asked_for_has_no_declared_limit(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	assert_int_equal(call(&r, "startOutgoing", out_params(10000, 1)), RC_OK);
	qstatus(&r, "setup");
	qstatus(&r, "active");
	await(&r, "migration", "phase", "memory");
	assert_int_equal(call(&r, "finishOutgoing", uid_params()), RC_OK);
	qevent(&r, "STOP", "{}"); /* years back, as above */
	qstatus(&r, "pre-switchover");
	await(&r, "migration", "phase", "pre-switchover");
	assert_int_equal(call(&r, "continueOutgoing", uid_params()), RC_OK);
	assert_null(heard(&r, "migration", "phase", "failed"));
	rig_down(&r);
}

/* QEMU has sent everything, but too late: nothing is released, the guest goes on where it is. */
static void a_pause_that_got_too_long_in_the_switch_is_taken_back(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	assert_int_equal(call(&r, "startOutgoing", out_params(10000, 40)), RC_OK);
	qstatus(&r, "setup");
	qstatus(&r, "active");
	qsay(&r,
	     "{\"event\": \"STOP\", \"data\": {}, \"timestamp\": {\"seconds\": %lld, "
	     "\"microseconds\": 0}}",
	     (long long)(loop_realtime(r.loop) / USEC_PER_SEC) +
		     1); /* in time at the first question */
	qstatus(&r, "pre-switchover");
	await(&r, "migration", "phase", "pre-switchover");
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_OK);
	turn(&r, 1300);
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	qstatus(&r, "completed");
	const struct json *e = await(&r, "migration", "phase", "completed");

	assert_false(js_get_bool(e, "released", false));
	CLEANUP(js_unrefp) struct json *rec = record(&r);

	assert_false(js_get_bool(rec, "released", false));
	assert_int_equal(call(&r, "resumeSource", uid_params()), RC_OK);
	e = await(&r, "migration", "phase", "failed");
	assert_string_equal(js_get_str(js_get(e, "failure"), "reason"), "PauseLimitExceeded");
	expect_state(&r, "running", NULL);
	rig_down(&r);
}

static void a_launcher_that_finds_the_guest_standing_decides(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	snprintf(r.run_state, sizeof(r.run_state), "finish-migrate");
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"pre-switchover\"}");
	stop_launcher(&r);
	r.sent[0] = '\0';
	start_launcher(&r);
	usec_t end = loop_now(r.loop) + 5 * USEC_PER_SEC;

	while (!strstr(r.sent, "migrate_cancel ") && loop_now(r.loop) < end)
		turn(&r, 10);
	assert_non_null(strstr(r.sent, "migrate_cancel "));
	snprintf(r.run_state, sizeof(r.run_state), "running");
	qstatus(&r, "cancelled");
	qevent(&r, "RESUME", "{}");
	await(&r, "migration", "phase", "failed");
	expect_state(&r, "running", NULL);
	rig_down(&r);
}

static void a_launcher_that_comes_after_the_switch_releases(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_pre_switchover(&r, 10000, 0);
	assert_int_equal(call(&r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 4)),
			 RC_OK);
	stop_launcher(&r); /* QEMU completes while nobody listens */
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"completed\"}");
	start_launcher(&r);
	const struct json *e = await(&r, "migration", "phase", "completed");

	assert_true(js_get_bool(e, "released", false));
	assert_int_equal(js_get_int(e, "epoch", -1), 4);
	CLEANUP(js_unrefp) struct json *rec = record(&r);

	assert_true(js_get_bool(rec, "released", false));
	expect_state(&r, "postmigrate", NULL);
	rig_down(&r);
}

static void a_guest_that_stood_stands_on_at_the_target(void **state)
{
	struct rig r;

	rig_up(&r, "paused"); /* the source */
	assert_int_equal(call(&r, "startOutgoing", out_params(10000, 0)), RC_OK);
	qstatus(&r, "active");
	qstatus(&r, "pre-switchover");
	const struct json *e = await(&r, "migration", "phase", "pre-switchover");

	assert_true(js_get_bool(e, "guestPaused", false));
	assert_int_equal(call(&r, "cancelOutgoing", uid_params()), RC_OK);
	qstatus(&r, "cancelled");
	await(&r, "migration", "phase", "cancelled");
	expect_state(&r, "paused", "MigrationCancelled");
	assert_null(strstr(r.sent, "cont "));
	rig_down(&r);

	rig_up(&r, "inmigrate"); /* the target */
	assert_int_equal(call(&r, "prepareIncoming",
			      js_pack("{s:s, s:s}", "migrationUid", "m1", "address", "::1")),
			 RC_OK);
	qstatus(&r, "completed");
	assert_int_equal(call(&r, "resumeIncoming",
			      js_pack("{s:s, s:b}", "migrationUid", "m1", "paused", 1)),
			 RC_OK);
	assert_null(strstr(r.sent, "cont "));
	expect_state(&r, "paused", NULL);
	assert_int_equal(call(&r, "unpause", NULL), RC_OK);
	expect_state(&r, "running", "Unpaused");
	rig_down(&r);
}

static void an_old_qemu_does_not_move_an_emulated_guest(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	stop_launcher(&r);
	r.major = 9;
	start_launcher(&r);
	turn(&r, 30);
	ask(&r, &a, "startOutgoing", out_params(1000, 0));
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_UNSUPPORTED);
	assert_non_null(strstr(a.message, "QEMU 10"));
	expect_state(&r, "running", NULL);
	rig_down(&r);
}

static void a_refusal_while_setting_up_leaves_the_vm_as_it_was(void **state)
{
	static const char *const commands[] = {"object-add", "migrate-set-capabilities", "migrate"};

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		struct rig r;

		rig_up(&r, "running");
		r.fails = commands[i];
		r.fail_times = 1;
		assert_int_equal(call(&r, "startOutgoing", out_params(1000, 0)), RC_IO);
		expect_state(&r, "running", "MigrationFailed");
		rig_down(&r);
	}
}

/* QEMU tells `cancelled` before it has let go of the connection, and refuses another move until then. */
static void a_move_waits_for_the_connection_of_the_one_before(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	r.old_moves = 3;
	assert_int_equal(call(&r, "startOutgoing", out_params(1000, 0)), RC_OK);
	assert_int_equal(r.old_moves, 0);
	assert_non_null(strstr(r.sent, "query-yank query-yank query-yank query-yank migrate "));
	rig_down(&r);

	rig_up(&r, "running");
	r.old_moves = 1000000;
	ask(&r, &a, "startOutgoing", out_params(1000, 0));
	turn(&r, 100);
	assert_false(a.done);
	assert_int_equal(call(&r, "cancelOutgoing", uid_params()), RC_OK);
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_IO);
	assert_null(strstr(r.sent, "migrate "));
	assert_null(strstr(r.sent, "migrate_cancel"));
	js_unref(a.result);
	expect_state(&r, "running", "MigrationCancelled");
	rig_down(&r);
}

static void a_connection_that_never_ends_is_named(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	r.old_moves = 1000000;
	ask(&r, &a, "startOutgoing", out_params(1000, 0));
	for (int i = 0; i < 170 && !a.done; i++)
		turn(&r, 100);
	assert_true(a.done);
	assert_int_equal(a.rc, RC_IO);
	assert_non_null(strstr(a.message, "has not closed the connection of an earlier move"));
	expect_state(&r, "running", "MigrationFailed");
	rig_down(&r);
}

static void bad_parameters_are_refused(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	assert_int_equal(call(&r, "startOutgoing",
			      js_pack("{s:s, s:s}", "migrationUid", "../x", "address", "10.0.0.1")),
			 RC_INVALID);
	assert_int_equal(call(&r, "startOutgoing",
			      js_pack("{s:s, s:s}", "migrationUid", "a", "address", "host,x=y")),
			 RC_INVALID);
	assert_int_equal(call(&r, "startOutgoing",
			      js_pack("{s:s, s:s, s:{s:b, s:i}}", "migrationUid", "a", "address",
				      "::1", "options", "postCopy", 1, "multifdChannels", 4)),
			 RC_INVALID);
	assert_int_equal(
		call(&r, "startOutgoing",
		     js_pack("{s:s, s:s, s:{s:s, s:s}}", "migrationUid", "a", "address", "::1",
			     "tls", "user", "f\n", "key", "00112233445566778899aabbccddeeff")),
		RC_INVALID);
	assert_int_equal(call(&r, "prepareIncoming",
			      js_pack("{s:s, s:s}", "migrationUid", "a", "address", "::1")),
			 RC_CONFLICT);
	expect_state(&r, "running", NULL);
	rig_down(&r);
}

/* --- tests: what the guest writes --- */

static void to_a_long_first_pass(struct rig *r)
{
	snprintf(r->mig, sizeof(r->mig),
		 "{\"status\": \"active\", \"total-time\": 1000, \"setup-time\": 0, \"ram\": {"
		 "\"total\": 536870912, \"remaining\": 503316480, \"transferred\": 33554432, "
		 "\"dirty-sync-count\": 1, \"mbps\": 268.4}}");
	assert_int_equal(call(r, "startOutgoing", out_params(10000, 0)), RC_OK);
	qstatus(r, "setup");
	qstatus(r, "active");
	await(r, "migration", "phase", "memory");
}

/* Small ones are: then no event follows the last answer. */
static void disks_that_are_in_step_before_the_answer_let_the_move_go_on(void **state)
{
	struct rig r;
	struct answer a;

	(void)state;
	more_spec =
		", \"disks\": [{\"name\": \"a\", \"moves\": true, \"images\": [{\"fd\": \"a\"}]}, "
		"{\"name\": \"b\", \"moves\": true, \"images\": [{\"fd\": \"b\"}]}]";
	rig_up(&r, "running");
	more_spec = "";
	r.is_ready_early = true;
	ask(&r, &a, "startOutgoing", out_params(10000, 0));
	until_sent(&r, "blockdev-mirror ", 2);
	until_sent(&r, "block-job-change ", 2);
	until_sent(&r, "migrate ", 1);
	qstatus(&r, "setup");
	qstatus(&r, "active");
	await(&r, "migration", "phase", "memory");
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	js_unref(a.result);
	rig_down(&r);
}

static void a_long_first_pass_is_measured_and_foreseen(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	r.measured = "{\"status\": \"measured\", \"dirty-rate\": 16, \"calc-time\": 1}";
	to_a_long_first_pass(&r);
	const struct json *e = await(&r, "dirtyRate", "none", NULL);

	assert_int_equal(js_get_int(e, "bytesPerSecond", -1), 16 << 20);
	until_sent(&r, "calc-dirty-rate ", 2); /* for four seconds now */
	assert_non_null(strstr(r.said, "\"calc-time\":4"));
	ask(&r, &a, "query", NULL);
	turn_until(&r, &a.done);
	assert_int_equal(js_get_int(js_get(a.result, "dirtyRate"), "bytesPerSecond", -1), 16 << 20);
	assert_int_equal(js_get_int(a.result, "meterCommands", -1), 3);
	js_unref(a.result);
	/* 15 s for the first pass at 32 MiB/s; the two passes after it are foreseen, too */
	ask(&r, &a, "migrationStats", NULL);
	turn_until(&r, &a.done);
	assert_in_range(js_get_int(js_get(a.result, "forecast"), "leftMs", -1), 15000 + 1000,
			15000 + 3000);
	js_unref(a.result);
	rig_down(&r);
}

static void a_measurement_that_fails_leaves_the_move_alone(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	r.fails = "calc-dirty-rate";
	r.fail_times = 100;
	to_a_long_first_pass(&r);
	until_sent(&r, "calc-dirty-rate ", 1);
	until_sent(&r, "query-migrate ", 3); /* two seconds on */
	assert_null(strstr(strstr(r.sent, "calc-dirty-rate ") + 1, "calc-dirty-rate "));
	assert_null(strstr(r.sent, "query-dirty-rate "));
	qevent(&r, "STOP", "{}");
	qstatus(&r, "pre-switchover");
	await(&r, "preSwitchover", "migrationUid", "m1");
	rig_down(&r);
}

/* One command is all that a QEMU that hangs ever gets of it, until its deadline. */
static void a_measurement_without_an_answer_is_asked_for_once(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	r.mute = "calc-dirty-rate";
	to_a_long_first_pass(&r);
	until_sent(&r, "calc-dirty-rate ", 1);
	until_sent(&r, "query-migrate ", 3);
	assert_null(strstr(strstr(r.sent, "calc-dirty-rate ") + 1, "calc-dirty-rate "));
	shutdown(r.fd, SHUT_RDWR); /* and it ends with the monitor */
	rig_down(&r);
}

/* --- tests: post-copy --- */

static void to_switch_of_post_copy(struct rig *r)
{
	assert_int_equal(call(r, "startOutgoing",
			      js_pack("{s:s, s:s, s:{s:b}}", "migrationUid", "m1", "address",
				      "10.0.0.2", "options", "postCopy", 1)),
			 RC_OK);
	qstatus(r, "setup");
	qstatus(r, "active");
	await(r, "migration", "phase", "memory");
	assert_int_equal(call(r, "startPostCopy", uid_params()), RC_OK);
	assert_non_null(strstr(r->sent, "migrate-start-postcopy "));
	qevent(r, "STOP", "{}");
	qstatus(r, "pre-switchover");
	await(r, "preSwitchover", "migrationUid", "m1");
	assert_int_equal(call(r, "continueOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 5)),
			 RC_OK);
}

static void post_copy_is_released_when_qemu_cannot_fall_back(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_switch_of_post_copy(&r);
	/* The devices are not sent yet: QEMU may still fail, and run the guest here. */
	snprintf(r.mig, sizeof(r.mig),
		 "{\"status\": \"postcopy-active\", \"ram\": {\"postcopy-bytes\": 0}}");
	qstatus(&r, "postcopy-active");
	turn(&r, 30);
	CLEANUP(js_unrefp) struct json *before = record(&r);

	assert_false(js_get_bool(before, "released", false));
	snprintf(r.mig, sizeof(r.mig),
		 "{\"status\": \"postcopy-active\", \"ram\": {\"postcopy-bytes\": 4096, "
		 "\"transferred\": 5}}");
	const struct json *e = await(&r, "migration", "phase", "postcopy");

	assert_true(js_get_bool(e, "released", false));
	assert_true(js_get_bool(e, "postCopy", false));
	CLEANUP(js_unrefp) struct json *after = record(&r);

	assert_true(js_get_bool(after, "released", false));
	expect_state(&r, "postmigrate", "MigrationPostCopy");
	/* No way back, by any word. */
	assert_int_equal(call(&r, "cancelOutgoing", uid_params()), RC_CONFLICT);
	assert_int_equal(call(&r, "resumeSource", uid_params()), RC_CONFLICT);
	assert_null(strstr(r.sent, "migrate_cancel"));
	qstatus(&r, "failed");
	turn(&r, 30);
	expect_state(&r, "postmigrate", NULL);
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	qstatus(&r, "completed");
	await(&r, "migration", "phase", "completed");
	rig_down(&r);
}

static void post_copy_that_fails_before_the_devices_are_sent_stays_here(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_switch_of_post_copy(&r);
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"failed\", \"error-desc\": \"no room\"}");
	qstatus(&r, "postcopy-active");
	qstatus(&r, "failed");
	qevent(&r, "RESUME", "{}");
	await(&r, "migration", "phase", "failed");
	expect_state(&r, "running", "MigrationFailed");
	CLEANUP(js_unrefp) struct json *rec = record(&r);

	assert_false(js_get_bool(rec, "released", false));
	rig_down(&r);
}

static void a_lost_link_in_post_copy_is_mended(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_switch_of_post_copy(&r);
	snprintf(r.mig, sizeof(r.mig),
		 "{\"status\": \"postcopy-active\", \"ram\": {\"postcopy-bytes\": 4096}}");
	qstatus(&r, "postcopy-active");
	await(&r, "migration", "phase", "postcopy");
	assert_int_equal(call(&r, "recoverOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "port", 49153)),
			 RC_CONFLICT); /* the link holds */
	qstatus(&r, "postcopy-paused");
	await(&r, "migration", "phase", "postcopy-paused");
	assert_int_equal(call(&r, "recoverOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "port", 70000)),
			 RC_INVALID);
	assert_int_equal(call(&r, "recoverOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "port", 49153)),
			 RC_OK);
	assert_non_null(strstr(r.sent, "migrate migrate")); /* the second one resumes */
	qstatus(&r, "postcopy-recover");
	js_unref(r.events);
	r.events = js_new_array();
	qstatus(&r, "postcopy-active");
	await(&r, "migration", "phase", "postcopy");
	/* A launcher that comes now finds the same. */
	snprintf(r.run_state, sizeof(r.run_state), "finish-migrate");
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"postcopy-paused\"}");
	stop_launcher(&r);
	start_launcher(&r);
	await(&r, "migration", "phase", "postcopy-paused");
	assert_int_equal(call(&r, "cancelOutgoing", uid_params()), RC_CONFLICT);
	expect_state(&r, "postmigrate", NULL);
	rig_down(&r);
}

static void post_copy_has_to_be_allowed(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	assert_int_equal(call(&r, "startOutgoing", out_params(10000, 0)), RC_OK);
	qstatus(&r, "active");
	await(&r, "migration", "phase", "memory");
	assert_int_equal(call(&r, "startPostCopy", uid_params()), RC_CONFLICT);
	assert_null(strstr(r.sent, "migrate-start-postcopy"));
	rig_down(&r);
}

static struct json *in_params(void);

static void the_target_of_post_copy_runs_before_it_is_whole(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "inmigrate");
	assert_int_equal(call(&r, "prepareIncoming", in_params()), RC_OK);
	qstatus(&r, "active");
	qstatus(&r, "postcopy-active"); /* before the devices are there */
	ask(&r, &a, "resumeIncoming", js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 1));
	turn(&r, 30);
	assert_false(a.done);
	assert_null(strstr(r.sent, "cont "));
	snprintf(r.run_state, sizeof(r.run_state), "paused"); /* they are */
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	assert_true(js_get_bool(a.result, "postCopy", false));
	js_unref(a.result);
	await(&r, "migration", "phase", "postcopy");
	expect_state(&r, "running", "MigrationResumed");
	assert_int_equal(call(&r, "pause", NULL), RC_OK); /* it is the VM now, like any other */
	expect_state(&r, "paused", "PausedByUser");
	assert_int_equal(call(&r, "unpause", NULL), RC_OK);
	assert_int_equal(call(&r, "abortIncoming", uid_params()), RC_CONFLICT);

	/* The link breaks, and this side has not noticed; a QEMU that shows no life is not told to cut it. */
	r.mute = "query-yank";
	ask(&r, &a, "recoverIncoming", js_pack("{s:s, s:i}", "migrationUid", "m1", "port", 49153));
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_BUSY);
	assert_null(strstr(r.sent, "migrate-pause "));
	r.mute = NULL;
	ask(&r, &a, "recoverIncoming", js_pack("{s:s, s:i}", "migrationUid", "m1", "port", 49153));
	turn(&r, 30);
	assert_non_null(strstr(r.sent, "migrate-pause "));
	assert_false(a.done);
	qstatus(&r, "postcopy-paused");
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	assert_int_equal(js_get_int(a.result, "port", 0), 49153);
	js_unref(a.result);
	assert_non_null(strstr(r.sent, "migrate-recover "));
	qstatus(&r, "postcopy-recover");
	qstatus(&r, "postcopy-active");
	turn(&r, 30);
	qstatus(&r, "completed");
	await(&r, "migration", "phase", "resumed");
	assert_int_equal(call(&r, "recoverIncoming",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "port", 49153)),
			 RC_CONFLICT); /* there is nothing to mend */
	expect_state(&r, "running", NULL);
	rig_down(&r);
}

static void a_whole_target_of_post_copy_is_whole_at_once(void **state)
{
	struct rig r;

	rig_up(&r, "inmigrate");
	assert_int_equal(call(&r, "prepareIncoming", in_params()), RC_OK);
	snprintf(r.run_state, sizeof(r.run_state), "paused");
	qstatus(&r, "active");
	qstatus(&r, "postcopy-active");
	await(&r, "migration", "phase", "loaded");
	qstatus(&r, "completed"); /* the last page came before the permission */
	turn(&r, 30);
	assert_int_equal(call(&r, "resumeIncoming", uid_params()), RC_OK);
	await(&r, "migration", "phase", "resumed");
	rig_down(&r);
}

/* A record that cannot be written: its directory does not take it. */
static void block_record(struct rig *r, bool blocked)
{
	char path[100];

	snprintf(path, sizeof(path), "%s/migration.json", r->dir);
	if (blocked) {
		assert_int_equal(unlink(path), 0);
		assert_int_equal(mkdir(path, 0700), 0);
	} else {
		assert_int_equal(rmdir(path), 0);
	}
}

static void the_end_of_post_copy_takes_no_release_back(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_switch_of_post_copy(&r);
	snprintf(r.mig, sizeof(r.mig),
		 "{\"status\": \"postcopy-active\", \"ram\": {\"postcopy-bytes\": 4096}}");
	qstatus(&r, "postcopy-active");
	await(&r, "migration", "phase", "postcopy");
	block_record(&r, true); /* the target has been permitted by now, and may run */
	snprintf(r.run_state, sizeof(r.run_state), "postmigrate");
	qstatus(&r, "completed");
	const struct json *e = await(&r, "migration", "phase", "completed");

	assert_true(js_get_bool(e, "released", false));
	assert_int_equal(call(&r, "resumeSource", uid_params()), RC_CONFLICT);
	assert_null(strstr(r.sent, "cont "));
	block_record(&r, false);
	rig_down(&r);
}

static void a_cancel_before_post_copy_is_found_is_refused(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	to_switch_of_post_copy(&r);
	stop_launcher(&r);
	snprintf(r.run_state, sizeof(r.run_state), "finish-migrate");
	snprintf(r.mig, sizeof(r.mig),
		 "{\"status\": \"postcopy-active\", \"ram\": {\"postcopy-bytes\": 4096}}");
	r.events = js_unref(r.events);
	r.events = js_new_array();
	start_launcher(&r);
	ask(&r, &a, "cancelOutgoing", uid_params()); /* waits for the state only */
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_CONFLICT);
	js_unref(a.result);
	const struct json *e = await(&r, "migration", "phase", "postcopy");

	assert_true(js_get_bool(e, "released", false));
	assert_null(strstr(r.sent, "migrate_cancel"));
	rig_down(&r);
}

static void a_new_launcher_of_the_source_knows_where_to_connect(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_switch_of_post_copy(&r);
	stop_launcher(&r);
	snprintf(r.run_state, sizeof(r.run_state), "finish-migrate");
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"postcopy-paused\"}");
	start_launcher(&r);
	await(&r, "migration", "phase", "postcopy-paused");
	CLEANUP(js_unrefp) struct json *rec = record(&r);

	assert_string_equal(js_get_str(rec, "address"), "10.0.0.2");
	assert_true(js_get_bool(rec, "split", false));
	r.said[0] = '\0';
	assert_int_equal(call(&r, "recoverOutgoing",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "port", 49153)),
			 RC_OK);
	assert_non_null(strstr(r.said, "\"10.0.0.2\""));
	rig_down(&r);
}

/* QEMU still says `completed` of the move by which the guest came here, and has heard nothing of this one. */
static void an_earlier_move_is_not_taken_for_the_one_that_was_prepared(void **state)
{
	struct rig r;
	struct answer a;
	char path[128];

	rig_up(&r, "running");
	r.mute = "migrate-set-capabilities";
	ask(&r, &a, "startOutgoing", out_params(10000, 0));
	while (!strstr(r.sent, "migrate-set-capabilities "))
		turn(&r, 1);
	stop_launcher(&r);
	r.mute = NULL;
	js_unref(a.result);
	(void)snprintf(path, sizeof(path), "%s/creds/m1", r.dir);
	assert_int_equal(access(path, F_OK), 0);
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"completed\"}");
	r.events = js_unref(r.events);
	r.events = js_new_array();
	start_launcher(&r);
	const struct json *e = await(&r, "migration", "phase", "failed");

	assert_false(js_get_bool(e, "released", false));
	assert_string_equal(js_get_str(js_get(e, "failure"), "reason"), "Internal");
	expect_state(&r, "running", NULL);
	assert_int_not_equal(access(path, F_OK), 0); /* its key is gone */
	turn(&r, 30);
	/* and it can move */
	r.events = js_unref(r.events);
	r.events = js_new_array();
	to_pre_switchover(&r, 10000, 0);
	rig_down(&r);
}

/* --- tests: the target --- */

static struct json *in_params(void)
{
	return js_pack("{s:s, s:s}", "migrationUid", "m1", "address", "10.0.0.2");
}

/* Listens, has loaded the devices, and stands. */
static void to_loaded_of_post_copy(struct rig *r)
{
	rig_up(r, "inmigrate");
	assert_int_equal(call(r, "prepareIncoming", in_params()), RC_OK);
	qstatus(r, "active");
	snprintf(r->run_state, sizeof(r->run_state), "paused");
	qstatus(r, "postcopy-active");
	await(r, "migration", "phase", "loaded");
}

static void recover_incoming(struct rig *r)
{
	r->said[0] = '\0';
	assert_int_equal(call(r, "recoverIncoming",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "port", 49153)),
			 RC_OK);
	assert_non_null(strstr(r->said, "tcp:10.0.0.2:49153"));
}

/* Somebody else holds a disk when QEMU is to take it: the guest stands, and goes on once it is let go. */
static void a_disk_that_somebody_holds_is_waited_for(void **state)
{
	struct rig r;

	rig_up(&r, "inmigrate");
	assert_int_equal(call(&r, "prepareIncoming", in_params()), RC_OK);
	qstatus(&r, "active");
	snprintf(r.run_state, sizeof(r.run_state), "paused");
	qstatus(&r, "completed");
	await(&r, "migration", "phase", "loaded");
	r.fails = "cont";
	r.fail_times = 2;
	assert_int_equal(call(&r, "resumeIncoming", uid_params()), RC_BUSY);
	assert_int_equal(call(&r, "resumeIncoming", uid_params()), RC_BUSY);
	assert_int_equal(call(&r, "resumeIncoming", uid_params()), RC_OK);
	await(&r, "migration", "phase", "resumed");
	rig_down(&r);
}

static void a_link_lost_before_the_permission_is_mended(void **state)
{
	struct rig r;

	to_loaded_of_post_copy(&r);
	r.fails = "migrate-pause"; /* what is paused already cannot be */
	r.fail_times = 100;
	qstatus(&r, "postcopy-paused");
	turn(&r, 20);
	assert_int_equal(call(&r, "resumeIncoming", uid_params()), RC_OK);
	await(&r, "migration", "phase", "postcopy-paused");
	recover_incoming(&r);
	rig_down(&r);
}

static void a_new_launcher_of_the_target_finds_a_lost_link(void **state)
{
	struct rig r;

	to_loaded_of_post_copy(&r); /* the record says listening */
	stop_launcher(&r);
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"postcopy-paused\"}");
	r.events = js_unref(r.events);
	r.events = js_new_array();
	start_launcher(&r);
	await(&r, "migration", "phase", "loaded");
	assert_int_equal(call(&r, "resumeIncoming", uid_params()), RC_OK);
	await(&r, "migration", "phase", "postcopy-paused");
	recover_incoming(&r);
	rig_down(&r);
}

/* The launcher died between `cont` and its answer. */
static void restarted_while_told_to_run(struct rig *r, const char *status)
{
	struct answer a;

	to_loaded_of_post_copy(r);
	r->mute = "cont";
	ask(r, &a, "resumeIncoming", uid_params());
	turn(r, 30);
	assert_false(a.done);
	stop_launcher(r);
	js_unref(a.result);
	r->mute = NULL;
	snprintf(r->run_state, sizeof(r->run_state), "running");
	snprintf(r->mig, sizeof(r->mig), "{\"status\": \"%s\"}", status);
	r->events = js_unref(r->events);
	r->events = js_new_array();
	start_launcher(r);
}

static void a_new_launcher_of_the_target_finds_it_whole(void **state)
{
	struct rig r;

	restarted_while_told_to_run(&r, "completed");
	await(&r, "migration", "phase", "resumed");
	rig_down(&r);
}

static void a_new_launcher_of_the_target_finds_it_cut_off(void **state)
{
	struct rig r;

	restarted_while_told_to_run(&r, "postcopy-paused");
	await(&r, "migration", "phase", "postcopy-paused");
	recover_incoming(&r);
	rig_down(&r);
}

static void a_half_is_only_ended_where_the_link_is_lost(void **state)
{
	struct rig r;

	to_loaded_of_post_copy(&r);
	assert_int_equal(call(&r, "resumeIncoming", uid_params()), RC_OK);
	await(&r, "migration", "phase", "postcopy");
	assert_int_equal(call(&r, "abortIncoming", uid_params()), RC_CONFLICT);
	qstatus(&r, "postcopy-paused");
	await(&r, "migration", "phase", "postcopy-paused");
	/* It is whole already, and this has not been heard. */
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"completed\"}");
	assert_int_equal(call(&r, "abortIncoming", uid_params()), RC_CONFLICT);
	assert_null(heard(&r, "migration", "phase", "failed"));
	snprintf(r.mig, sizeof(r.mig), "{\"status\": \"postcopy-paused\"}");
	assert_int_equal(call(&r, "abortIncoming", uid_params()), RC_OK);
	await(&r, "migration", "phase", "failed");
	rig_down(&r);
}

/* It waits for a page of the guest, and the source that had it is gone. */
static void a_half_whose_main_loop_waits_for_a_page_is_given_up(void **state)
{
	struct rig r;

	to_loaded_of_post_copy(&r);
	assert_int_equal(call(&r, "resumeIncoming", uid_params()), RC_OK);
	await(&r, "migration", "phase", "postcopy");
	qstatus(&r, "postcopy-paused");
	await(&r, "migration", "phase", "postcopy-paused");
	r.mute = "query-migrate";
	assert_int_equal(call(&r, "abortIncoming", uid_params()),
			 RC_CONFLICT); /* out of band: it is active */
	assert_null(heard(&r, "migration", "phase", "failed"));
	r.fails = "migrate-pause";
	r.fail_times = 1;
	assert_int_equal(call(&r, "abortIncoming", uid_params()), RC_OK);
	await(&r, "migration", "phase", "failed");
	rig_down(&r);
}

static void the_target_stands_until_it_is_permitted(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "inmigrate");
	r.fails = "migrate-incoming"; /* does not know exit-on-error: asked again without it */
	r.fail_times = 1;
	assert_int_equal(call(&r, "prepareIncoming", in_params()), RC_OK);
	assert_non_null(strstr(r.sent, "migrate-incoming migrate-incoming "));
	assert_int_equal(call(&r, "prepareIncoming", in_params()), RC_OK); /* the same again */
	ask(&r, &a, "resumeIncoming", js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 1));
	qstatus(&r, "active");
	turn(&r, 30);
	assert_false(a.done); /* permitted, but nothing is loaded yet */
	assert_null(strstr(r.sent, "cont "));
	qstatus(&r, "completed");
	r.later_us = 1200; /* RESUME */
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	assert_int_equal(js_get_int(a.result, "resumeAt", 0), 1700000000001205);
	assert_int_equal(js_get_int(a.result, "waitedUs", 0), 1200);
	js_unref(a.result);
	CLEANUP(js_unrefp) struct json *rec = record(&r);

	assert_true(js_get_bool(rec, "resumed", false));
	expect_state(&r, "running", "MigrationResumed");
	turn(&r, 30);
	assert_non_null(strstr(r.sent, "cont announce-self "));
	assert_int_equal(call(&r, "abortIncoming", uid_params()), RC_CONFLICT);
	assert_int_equal(call(&r, "resumeIncoming", uid_params()),
			 RC_OK); /* said again, answered again */
	rig_down(&r);
}

static void loaded_is_no_permission(void **state)
{
	struct rig r;

	rig_up(&r, "inmigrate");
	assert_int_equal(call(&r, "prepareIncoming", in_params()), RC_OK);
	qstatus(&r, "completed");
	await(&r, "migration", "phase", "loaded");
	assert_int_equal(call(&r, "unpause", NULL), RC_CONFLICT);
	assert_int_equal(call(&r, "resumeIncoming", js_pack("{s:s}", "migrationUid", "another")),
			 RC_CONFLICT);
	assert_null(strstr(r.sent, "cont "));
	assert_int_equal(call(&r, "abortIncoming", uid_params()), RC_OK);
	const struct json *e = await(&r, "state", "state", "gone");

	assert_string_equal(js_get_str(e, "reason"), "MigrationFailed");
	rig_down(&r);
}

static void a_failed_load_is_told_with_qemus_reason(void **state)
{
	struct rig r;

	rig_up(&r, "inmigrate");
	assert_int_equal(call(&r, "prepareIncoming", in_params()), RC_OK);
	snprintf(r.mig, sizeof(r.mig),
		 "{\"status\": \"failed\", \"error-desc\": \"no such section\"}");
	qstatus(&r, "failed");
	const struct json *e = await(&r, "migration", "phase", "failed");

	assert_string_equal(js_get_str(js_get(e, "failure"), "message"), "no such section");
	assert_int_equal(call(&r, "resumeIncoming", uid_params()), RC_IO);
	rig_down(&r);
}

/* An agent that has just started asks again while QEMU still carries out what the last one asked. */
static void a_permission_under_way_is_no_refusal(void **state)
{
	struct rig r;
	struct answer a, b;

	rig_up(&r, "inmigrate");
	assert_int_equal(call(&r, "prepareIncoming", in_params()), RC_OK);
	qstatus(&r, "completed");
	await(&r, "migration", "phase", "loaded");
	r.mute = "cont"; /* it waits for an image's lock */
	ask(&r, &a, "resumeIncoming", js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 1));
	turn(&r, 30);
	ask(&r, &b, "resumeIncoming", js_pack("{s:s, s:i}", "migrationUid", "m1", "epoch", 1));
	turn_until(&r, &b.done);
	assert_int_equal(b.rc, RC_BUSY);
	assert_false(a.done);
	assert_null(heard(&r, "migration", "phase", "failed"));
	rig_down(&r);
}

static void a_permission_that_waits_too_long_is_a_timeout(void **state)
{
	struct rig r;

	rig_up(&r, "inmigrate");
	assert_int_equal(call(&r, "prepareIncoming", in_params()), RC_OK);
	assert_int_equal(call(&r, "resumeIncoming",
			      js_pack("{s:s, s:i}", "migrationUid", "m1", "timeoutMs", 50)),
			 RC_TIMEOUT);
	assert_null(strstr(r.sent, "cont "));
	rig_down(&r);
}

/* --- what the guest has --- */

static void assert_cpu(struct rig *r, const char *features)
{
	const struct json *cpu = js_get(await(r, "cpu", "none", NULL), "cpu");
	CLEANUP(mem_freep) char *text = js_to_text(js_get(cpu, "features"));
	struct answer a;

	assert_string_equal(js_get_str(cpu, "model"), "max");
	assert_string_equal(text, features);
	ask(r, &a, "query", NULL); /* and who comes later is told, too */
	turn_until(r, &a.done);
	assert_true(js_equal(js_get(a.result, "cpu"), cpu));
	assert_true(js_get_int(a.result, "qmpCommands", 0) > 3);
	assert_false(js_get_bool(a.result, "cpuFollows", true));
	js_unref(a.result);
}

static void a_cpu_of_which_nothing_is_dropped_is_its_model(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	assert_null(
		js_get(await(&r, "cpu", "none", NULL), "cpu")); /* it says that it cannot tell */
	forget(&r);
	r.dropped = "";
	r.fd = fd_close(r.fd); /* what was not told is asked again over the next monitor */
	assert_cpu(&r, "[\"aes\",\"avx2\",\"pcid\"]");
	assert_null(strstr(strstr(r.sent, "qom-get ") + 1, "qom-get ")); /* the vCPU is not read */
	rig_down(&r);
}

static void what_qemu_drops_the_guest_does_not_have(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	forget(&r);
	r.dropped = "pcid";
	r.fd = fd_close(r.fd);
	assert_cpu(&r, "[\"aes\",\"avx2\"]");
	rig_down(&r);
}

static void devices_tell_what_they_offer_and_what_was_taken(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	r.has_devices = true;
	ask(&r, &a, "deviceFeatures", NULL);
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	CLEANUP(mem_freep) char *text = js_to_text(js_get(a.result, "devices"));

	assert_string_equal(text, "[{\"name\":\"virtio-net\",\"path\":\"/nic\",\"offered\":[\"V1\","
				  "\"NET_MAC\",\"NET_MTU\",\"bit 0\",\"bit 2\"],\"negotiated\":["
				  "\"NET_MAC\"]}]");
	js_unref(a.result);
	r.fails = "x-query-virtio-status";
	r.fail_times = 1;
	ask(&r, &a, "deviceFeatures", NULL);
	turn_until(&r, &a.done);
	assert_int_not_equal(a.rc, RC_OK);
	assert_non_null(strstr(a.message, "refused by script"));
	js_unref(a.result);
	rig_down(&r);
}

/* Of a QEMU that does not answer: one at a time, until it is gone. */
static void check_it_ends_with_qemu(const char *method, const char *command)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	turn(&r, 20);
	r.mute = command;
	ask(&r, &a, method, NULL);
	turn(&r, 20);
	assert_false(a.done);
	assert_int_equal(call(&r, method, NULL), RC_BUSY);
	r.fd = fd_close(r.fd);
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_CLOSED);
	js_unref(a.result);
	rig_down(&r);
}

static void a_question_about_devices_ends_with_qemu(void **state)
{
	check_it_ends_with_qemu("deviceFeatures", "x-query-virtio");
}

/* --- what is counted --- */

#define STATS                                                                                             \
	"\"stats\": {\"rd_operations\": 1, \"wr_operations\": 2, \"rd_bytes\": 512, \"wr_bytes\": 1024, " \
	"\"rd_total_time_ns\": 5, \"wr_total_time_ns\": 6, \"flush_operations\": 7, "                     \
	"\"flush_total_time_ns\": 8, \"unmap_bytes\": 9}"
#define TOLD                                                                                             \
	"\"readOps\":1,\"writeOps\":2,\"readBytes\":512,\"writeBytes\":1024,\"readNs\":5,\"writeNs\":6," \
	"\"flushOps\":7,\"flushNs\":8}"

static void the_disks_of_the_specification_are_counted(void **state)
{
	struct rig r;
	struct answer a;

	more_spec = ", \"disks\": [{\"name\": \"root\", \"images\": [{\"fd\": \"a\"}]}, "
		    "{\"name\": \"data\", \"images\": [{\"fd\": \"b\"}]}]";
	rig_up(&r, "running");
	more_spec = "";
	/* Others are no disks of the specification; one that is told twice counts once. */
	r.block_stats = "[{\"device\": \"nbd\", " STATS "}, {\"qdev\": \"disk77\", " STATS
			"}, {\"qdev\": \"/machine/peripheral/disk0/virtio-backend\", " STATS
			"}, {\"qdev\": \"disk0\", \"stats\": {}}, {\"qdev\": "
			"\"disk1\", \"stats\": {\"rd_bytes\": \"many\", \"wr_bytes\": 3}}]";
	ask(&r, &a, "usage", NULL);
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	CLEANUP(mem_freep) char *text = js_to_text(js_get(a.result, "disks"));

	assert_string_equal(text,
			    "[{\"name\":\"root\"," TOLD ",{\"name\":\"data\",\"writeBytes\":3}]");
	js_unref(a.result);
	ask(&r, &a, "query", NULL);
	turn_until(&r, &a.done);
	assert_int_equal(js_get_int(a.result, "usageCommands", -1), 1);
	js_unref(a.result);
	rig_down(&r);
}

static void threads_of_vcpus_come_from_what_was_asked_before(void **state)
{
	struct rig r;
	struct answer a;

	rig_up(&r, "running");
	await(&r, "cpu", "none", NULL);
	forget(&r);
	r.dropped = "";
	r.block_stats = "[]";
	r.fd = fd_close(r.fd);
	await(&r, "cpu", "none", NULL);
	r.sent[0] = '\0';
	ask(&r, &a, "usage", NULL);
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	CLEANUP(mem_freep) char *text = js_to_text(a.result);

	assert_string_equal(text, "{\"disks\":[],\"vcpuThreads\":[12,13]}");
	assert_null(strstr(r.sent, "query-cpus-fast"));
	js_unref(a.result);
	rig_down(&r);
}

static void counting_does_not_stand_in_the_way_of_a_move(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	to_memory(&r, 10000);
	r.sent[0] = '\0';
	assert_int_equal(call(&r, "usage", NULL), RC_BUSY);
	assert_null(strstr(r.sent, "query-blockstats"));
	rig_down(&r);
}

static void a_question_about_disks_ends_with_qemu(void **state)
{
	check_it_ends_with_qemu("usage", "query-blockstats");
}

/* --- the display --- */

static void rig_with_display(struct rig *r, const char *run_state)
{
	more_spec = ", \"video\": \"vga\"";
	rig_up(r, run_state);
	more_spec = "";
	r->sent[0] = r->said[0] = '\0';
}

static void a_session_is_a_socket_that_qemu_was_given(void **state)
{
	struct rig r;
	struct answer a;
	char text[13] = "";

	rig_with_display(&r, "running");
	ask(&r, &a, "vnc", NULL);
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	assert_non_null(strstr(r.sent, "getfd add_client "));
	assert_non_null(strstr(r.said, "{\"fdname\":\"vnc"));
	assert_non_null(strstr(r.said, "{\"protocol\":\"vnc\",\"fdname\":\"vnc"));
	assert_int_equal(send(r.got_fd, "RFB 003.008\n", 12, MSG_NOSIGNAL), 12);
	assert_int_equal(recv(a.fd, text, 12, MSG_DONTWAIT), 12);
	assert_string_equal(text, "RFB 003.008\n");
	close(a.fd);
	js_unref(a.result);
	rig_down(&r);
}

static void what_qemu_refuses_leaves_no_descriptor_there(void **state)
{
	struct rig r;

	rig_with_display(&r, "running");
	r.fails = "add_client";
	r.fail_times = 1;
	assert_int_equal(call(&r, "vnc", NULL), RC_IO);
	until_sent(&r, "closefd", 1);
	r.fails = "screendump";
	r.fail_times = 1;
	assert_int_equal(call(&r, "screenshot", NULL), RC_IO);
	until_sent(&r, "remove-fd", 1);
	assert_non_null(strstr(r.said, "{\"fdset-id\":7}"));
	rig_down(&r);
}

static void a_vm_without_a_card_has_no_display(void **state)
{
	struct rig r;

	rig_up(&r, "running");
	assert_int_equal(call(&r, "vnc", NULL), RC_NOT_FOUND);
	assert_int_equal(call(&r, "screenshot", NULL), RC_NOT_FOUND);
	assert_null(strstr(r.sent, "add_client"));
	rig_down(&r);
}

static void a_picture_is_a_file_of_bounded_size(void **state)
{
	struct rig r;
	struct answer a;
	struct stat st;

	rig_with_display(&r, "paused");
	r.picture = 1000;
	ask(&r, &a, "screenshot", NULL);
	turn_until(&r, &a.done);
	assert_int_equal(a.rc, RC_OK);
	assert_int_equal(fstat(a.fd, &st), 0);
	assert_int_equal(st.st_size, 1000);
	close(a.fd);
	js_unref(a.result);
	assert_non_null(strstr(r.said, "{\"filename\":\"/dev/fdset/7\",\"format\":\"png\"}"));
	/* a guest that stands sees no pointer, but its screen is there */
	assert_int_equal(call(&r, "screenshot", js_pack("{s:b}", "moveCursor", 1)), RC_OK);
	assert_null(strstr(r.sent, "input-send-event"));
	r.picture = LIMIT_PICTURE_BYTES + 1;
	assert_int_equal(call(&r, "screenshot", NULL), RC_TOO_BIG);
	r.picture = 0;
	assert_int_equal(call(&r, "screenshot", NULL), RC_IO);
	until_sent(&r, "remove-fd", 4);
	rig_down(&r);
}

static void a_pointer_of_either_kind_wakes_the_screen(void **state)
{
	struct rig r;

	rig_with_display(&r, "running");
	r.picture = 10;
	r.fails = "input-send-event"; /* there is no mouse: the tablet, then */
	r.fail_times = 2;
	assert_int_equal(call(&r, "screenshot", js_pack("{s:b}", "moveCursor", 1)), RC_OK);
	until_sent(&r, "input-send-event", 4);
	assert_non_null(strstr(r.said, "{\"events\":[{\"type\":\"abs\",\"data\":{\"axis\":\"x\","));
	r.fail_times = 4;
	assert_int_equal(call(&r, "screenshot", js_pack("{s:b}", "moveCursor", 1)), RC_UNSUPPORTED);
	rig_down(&r);
}

static void what_is_on_its_way_ends_with_qemu(void **state)
{
	struct rig r;
	struct answer a, b;

	rig_with_display(&r, "running");
	r.mute = "screendump";
	ask(&r, &a, "screenshot", NULL);
	ask(&r, &b, "screenshot", js_pack("{s:b}", "moveCursor", 1));
	until_sent(&r, "screendump", 1);
	kill(r.child, SIGKILL);
	turn_until(&r, &a.done);
	turn_until(&r, &b.done);
	assert_int_equal(a.rc, RC_CLOSED);
	assert_int_equal(b.rc, RC_CLOSED);
	rig_down(&r);
}

static void sessions_on_their_way_are_counted(void **state)
{
	struct answer a[5];
	struct rig r;

	rig_with_display(&r, "running");
	r.mute = "getfd";
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask(&r, &a[i], "vnc", NULL);
	turn_until(&r, &a[4].done);
	assert_int_equal(a[4].rc, RC_BUSY);
	assert_false(a[0].done);
	stop_launcher(&r); /* and a launcher that ends forgets none of them */
	rig_down(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_is_a_socket_that_qemu_was_given),
		cmocka_unit_test(what_qemu_refuses_leaves_no_descriptor_there),
		cmocka_unit_test(a_vm_without_a_card_has_no_display),
		cmocka_unit_test(a_picture_is_a_file_of_bounded_size),
		cmocka_unit_test(a_pointer_of_either_kind_wakes_the_screen),
		cmocka_unit_test(what_is_on_its_way_ends_with_qemu),
		cmocka_unit_test(sessions_on_their_way_are_counted),
		cmocka_unit_test(a_cpu_of_which_nothing_is_dropped_is_its_model),
		cmocka_unit_test(what_qemu_drops_the_guest_does_not_have),
		cmocka_unit_test(devices_tell_what_they_offer_and_what_was_taken),
		cmocka_unit_test(a_question_about_devices_ends_with_qemu),
		cmocka_unit_test(the_disks_of_the_specification_are_counted),
		cmocka_unit_test(threads_of_vcpus_come_from_what_was_asked_before),
		cmocka_unit_test(counting_does_not_stand_in_the_way_of_a_move),
		cmocka_unit_test(a_question_about_disks_ends_with_qemu),
		cmocka_unit_test(a_running_vm_is_adopted_and_paused),
		cmocka_unit_test(the_other_socket_is_used_when_one_hangs),
		cmocka_unit_test(requests_wait_until_an_adopted_vms_state_is_known),
		cmocka_unit_test(a_lost_monitor_is_opened_again_and_asked),
		cmocka_unit_test(the_end_of_qemu_is_told_with_its_exit),
		cmocka_unit_test(a_guest_that_powers_off_is_ended),
		cmocka_unit_test(a_soft_reboot_keeps_the_vm),
		cmocka_unit_test(a_reboot_of_the_guests_own_ends_the_wait_for_its_power_off),
		cmocka_unit_test(a_shutdown_counts_more_than_a_soft_reboot),
		cmocka_unit_test(a_guest_that_cannot_be_started_again_has_ended),
		cmocka_unit_test(reboots_have_their_states),
		cmocka_unit_test(an_agent_is_asked_for_what_it_can),
		cmocka_unit_test(a_freeze_ends_by_itself),
		cmocka_unit_test(a_guest_that_leaves_is_not_asked),
		cmocka_unit_test(a_soft_reboot_is_the_agents_work_where_there_is_one),
		cmocka_unit_test(released_is_durable_before_completed_is_told),
		cmocka_unit_test(the_agent_hears_of_the_stop_before_qemu_is_ready),
		cmocka_unit_test(a_stop_that_leads_nowhere_has_a_deadline),
		cmocka_unit_test(a_switch_without_a_monitor_is_refused),
		cmocka_unit_test(a_disk_that_stops_the_guest_is_not_the_switch),
		cmocka_unit_test(a_release_needs_no_more_than_completed),
		cmocka_unit_test(a_record_that_cannot_be_written_releases_nothing),
		cmocka_unit_test(a_source_that_goes_on_leaves_no_release_behind),
		cmocka_unit_test(a_record_of_a_release_is_a_completed_move),
		cmocka_unit_test(a_cancel_before_the_move_is_found_reaches_qemu),
		cmocka_unit_test(a_cancel_at_the_switch_lets_the_source_go_on),
		cmocka_unit_test(a_move_can_be_finished_with_a_pause),
		cmocka_unit_test(a_finish_is_gone_on_with_by_the_next_launcher),
		cmocka_unit_test(a_completion_that_overtakes_the_cancel_counts),
		cmocka_unit_test(nobody_allows_the_switch),
		cmocka_unit_test(a_pause_beyond_its_limit_is_given_up),
		cmocka_unit_test(a_pause_that_was_asked_for_has_no_declared_limit),
		cmocka_unit_test(a_pause_that_got_too_long_in_the_switch_is_taken_back),
		cmocka_unit_test(a_launcher_that_finds_the_guest_standing_decides),
		cmocka_unit_test(a_launcher_that_comes_after_the_switch_releases),
		cmocka_unit_test(a_guest_that_stood_stands_on_at_the_target),
		cmocka_unit_test(an_old_qemu_does_not_move_an_emulated_guest),
		cmocka_unit_test(a_refusal_while_setting_up_leaves_the_vm_as_it_was),
		cmocka_unit_test(a_move_waits_for_the_connection_of_the_one_before),
		cmocka_unit_test(a_connection_that_never_ends_is_named),
		cmocka_unit_test(bad_parameters_are_refused),
		cmocka_unit_test(disks_that_are_in_step_before_the_answer_let_the_move_go_on),
		cmocka_unit_test(a_long_first_pass_is_measured_and_foreseen),
		cmocka_unit_test(a_measurement_that_fails_leaves_the_move_alone),
		cmocka_unit_test(a_measurement_without_an_answer_is_asked_for_once),
		cmocka_unit_test(post_copy_is_released_when_qemu_cannot_fall_back),
		cmocka_unit_test(post_copy_that_fails_before_the_devices_are_sent_stays_here),
		cmocka_unit_test(a_lost_link_in_post_copy_is_mended),
		cmocka_unit_test(post_copy_has_to_be_allowed),
		cmocka_unit_test(the_target_of_post_copy_runs_before_it_is_whole),
		cmocka_unit_test(a_whole_target_of_post_copy_is_whole_at_once),
		cmocka_unit_test(the_end_of_post_copy_takes_no_release_back),
		cmocka_unit_test(a_cancel_before_post_copy_is_found_is_refused),
		cmocka_unit_test(a_new_launcher_of_the_source_knows_where_to_connect),
		cmocka_unit_test(an_earlier_move_is_not_taken_for_the_one_that_was_prepared),
		cmocka_unit_test(a_link_lost_before_the_permission_is_mended),
		cmocka_unit_test(a_disk_that_somebody_holds_is_waited_for),
		cmocka_unit_test(a_new_launcher_of_the_target_finds_a_lost_link),
		cmocka_unit_test(a_new_launcher_of_the_target_finds_it_whole),
		cmocka_unit_test(a_new_launcher_of_the_target_finds_it_cut_off),
		cmocka_unit_test(a_half_is_only_ended_where_the_link_is_lost),
		cmocka_unit_test(a_half_whose_main_loop_waits_for_a_page_is_given_up),
		cmocka_unit_test(the_target_stands_until_it_is_permitted),
		cmocka_unit_test(loaded_is_no_permission),
		cmocka_unit_test(a_failed_load_is_told_with_qemus_reason),
		cmocka_unit_test(a_permission_under_way_is_no_refusal),
		cmocka_unit_test(a_permission_that_waits_too_long_is_a_timeout),
	};

	log_setup("test", LOG_LVL_ERROR, false);
	js_use_mem();
	return cmocka_run_group_tests_name("launcher_engine", tests, NULL, NULL);
}
