#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/mem.h"
#include "virt/launcher/launcher_int.h"

/* The display: RFB (VNC) sessions and pictures.
 *
 *   vnc          socket pair -> getfd -> add_client -> the other end is the answer
 *   screenshot   [pointer moved, a moment for the guest] -> memfd -> add-fd -> screendump -> remove-fd
 *                -> the file is the answer
 *
 * QEMU's VNC server listens nowhere, and asks for no password: whoever holds the descriptor was let in by the API
 * server.  Both commands hand over descriptors, so QEMU needs no file that it could open.
 *
 * Source: QEMU's QMP reference, getfd, add_client, add-fd, screendump (format since 7.1), input-send-event.
 */

enum { MAX_OPS = 4 };
/* A screen that was switched off needs this long to be painted again; nothing tells when it is. */
static const usec_t WAKE_TIME = USEC_PER_SEC / 2;

struct display_op {
	struct list link;
	struct launcher *l;
	struct ipc_call *call;
	struct qmp_slot *slot;
	struct ev_src *timer;
	int fd; /* what the caller gets */
	char name[24];
	int64_t set;	/* QEMU's number of the file; -1: none */
	unsigned moves; /* of the pointer: tried so far */
	unsigned moved;
};

static void op_free(struct display_op *o)
{
	list_remove(&o->link);
	o->l->n_displays--;
	qmp_slot_free(o->slot);
	ev_src_free(o->timer);
	fd_close(o->fd);
	mem_free(o);
}

static void op_fail(struct display_op *o, enum rc rc, const char *why)
{
	ipc_call_fail(STEAL(o->call), rc, "%s", why);
	op_free(o);
}

static void op_done(struct display_op *o)
{
	int fd = STEAL_FD(o->fd);

	ipc_call_done(STEAL(o->call), js_new_object(), &fd, 1);
	op_free(o);
}

/* fd is consumed; 0: none.  A failure ends the op. */
static void ask(struct display_op *o, const char *command, struct json *args, int fd,
		qmp_reply_fn fn)
{
	struct qmp_call c = {.command = command,
			     .args = args,
			     .timeout = QMP_TIMEOUT,
			     .fd = fd,
			     .fn = fn,
			     .arg = o};
	struct err err = {0};

	if (qmp_invoke(o->l->qmp, &o->slot, &c, &err))
		op_fail(o, err.rc, err.msg);
}

/* What QEMU would keep for ever; it may have gone, and its descriptors with it. */
static void forget(struct launcher *l, const char *command, struct json *args)
{
	struct qmp_call c = {.command = command, .args = args, .timeout = QMP_TIMEOUT};

	ignore_rc(qmp_invoke(l->qmp, NULL, &c, NULL));
}

/* NULL: the call has been answered. */
static struct display_op *begin(struct launcher *l, struct ipc_call *call)
{
	static unsigned count;
	struct display_op *o;

	if (!vm_is_alive(l) || l->state == VM_STARTING) {
		ipc_call_fail(call, RC_CONFLICT, "there is no running VM");
		return NULL;
	}
	if (l->spec->video == LAUNCH_VIDEO_NONE) {
		ipc_call_fail(call, RC_NOT_FOUND, "this VM has no graphics card");
		return NULL;
	}
	if (l->n_displays >= MAX_OPS || !qmp_is_ready(l->qmp)) {
		ipc_call_fail(call, RC_BUSY, "QEMU cannot be asked right now");
		return NULL;
	}
	o = mem_alloc(sizeof(*o));
	if (!o) {
		ipc_call_fail(call, RC_NOMEM, "out of memory");
		return NULL;
	}
	o->l = l;
	o->call = call;
	o->fd = -1;
	o->set = -1;
	(void)snprintf(o->name, sizeof(o->name), "vnc%u", count++);
	list_push_tail(&l->displays, &o->link);
	l->n_displays++;
	return o;
}

void display_end(struct launcher *l, const char *why)
{
	while (!list_is_empty(&l->displays))
		op_fail(LIST_ENTRY(l->displays.next, struct display_op, link), RC_CLOSED, why);
}

/* --- a session --- */

static void on_client(const struct qmp_reply *r, void *arg)
{
	struct display_op *o = arg;

	o->slot = qmp_slot_free(o->slot);
	if (!r->rc) {
		op_done(o);
		return;
	}
	forget(o->l, "closefd", js_pack("{s:s}", "fdname", o->name));
	op_fail(o, r->rc, r->desc);
}

