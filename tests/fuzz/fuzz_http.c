/* Raw bytes from a stranger to the server, over a unix socket. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "ev/ev.h"
#include "fuzz.h"
#include "http/server.h"

static char path[] = "/tmp/ferry-fuzz-http-XXXXXX/s";
static struct loop *loop;
static struct http_server *server;

static void ws_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	(void)code;
	(void)reason;
	(void)status;
	(void)why;
	(void)arg;
	http_ws_free(ws);
}

static void handle(struct http_req *r, void *arg)
{
	static const struct http_ws_ops ops = {.on_close = ws_close};
	struct http_ws *ws = NULL;
	size_t n;

	(void)arg;
	if (http_req_body(r, &n)[n])
		abort(); /* always terminated */
	if (http_req_path(r)[0] != '/')
		abort();
	if (http_req_wants_upgrade(r) && http_upgrade_ws(r, NULL, &ops, NULL, &ws, NULL) == RC_OK)
		return;
	if (strcmp(http_req_path(r), "/stream") == 0) {
		http_stream_begin(r, 200, "text/plain", 1000, NULL, 0);
		if (http_stream_write(r, "a\n", 2))
			http_stream_abort(r);
		else
			http_stream_end(r);
		return;
	}
	http_respond(r, 200, "text/plain", "ok", 2, NULL, 0);
}

static void teardown(void)
{
	http_server_free(server);
	loop_free(loop);
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

static void setup(void)
{
	struct http_server_config config = {.unix_path = path, .handler = handle, .body_max = 4096};

	path[strlen(path) - 2] = '\0';
	if (!mkdtemp(path))
		abort();
	path[strlen(path)] = '/';
	if (loop_new(&loop, LOOP_REAL, NULL) || http_server_new(&server, loop, &config, NULL))
		abort();
	atexit(teardown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct http_server_stats stats;
	char buf[4096];
	int fd;

	if (!server)
		setup();
	memcpy(sa.sun_path, path, sizeof(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) || send(fd, data, n, MSG_NOSIGNAL) < 0)
		abort();
	for (int i = 0; i < 6; i++) {
		if (loop_step(loop, 0, NULL, NULL))
			abort();
		while (recv(fd, buf, sizeof(buf), 0) > 0)
			;
	}
	close(fd);
	/* A client that left is forgotten. */
	for (int i = 0; i < 200; i++) {
		http_server_stats(server, &stats);
		if (stats.connections == 0)
			return 0;
		if (loop_step(loop, i ? 1000 : 0, NULL, NULL))
			abort();
	}
	fprintf(stderr, "a connection stays: %u requests open\n", stats.open_requests);
	abort();
	return 0;
}
