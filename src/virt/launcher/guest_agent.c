#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/launcher/agent_facts.h"
#include "virt/launcher/launcher_int.h"
#include "virt/launcher/qga.h"

/* The guest's agent.  QEMU tells when a process in the guest has opened the port (VSERPORT_CHANGE); then what it says of
 * itself is asked, told to the node (event "agent"), and asked again now and then, told only when it has changed.
 *
 * A guest that stands or is about to leave is not asked: what was under way is refused as "busy", and the launcher of
 * its target asks anew when the guest runs there.
 *
 * While file systems are frozen the agent takes only a handful of commands, so it is asked no more than whether they
 * still are.  A freeze with a time-out is ended here when that is over, whoever is gone by then.
 */
static const usec_t ANSWER_TIMEOUT = 5 * USEC_PER_SEC, FREEZE_TIMEOUT = 60 * USEC_PER_SEC,
		    LOOK_FIRST = 10 * USEC_PER_SEC, LOOK_MAX = 120 * USEC_PER_SEC,
		    ARRIVAL = 3 * USEC_PER_SEC, THAW_AGAIN = 5 * USEC_PER_SEC;
enum { THAW_MAX_SECONDS = 1000000, MAX_ROUNDS = 8 };

static const char *const look_for[] = {"guest-info", "guest-get-osinfo",
				       "guest-network-get-interfaces", "guest-fsfreeze-status",
				       NULL};
static const char *const info_for[] = {
	"guest-info",	   "guest-get-osinfo", "guest-get-host-name",	"guest-get-timezone",
	"guest-get-users", "guest-get-fsinfo", "guest-fsfreeze-status", NULL};
static const char *const users_for[] = {"guest-get-users", NULL};
static const char *const filesystems_for[] = {"guest-get-fsinfo", NULL};

struct guest_agent {
	struct launcher *l;
	struct qga *qga; /* NULL: nobody is there, or the guest is not to be asked */
	struct qmp_slot *slot;
	bool is_open, is_known; /* of the port */
	bool is_connected;	/* it has answered */
	bool is_frozen;
	struct json *told; /* the last event; NULL: none so far */
	struct json *info; /* guest-info's value; NULL: not known */
	struct ev_src *timer, *arrival;
	usec_t wait;
	struct ev_src *thaw_timer;
	usec_t thaw_at; /* realtime; 0: not asked for */
	struct list rounds, orders;
	unsigned n_rounds; /* of both */
};

/* Several commands, one after the other; what came of them. */
struct round {
	struct list link;
	struct guest_agent *a;
	const char *const *next;
	struct json *values;
	struct ipc_call *call; /* NULL: a look of our own */
	const char *must; /* without this command's answer there is none; NULL: there always is */
	struct json *(*shape)(const struct json *values);
};

/* One command, and what follows from its answer. */
struct order {
	struct list link;
	struct guest_agent *a;
	struct ipc_call *call; /* NULL: for nobody */
	const char *first;     /* command */
	qga_reply_fn fn;
	usec_t thaw_after; /* 0: never */
	bool is_reboot;
};

static void round_free(struct round *r)
{
	list_remove(&r->link);
	r->a->n_rounds--;
	js_unref(r->values);
	mem_free(r);
}

static void look_later(struct guest_agent *a, usec_t wait);
static void thaw_later(struct guest_agent *a, usec_t wait);
static void ask_next(struct round *r);
static void order_free(struct order *o);
static void on_thawed(const struct qga_reply *r, void *arg);

/* --- telling --- */

/* Consumes facts. */
static void tell(struct guest_agent *a, struct json *facts)
{
	if (facts && a->is_frozen && a->thaw_at &&
	    js_set(facts, "thawAt", js_new_int((int64_t)a->thaw_at)))
		facts = js_unref(facts);
	if (!facts || js_equal(facts, a->told)) {
		js_unref(facts);
		return;
	}
	js_unref(a->told);
	a->told = facts;
	ipc_server_event(a->l->server, "agent", js_ref(facts));
}

