/* A hostile server of a websocket: the answer to the handshake, and frames.  "@KEY@" in it becomes the right value of
 * Sec-WebSocket-Accept. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "ev/ev.h"
#include "fuzz/fuzz.h"
#include "http/client.h"
#include "http/ws_int.h"

static struct loop *loop;
static struct http_client *client;
static int listener = -1;
static char path[] = "/tmp/ferry-fuzz-XXXXXX/s";

struct end {
	struct http_ws *ws;
	unsigned n_closed;
};

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	const struct end *e = arg;

	assert(!e->n_closed); /* nothing runs after on_close */
	(void)is_text;
	ignore_rc(http_ws_send(ws, false, bytes, n));
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct end *e = arg;

	(void)ws;
	(void)code;
	(void)reason;
	(void)status;
	(void)why;
	e->n_closed++;
}

static void teardown(void)
{
	http_client_free(client);
	loop_free(loop);
	close(listener);
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

static void setup(void)
{
	struct http_client_config config = {.unix_path = path};
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	path[strlen(path) - 2] = '\0';
	if (!mkdtemp(path))
		abort();
	path[strlen(path)] = '/';
	memcpy(sa.sun_path, path, sizeof(path));
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(listener, (struct sockaddr *)&sa, sizeof(sa)) || listen(listener, 4))
		abort();
	if (loop_new(&loop, LOOP_REAL, NULL) || http_client_new(&client, loop, &config, NULL))
		abort();
	atexit(teardown);
}

static void turn(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (loop_step(loop, 0, NULL, NULL))
			abort();
}

/* The request's key, and the input with what belongs to it. */
static void answer(int fd, const uint8_t *data, size_t n)
{
	static const char mark[] = "@KEY@", name[] = "Sec-WebSocket-Key: ";
	char head[4096] = "", key[25] = "", accept[29] = "";
	size_t got = 0;
	ssize_t r;

	for (int i = 0; i < 200 && !strstr(head, "\r\n\r\n"); i++) {
		turn(1);
		while ((r = recv(fd, head + got, sizeof(head) - 1 - got, MSG_DONTWAIT)) > 0)
			got += (size_t)r;
	}
	const char *at = strstr(head, name);

	if (at && strlen(at) > sizeof(name) + 24) {
		memcpy(key, at + sizeof(name) - 1, 24);
		ws_accept_key(key, accept);
	}
	const uint8_t *cut = memmem(data, n, mark, sizeof(mark) - 1);

	if (cut) {
		size_t before = (size_t)(cut - data);

		ignore_rc(send(fd, data, before, MSG_NOSIGNAL) < 0 ? RC_IO : RC_OK);
		ignore_rc(send(fd, accept, strlen(accept), MSG_NOSIGNAL) < 0 ? RC_IO : RC_OK);
		data = cut + sizeof(mark) - 1;
		n -= before + sizeof(mark) - 1;
	}
	ignore_rc(send(fd, data, n, MSG_NOSIGNAL) < 0 ? RC_IO : RC_OK); /* it may have left */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct http_ws_ops ops = {.on_message = on_message, .on_close = on_close};
	struct end e = {0};
	int fd = -1;

	if (!loop)
		setup();
	if (http_ws_connect(client, &e.ws, "ws://ferry/x", "plain.kubevirt.io", 0, &ops, &e, NULL))
		abort();
	for (int i = 0; i < 1000 && fd < 0; i++) {
		if (loop_step(loop, i ? 1000 : 0, NULL, NULL))
			abort();
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	}
	if (fd < 0)
		abort();
	answer(fd, data, n);
	turn(6);
	shutdown(fd, SHUT_WR);
	for (int i = 0; i < 200 && !e.n_closed; i++)
		if (loop_step(loop, i ? 1000 : 0, NULL, NULL))
			abort();
	assert(e.n_closed == 1); /* a server that left ends it, once */
	http_ws_free(e.ws);
	close(fd);
	turn(4);
	return 0;
}
