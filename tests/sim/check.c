#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/map.h"
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
 * The checker has a client of its own without delay or faults, so its cache is the truth after each
 * write.  Each change of an object, and each change on a machine, is checked at once; what must hold
 * only when all is quiet is checked at the end.  The numbers are those of docs/internals/sim.md.
 */

struct checker {
	struct sim *sim;
	struct kube *kube;
	struct kcache *truth;
	struct kcache_handler *handler;
	usec_t last_change;
	struct map
		moved; /* uid of a migration whose source gave the guest away -> uid of the VMI */
};

static void on_change(const struct kobj *old, const struct kobj *new, void *arg);

static void free_text(void *p)
{
	mem_free(p);
}

enum rc checker_new(struct checker **out, struct sim *s)
{
	static const struct api_kind *const kinds[] = {
		&api_kind_VirtualMachine,
		&api_kind_VirtualMachineInstance,
		&api_kind_VirtualMachineInstanceMigration,
		&api_kind_Pod,
		&api_kind_Allocation,
		&api_kind_PortBinding,
		&api_kind_Handover,
		&api_kind_PersistentVolumeClaim,
		&api_kind_PersistentVolume,
		&api_kind_Service,
		&api_kind_EndpointSlice,
		&api_kind_Node,
		&api_kind_FerryConfig,
	};
	struct checker *c = mem_alloc(sizeof(*c));
	enum rc rc;

	if (!c)
		return RC_NOMEM;
	c->sim = s;
	map_init(&c->moved, free_text);
	*out = c;
	rc = kube_new_over(&c->kube, s->loop, &net_transport,
			   net_client_new(s->net, "checker", "system:masters", NET_PERFECT), NULL);
	if (!rc)
		rc = kcache_new(&c->truth, s->loop, c->kube, &(struct kcache_opts){.seed = 1},
				NULL);
	for (size_t i = 0; !rc && i < ARRAY_SIZE(kinds); i++)
		rc = kcache_add(c->truth, &(struct kcache_source){.kind = kinds[i]}, NULL);
	if (!rc)
		rc = kcache_on(c->truth, &c->handler, NULL, on_change, c, NULL);
	return rc ? rc : kcache_start(c->truth, NULL);
}

struct checker *checker_free(struct checker *c)
{
	if (!c)
		return NULL;
	kcache_handler_free(c->handler);
	kcache_free(c->truth);
	kube_free(c->kube);
	map_fini(&c->moved);
	return mem_free(c);
}

struct kcache *checker_truth(struct checker *c)
{
	return c->truth;
}

usec_t checker_last_change(const struct checker *c)
{
	return c->last_change;
}

static bool pod_is_over(const Pod *p)
{
	return str_eq(p->status.phase, "Succeeded") || str_eq(p->status.phase, "Failed");
}

static bool vmim_is_final(const VirtualMachineInstanceMigration *m)
{
	return str_eq(m->status.phase, "Succeeded") || str_eq(m->status.phase, "Failed");
}

static bool vmi_is_final(const VirtualMachineInstance *v)
{
	return str_eq(v->status.phase, "Succeeded") || str_eq(v->status.phase, "Failed");
}

/* 1. At most one copy of a guest executes, wherever. */
void checker_guests(struct checker *c)
{
	struct sim *s = c ? c->sim : NULL;

	if (!s)
		return;
	c->last_change = loop_now(s->loop);
	for (unsigned i = 0; i < SIM_NODES * SIM_NODES; i++) {
		struct machine *a = s->machines[i / SIM_NODES], *b = s->machines[i % SIM_NODES];

		LIST_FOREACH(la, machine_guests(a)) {
			LIST_FOREACH(lb, machine_guests(b)) {
				struct guest *x = LIST_ENTRY(la, struct guest, link);
				struct guest *y = LIST_ENTRY(lb, struct guest, link);

				/* by name: a VM's next VMI has its disks and its address */
				if (x != y && x->vmi_name && str_eq(x->vmi_name, y->vmi_name) &&
				    guest_executes(x) && guest_executes(y))
					sim_fail(s,
						 "two copies of VMI %s run: pods %s (%s) and %s "
						 "(%s)",
						 x->vmi_name, x->pod_name, machine_name(a),
						 y->pod_name, machine_name(b));
			}
		}
	}
}

void checker_moved(struct checker *c, const char *migration_uid, const char *vmi_uid)
{
	if (map_set(&c->moved, migration_uid, mem_strdup(vmi_uid)))
		sim_fail(c->sim, "out of memory in the checker");
}