static void tell_gone(struct guest_agent *a)
{
	a->is_connected = false;
	tell(a, js_pack("{s:b}", "connected", 0));
}

/* What was told, with frozen as it is by now. */
static void tell_frozen(struct guest_agent *a)
{
	struct json *facts = js_copy(a->told);

	js_del(facts, "thawAt");
	if (js_set(facts, "frozen", js_new_bool(a->is_frozen)))
		facts = js_unref(facts);
	tell(a, facts);
}

struct json *guest_agent_json(const struct launcher *l)
{
	return l->agent ? js_ref(l->agent->told) : NULL;
}

bool guest_agent_is_connected(const struct launcher *l)
{
	return l->agent && l->agent->qga && l->agent->is_connected;
}

/* --- the channel --- */

static bool may_ask(const struct launcher *l)
{
	return l->state == VM_RUNNING || l->state == VM_MIGRATING;
}

static void drop(struct guest_agent *a, enum rc rc, const char *why)
{
	a->qga = qga_free(a->qga);
	a->timer = ev_src_free(a->timer);
	LIST_FOREACH_SAFE(it, tmp, &a->rounds) {
		struct round *r = LIST_ENTRY(it, struct round, link);

		if (r->call)
			ipc_call_fail(r->call, rc, "%s", why);
		round_free(r);
	}
	LIST_FOREACH_SAFE(it, tmp, &a->orders) {
		struct order *o = LIST_ENTRY(it, struct order, link);

		if (o->call)
			ipc_call_fail(o->call, rc, "%s", why);
		order_free(o);
	}
}

static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct guest_agent *a = arg;

	log_warn("vm: guest agent: %s", why);
	drop(a, rc, why);
	tell_gone(a);
	a->wait = rc == RC_TOO_BIG ? LOOK_MAX : a->wait;
	look_later(a, a->wait ? a->wait : LOOK_FIRST);
}

static const struct qga_ops qga_ops = {.on_closed = on_closed};

static enum rc connect_agent(struct guest_agent *a, struct err *err)
{
	char path[PATH_LEN];
	int fd = -1;

	path_in(a->l, GUEST_AGENT_SOCKET, path);
	enum rc rc = file_connect_unix(path, &fd, err);

	return rc ? rc
		  : qga_new(&a->qga, a->l->loop, fd, (uint64_t)loop_realtime(a->l->loop), &qga_ops,
			    a, err);
}

/* --- rounds --- */

static void end_look(struct guest_agent *a, struct round *r, enum rc rc)
{
	struct json *values = js_ref(r->values);

	round_free(r);
	a->wait = MIN(MAX(2 * a->wait, LOOK_FIRST), LOOK_MAX);
	look_later(a, a->wait);
	if (rc) {
		tell_gone(a);
	} else {
		a->is_connected = true;
		a->is_frozen = agent_facts_is_frozen(values);
		if (!a->is_frozen) {
			a->thaw_at = 0;
			a->thaw_timer = ev_src_free(a->thaw_timer);
		}
		/* Of a frozen guest nothing else was asked. */
		if (a->is_frozen && js_get_bool(a->told, "connected", false))
			tell_frozen(a);
		else
			tell(a, agent_facts_status(values));
	}
	js_unref(values);
}

static void end_round(struct round *r, enum rc rc, const char *why)
{
	struct guest_agent *a = r->a;

	if (!r->call) {
		end_look(a, r, rc);
		return;
	}
	if (!rc && r->must && !js_get(r->values, r->must)) {
		rc = RC_CONFLICT;
		why = a->is_frozen ? "the guest's file systems are frozen, and its agent tells "
				     "nothing else"
				   : "the guest agent does not tell";
	}
	struct json *result = rc ? NULL : r->shape(r->values);

	if (rc)
		ipc_call_fail(r->call, rc, "%s", why);
	else if (result)
		ipc_call_done(r->call, result, NULL, 0);
	else
		ipc_call_fail(r->call, RC_NOMEM, "out of memory");
	round_free(r);
}

