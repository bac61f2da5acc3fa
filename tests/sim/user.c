#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "kube/kube.h"
#include "sim/sim.h"
#include "virt/names.h"

/* Theory of operation
 *
 * People make, start, stop, restart, move and delete virtual machines at random moments of the fault
 * window, and cancel and finish moves.  They see the truth (not a lagging cache) and their requests do not get
 * lost.  Then they settle: each machine gets a last wish, and the simulation waits until all have come
 * true.
 */

enum { MAX_VMS = 4, MAX_WAITING = 64 };

enum wish { WISH_ANY, WISH_RUNNING, WISH_STOPPED, WISH_GONE };

struct vm {
	char name[16];
	bool exists; /* by our own calls */
	struct json *spec;
	int64_t spec_rv;    /* of the answer that spec came with */
	unsigned in_flight; /* own writes whose answer is not here yet */
	usec_t stop_asked;  /* realtime of the last thing that may end its guest; 0: never */
	enum wish wish;
	const char *claim_class; /* of its claim; NULL: it has none */
	bool has_claim;
};

struct call {
	struct list link;
	struct user *user;
	struct vm *vm; /* NULL: not about a VM object */
	struct kube_call *call;
	bool is_delete;
	bool is_create;
	bool may_be_refused;
	usec_t stop_asked_before;
	bool is_request; /* start, stop, restart: may be refused, and may change the spec */
};

struct user {
	struct sim *sim;
	struct kube *kube;
	struct vm vms[MAX_VMS];
	unsigned n_vms;
	struct ev_src *timer;
	struct list calls;
	unsigned n_moves;
	bool is_settled;
	bool has_service;
	bool has_fencing;
};

static const char *const strategies[] = {"Always", "RerunOnFailure", "Manual", "Halted", "Once"};

static void on_timer(void *arg);
static usec_t now(const struct user *u)
{
	return loop_realtime(u->sim->loop);
}

enum rc user_new(struct user **out, struct sim *s)
{
	struct user *u = mem_alloc(sizeof(*u));
	enum rc rc;

	if (!u)
		return RC_NOMEM;
	u->sim = s;
	u->n_vms = 1 + (unsigned)(sim_rand(s) % MAX_VMS);
	list_init(&u->calls);
	for (unsigned i = 0; i < u->n_vms; i++)
		snprintf(u->vms[i].name, sizeof(u->vms[i].name), "vm-%u", i + 1);
	*out = u;
	rc = kube_new_over(&u->kube, s->loop, &net_transport,
			   net_client_new(s->net, "admin", "system:masters", NET_GOOD), NULL);
	if (!rc)
		rc = ev_timer_after(s->loop, &u->timer, 500 * USEC_PER_MSEC, on_timer, u, NULL);
	return rc;
}

struct user *user_free(struct user *u)
{
	if (!u)
		return NULL;
	while (!list_is_empty(&u->calls)) {
		struct call *c = LIST_ENTRY(list_pop_head(&u->calls), struct call, link);

		kube_call_free(c->call);
		mem_free(c);
	}
	for (unsigned i = 0; i < u->n_vms; i++)
		js_unref(u->vms[i].spec);
	ev_src_free(u->timer);
	kube_free(u->kube);
	return mem_free(u);
}

/* Calls */

static const VirtualMachine *vm_of(const struct user *u, const struct vm *vm);

/* What our own calls have made of the spec. */
static void take_spec(struct vm *vm, const VirtualMachine *is)
{
	CLEANUP(js_unrefp)
	struct json *all = api_encode(&api_type_VirtualMachine, is);
	int64_t rv = 0;

	if (str_to_i64(is->metadata.resourceVersion, 0, INT64_MAX, &rv, NULL) || rv <= vm->spec_rv)
		return; /* answers overtake each other */
	vm->spec_rv = rv;
	js_unref(vm->spec);
	vm->spec = js_copy(js_get(all, "spec"));
}

