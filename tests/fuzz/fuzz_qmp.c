/* A hostile QEMU: the first byte chooses how the stream is cut; commands wait meanwhile. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "ev/ev.h"
#include "fuzz.h"
#include "qmp/qmp.h"

struct run {
	struct qmp *q;
	unsigned answers, asked, events;
	bool closed;
};

static void on_answer(const struct qmp_reply *r, void *arg)
{
	struct run *run = arg;

	if (++run->answers > run->asked || (r->rc && !r->desc))
		abort(); /* twice, or without a reason */
}

static void on_ready(const struct json *greeting, void *arg)
{
	struct run *run = arg;
	struct qmp_call call = {
		.command = "query-status", .timeout = USEC_PER_SEC, .fn = on_answer, .arg = run};

	(void)greeting;
	for (int i = 0; i < 6; i++)
		if (!qmp_invoke(run->q, NULL, &call, NULL))
			run->asked++;
}

static void on_event(const char *name, const struct json *data, usec_t at, void *arg)
{
	struct run *run = arg;

	(void)data;
	(void)at;
	if (!name)
		abort();
	if (++run->events == 5)
		run->q = qmp_free(run->q);
}

static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct run *run = arg;

	if (run->closed || !rc || !why || run->answers != run->asked)
		abort(); /* all that waited has failed first */
	run->closed = true;
}

static void turn(struct loop *loop)
{
	bool did = true;

	for (int i = 0; did && i < 200; i++)
		if (loop_step(loop, 0, &did, NULL))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct qmp_ops ops = {on_ready, on_event, on_closed};
	static struct loop *loop;
	struct run run = {.q = NULL};
	size_t step = n && data[0] ? data[0] : 256;
	int pair[2];

	if (!loop && loop_new(&loop, LOOP_REAL, NULL))
		abort();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	if (qmp_new(&run.q, loop, pair[0], USEC_PER_SEC, &ops, &run, NULL)) {
		close(pair[1]);
		return 0;
	}
	for (size_t at = 1; at < n && !run.closed && run.q; at += step) {
		char sink[4096];

		if (send(pair[1], data + at, MIN(step, n - at), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		turn(loop);
		while (recv(pair[1], sink, sizeof(sink), MSG_DONTWAIT) > 0)
			;
	}
	close(pair[1]);
	turn(loop);
	if (run.q && !run.closed)
		abort(); /* the end of the stream must be told */
	qmp_free(run.q);
	turn(loop);
	return 0;
}