static void on_value(const struct qga_reply *reply, void *arg)
{
	struct round *r = arg;
	struct guest_agent *a = r->a;
	const char *command = r->next[-1];
	bool is_info = str_eq(command, "guest-info");

	if (reply->rc == RC_TIMEOUT || reply->rc == RC_CLOSED || reply->rc == RC_TOO_BIG ||
	    (reply->rc && is_info)) {
		end_round(r, reply->rc, reply->desc);
		return;
	}
	/* A command that it refuses tells nothing; the others do. */
	if (!reply->rc && js_set(r->values, command, js_ref(reply->value))) {
		end_round(r, RC_NOMEM, "out of memory");
		return;
	}
	if (is_info && !a->is_frozen) { /* then it says of most commands that they are off */
		js_unref(a->info);
		a->info = js_ref(reply->value);
	}
	ask_next(r);
}

static bool is_asked(const struct guest_agent *a, const char *command)
{
	if (str_eq(command, "guest-info"))
		return true;
	if (a->is_frozen && !str_eq(command, "guest-fsfreeze-status"))
		return false;
	return agent_facts_has(a->info, command);
}

static void ask_next(struct round *r)
{
	struct err err = {0};

	while (*r->next && !is_asked(r->a, *r->next))
		r->next++;
	if (!*r->next) {
		end_round(r, RC_OK, NULL);
		return;
	}
	struct qga_call c = {
		.command = *r->next++, .timeout = ANSWER_TIMEOUT, .fn = on_value, .arg = r};

	if (qga_invoke(r->a->qga, &c, &err))
		end_round(r, err.rc, err.msg);
}

static enum rc begin_round(struct guest_agent *a, const char *const *commands,
			   struct ipc_call *call, struct json *(*shape)(const struct json *))
{
	struct round *r = a->n_rounds < MAX_ROUNDS ? mem_alloc(sizeof(*r)) : NULL;
	struct json *values = js_new_object();

	if (!r || !values) {
		mem_free(r);
		js_unref(values);
		return a->n_rounds < MAX_ROUNDS ? RC_NOMEM : RC_BUSY;
	}
	*r = (struct round){
		.a = a, .next = commands, .values = values, .call = call, .shape = shape};
	r->must = call && !commands[1] ? commands[0] : NULL;
	list_push_tail(&a->rounds, &r->link);
	a->n_rounds++;
	ask_next(r);
	return RC_OK;
}

/* --- looks --- */

static void on_look(void *arg)
{
	struct guest_agent *a = arg;
	struct err err = {0};
	enum rc rc = RC_OK;

	a->timer = ev_src_free(a->timer);
	if (!a->is_open || !may_ask(a->l))
		return; /* asked for when that changes */
	if (!a->qga)
		rc = connect_agent(a, &err);
	if (!rc)
		rc = begin_round(a, look_for, NULL, NULL);
	if (rc) {
		log_warn("vm: the guest agent cannot be asked: %s", err.rc ? err.msg : rc_name(rc));
		look_later(a, LOOK_FIRST);
	}
}

static void look_later(struct guest_agent *a, usec_t wait)
{
	struct err err = {0};

	a->timer = ev_src_free(a->timer);
	if (a->is_open && ev_timer_after(a->l->loop, &a->timer, wait, on_look, a, &err))
		log_error("vm: the guest agent will not be asked again: %s", err.msg);
}

/* A guest that was told to reboot closes the port on its way down: that is its answer. */
static void end_reboots(struct guest_agent *a)
{
	LIST_FOREACH_SAFE(it, tmp, &a->orders) {
		struct order *o = LIST_ENTRY(it, struct order, link);

		if (!o->is_reboot || !qga_was_sent(a->qga))
			continue;
		ipc_call_done(STEAL(o->call), js_new_object(), NULL, 0);
	}
}