static void on_reply(const struct kube_reply *r, void *arg)
{
	struct call *c = arg;
	struct vm *vm = c->vm;

	list_remove(&c->link);
	kube_call_free(c->call);
	if (r->rc && r->rc != RC_NOT_FOUND && r->rc != RC_CONFLICT && r->rc != RC_EXISTS &&
	    r->rc != RC_CLOSED)
		sim_trace(c->user->sim, "user: refused: %s", r->err.msg);
	if (c->is_request) {
		/* These write the run strategy of their own: what it is now is what was asked for. */
		const VirtualMachine *is = vm_of(c->user, vm);

		if (!r->rc && is)
			take_spec(vm, is);
		if (r->rc && r->http_status) /* refused: nothing was asked for */
			vm->stop_asked = c->stop_asked_before;
	} else if (c->may_be_refused) {
		/* said in the trace */
	} else if (r->rc == RC_INVALID || r->rc == RC_BAD_REQUEST || r->rc == RC_FORBIDDEN ||
		   r->rc == RC_METHOD)
		sim_fail(c->user->sim, "a person's call was refused: %s", r->err.msg);
	if (vm) {
		vm->in_flight--;
		CLEANUP(kobj_unrefp)
		struct kobj *o = NULL;

		if (!r->rc && !c->is_delete &&
		    str_eq(js_get_str(r->body, "kind"), "VirtualMachine") &&
		    !kobj_decode(&o, &api_kind_VirtualMachine, r->body, NULL))
			take_spec(vm, kobj_typed(o));
		if (r->rc && c->is_create)
			vm->exists = false; /* the old one was still there */
		if (r->rc && r->rc != RC_NOT_FOUND && c->is_delete)
			vm->exists = true;
	}
	mem_free(c);
}

static struct call *call_new(struct user *u, struct vm *vm)
{
	struct call *c = mem_alloc(sizeof(*c));

	c->user = u;
	c->vm = vm;
	if (vm)
		vm->in_flight++;
	list_push_tail(&u->calls, &c->link);
	return c;
}

static void started(struct user *u, enum rc rc)
{
	if (rc)
		sim_fail(u->sim, "the user cannot send a request: %s", rc_name(rc));
}

static void patch_vm(struct user *u, struct vm *vm, const char *sub, struct json *body)
{
	struct call *c = call_new(u, vm);

	started(u, kube_patch(u->kube, &c->call, &api_kind_VirtualMachine, "default", vm->name, sub,
			      KUBE_PATCH_MERGE, body, on_reply, c, NULL));
	js_unref(body);
}

static const VirtualMachineInstance *vmi_of(const struct user *u, const struct vm *vm)
{
	return kobj_typed(kcache_get(checker_truth(u->sim->checker),
				     &api_kind_VirtualMachineInstance, "default", vm->name));
}

static const VirtualMachine *vm_of(const struct user *u, const struct vm *vm)
{
	return kobj_typed(kcache_get(checker_truth(u->sim->checker), &api_kind_VirtualMachine,
				     "default", vm->name));
}

/* Deeds */

static void create_claim(struct user *u, const struct vm *vm)
{
	bool is_local = vm->claim_class && str_eq(vm->claim_class, "local");
	CLEANUP(js_unrefp)
	struct json *body = NULL;
	char name[32];
	struct call *c;

	snprintf(name, sizeof(name), "%s-data", vm->name);
	body = js_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:[s], s:s, s:{s:{s:s}}}}", "apiVersion", "v1",
		       "kind", "PersistentVolumeClaim", "metadata", "name", name, "namespace",
		       "default", "spec", "accessModes",
		       is_local ? "ReadWriteOnce" : "ReadWriteMany", "storageClassName",
		       vm->claim_class, "resources", "requests", "storage", "1Gi");
	c = call_new(u, NULL);
	started(u, kube_create(u->kube, &c->call, &api_kind_PersistentVolumeClaim, "default", body,
			       on_reply, c, NULL));
}

static struct json *template_spec(const struct vm *vm)
{
	struct json *spec = js_pack(
		"{s:{s:{s:{s:s}}, s:{s:[{s:s, s:{}}], s:[]}}, s:[{s:s, s:{}}], s:[], s:i, s:s}",
		"domain", "resources", "requests", "memory", "128Mi", "devices", "interfaces",
		"name", "default", "masquerade", "disks", "networks", "name", "default", "pod",
		"volumes", "terminationGracePeriodSeconds", 5, "evictionStrategy", "LiveMigrate");
	char claim[32];

