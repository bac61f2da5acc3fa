/* Websocket frames from a hostile client: the first byte chooses how the stream is cut into reads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/file.h"
#include "fuzz.h"
#include "http/ws_int.h"

struct stream {
	const uint8_t *p;
	size_t n, step;
	struct http_ws *ws;
	unsigned n_messages;
	bool closed, dropped;
};

static ssize_t on_recv(void *io, void *buf, size_t n)
{
	struct stream *s = io;
	size_t take = MIN(MIN(n, s->n), s->step);

	if (take == 0) {
		errno = EAGAIN;
		return -1;
	}
	memcpy(buf, s->p, take);
	s->p += take;
	s->n -= take;
	return (ssize_t)take;
}

static ssize_t on_send(void *io, const void *buf, size_t n)
{
	(void)io;
	(void)buf;
	return (ssize_t)n;
}

static void on_drop(void *io)
{
	struct stream *s = io;

	if (s->dropped)
		abort(); /* given back twice */
	s->dropped = true;
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct stream *s = arg;

	(void)is_text;
	if (s->closed)
		abort(); /* nothing runs after on_close */
	if (http_ws_send(ws, false, bytes, n) >= RC__MAX)
		abort();
	if (++s->n_messages == 9)
		s->ws = http_ws_free(s->ws);
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct stream *s = arg;

	(void)ws;
	(void)code;
	(void)reason;
	(void)status;
	(void)why;
	if (s->closed)
		abort();
	s->closed = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct http_ws_ops ops = {.on_message = on_message, .on_close = on_close};
	static const struct ws_io io = {.recv = on_recv, .send = on_send, .drop = on_drop};
	static struct loop *loop;
	static int fd = -1;
	struct stream s = {.p = data + 1, .n = n ? n - 1 : 0, .step = n && data[0] ? data[0] : 1};

	if (!loop) {
		if (loop_new(&loop, LOOP_REAL, NULL))
			abort();
		fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	}
	if (ws_new(&s.ws, loop, true, &ops, &s, NULL))
		return 0;
	ws_attach(s.ws, &io, &s, fd, NULL, 0, NULL);
	http_ws_free(s.ws);
	if (!s.dropped)
		abort();
	return 0;
}
