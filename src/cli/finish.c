#include "cli/finish.h"

#include "base/sbuf.h"
#include "base/str.h"
#include "cli/progress.h"
#include "json/json.h"
#include "virt/names.h"

/* How long the guest will stand is known once memory goes over, and only roughly. */
static void print_pause(const struct json *f, struct sbuf *out)
{
	int64_t left = js_get_int(js_get(f, "memory"), "remainingBytes", 0);
	int64_t rate = js_get_int(f, "linkBytesPerSecond", 0);

	sbuf_adds(out, "the guest is paused while the rest of its memory goes over");
	if (left && rate)
		sbuf_addf(out, ": %lld MiB are left, about %lld s at the present rate",
			  (long long)(left / MIB), (long long)((left + rate - 1) / rate));
}

static void print_course(const char *phase, const struct json *f, struct sbuf *out)
{
	const char *stage = js_get_str(f, "stage");

	if (!str_eq(phase, "Running"))
		sbuf_addf(
			out,
			"the guest is paused as soon as its memory begins to go over; the move is %s now",
			phase);
	else if (str_eq(stage, "disks"))
		sbuf_adds(
			out,
			"the guest is paused as soon as its memory begins to go over; its disks are "
			"copied now");
	else
		print_pause(f, out);
}

enum rc finish_look(const struct json *vmim, const struct json *vmi, struct sbuf *out)
{
	const struct json *state = js_at(vmi, "status", "migrationState", NULL);
	const struct json *f = js_at(vmi, "status", "ferry", "migration", NULL);
	const char *uid = js_str(js_at(vmim, "metadata", "uid", NULL));
	bool was_asked = str_eq(js_str(js_at(vmim, "metadata", "annotations", ANN_FINISH, NULL)),
				FINISH_PAUSE);

	if (!state || !str_eq(js_get_str(state, "migrationUid"), uid))
		state = f = NULL; /* of the move before this one */
	const char *stage = js_get_str(f, "stage"), *mode = js_get_str(state, "mode");

	if (js_at(vmim, "metadata", "deletionTimestamp", NULL)) {
		sbuf_adds(out, "its move is being canceled");
		return RC_CONFLICT;
	}
	if (str_eq(mode, "PostCopy")) {
		sbuf_adds(out, "nothing to do: post-copy has begun, the guest is at the target");
		return RC_EXISTS;
	}
	if (str_eq(mode, "Paused") || str_eq(stage, "pre-switchover") ||
	    str_eq(stage, "switching")) {
		sbuf_adds(out, "nothing to do: the guest is being switched over already");
		return RC_EXISTS;
	}
	if (was_asked)
		sbuf_adds(out, "it was asked for before: ");
	print_course(progress_phase(vmim), f, out);
	return was_asked ? RC_EXISTS : RC_OK;
}