	if (!vm->claim_class)
		return spec;
	snprintf(claim, sizeof(claim), "%s-data", vm->name);
	ignore_rc(js_append(js_at(spec, "domain", "devices", "disks", NULL),
			    js_pack("{s:s, s:{s:s}}", "name", "data", "disk", "bus", "virtio")));
	ignore_rc(js_append(js_get(spec, "volumes"),
			    js_pack("{s:s, s:{s:s}}", "name", "data", "persistentVolumeClaim",
				    "claimName", claim)));
	return spec;
}

static void create_vm(struct user *u, struct vm *vm)
{
	const char *strategy = strategies[sim_rand(u->sim) % ARRAY_SIZE(strategies)];
	static const char *const classes[] = {NULL, NULL, "shared", "local"};
	CLEANUP(js_unrefp)
	struct json *body = NULL;
	struct call *c;

	if (vm_of(u, vm))
		return; /* the old one is still going */
	if (!vm->has_claim)
		vm->claim_class = classes[sim_rand(u->sim) % ARRAY_SIZE(classes)];
	if (!vm->has_claim && u->sim->opts.storage_lock && !sim_chance(u->sim, 200))
		vm->claim_class = "shared";
	sim_trace(u->sim, "user: create %s (%s, %s)", vm->name, strategy,
		  vm->claim_class ? vm->claim_class : "no claim");
	if (vm->claim_class && !vm->has_claim) {
		vm->has_claim = true;
		create_claim(u, vm);
	}
	body = js_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:{s:{s:{s:s}}, s:o}}}", "apiVersion",
		       "kubevirt.io/v1", "kind", "VirtualMachine", "metadata", "name", vm->name,
		       "namespace", "default", "spec", "runStrategy", strategy, "template",
		       "metadata", "labels", "app", vm->name, "spec", template_spec(vm));
	vm->exists = true;
	c = call_new(u, vm);
	c->is_create = true;
	started(u, kube_create(u->kube, &c->call, &api_kind_VirtualMachine, "default", body,
			       on_reply, c, NULL));
}

static void set_strategy(struct user *u, struct vm *vm, const char *strategy)
{
	sim_trace(u->sim, "user: %s becomes %s", vm->name, strategy);
	if (!str_eq(strategy, "Always"))
		vm->stop_asked = now(u);
	patch_vm(u, vm, NULL, js_pack("{s:{s:s}}", "spec", "runStrategy", strategy));
}

/* start, stop or restart, as virtctl asks for them. */
static void request(struct user *u, struct vm *vm, const char *what, const char *body)
{
	struct call *c = call_new(u, vm);
	char path[160];

	sim_trace(u->sim, "user: %s %s", what, vm->name);
	c->stop_asked_before = vm->stop_asked;
	if (!str_eq(what, "start"))
		vm->stop_asked = now(u);
	c->is_request = true;
	snprintf(path, sizeof(path),
		 "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/%s/%s",
		 vm->name, what);
	started(u, kube_raw(u->kube, &c->call, "PUT", path, "application/json", body, strlen(body),
			    0, on_reply, c, NULL));
}

static void delete_object(struct user *u, const struct api_kind *kind, const char *name,
			  struct vm *vm)
{
	struct call *c = call_new(u, kind == &api_kind_VirtualMachine ? vm : NULL);

	sim_trace(u->sim, "user: delete %s %s", kind->kind, name);
	if (vm)
		vm->stop_asked = now(u);
	if (c->vm)
		vm->exists = false;
	c->is_delete = true;
	started(u, kube_delete(u->kube, &c->call, kind, "default", name, NULL, on_reply, c, NULL));
}

