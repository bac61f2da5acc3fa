/* A hostile client of an IPC server: the first byte's high bit says hello for it, its other bits choose how
 * the stream is cut; and a hostile server of a client, with the same bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "ev/ev.h"
#include "fuzz.h"
#include "ipc/ipc.h"
#include "json/json.h"

static const char hello[] =
	"\0\0\0\x47"
	"{\"id\":0,\"method\":\"hello\",\"params\":{\"versions\":{\"min\":1,\"max\":1}}}      ";

static void on_request(struct ipc_call *call, const char *method, const struct json *params,
		       struct ipc_fds *fds, void *arg)
{
	(void)params;
	(void)arg;
	if (!method || fds->n > LIMIT_IPC_FDS)
		abort();
	if (method[0] == 'f')
		ipc_call_fail(call, RC_INVALID, "no");
	else
		ipc_call_done(call, js_new_object(), NULL, 0);
}

struct client_run {
	unsigned answers;
	bool closed;
};

static void on_answer(const struct ipc_reply *r, void *arg)
{
	struct client_run *run = arg;

	if (++run->answers > 1 || run->closed || (r->rc && !r->message))
		abort();
}

static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct client_run *run = arg;

	if (run->closed || !rc || !why || run->answers != 1)
		abort();
	run->closed = true;
}

static void turn(struct loop *loop)
{
	bool did = true;

	for (int i = 0; did && i < 200; i++)
		if (loop_step(loop, 0, &did, NULL))
			abort();
}

static void feed(struct loop *loop, int fd, const uint8_t *p, size_t n, size_t step)
{
	for (size_t at = 0; at < n; at += step) {
		if (send(fd, p + at, MIN(step, n - at), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		turn(loop);
	}
}

static void against_server(struct loop *loop, const char *path, const uint8_t *data, size_t n)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(a.sun_path, path, strlen(path));
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		abort();
	if (data[0] & 0x80)
		feed(loop, fd, (const uint8_t *)hello, sizeof(hello) - 1, sizeof(hello));
	feed(loop, fd, data + 1, n - 1, (data[0] & 0x7f) + 1u);
	close(fd);
	turn(loop);
}

static void against_client(struct loop *loop, const uint8_t *data, size_t n)
{
	static const struct ipc_client_ops ops = {.on_closed = on_closed};
	struct client_run run = {.answers = 0};
	struct ipc_client *c = NULL;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	if (ipc_client_new(&c, loop, pair[0], "fuzz", (struct ipc_version){1, 1}, USEC_PER_SEC,
			   &ops, &run, NULL) ||
	    ipc_call(c, NULL, "x", NULL, NULL, 0, USEC_PER_SEC, on_answer, &run, NULL))
		abort();
	feed(loop, pair[1], data + 1, n - 1, (data[0] & 0x7f) + 1u);
	close(pair[1]);
	turn(loop);
	if (!run.closed)
		abort();
	ipc_client_free(c);
	turn(loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct ipc_server_ops ops = {.on_request = on_request};
	static struct ipc_server_config config = {
		.name = "fuzz", .speaks = {1, 1}, .max_clients = 4, .mode = 0600};
	static struct loop *loop;
	static struct ipc_server *server;
	static char path[64];

	if (!loop) {
		snprintf(path, sizeof(path), "/tmp/fuzz_ipc.%d", (int)getpid());
		if (loop_new(&loop, LOOP_REAL, NULL) ||
		    ipc_server_new(&server, loop, path, &config, &ops, NULL, NULL))
			abort();
	}
	if (n < 1)
		return 0;
	against_server(loop, path, data, n);
	if (ipc_server_clients(server))
		abort(); /* it has gone */
	against_client(loop, data, n);
	return 0;
}
