#include "base/limits.h"
#include "base/mem.h"
#include "http/client.h"
#include "virt/subresources/subres_int.h"

/* The display: RFB over a websocket, and pictures of it.  KubeVirt's conditions and words.
 *
 * A session does not follow its moving guest: what has been agreed on (pixel format, encodings, the state of their
 * compression) is in the memory of the source's QEMU, so it ends there, cleanly, and a viewer connects again.
 */
static const struct stream_kind display = {.name = "display",
					   .family = STREAM_DISPLAYS,
					   .path = "vnc"},
				display_preserved = {.name = "display",
						     .family = STREAM_DISPLAYS,
						     .path = "vnc?preserveSession=true"};
static const usec_t PICTURE_TIMEOUT = 20 * USEC_PER_SEC;

/* What it was started with counts: a VM that was started before there were displays has none. */
static bool has_graphics(const struct json *vmi)
{
	if (!js_bool(js_at(vmi, "spec", "domain", "devices", "autoattachGraphicsDevice", NULL),
		     true))
		return false;
	return !vmi_is_running(vmi) || js_str(js_at(vmi, "status", "ferry", "video", NULL));
}

/* As Go reads a flag.  False: it is none, and the call has been answered. */
static bool read_flag(struct hook_call *call, const char *name, bool *out)
{
	static const char *const yes[] = {"true", "1", "t", "T", "TRUE", "True", NULL},
				 *const no[] = {"", "false", "0", "f", "F", "FALSE", "False", NULL};
	const char *text = hook_call_param(call, name);

	*out = false;
	for (size_t i = 0; text && yes[i]; i++)
		if (str_eq(text, yes[i])) {
			*out = true;
			return true;
		}
	for (size_t i = 0; text && no[i]; i++)
		if (str_eq(text, no[i]))
			return true;
	if (text)
		fail_bad_request(call, "query parameter '%s' must be true or false", name);
	return !text;
}

/* NULL: the call has been answered. */
static const struct json *shown_vmi(struct hook_call *call)
{
	const struct json *vmi = get_vmi(call);

	if (!vmi)
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	else if (!has_graphics(vmi))
		fail_bad_request(call, "No graphics devices are present.");
	else if (!vmi_is_running(vmi))
		fail_bad_request(call, "VMI is not running");
	else
		return vmi;
	return NULL;
}

void vmi_vnc(struct hook_call *call)
{
	const struct json *vmi = shown_vmi(call);
	bool preserves;

	if (vmi && read_flag(call, "preserveSession", &preserves))
		stream_open(call, vmi, preserves ? &display_preserved : &display);
}

static void on_picture(struct hook_call *call, const struct http_result *r)
{
	hook_call_reply_bytes(call, 200, "image/png", r->body, r->n);
}

static void picture_failed(struct hook_call *call, int status, const char *why)
{
	if (!status || status == 409)
		node_ask_failed(call, status, why);
	else
		hook_call_fail(call, rc_from_http(status, NULL), "%s", why);
}

void vmi_screenshot(struct hook_call *call)
{
	const struct json *vmi = shown_vmi(call);
	bool moves;

	if (!vmi || !read_flag(call, "moveCursor", &moves))
		return;
	node_ask(call,
		 &(struct node_ask){.what = moves ? "vnc/screenshot?moveCursor=true"
						  : "vnc/screenshot",
				    .method = "GET",
				    .timeout = PICTURE_TIMEOUT,
				    .answer_max = LIMIT_PICTURE_BYTES + 1,
				    .done = on_picture,
				    .failed = picture_failed},
		 NULL);
}