static void move_vm(struct user *u, struct vm *vm)
{
	char name[32];
	CLEANUP(js_unrefp)
	struct json *body = NULL;
	struct call *c;

	if (!vmi_of(u, vm))
		return;
	snprintf(name, sizeof(name), "move-%u", ++u->n_moves);
	sim_trace(u->sim, "user: move %s (%s)", vm->name, name);
	body = js_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s}}", "apiVersion", "kubevirt.io/v1", "kind",
		       "VirtualMachineInstanceMigration", "metadata", "name", name, "namespace",
		       "default", "spec", "vmiName", vm->name);
	if (sim_chance(u->sim, 200)) /* in a hurry from the first */
		ignore_rc(js_set(js_ensure_object(js_get(body, "metadata"), "annotations"),
				 ANN_FINISH, js_new_str(FINISH_PAUSE)));
	c = call_new(u, NULL);
	c->may_be_refused = true; /* not running, or a move is under way */
	started(u, kube_create(u->kube, &c->call, &api_kind_VirtualMachineInstanceMigration,
			       "default", body, on_reply, c, NULL));
}

static bool is_over(const VirtualMachineInstanceMigration *m)
{
	return str_eq(m->status.phase, "Succeeded") || str_eq(m->status.phase, "Failed");
}

static const VirtualMachineInstanceMigration *some_move(const struct user *u, bool also_over)
{
	const VirtualMachineInstanceMigration *pick = NULL;
	struct kiter it;
	unsigned n = 0;

	kcache_list(checker_truth(u->sim->checker), &api_kind_VirtualMachineInstanceMigration,
		    "default", &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (!kobj_is_going(o) && (also_over || !is_over(kobj_typed(o))) &&
		    sim_rand(u->sim) % ++n == 0)
			pick = kobj_typed(o);
	return pick;
}

static void cancel_move(struct user *u)
{
	const VirtualMachineInstanceMigration *pick = some_move(u, true);

	if (pick)
		delete_object(u, &api_kind_VirtualMachineInstanceMigration, pick->metadata.name,
			      NULL);
}

/* "Finish it now, I accept the pause", in whatever phase it is. */
static void finish_move(struct user *u)
{
	const VirtualMachineInstanceMigration *pick = some_move(u, sim_chance(u->sim, 100));
	CLEANUP(js_unrefp)
	struct json *body =
		js_pack("{s:{s:{s:s}}}", "metadata", "annotations", ANN_FINISH, FINISH_PAUSE);
	struct call *c;

	if (!pick)
		return;
	sim_trace(u->sim, "user: finish %s", pick->metadata.name);
	c = call_new(u, NULL);
	c->may_be_refused = true; /* it is over */
	started(u,
		kube_patch(u->kube, &c->call, &api_kind_VirtualMachineInstanceMigration, "default",
			   pick->metadata.name, NULL, KUBE_PATCH_MERGE, body, on_reply, c, NULL));
}

/* kubectl drain asks for this: the VM is to move away, or the refusal says why not. */
static void evict(struct user *u, struct vm *vm)
{
	const VirtualMachineInstance *vmi = vmi_of(u, vm);
	CLEANUP(js_unrefp)
	struct json *body = NULL;
	const Pod *pod = NULL;
	struct call *c;
	struct kiter it;

	if (!vmi)
		return;
	kcache_by_owner(checker_truth(u->sim->checker), &api_kind_Pod, vmi->metadata.uid, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (str_eq(((const Pod *)kobj_typed(o))->spec.nodeName, vmi->status.nodeName))
			pod = kobj_typed(o);
	if (!pod)
		return;
	sim_trace(u->sim, "user: evict %s", pod->metadata.name);
	body = js_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion", "policy/v1", "kind", "Eviction",
		       "metadata", "name", pod->metadata.name, "namespace", "default");
	c = call_new(u, NULL);
	c->may_be_refused = true;
	started(u, kube_post(u->kube, &c->call, &api_kind_Pod, "default", pod->metadata.name,
			     "eviction", body, on_reply, c, NULL));
}

static struct guest *some_guest(struct user *u, const struct vm *vm)
{
	for (unsigned i = 0; i < SIM_NODES; i++) {
		LIST_FOREACH(l, machine_guests(u->sim->machines[i])) {
			struct guest *g = LIST_ENTRY(l, struct guest, link);

			if (str_eq(g->vmi_name, vm->name) && g->state == G_RUNNING)
				return g;
		}
	}
	return NULL;
}

static void act_on(struct user *u, struct vm *vm)
{
	struct guest *g;

	switch (sim_rand(u->sim) % 15) {
	case 0:
		set_strategy(u, vm, "Always");
		break;
	case 1:
		set_strategy(u, vm, "Halted");
		break;
	case 2:
		request(u, vm, "stop", sim_chance(u->sim, 300) ? "{\"gracePeriod\":0}" : "{}");
		break;
	case 3:
		request(u, vm, "start", "{}");
		break;
	case 4:
		request(u, vm, "restart", "{}");
		break;
	case 5:
		if (sim_chance(u->sim, 500))
			delete_object(u, &api_kind_VirtualMachine, vm->name, vm);
		break;
	case 6:
		if (vmi_of(u, vm))
			delete_object(u, &api_kind_VirtualMachineInstance, vm->name, vm);
		break;
	case 7:
		cancel_move(u);
		break;
	case 8:
		g = some_guest(u, vm);
		if (!g)
			break;
		vm->stop_asked = now(u);
		guest_end(g, 0, "GuestShutdown");
		break;
	case 9:
		evict(u, vm);
		break;
	case 10:
	case 11:
		finish_move(u);
		break;
	default:
		move_vm(u, vm);
	}
}

/* A claim that got lost on its way is made again; one whose VM is gone for good is deleted. */
static void settle_claim(struct user *u, struct vm *vm, bool has_vm)
{
	char name[32];
	const struct kobj *claim;

	if (!vm->claim_class)
		return;
	snprintf(name, sizeof(name), "%s-data", vm->name);
	claim = kcache_get(checker_truth(u->sim->checker), &api_kind_PersistentVolumeClaim,
			   "default", name);
	if (has_vm && !claim && vm->wish != WISH_GONE)
		create_claim(u, vm);
	else if (!has_vm && claim && !kobj_is_going(claim) && vm->wish == WISH_GONE)
		delete_object(u, &api_kind_PersistentVolumeClaim, name, NULL);
}

/* The server may have been away, and a Start that was still queued turns a halted VM on again: then
 * it is asked once more. */
static void insist(struct user *u)
{
	for (unsigned i = 0; i < u->n_vms; i++) {
		struct vm *vm = &u->vms[i];
		const VirtualMachine *is = vm_of(u, vm);
		const char *strategy = is ? is->spec.runStrategy : NULL;

		settle_claim(u, vm, is != NULL);
		if (!is || vm->in_flight)
			continue;
		if (vm->wish == WISH_STOPPED && !str_eq(strategy, "Halted"))
			set_strategy(u, vm, "Halted");
		else if (vm->wish == WISH_RUNNING && !str_eq(strategy, "Always"))
			set_strategy(u, vm, "Always");
		else if (vm->wish == WISH_GONE && !is->metadata.deletionTimestamp)
			delete_object(u, &api_kind_VirtualMachine, vm->name, vm);
	}
	ev_timer_rearm(u->timer, 5 * USEC_PER_SEC);
}

static void create_service(struct user *u)
{
	CLEANUP(js_unrefp)
	struct json *body =
		js_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:{s:s}, s:[{s:i}]}}", "apiVersion", "v1",
			"kind", "Service", "metadata", "name", "vm-1", "namespace", "default",
			"spec", "selector", "app", "vm-1", "ports", "port", 80);
	struct call *c = call_new(u, NULL);

	u->has_service = true;
	started(u, kube_create(u->kube, &c->call, &api_kind_Service, "default", body, on_reply, c,
			       NULL));
}