static void on_session_fd(const struct qmp_reply *r, void *arg)
{
	struct display_op *o = arg;

	o->slot = qmp_slot_free(o->slot);
	if (r->rc)
		op_fail(o, r->rc, r->desc);
	else
		ask(o, "add_client", js_pack("{s:s, s:s}", "protocol", "vnc", "fdname", o->name), 0,
		    on_client);
}

void display_vnc(struct launcher *l, struct ipc_call *call)
{
	struct display_op *o = begin(l, call);
	int pair[2];

	if (!o)
		return;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		op_fail(o, RC_IO, "cannot make a socket pair");
		return;
	}
	o->fd = pair[0];
	ask(o, "getfd", js_pack("{s:s}", "fdname", o->name), pair[1], on_session_fd);
}

/* --- a picture --- */

static void on_picture(const struct qmp_reply *r, void *arg)
{
	struct display_op *o = arg;
	struct stat st;

	o->slot = qmp_slot_free(o->slot);
	forget(o->l, "remove-fd", js_pack("{s:I}", "fdset-id", o->set));
	if (r->rc)
		op_fail(o, r->rc, r->desc);
	else if (fstat(o->fd, &st) < 0 || st.st_size <= 0)
		op_fail(o, RC_IO, "QEMU has written no picture");
	else if (st.st_size > LIMIT_PICTURE_BYTES)
		op_fail(o, RC_TOO_BIG, "the picture is larger than 16 MiB");
	else
		op_done(o);
}

static void on_file(const struct qmp_reply *r, void *arg)
{
	struct display_op *o = arg;
	char path[40];

	o->slot = qmp_slot_free(o->slot);
	o->set = r->rc ? -1 : js_get_int(r->value, "fdset-id", -1);
	if (r->rc || o->set < 0) {
		op_fail(o, r->rc ? r->rc : RC_IO, r->rc ? r->desc : "QEMU has not taken the file");
		return;
	}
	(void)snprintf(path, sizeof(path), "/dev/fdset/%lld", (long long)o->set);
	ask(o, "screendump", js_pack("{s:s, s:s}", "filename", path, "format", "png"), 0,
	    on_picture);
}

/* QEMU uses a descriptor of a set only for the access that it was opened with: writing alone. */
static void take_picture(struct display_op *o)
{
	char path[40];

	o->fd = memfd_create("ferry-screenshot", MFD_CLOEXEC);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", o->fd);
	int to = o->fd < 0 ? -1 : open(path, O_WRONLY | O_CLOEXEC);

	if (to < 0)
		op_fail(o, RC_IO, "cannot make a file for the picture");
	else
		ask(o, "add-fd", js_pack("{s:s}", "opaque", "screenshot"), to, on_file);
}

static void on_awake(void *arg)
{
	struct display_op *o = arg;

	o->timer = ev_src_free(o->timer);
	take_picture(o);
}

static void move_pointer(struct display_op *o);

static void on_moved(const struct qmp_reply *r, void *arg)
{
	struct display_op *o = arg;

	o->slot = qmp_slot_free(o->slot);
	o->moved += !r->rc; /* no pointer of this kind: the other one, then */
	move_pointer(o);
}

/* A mouse one step to and fro, and a tablet; most guests have one of them. */
static void move_pointer(struct display_op *o)
{
	static const struct {
		const char *type;
		int value;
	} moves[] = {{"rel", 1}, {"rel", -1}, {"abs", 16383}, {"abs", 16384}};
	struct err err = {0};

	if (o->moves < ARRAY_SIZE(moves)) {
		unsigned i = o->moves++;

		ask(o, "input-send-event",
		    js_pack("{s:[{s:s, s:{s:s, s:i}}]}", "events", "type", moves[i].type, "data",
			    "axis", "x", "value", moves[i].value),
		    0, on_moved);
	} else if (!o->moved) {
		op_fail(o, RC_UNSUPPORTED, "this VM has no pointer that could be moved");
	} else if (ev_timer_after(o->l->loop, &o->timer, WAKE_TIME, on_awake, o, &err)) {
		op_fail(o, err.rc, err.msg);
	}
}

void display_screenshot(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct display_op *o;

	/* QEMU's loop does nothing else while it writes one; not in the middle of a pause. */
	if (l->state == VM_PRE_SWITCHOVER) {
		ipc_call_fail(call, RC_BUSY, "the guest is being handed over right now");
		return;
	}
	o = begin(l, call);
	/* A guest that stands would not see it, and QEMU refuses it. */
	if (o && js_get_bool(params, "moveCursor", false) && l->state != VM_PAUSED &&
	    l->state != VM_PRELAUNCH)
		move_pointer(o);
	else if (o)
		take_picture(o);
}