static void set_port(struct guest_agent *a, bool is_open)
{
	bool was_open = a->is_open;

	a->is_known = true;
	a->is_open = is_open;
	a->arrival = ev_src_free(a->arrival);
	if (!is_open) {
		end_reboots(a);
		drop(a, RC_CONFLICT, "VMI does not have guest agent connected");
		a->info = js_unref(a->info);
		tell_gone(a);
	} else if (!was_open) {
		a->wait = 0;
		look_later(a, 0);
	}
}

void guest_agent_event(struct launcher *l, const struct json *data)
{
	if (l->agent && str_eq(js_get_str(data, "id"), QEMU_AGENT_PORT))
		set_port(l->agent, js_get_bool(data, "open", false));
}

static void on_chardevs(const struct qmp_reply *r, void *arg)
{
	struct guest_agent *a = arg;

	a->slot = qmp_slot_free(a->slot);
	for (size_t i = 0; !r->rc && i < js_len(r->value); i++)
		if (str_eq(js_get_str(js_item(r->value, i), "label"), QEMU_AGENT_CHARDEV))
			set_port(a, js_get_bool(js_item(r->value, i), "frontend-open", false));
	if (r->rc)
		log_warn("vm: whether a guest agent is there is not known: %s", r->desc);
}

static void ask_port(struct guest_agent *a)
{
	struct qmp_call c = {
		.command = "query-chardev", .timeout = QMP_TIMEOUT, .fn = on_chardevs, .arg = a};
	struct err err = {0};

	if (!a->slot && qmp_is_ready(a->l->qmp) && qmp_invoke(a->l->qmp, &a->slot, &c, &err))
		log_warn("vm: whether a guest agent is there is not known: %s", err.msg);
}

static void on_arrival(void *arg)
{
	struct guest_agent *a = arg;

	a->arrival = ev_src_free(a->arrival);
	if (!a->is_known)
		ask_port(a);
}

void guest_agent_start(struct launcher *l)
{
	if (!l->spec->guest_agent)
		return;
	if (!l->agent) {
		l->agent = mem_alloc(sizeof(*l->agent));
		if (!l->agent) {
			log_error("vm: out of memory: its guest agent is not asked");
			return;
		}
		l->agent->l = l;
		list_init(&l->agent->rounds);
		list_init(&l->agent->orders);
	}
	if (l->state != VM_INCOMING)
		ask_port(l->agent);
}

static void end_guest(struct guest_agent *a)
{
	drop(a, RC_CLOSED, "the guest has ended");
	a->thaw_timer = ev_src_free(a->thaw_timer);
	a->arrival = ev_src_free(a->arrival);
}

void guest_agent_state(struct launcher *l)
{
	struct guest_agent *a = l->agent;
	struct err err = {0};

	if (!a)
		return;
	if (l->state == VM_GONE || l->state == VM_SHUTDOWN || l->state == VM_CRASHED)
		end_guest(a);
	else if (!may_ask(l))
		drop(a, l->state == VM_PAUSED ? RC_CONFLICT : RC_BUSY,
		     l->state == VM_PAUSED ? "VMI is paused" : "the VM is being moved");
	else if (a->is_known && !a->qga && !a->timer)
		look_later(a, 0);
	else if (!a->is_known && l->mode == QEMU_INCOMING && !a->arrival &&
		 ev_timer_after(l->loop, &a->arrival, ARRIVAL, on_arrival, a, &err))
		log_warn("vm: whether a guest agent is there is not known: %s", err.msg);
}

void guest_agent_free(struct launcher *l)
{
	struct guest_agent *a = l->agent;

	l->agent = NULL;
	if (!a)
		return;
	drop(a, RC_CLOSED, "the launcher ends");
	a->slot = qmp_slot_free(a->slot);
	ev_src_free(a->arrival);
	ev_src_free(a->thaw_timer);
	js_unref(a->told);
	js_unref(a->info);
	mem_free(a);
}

void guest_agent_monitor_lost(struct launcher *l)
{
	if (l->agent)
		l->agent->slot = qmp_slot_free(l->agent->slot);
}

