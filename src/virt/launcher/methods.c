#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/launcher/launcher_int.h"
#include "virt/launcher/move_int.h"

/* The protocol's methods: which members each may have, and who does the work. */

enum { MAX_PARAMS = 8, MAX_WAITING = 32 };

/* Takes the descriptors of this message under the names in params. */
static enum rc take_fds(struct launcher *l, const struct json *params, struct ipc_fds *fds,
			struct err *err)
{
	const struct json *names = js_get(params, "names");

	if (js_len(names) != fds->n)
		return err_set(err, RC_INVALID, "names: %zu names for %zu descriptors",
			       js_len(names), fds->n);
	if (l->n_fds + fds->n > MAX_PUT_FDS)
		return err_set(err, RC_TOO_BIG, "more than %d descriptors", MAX_PUT_FDS);
	for (size_t i = 0; i < fds->n; i++) {
		const char *name = js_str(js_item(names, i));
		struct stat st;

		if (str_is_empty(name) || strlen(name) > 300)
			return err_set(err, RC_INVALID, "names[%zu]: a name of 1 to 300 bytes", i);
		if (qemu_fd_find(l->fds, l->n_fds, name))
			return err_set(err, RC_EXISTS,
				       "a descriptor named '%s' was handed over before", name);
		char *copy = mem_strdup(name);

		if (!copy)
			return err_set(err, RC_NOMEM, "out of memory");
		struct qemu_fd *f = &l->fds[l->n_fds++];

		*f = (struct qemu_fd){.name = copy, .fd = ipc_fds_take(fds, i)};
		f->is_block = fstat(f->fd, &st) == 0 && S_ISBLK(st.st_mode);
	}
	return RC_OK;
}

static void m_put_fds(struct launcher *l, struct ipc_call *call, const struct json *params,
		      struct ipc_fds *fds)
{
	struct err err = {0};

	if (l->state != VM_NONE)
		ipc_call_fail(call, RC_CONFLICT, "this launcher's VM has been started already");
	else if (take_fds(l, params, fds, &err))
		ipc_call_fail_err(call, &err);
	else
		ipc_call_done(call, js_new_object(), NULL, 0);
}

static void m_start(struct launcher *l, struct ipc_call *call, const struct json *params,
		    struct ipc_fds *fds)
{
	struct err err = {0};

	if (l->state == VM_NONE && take_fds(l, params, fds, &err))
		ipc_call_fail_err(call, &err);
	else
		vm_start(l, call, params, fds);
}

static void m_query(struct launcher *l, struct ipc_call *call, const struct json *params,
		    struct ipc_fds *fds)
{
	ipc_call_done(call, vm_describe(l), NULL, 0);
}

static bool need_vm(struct launcher *l, struct ipc_call *call)
{
	if (vm_is_alive(l))
		return true;
	ipc_call_fail(call, RC_CONFLICT, "there is no running VM");
	return false;
}

static void m_shutdown(struct launcher *l, struct ipc_call *call, const struct json *params,
		       struct ipc_fds *fds)
{
	int64_t grace = js_get_int(params, "graceSeconds", -1);

	if (!need_vm(l, call))
		return;
	if (grace < 0 || grace > 1000000) {
		ipc_call_fail(call, RC_INVALID, "graceSeconds: must be in 0..1000000");
		return;
	}
	vm_powerdown(l, (usec_t)grace * USEC_PER_SEC);
	ipc_call_done(call, js_new_object(), NULL, 0);
}

static void m_kill(struct launcher *l, struct ipc_call *call, const struct json *params,
		   struct ipc_fds *fds)
{
	if (!need_vm(l, call))
		return;
	vm_kill(l, "Killed", 3 * USEC_PER_SEC);
	ipc_call_done(call, js_new_object(), NULL, 0);
}

static void m_pause(struct launcher *l, struct ipc_call *call, const struct json *params,
		    struct ipc_fds *fds)
{
	vm_pause(l, call);
}

static void m_unpause(struct launcher *l, struct ipc_call *call, const struct json *params,
		      struct ipc_fds *fds)
{
	vm_unpause(l, call);
}

static void m_reset(struct launcher *l, struct ipc_call *call, const struct json *params,
		    struct ipc_fds *fds)
{
	vm_reset(l, call);
}

static void m_soft_reboot(struct launcher *l, struct ipc_call *call, const struct json *params,
			  struct ipc_fds *fds)
{
	vm_soft_reboot(l, call);
}

