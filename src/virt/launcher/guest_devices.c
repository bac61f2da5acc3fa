#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/launcher/launcher_int.h"

/* What each virtio device offers, and what the guest's driver has taken of it ("negotiated").  A guest goes on
 * using what it has taken, so a QEMU that does not offer it cannot take the device's state.
 *
 *   x-query-virtio -> for each: x-query-virtio-status -> the answer of `deviceFeatures`
 *
 * The commands are marked unstable by QEMU; one that does not have them (or says it in other words) is answered as
 * "not known", which the node takes for no objection. */

struct guest_devices {
	struct launcher *l;
	struct ipc_call *call;
	struct qmp_slot *slot;
	struct json *list; /* [{"name", "path"}] */
	struct json *out;
	size_t next;
};

struct guest_devices *guest_devices_free(struct guest_devices *g)
{
	if (!g)
		return NULL;
	if (g->call)
		ipc_call_fail(g->call, RC_CLOSED, "QEMU can no longer be asked");
	g->slot = qmp_slot_free(g->slot);
	js_unref(g->list);
	js_unref(g->out);
	return mem_free(g);
}

static void fail(struct guest_devices *g, enum rc rc, const char *why)
{
	struct launcher *l = g->l;

	ipc_call_fail(STEAL(g->call), rc, "%s", why);
	l->asking_devices = guest_devices_free(g);
}

/* "VIRTIO_NET_F_HOST_USO: Driver can …" -> "VIRTIO_NET_F_HOST_USO" */
static enum rc add_names(struct json *out, const struct json *texts)
{
	for (size_t i = 0; i < js_len(texts); i++) {
		const char *text = js_str(js_item(texts, i));

		if (text)
			TRY(js_append(out, js_new_strn(text, strcspn(text, ":"))));
	}
	return RC_OK;
}

/* Bits without a name in QEMU's table are compared as they are. */
static struct json *names_of(const struct json *features)
{
	struct json *out = js_new_array();
	int64_t unknown = js_get_int(features, "unknown-dev-features", 0);
	enum rc rc = out ? RC_OK : RC_NOMEM;

	if (!rc)
		rc = add_names(out, js_get(features, "transports"));
	if (!rc)
		rc = add_names(out, js_get(features, "dev-features"));
	for (int bit = 0; !rc && bit < 63; bit++) {
		CLEANUP(mem_freep) char *name = NULL;

		if (!(unknown >> bit & 1))
			continue;
		name = mem_printf("bit %d", bit);
		rc = name ? js_append(out, js_new_str(name)) : RC_NOMEM;
	}
	return rc ? js_unref(out) : out;
}

static void ask_next(struct guest_devices *g);

static void on_status(const struct qmp_reply *r, void *arg)
{
	struct guest_devices *g = arg;
	const struct json *d = js_item(g->list, g->next);

	g->slot = qmp_slot_free(g->slot);
	if (r->rc) {
		fail(g, r->rc, r->desc);
		return;
	}
	if (js_append(g->out, js_pack("{s:s, s:s, s:o, s:o}", "name", js_get_str(d, "name"), "path",
				      js_get_str(d, "path"), "offered",
				      names_of(js_get(r->value, "host-features")), "negotiated",
				      names_of(js_get(r->value, "guest-features"))))) {
		fail(g, RC_NOMEM, "out of memory");
		return;
	}
	g->next++;
	ask_next(g);
}

static void ask(struct guest_devices *g, const char *command, struct json *args, qmp_reply_fn fn)
{
	struct qmp_call c = {
		.command = command, .args = args, .timeout = QMP_TIMEOUT, .fn = fn, .arg = g};
	struct err err = {0};

	if (qmp_invoke(g->l->qmp, &g->slot, &c, &err))
		fail(g, err.rc, err.msg);
}

static void ask_next(struct guest_devices *g)
{
	const struct json *d = js_item(g->list, g->next);
	struct launcher *l = g->l;

	if (d) {
		ask(g, "x-query-virtio-status", js_pack("{s:s*}", "path", js_get_str(d, "path")),
		    on_status);
		return;
	}
	ipc_call_done(STEAL(g->call), js_pack("{s:O}", "devices", g->out), NULL, 0);
	l->asking_devices = guest_devices_free(g);
}

static void on_list(const struct qmp_reply *r, void *arg)
{
	struct guest_devices *g = arg;

	g->slot = qmp_slot_free(g->slot);
	if (r->rc) {
		fail(g, r->rc, r->desc);
		return;
	}
	g->list = js_ref(r->value);
	ask_next(g);
}

void guest_devices_ask(struct launcher *l, struct ipc_call *call)
{
	struct guest_devices *g;

	if (l->asking_devices || !qmp_is_ready(l->qmp)) {
		ipc_call_fail(call, RC_BUSY, "QEMU cannot be asked right now");
		return;
	}
	g = mem_alloc(sizeof(*g));
	if (!g) {
		ipc_call_fail(call, RC_NOMEM, "out of memory");
		return;
	}
	g->l = l;
	g->call = call;
	g->out = js_new_array();
	l->asking_devices = g;
	if (g->out)
		ask(g, "x-query-virtio", NULL, on_list);
	else
		fail(g, RC_NOMEM, "out of memory");
}
