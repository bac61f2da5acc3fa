/* The display of a VM that runs here, by its launcher. */
#include "base/mem.h"
#include "json/json.h"
#include "virt/node/vm_int.h"

/* A pointer that is to be moved first takes half a second more, and QEMU may be busy. */
#define PICTURE_DEADLINE (15 * USEC_PER_SEC)

struct shown {
	vm_done_fn fn;
	void *arg;
};

static void on_answer(const struct ipc_reply *r, void *arg)
{
	struct shown *d = arg;

	d->fn(r->rc, r->message, r->rc ? -1 : ipc_fds_take(r->fds, 0), d->arg);
	mem_free(d);
}

static enum rc ask(struct vm *vm, const char *method, struct json *params, vm_done_fn fn, void *arg,
		   struct err *err)
{
	struct shown *d = mem_alloc(sizeof(*d));

	if (!d) {
		js_unref(params);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	*d = (struct shown){.fn = fn, .arg = arg};
	enum rc rc = vm_call(vm, method, params, PICTURE_DEADLINE, on_answer, d, err);

	if (rc)
		mem_free(d);
	return rc;
}

enum rc vm_display_open(struct vm *vm, vm_done_fn fn, void *arg, struct err *err)
{
	return ask(vm, "vnc", NULL, fn, arg, err);
}

enum rc vm_screenshot(struct vm *vm, bool move_cursor, vm_done_fn fn, void *arg, struct err *err)
{
	struct json *params = js_pack("{s:b}", "moveCursor", (int)move_cursor);

	return params ? ask(vm, "screenshot", params, fn, arg, err)
		      : err_set(err, RC_NOMEM, "out of memory");
}