static bool stop_was_asked(struct checker *c, const char *ns, const char *name, const char *uid)
{
	const VirtualMachineInstance *vmi =
		kobj_typed(kcache_get(c->truth, &api_kind_VirtualMachineInstance, ns, name));
	const VirtualMachine *vm =
		kobj_typed(kcache_get(c->truth, &api_kind_VirtualMachine, ns, name));
	usec_t since = 0;

	/* Controllers with an older view start a VM anew whose end they do not see yet. */
	if (vm && (vm->metadata.deletionTimestamp || str_eq(vm->spec.runStrategy, "Halted")))
		return true;
	if (vmi && str_eq(vmi->metadata.uid, uid) && vmi->metadata.creationTimestamp &&
	    time_parse(vmi->metadata.creationTimestamp, &since, NULL))
		since = 0;
	return user_asked_to_stop(c->sim->user, name, since);
}

/* 2. No running guest ends without somebody having asked for it. */
void checker_guest_lost(struct checker *c, const struct guest *g, const char *how)
{
	if (!c || !g->vmi_uid || str_has_prefix(how, "Guest"))
		return;
	/* A power failure of the target before it has taken the guest loses it: the source may not run again.  It may
	 * hear of that late, when its own agent was away. */
	if (str_has_prefix(how, "target lost") && machine_last_reboot(c->sim) >= g->move_began)
		return;
	if (!stop_was_asked(c, g->ns, g->vmi_name, g->vmi_uid))
		sim_fail(c->sim, "the guest of VMI %s ended (%s, pod %s) and nobody asked for it",
			 g->vmi_name, how, g->pod_name);
}

/* 3. Launcher pods of a VMI: one source at most, one target at most per migration, and a second pod
 * only while a migration needs it. */
static void check_pods(struct checker *c, const struct kobj *changed)
{
	const char *uid = api_label(kobj_meta(changed), LABEL_CREATED_BY);
	const Pod *source = NULL, *target = NULL;
	struct kiter it;

	if (!uid)
		return;
	kcache_by_owner(c->truth, &api_kind_Pod, uid, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Pod *p = kobj_typed(o);
		bool is_target = api_label(&p->metadata, LABEL_MIGRATION_UID) != NULL;
		const Pod **slot = is_target ? &target : &source;

		if (pod_is_over(p) || p->metadata.deletionTimestamp)
			continue;
		/* A target that took over is a source of later moves. */
		if (is_target) {
			const VirtualMachineInstance *vmi = NULL;
			const OwnerReference *own = api_controller_of(&p->metadata);

			if (own)
				vmi = kobj_typed(kcache_get(c->truth,
							    &api_kind_VirtualMachineInstance,
							    p->metadata.namespace, own->name));
			if (vmi && str_eq(vmi->status.nodeName, p->spec.nodeName) &&
			    p->spec.nodeName)
				slot = &source;
		}
		if (*slot && *slot != p) {
			struct guest *g = NULL;

			/* The old source of a completed move ends by itself a moment later. */
			for (unsigned i = 0; i < SIM_NODES && !g; i++)
				g = guest_find(c->sim->machines[i], (*slot)->metadata.uid);
			if (g && (g->state == G_RELEASED || g->moved_away)) {
				*slot = p;
				continue;
			}
			for (unsigned i = 0; i < SIM_NODES; i++) {
				struct guest *h = guest_find(c->sim->machines[i], p->metadata.uid);

				g = h ? h : g;
			}
			if (g && (g->state == G_RELEASED || g->moved_away))
				continue;
			sim_fail(c->sim, "VMI %s has two active %s pods: %s and %s",
				 api_label(&p->metadata, LABEL_CREATED_BY),
				 is_target ? "target" : "launcher", (*slot)->metadata.name,
				 p->metadata.name);
		}
		*slot = p;
	}
}

/* 4. The spec belongs to its user. */
static void check_spec(struct checker *c, const struct kobj *o)
{
	const VirtualMachine *vm = kobj_typed(o);
	const struct json *want = user_spec_of(c->sim->user, kobj_name(o));
	CLEANUP(js_unrefp)
	struct json *all = NULL;

	if (!want || vm->metadata.deletionTimestamp)
		return;
	all = api_encode(&api_type_VirtualMachine, vm);
	if (js_equal(js_get(all, "spec"), want))
		return;
	CLEANUP(mem_freep)
	char *a = js_to_text(want);
	CLEANUP(mem_freep)
	char *b = js_to_text(js_get(all, "spec"));

	sim_fail(c->sim, "the spec of VM %s was changed behind its user's back: %.200s -> %.200s",
		 kobj_name(o), a, b);
}