/* --- what others ask of it --- */

static bool need_agent(struct launcher *l, struct ipc_call *call)
{
	struct guest_agent *a = l->agent;

	if (l->state == VM_PAUSED || l->state == VM_PRELAUNCH)
		ipc_call_fail(call, RC_CONFLICT, "VMI is paused");
	else if (!may_ask(l))
		ipc_call_fail(call, RC_BUSY, "the VM is %s", vm_state_name(l->state));
	else if (a && (!a->is_known || (a->is_open && (!a->qga || !a->is_connected))))
		ipc_call_fail(call, RC_BUSY, "the guest agent has not answered yet");
	else if (!a || !a->is_open)
		ipc_call_fail(call, RC_CONFLICT, "VMI does not have guest agent connected");
	else
		return true;
	return false;
}

static void ask_round(struct launcher *l, struct ipc_call *call, const char *const *commands,
		      struct json *(*shape)(const struct json *))
{
	if (!need_agent(l, call))
		return;
	enum rc rc = begin_round(l->agent, commands, call, shape);

	if (rc)
		ipc_call_fail(call, rc, "the guest agent cannot be asked right now");
}

void guest_agent_info(struct launcher *l, struct ipc_call *call)
{
	ask_round(l, call, info_for, agent_facts_info);
}

void guest_agent_users(struct launcher *l, struct ipc_call *call)
{
	ask_round(l, call, users_for, agent_facts_users);
}

void guest_agent_filesystems(struct launcher *l, struct ipc_call *call)
{
	ask_round(l, call, filesystems_for, agent_facts_filesystems);
}

/* --- orders: freeze, thaw, reboot --- */

static enum rc send_order(struct order *o, const char *command, struct err *err)
{
	struct qga_call c = {.command = command,
			     .args = o->is_reboot ? js_pack("{s:s}", "mode", "reboot") : NULL,
			     .timeout = o->is_reboot ? ANSWER_TIMEOUT : FREEZE_TIMEOUT,
			     .may_be_silent = o->is_reboot,
			     .fn = o->fn,
			     .arg = o};

	return qga_invoke(o->a->qga, &c, err);
}

static void order_free(struct order *o)
{
	list_remove(&o->link);
	o->a->n_rounds--;
	mem_free(o);
}

static void end_order(struct order *o, enum rc rc, const char *why)
{
	if (o->call && rc)
		ipc_call_fail(o->call, rc, "%s", why);
	else if (o->call)
		ipc_call_done(o->call, js_new_object(), NULL, 0);
	order_free(o);
}

static enum rc give_order(struct guest_agent *a, const struct order *what, struct err *err)
{
	struct order *o = a->n_rounds < MAX_ROUNDS ? mem_alloc(sizeof(*o)) : NULL;

	if (!o)
		return err_set(err, a->n_rounds < MAX_ROUNDS ? RC_NOMEM : RC_BUSY,
			       "the guest agent cannot be asked right now");
	*o = *what;
	o->a = a;
	list_push_tail(&a->orders, &o->link);
	a->n_rounds++;
	enum rc rc = send_order(o, o->first, err);

	if (rc)
		order_free(o);
	return rc;
}

static void on_thaw_due(void *arg)
{
	struct guest_agent *a = arg;
	const struct order thaw = {.first = "guest-fsfreeze-thaw", .fn = on_thawed};
	struct err err = {0};

	a->thaw_timer = ev_src_free(a->thaw_timer);
	thaw_later(a, THAW_AGAIN); /* unless it works */
	if (!a->qga)
		return;
	log_warn("vm: nobody has thawed its file systems in time, they are thawed now");
	if (give_order(a, &thaw, &err))
		log_warn("vm: its file systems cannot be thawed yet: %s", err.msg);
}

static void thaw_later(struct guest_agent *a, usec_t wait)
{
	struct err err = {0};

	a->thaw_timer = ev_src_free(a->thaw_timer);
	if (ev_timer_after(a->l->loop, &a->thaw_timer, wait, on_thaw_due, a, &err))
		log_error("vm: nobody will thaw its file systems: %s", err.msg);
}