/* Nodes that fall silent are switched off by the agent of fence.c. */
static void ask_for_fencing(struct user *u)
{
	CLEANUP(js_unrefp) struct json *body = NULL;
	struct call *c;

	if (!u->sim->silence || u->has_fencing ||
	    !kcache_get(checker_truth(u->sim->checker), &api_kind_FerryConfig, NULL, "ferry"))
		return;
	body = u->sim->opts.storage_lock
		       ? js_pack("{s:{s:s, s:{s:i}}}", "spec", "fencing", "StorageLock",
				 "storageLock", "silenceSeconds", (int)u->sim->silence)
		       : js_pack("{s:{s:s, s:{s:s, s:i}}}", "spec", "fencing", "Agent",
				 "fenceAgent", "program", "plug", "silenceSeconds",
				 (int)u->sim->silence);
	u->has_fencing = true;
	c = call_new(u, NULL);
	started(u, kube_patch(u->kube, &c->call, &api_kind_FerryConfig, NULL, "ferry", NULL,
			      KUBE_PATCH_MERGE, body, on_reply, c, NULL));
}

static void on_timer(void *arg)
{
	struct user *u = arg;
	struct vm *vm = &u->vms[sim_rand(u->sim) % u->n_vms];

	if (u->is_settled) {
		insist(u);
		return;
	}
	if (!u->has_service)
		create_service(u);
	ask_for_fencing(u);
	if (!vm->exists)
		create_vm(u, vm);
	else
		act_on(u, vm);
	ev_timer_rearm(u->timer, sim_between(u->sim, 100 * USEC_PER_MSEC, 6 * USEC_PER_SEC));
}

