/* What a moving guest's drivers have taken of its virtio devices has to be offered where it goes: the source asks its
 * QEMU when the move begins, the target asks its own, and compares before it hands the key out. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/migration/compat.h"
#include "virt/node/migration_int.h"

#define ASK_DEADLINE (2 * USEC_PER_SEC)

enum { NAMES_MAX = 64 };

static void on_devices(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;

	vm->asks_devices = false;
	vm->devices = js_unref(vm->devices);
	if (r->rc)
		log_warn(
			"VM '%s/%s': what its devices offer is not known, they are not compared: %s",
			vm->ns, vm->name, r->message);
	else
		vm->devices = js_ref(js_get(r->result, "devices"));
	vm_kick(vm);
}

void mig_devices_ask(struct vm *vm)
{
	struct err err;

	vm->devices = js_unref(vm->devices);
	vm->asks_devices = true;
	if (!vm_call(vm, "deviceFeatures", NULL, ASK_DEADLINE, on_devices, vm, &err))
		return;
	vm->asks_devices = false;
	log_warn("VM '%s/%s': what its devices offer is not known, they are not compared: %s",
		 vm->ns, vm->name, err.msg);
}

static bool offers(const struct json *device, const char *feature)
{
	const struct json *list = js_get(device, "offered");

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_str(js_item(list, i)), feature))
			return true;
	return false;
}

static const struct json *same_device(const struct json *list, const struct json *device)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "path"), js_get_str(device, "path")))
			return js_item(list, i);
	return NULL;
}

static size_t missing_of(const struct json *theirs, const struct json *ours,
			 const char *names[NAMES_MAX])
{
	const struct json *list = js_get(theirs, "negotiated");
	size_t n = 0;

	for (size_t i = 0; i < js_len(list) && n < NAMES_MAX; i++) {
		const char *name = js_str(js_item(list, i));

		if (name && !offers(ours, name))
			names[n++] = name;
	}
	return n;
}

bool mig_devices_lack(const struct json *ours, const struct json *theirs, const char *node,
		      char *why, size_t size)
{
	const char *names[NAMES_MAX];

	for (size_t i = 0; ours && i < js_len(theirs); i++) {
		const struct json *d = js_item(theirs, i);
		size_t n = missing_of(d, same_device(ours, d), names);
		const char *path = js_get_str(d, "path"), *name = js_get_str(d, "name");
		CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);

		if (!n)
			continue;
		compat_print_names(names, n, &b);
		(void)snprintf(why, size,
			       "QEMU on node %s does not offer %s, which the guest uses of its %s "
			       "(%s)",
			       node, sbuf_str(&b), name ? name : "device", path ? path : "");
		return true;
	}
	return false;
}