static void on_thawed(const struct qga_reply *r, void *arg)
{
	struct order *o = arg;
	struct guest_agent *a = o->a;

	if (!r->rc) {
		a->is_frozen = false;
		a->thaw_at = 0;
		a->thaw_timer = ev_src_free(a->thaw_timer);
		tell_frozen(a);
		look_later(a, 0); /* now it tells the rest */
	}
	end_order(o, r->rc, r->desc);
}

static void on_frozen(const struct qga_reply *r, void *arg)
{
	struct order *o = arg;
	struct guest_agent *a = o->a;

	if (r->rc == RC_TIMEOUT || r->rc == RC_INVALID) /* it may have done it all the same */
		thaw_later(a, 0);
	if (!r->rc) {
		a->is_frozen = true;
		if (o->thaw_after) {
			a->thaw_at = loop_realtime(a->l->loop) + o->thaw_after;
			thaw_later(a, o->thaw_after);
		}
		tell_frozen(a);
	}
	end_order(o, r->rc, r->desc);
}

static void on_freeze_status(const struct qga_reply *r, void *arg)
{
	struct order *o = arg;
	struct err err = {0};

	o->fn = on_frozen;
	if (r->rc)
		end_order(o, r->rc, r->desc);
	else if (str_eq(js_str(r->value), "frozen")) /* twice is as once */
		end_order(o, RC_OK, NULL);
	else if (send_order(o, "guest-fsfreeze-freeze", &err))
		end_order(o, err.rc, err.msg);
}

static void order_or_fail(struct launcher *l, const struct order *what)
{
	struct err err = {0};

	if (give_order(l->agent, what, &err))
		ipc_call_fail_err(what->call, &err);
}

void guest_agent_freeze(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	int64_t seconds = js_get_int(params, "unfreezeTimeoutSeconds", 0);

	if (seconds < 0 || seconds > THAW_MAX_SECONDS)
		ipc_call_fail(call, RC_INVALID, "unfreezeTimeoutSeconds: must be in 0..%d",
			      THAW_MAX_SECONDS);
	else if (need_agent(l, call))
		order_or_fail(l, &(struct order){.call = call,
						 .first = "guest-fsfreeze-status",
						 .fn = on_freeze_status,
						 .thaw_after = (usec_t)seconds * USEC_PER_SEC});
}

void guest_agent_thaw(struct launcher *l, struct ipc_call *call)
{
	if (need_agent(l, call))
		order_or_fail(l, &(struct order){.call = call,
						 .first = "guest-fsfreeze-thaw",
						 .fn = on_thawed});
}

void guest_agent_thaw_at(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct guest_agent *a = l->agent;
	int64_t at = js_get_int(params, "at", 0);
	usec_t now = loop_realtime(l->loop);

	if (at <= 0) {
		ipc_call_fail(call, RC_INVALID, "at: must be a time");
		return;
	}
	if (a && a->is_frozen && !a->thaw_at) {
		a->thaw_at = (usec_t)at;
		thaw_later(a, a->thaw_at > now ? a->thaw_at - now : 0);
		tell_frozen(a);
	}
	ipc_call_done(call, js_new_object(), NULL, 0);
}

static void on_rebooting(const struct qga_reply *r, void *arg)
{
	struct order *o = arg;
	struct launcher *l = o->a->l;

	if (r->rc && l->state == VM_RUNNING) {
		log_warn("vm: the guest agent does not reboot it, the power button is next: %s",
			 r->desc);
		vm_press_to_reboot(l, STEAL(o->call));
	}
	end_order(o, r->rc, r->desc);
}

void guest_agent_reboot(struct launcher *l, struct ipc_call *call)
{
	order_or_fail(l, &(struct order){.call = call,
					 .first = "guest-shutdown",
					 .fn = on_rebooting,
					 .is_reboot = true});
}