/* The end */

void user_settle(struct user *u)
{
	u->is_settled = true;
	for (unsigned i = 0; i < u->n_vms; i++) {
		struct vm *vm = &u->vms[i];

		if (!vm->exists) {
			/* Also what a lost answer left without our knowing. */
			delete_object(u, &api_kind_VirtualMachine, vm->name, vm);
			vm->wish = WISH_GONE;
			continue;
		}
		switch (sim_rand(u->sim) % 4) {
		case 0:
			set_strategy(u, vm, "Always");
			vm->wish = WISH_RUNNING;
			break;
		case 1:
			set_strategy(u, vm, "Halted");
			vm->wish = WISH_STOPPED;
			break;
		case 2:
			delete_object(u, &api_kind_VirtualMachine, vm->name, vm);
			vm->wish = WISH_GONE;
			break;
		default:
			vm->wish = WISH_ANY;
		}
	}
}

bool user_is_idle(const struct user *u)
{
	return list_is_empty(&u->calls);
}

static const struct vm *vm_named(const struct user *u, const char *name)
{
	for (unsigned i = 0; i < u->n_vms; i++)
		if (str_eq(u->vms[i].name, name))
			return &u->vms[i];
	return NULL;
}

const struct json *user_spec_of(const struct user *u, const char *name)
{
	const struct vm *vm = vm_named(u, name);

	return vm && !vm->in_flight && vm->exists ? vm->spec : NULL;
}

bool user_asked_to_stop(const struct user *u, const char *name, usec_t since)
{
	const struct vm *vm = vm_named(u, name);

	/* API times have whole seconds. */
	return vm && vm->stop_asked && vm->stop_asked + USEC_PER_SEC >= since;
}

const char *user_unfulfilled(const struct user *u, const struct kcache *truth)
{
	static char why[128];

	(void)truth;
	for (unsigned i = 0; i < u->n_vms; i++) {
		const struct vm *vm = &u->vms[i];
		const VirtualMachineInstance *vmi = vmi_of(u, vm);
		const char *phase = vmi ? vmi->status.phase : NULL;

		if (vm->wish == WISH_RUNNING && !str_eq(phase, "Running")) {
			snprintf(why, sizeof(why), "%s should run and is '%s'", vm->name,
				 phase ? phase : "absent");
			return why;
		}
		if (vm->wish == WISH_STOPPED && vmi) {
			snprintf(why, sizeof(why), "%s should be stopped and has a VMI in '%s'",
				 vm->name, phase ? phase : "");
			return why;
		}
		if (vm->wish == WISH_GONE && (vmi || vm_of(u, vm))) {
			snprintf(why, sizeof(why), "%s should be gone and is there", vm->name);
			return why;
		}
	}
	return NULL;
}