static int vmi_rank(const char *phase)
{
	static const char *const order[] = {"Pending", "Scheduling", "Scheduled",
					    "Running", "Succeeded",  "Failed"};

	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		if (str_eq(order[i], phase))
			return (int)i;
	return -1;
}

/* 5. Phases go forward; ends are final. */
/* 9. A finish is passed on of the migration that it was asked of, and of no other. */
static void check_finish(struct checker *c, const VirtualMachineInstance *vmi)
{
	const VirtualMachineInstanceMigrationState *s = vmi->status.migrationState;
	const FerryVMIStatus *f = vmi->status.ferry;
	struct kiter it;

	if (!s || !f || !f->migration || !API_GET(f->migration, finishRequested, false))
		return;
	kcache_list(c->truth, &api_kind_VirtualMachineInstanceMigration, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const VirtualMachineInstanceMigration *m = kobj_typed(o);

		if (str_eq(m->metadata.uid, s->migrationUid) &&
		    !api_annotation(&m->metadata, ANN_FINISH))
			sim_fail(c->sim, "migration %s is to be finished, and nobody asked for it",
				 m->metadata.name);
	}
}

static void check_vmi(struct checker *c, const struct kobj *old, const struct kobj *new)
{
	const VirtualMachineInstance *a = kobj_typed(old), *b = kobj_typed(new);

	if (b)
		check_finish(c, b);
	if (!a || !b || !str_eq(a->metadata.uid, b->metadata.uid) ||
	    str_eq(a->status.phase, b->status.phase))
		return;
	sim_trace(c->sim, "truth: VMI %s: %s -> %s", b->metadata.name,
		  a->status.phase ? a->status.phase : "", b->status.phase ? b->status.phase : "");
	if (vmi_is_final(a) || vmi_rank(b->status.phase) < vmi_rank(a->status.phase))
		sim_fail(c->sim, "VMI %s went from %s to %s", b->metadata.name, a->status.phase,
			 b->status.phase ? b->status.phase : "");
}

/* 6. A migration that says Succeeded has moved the guest, one that says Failed has not. */
static void check_outcome(struct checker *c, const VirtualMachineInstanceMigration *m)
{
	const VirtualMachineInstance *vmi =
		kobj_typed(kcache_get(c->truth, &api_kind_VirtualMachineInstance,
				      m->metadata.namespace, m->spec.vmiName));
	const char *moved = map_get(&c->moved, m->metadata.uid);

	/* Neither agent was there to say anything, for longer than anybody waits: the move may have gone either
	 * way, and its reason says that this is not known. */
	if (m->status.ferry && str_eq(m->status.ferry->reason, "NoReport"))
		return;
	/* Unless the VMI that moved is over: another one may have its name by now. */
	if (str_eq(m->status.phase, "Failed") && moved && vmi && str_eq(vmi->metadata.uid, moved) &&
	    !vmi->metadata.deletionTimestamp && !vmi_is_final(vmi))
		sim_fail(c->sim, "migration %s says Failed, but the guest moved", m->metadata.name);
	if (str_eq(m->status.phase, "Succeeded") && !moved)
		sim_fail(c->sim, "migration %s says Succeeded, but the guest did not move",
			 m->metadata.name);
}

static void check_vmim(struct checker *c, const struct kobj *old, const struct kobj *new)
{
	const VirtualMachineInstanceMigration *a = kobj_typed(old), *b = kobj_typed(new);

	if (!b || (a && str_eq(a->status.phase, b->status.phase)))
		return;
	sim_trace(c->sim, "truth: VMIM %s: %s -> %s", b->metadata.name,
		  a && a->status.phase ? a->status.phase : "",
		  b->status.phase ? b->status.phase : "");
	if (a && vmim_is_final(a))
		sim_fail(c->sim, "migration %s went from %s to %s", b->metadata.name,
			 a->status.phase, b->status.phase ? b->status.phase : "");
	if (!vmim_is_final(b))
		return;
	if (str_eq(b->status.phase, "Succeeded"))
		c->sim->result->moved++;
	else
		c->sim->result->not_moved++;
	check_outcome(c, b);
}

static void on_change(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct checker *c = arg;
	const struct api_kind *k = kobj_kind(new ? new : old);

	if (k == &api_kind_Node)
		return; /* heartbeats */
	c->last_change = loop_now(c->sim->loop);
	if (k == &api_kind_Pod && new)
		check_pods(c, new);
	else if (k == &api_kind_VirtualMachine && new)
		check_spec(c, new);
	else if (k == &api_kind_VirtualMachineInstance)
		check_vmi(c, old, new);
	else if (k == &api_kind_VirtualMachineInstanceMigration)
		check_vmim(c, old, new);
}