#define AGENT_METHOD(name_)                                                         \
	static void m_guest_##name_(struct launcher *l, struct ipc_call *call,      \
				    const struct json *params, struct ipc_fds *fds) \
	{                                                                           \
		guest_agent_##name_(l, call);                                       \
	}
AGENT_METHOD(info)
AGENT_METHOD(users)
AGENT_METHOD(filesystems)
AGENT_METHOD(thaw)

static void m_guest_freeze(struct launcher *l, struct ipc_call *call, const struct json *params,
			   struct ipc_fds *fds)
{
	guest_agent_freeze(l, call, params);
}

static void m_guest_thaw_at(struct launcher *l, struct ipc_call *call, const struct json *params,
			    struct ipc_fds *fds)
{
	guest_agent_thaw_at(l, call, params);
}

static void m_console(struct launcher *l, struct ipc_call *call, const struct json *params,
		      struct ipc_fds *fds)
{
	console_open(l, call);
}

static void m_vnc(struct launcher *l, struct ipc_call *call, const struct json *params,
		  struct ipc_fds *fds)
{
	display_vnc(l, call);
}

static void m_screenshot(struct launcher *l, struct ipc_call *call, const struct json *params,
			 struct ipc_fds *fds)
{
	display_screenshot(l, call, params);
}

#define MOVE_METHOD(name_)                                                    \
	static void m_##name_(struct launcher *l, struct ipc_call *call,      \
			      const struct json *params, struct ipc_fds *fds) \
	{                                                                     \
		move_##name_(l, call, params);                                \
	}
MOVE_METHOD(prepare_incoming)
MOVE_METHOD(start_outgoing)
MOVE_METHOD(continue)
MOVE_METHOD(cancel)
MOVE_METHOD(finish)
MOVE_METHOD(release)
MOVE_METHOD(resume_source)
MOVE_METHOD(resume_incoming)
MOVE_METHOD(abort_incoming)
MOVE_METHOD(start_post_copy)
MOVE_METHOD(recover_incoming)
MOVE_METHOD(recover_outgoing)

static void m_stats(struct launcher *l, struct ipc_call *call, const struct json *params,
		    struct ipc_fds *fds)
{
	struct json *j = move_describe(l);

	if (j || l->move)
		ipc_call_done(call, j, NULL, 0);
	else
		ipc_call_fail(call, RC_NOT_FOUND, "this VM has not moved so far");
}

static void m_usage(struct launcher *l, struct ipc_call *call, const struct json *params,
		    struct ipc_fds *fds)
{
	if (need_vm(l, call))
		usage_ask(l, call);
}

static void m_device_features(struct launcher *l, struct ipc_call *call, const struct json *params,
			      struct ipc_fds *fds)
{
	if (need_vm(l, call))
		guest_devices_ask(l, call);
}

static void on_exit_deferred(void *arg)
{
	struct launcher *l = arg;

	loop_quit(l->loop, 0);
}

static void m_exit(struct launcher *l, struct ipc_call *call, const struct json *params,
		   struct ipc_fds *fds)
{
	struct err err = {0};

	if (vm_is_alive(l)) {
		ipc_call_fail(call, RC_CONFLICT, "a VM is %s", vm_state_name(l->state));
		return;
	}
	/* A moment later: the answer must leave first. */
	if (!l->exit_defer &&
	    ev_timer_after(l->loop, &l->exit_defer, 20 * USEC_PER_MSEC, on_exit_deferred, l, &err))
		ipc_call_fail_err(call, &err);
	else
		ipc_call_done(call, js_new_object(), NULL, 0);
}

