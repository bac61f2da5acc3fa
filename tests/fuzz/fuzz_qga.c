/* A hostile guest agent: the first byte chooses how the stream is cut; commands wait meanwhile, and what they bring is
 * put into KubeVirt's forms. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "ev/ev.h"
#include "fuzz.h"
#include "json/json.h"
#include "virt/launcher/agent_facts.h"
#include "virt/launcher/qga.h"

enum { COMMANDS = 3 };

struct run {
	struct qga *q;
	struct json *values;
	unsigned answers;
	bool closed;
};

static void on_answer(const struct qga_reply *r, void *arg)
{
	static const char *const names[COMMANDS] = {"guest-info", "guest-network-get-interfaces",
						    "guest-get-fsinfo"};
	struct run *run = arg;

	if (run->answers == COMMANDS || (r->rc && !r->desc) || (!r->rc && !r->value))
		abort(); /* twice, without a reason, or without a value */
	for (const char *p = r->desc; p && *p; p++)
		if ((unsigned char)*p < 0x20)
			abort();
	if (!r->rc && js_set(run->values, names[run->answers], js_ref(r->value)))
		abort();
	run->answers++;
}

static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct run *run = arg;

	if (run->closed || !rc || !why || run->answers != COMMANDS)
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

static void shape(const struct json *values)
{
	struct json *(*const forms[])(const struct json *) = {
		agent_facts_status, agent_facts_info, agent_facts_users, agent_facts_filesystems};

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		struct json *j = forms[i](values);

		if (!j)
			abort();
		js_unref(j);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct qga_ops ops = {on_closed};
	static struct loop *loop;
	struct run run = {.values = js_new_object()};
	struct qga_call call = {
		.command = "guest-info", .timeout = USEC_PER_SEC, .fn = on_answer, .arg = &run};
	size_t step = n && data[0] ? data[0] : 256;
	int pair[2];

	if (!loop && loop_new(&loop, LOOP_REAL, NULL))
		abort();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		js_unref(run.values);
		return 0;
	}
	if (qga_new(&run.q, loop, pair[0], 0, &ops, &run, NULL))
		abort();
	for (int i = 0; i < COMMANDS; i++)
		if (qga_invoke(run.q, &call, NULL))
			abort();
	turn(loop);
	for (size_t at = 1; at < n && !run.closed; at += step) {
		char sink[4096];

		if (send(pair[1], data + at, MIN(step, n - at), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		turn(loop);
		while (recv(pair[1], sink, sizeof(sink), MSG_DONTWAIT) > 0)
			;
	}
	close(pair[1]);
	turn(loop);
	if (!run.closed)
		abort(); /* the end of the stream must be told */
	shape(run.values);
	qga_free(run.q);
	turn(loop);
	js_unref(run.values);
	return 0;
}