/* At the end */

static const VirtualMachineInstance *vmi_with_uid(struct checker *c, const char *uid)
{
	struct kiter it;

	kcache_list(c->truth, &api_kind_VirtualMachineInstance, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (str_eq(kobj_uid(o), uid))
			return kobj_typed(o);
	return NULL;
}

static bool exists_uid(struct checker *c, const char *uid)
{
	struct kiter it;

	if (vmi_with_uid(c, uid))
		return true;
	kcache_list(c->truth, &api_kind_VirtualMachine, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (str_eq(kobj_uid(o), uid))
			return true;
	return false;
}

/* 7. Nothing is left of what is finished. */
static void final_orphans(struct checker *c)
{
	struct kiter it;

	kcache_list(c->truth, &api_kind_Pod, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Pod *p = kobj_typed(o);
		const char *uid = api_label(&p->metadata, LABEL_CREATED_BY);
		const VirtualMachineInstance *vmi = uid ? vmi_with_uid(c, uid) : NULL;

		if (uid && !vmi)
			sim_fail(c->sim, "pod %s is left of a VMI that is gone", p->metadata.name);
		else if (vmi && !pod_is_over(p) && vmi_is_final(vmi))
			sim_fail(c->sim, "pod %s still runs, its VMI is %s", p->metadata.name,
				 vmi->status.phase);
		else if (vmi && !pod_is_over(p) && !str_eq(vmi->status.nodeName, p->spec.nodeName))
			sim_fail(c->sim, "pod %s is left of a migration", p->metadata.name);
	}
	kcache_list(c->truth, &api_kind_Allocation, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Allocation *a = kobj_typed(o);

		if (!exists_uid(c, a->spec.owner.uid))
			sim_fail(c->sim, "allocation %s is left of an owner that is gone",
				 a->metadata.name);
	}
	kcache_list(c->truth, &api_kind_PortBinding, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const PortBinding *b = kobj_typed(o);
		const VirtualMachineInstance *vmi =
			kobj_typed(kcache_get(c->truth, &api_kind_VirtualMachineInstance,
					      b->metadata.namespace, b->metadata.name));

		if (!vmi)
			sim_fail(c->sim, "port binding %s is left of a VMI that is gone",
				 b->metadata.name);
		else if (!vmi_is_final(vmi) && !str_eq(b->spec.nodeName, vmi->status.nodeName))
			sim_fail(c->sim, "port binding %s says %s, the VMI %s", b->metadata.name,
				 b->spec.nodeName, vmi->status.nodeName);
	}
	kcache_list(c->truth, &api_kind_Handover, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Handover *h = kobj_typed(o);
		const struct kobj *m =
			h->metadata.n_ownerReferences
				? kcache_get(c->truth, &api_kind_VirtualMachineInstanceMigration,
					     kobj_ns(o), h->metadata.ownerReferences[0].name)
				: NULL;

		if (!m || !str_eq(kobj_uid(m), h->spec.migrationUID))
			sim_fail(c->sim, "hand-over record %s is left of a migration that is gone",
				 kobj_name(o));
	}
}

/* A volume of a claim that is gone goes with it (reclaim policy Delete); a claim that was deleted goes. */
static void final_volumes(struct checker *c)
{
	struct kiter it;

	kcache_list(c->truth, &api_kind_PersistentVolume, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const PersistentVolume *pv = kobj_typed(o);
		const ObjectReference *ref = pv->spec.claimRef;
		const struct kobj *claim =
			ref ? kcache_get(c->truth, &api_kind_PersistentVolumeClaim, ref->namespace,
					 ref->name)
			    : NULL;

		if (!claim || !str_eq(kobj_uid(claim), ref->uid))
			sim_fail(c->sim, "volume %s is left of a claim that is gone",
				 pv->metadata.name);
	}
	kcache_list(c->truth, &api_kind_PersistentVolumeClaim, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (kobj_is_going(o))
			sim_fail(c->sim, "claim %s was deleted and is still there", kobj_name(o));
}

static bool slice_has(struct checker *c, const char *address)
{
	struct kiter it;

	kcache_list(c->truth, &api_kind_EndpointSlice, "default", &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const EndpointSlice *e = kobj_typed(o);

		for (size_t i = 0; i < e->n_endpoints; i++)
			for (size_t k = 0; k < e->endpoints[i].n_addresses; k++)
				if (str_eq(e->endpoints[i].addresses[k], address))
					return true;
	}
	return false;
}

/* The Service of vm-1 leads to its guest, and to nothing else. */
static void final_endpoints(struct checker *c)
{
	size_t pods = 0, endpoints = 0;
	struct kiter it;

	if (!kcache_get(c->truth, &api_kind_Service, "default", "vm-1"))
		return;
	kcache_list(c->truth, &api_kind_Pod, "default", &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Pod *p = kobj_typed(o);

		if (!str_eq(api_label(&p->metadata, "app"), "vm-1") ||
		    !str_eq(p->status.phase, "Running"))
			continue;
		pods++;
		if (!slice_has(c, p->status.podIP))
			sim_fail(c->sim, "the Service does not lead to %s of %s", p->status.podIP,
				 p->metadata.name);
	}
	kcache_list(c->truth, &api_kind_EndpointSlice, "default", &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		endpoints += ((const EndpointSlice *)kobj_typed(o))->n_endpoints;
	if (pods != endpoints)
		sim_fail(c->sim, "the Service has %zu endpoints for %zu pods", endpoints, pods);
}

bool checker_has_open_move(const struct checker *c)
{
	struct kiter it;

	kcache_list(c->truth, &api_kind_VirtualMachineInstanceMigration, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (!vmim_is_final(kobj_typed(o)))
			return true;
	return false;
}

/* 8. Every migration has ended; 9. status says where the guest is. */
static void final_states(struct checker *c)
{
	struct kiter it;

	kcache_list(c->truth, &api_kind_VirtualMachineInstanceMigration, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const VirtualMachineInstanceMigration *m = kobj_typed(o);

		if (!vmim_is_final(m))
			sim_fail(c->sim, "migration %s never ended: %s", m->metadata.name,
				 m->status.phase ? m->status.phase : "(new)");
		if (m->metadata.deletionTimestamp)
			sim_fail(c->sim, "migration %s was deleted and is still there",
				 m->metadata.name);
	}
	kcache_list(c->truth, &api_kind_VirtualMachineInstance, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const VirtualMachineInstance *v = kobj_typed(o);
		struct guest *found = NULL;

		if (v->metadata.deletionTimestamp)
			sim_fail(c->sim, "VMI %s was deleted and is still there", v->metadata.name);
		for (unsigned i = 0; i < SIM_NODES; i++) {
			LIST_FOREACH(l, machine_guests(c->sim->machines[i])) {
				struct guest *g = LIST_ENTRY(l, struct guest, link);

				if (str_eq(g->vmi_uid, v->metadata.uid) && guest_executes(g))
					found = g;
			}
		}
		if (str_eq(v->status.phase, "Running") != (found != NULL))
			sim_fail(c->sim, "VMI %s says %s, its guest %s", v->metadata.name,
				 v->status.phase, found ? "runs" : "does not run");
		else if (found && !str_eq(machine_name(found->machine), v->status.nodeName))
			sim_fail(c->sim, "VMI %s says %s, its guest is on %s", v->metadata.name,
				 v->status.nodeName, machine_name(found->machine));
		else if (found && (v->status.activePods.n != 1 ||
				   !api_map_has(&v->status.activePods, found->pod_uid)))
			sim_fail(c->sim, "VMI %s: activePods has %zu entries", v->metadata.name,
				 v->status.activePods.n);
	}
}

/* 10. No guest without a VMI. */
static void final_guests(struct checker *c)
{
	for (unsigned i = 0; i < SIM_NODES; i++) {
		LIST_FOREACH(l, machine_guests(c->sim->machines[i])) {
			struct guest *g = LIST_ENTRY(l, struct guest, link);

			if (guest_executes(g) && !vmi_with_uid(c, g->vmi_uid))
				sim_fail(c->sim, "the guest of pod %s runs and has no VMI",
					 g->pod_name);
		}
	}
}

/* Nobody is said to be off who is there. */
static void final_nodes(struct checker *c)
{
	struct kiter it;

	kcache_list(c->truth, &api_kind_Node, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Node *n = kobj_typed(o);

		for (size_t i = 0; i < n->spec.n_taints; i++)
			if (str_eq(n->spec.taints[i].key, TAINT_OUT_OF_SERVICE))
				sim_fail(c->sim, "node %s is still said to be off: %s",
					 n->metadata.name, n->spec.taints[i].value);
	}
}

void checker_final(struct checker *c)
{
	const char *why = user_unfulfilled(c->sim->user, c->truth);

	if (why)
		sim_fail(c->sim, "%s", why);
	final_states(c);
	final_orphans(c);
	final_guests(c);
	final_volumes(c);
	final_endpoints(c);
	final_nodes(c);
}