static const struct method {
	const char *name;
	void (*fn)(struct launcher *l, struct ipc_call *call, const struct json *params,
		   struct ipc_fds *fds);
	const char *params[MAX_PARAMS]; /* all that it may have */
	bool any_time;			/* needs no known state */
} methods[] = {
	{"putFds", m_put_fds, {"names"}, true},
	{"start", m_start, {"spec", "mode", "names"}, true},
	{"query", m_query, {0}, true},
	{"shutdown", m_shutdown, {"graceSeconds"}, true},
	{"kill", m_kill, {0}, true},
	{"pause", m_pause, {0}},
	{"unpause", m_unpause, {0}},
	{"reset", m_reset, {0}},
	{"softReboot", m_soft_reboot, {0}},
	{"guestInfo", m_guest_info, {0}},
	{"guestUsers", m_guest_users, {0}},
	{"guestFilesystems", m_guest_filesystems, {0}},
	{"guestFreeze", m_guest_freeze, {"unfreezeTimeoutSeconds"}},
	{"guestThaw", m_guest_thaw, {0}},
	{"guestThawAt", m_guest_thaw_at, {"at"}},
	{"console", m_console, {0}},
	{"vnc", m_vnc, {0}},
	{"screenshot", m_screenshot, {"moveCursor"}},
	{"prepareIncoming",
	 m_prepare_incoming,
	 {"migrationUid", "address", "port", "nbdPort", "tls", "options"}},
	{"startOutgoing",
	 m_start_outgoing,
	 {"migrationUid", "address", "port", "nbdPort", "tls", "options", "disks"}},
	{"continueOutgoing", m_continue, {"migrationUid", "epoch"}},
	{"cancelOutgoing", m_cancel, {"migrationUid", "reason"}},
	{"finishOutgoing", m_finish, {"migrationUid", "timeoutMs"}},
	{"release", m_release, {"migrationUid", "epoch"}},
	{"resumeSource", m_resume_source, {"migrationUid"}},
	{"resumeIncoming", m_resume_incoming, {"migrationUid", "epoch", "timeoutMs", "paused"}},
	{"abortIncoming", m_abort_incoming, {"migrationUid", "reason"}},
	{"startPostCopy", m_start_post_copy, {"migrationUid"}},
	{"recoverIncoming", m_recover_incoming, {"migrationUid", "port"}},
	{"recoverOutgoing", m_recover_outgoing, {"migrationUid", "port"}},
	{"migrationStats", m_stats, {0}, true},
	{"deviceFeatures", m_device_features, {0}},
	{"usage", m_usage, {0}},
	{"exit", m_exit, {0}, true},
};

static const char *unknown_param(const struct method *m, const struct json *params)
{
	JS_FOREACH(it, params) {
		bool known = false;

		for (size_t i = 0; i < MAX_PARAMS && m->params[i]; i++)
			known |= str_eq(it.key, m->params[i]);
		if (!known)
			return it.key;
	}
	return NULL;
}

/* A launcher that has just found its VM does not know its state for a moment: requests wait for it,
 * rather than being refused for a reason that is none. */
struct waiting {
	struct list link;
	const struct method *method;
	struct json *params;
	struct ipc_call *call;
};

static bool put_aside(struct launcher *l, const struct method *m, struct ipc_call *call,
		      const struct json *params)
{
	struct waiting *w;

	if (!l->adopting || l->state != VM_STARTING || m->any_time || l->n_waiting >= MAX_WAITING)
		return false;
	w = mem_alloc(sizeof(*w));
	if (!w)
		return false;
	w->method = m;
	w->params = js_ref(params);
	w->call = call;
	list_push_tail(&l->waiting, &w->link);
	l->n_waiting++;
	return true;
}

static struct waiting *next_waiting(struct launcher *l)
{
	struct list *it = l->n_waiting ? list_pop_head(&l->waiting) : NULL;

	if (!it)
		return NULL;
	l->n_waiting--;
	return LIST_ENTRY(it, struct waiting, link);
}

void methods_go_on(struct launcher *l)
{
	for (struct waiting *w; (w = next_waiting(l));) {
		struct ipc_fds none = {.n = 0};

		w->method->fn(l, w->call, w->params, &none);
		js_unref(w->params);
		mem_free(w);
	}
}

void methods_end(struct launcher *l)
{
	for (struct waiting *w; (w = next_waiting(l));) {
		ipc_call_fail(w->call, RC_CLOSED, "the launcher ends");
		js_unref(w->params);
		mem_free(w);
	}
}

static void on_request(struct ipc_call *call, const char *name, const struct json *params,
		       struct ipc_fds *fds, void *arg)
{
	const struct method *m = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(methods) && !m; i++)
		if (str_eq(name, methods[i].name))
			m = &methods[i];
	const char *unknown = m ? unknown_param(m, params) : NULL;

	if (!m)
		ipc_call_fail(call, RC_METHOD, "there is no method '%.60s'", name);
	else if (unknown)
		ipc_call_fail(call, RC_INVALID, "%.60s: unknown member", unknown);
	else if (!put_aside(arg, m, call, params))
		m->fn(arg, call, params, fds);
}

static void on_clients(size_t n, void *arg)
{
	(void)n;
	launcher_check_idle(arg);
}

const struct ipc_server_ops launcher_methods = {.on_request = on_request, .on_clients = on_clients};
