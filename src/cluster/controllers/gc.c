/* Garbage collection by ownerReferences: an object whose owners are all gone goes; foreground and
 * orphan deletions of an owner are carried out.  An owner of a kind that is not watched here is taken
 * to exist: what cannot be known is never collected. */
#include "api/api.h"
#include "api/meta.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/controllers/controllers.h"

#define FIN_ORPHAN     "orphan"
#define FIN_FOREGROUND "foregroundDeletion"

/* Kinds that may own or be owned. */
#define GC_KINDS(X)                        \
	X(VirtualMachine)                  \
	X(VirtualMachineInstance)          \
	X(VirtualMachineInstanceMigration) \
	X(Pod)                             \
	X(PersistentVolumeClaim)           \
	X(ControllerRevision)              \
	X(PortBinding)                     \
	X(Handover)                        \
	X(Service)                         \
	X(EndpointSlice)                   \
	X(Secret)                          \
	X(ConfigMap)

#define GC_PTR(K) &api_kind_##K,
static const struct api_kind *const gc_kinds[] = {GC_KINDS(GC_PTR)};
#undef GC_PTR

static bool is_same_object(const struct kobj *o, const OwnerReference *ref)
{
	return o && str_eq(kobj_uid(o), ref->uid);
}

static const struct kobj *find_owner(const struct view *v, const OwnerReference *ref,
				     const char *ns, bool *known)
{
	const struct api_kind *kind = api_kind_of(ref->apiVersion, ref->kind);

	if (kind && kind->alias_of)
		kind = kind->alias_of;
	*known = kind && kcache_has_kind(v->cache, kind);
	return *known ? kcache_get(v->cache, kind, kind->is_namespaced ? ns : NULL, ref->name)
		      : NULL;
}

/* ---- as a dependant ---- */

/* Has owners, and none of them exists any more. */
static bool is_orphan(const struct view *v, const ObjectMeta *m)
{
	for (size_t i = 0; i < m->n_ownerReferences; i++) {
		bool known;
		const struct kobj *o = find_owner(v, &m->ownerReferences[i], m->namespace, &known);

		if (!known || is_same_object(o, &m->ownerReferences[i]))
			return false;
	}
	return m->n_ownerReferences > 0;
}

/* The object that the reference means, where it is not looked for: an owner has to be in the namespace of its
 * dependant. */
static const struct kobj *owner_elsewhere(const struct view *v, const OwnerReference *ref)
{
	const struct api_kind *kind = api_kind_of(ref->apiVersion, ref->kind);
	struct kiter it;
	const struct kobj *o;

	kcache_list(v->cache, kind, NULL, &it);
	while ((o = kiter_next(&it)))
		if (str_eq(kobj_uid(o), ref->uid))
			return o;
	return NULL;
}

/* Who wonders where his object went finds the reason (Kubernetes: OwnerRefInvalidNamespace). */
static enum rc tell_of_owners_elsewhere(const struct view *v, const struct api_kind *kind,
					const ObjectMeta *m, struct plan *out)
{
	for (size_t i = 0; i < m->n_ownerReferences; i++) {
		const OwnerReference *ref = &m->ownerReferences[i];

		if (owner_elsewhere(v, ref))
			TRY(plan_event(
				out, kind, m, "Warning", "OwnerRefInvalidNamespace",
				"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist "
				"in namespace \"%s\"",
				ref->apiVersion, ref->kind, m->namespace, ref->name, ref->uid,
				m->namespace));
	}
	return RC_OK;
}

static enum rc collect(const struct view *v, const struct api_kind *kind, const ObjectMeta *m,
		       struct plan *out)
{
	usec_t age = cc_age(v->now, m->creationTimestamp);

	if (m->deletionTimestamp || !is_orphan(v, m))
		return RC_OK;
	if (age < CC_UNSEEN)
		return plan_requeue_after(out, CC_UNSEEN - age);
	TRY(tell_of_owners_elsewhere(v, kind, m, out));
	return plan_delete(out, kind, m->namespace, m->name, m->uid, -1, "Background");
}

/* ---- as an owner that is going ---- */

/* Takes the reference to owner off a dependant. */
static enum rc set_free(const struct api_kind *kind, const void *obj, const char *owner_uid,
			struct plan *out)
{
	void *next = api_clone(kind->type, obj);
	ObjectMeta *m = next;

	if (!next)
		return RC_NOMEM;
	for (size_t i = m->n_ownerReferences; i-- > 0;)
		if (str_eq(m->ownerReferences[i].uid, owner_uid))
			api_remove(&api_type_OwnerReference, &m->ownerReferences,
				   &m->n_ownerReferences, i);
	return plan_update(out, kind, obj, next, NULL);
}

enum { MAX_OWNERS_UP = 16 };

/* Is the object with this uid m itself, or above it?  Objects that own each other would wait for each other. */
static bool is_above(const struct view *v, const ObjectMeta *m, const char *uid)
{
	const ObjectMeta *way[MAX_OWNERS_UP] = {m};
	size_t n = 1;

	for (size_t at = 0; at < n; at++) {
		if (str_eq(way[at]->uid, uid))
			return true;
		for (size_t i = 0; i < way[at]->n_ownerReferences && n < MAX_OWNERS_UP; i++) {
			const OwnerReference *ref = &way[at]->ownerReferences[i];
			bool known;
			const struct kobj *o = find_owner(v, ref, way[at]->namespace, &known);

			if (is_same_object(o, ref))
				way[n++] = kobj_meta(o);
		}
	}
	return false;
}

static bool blocks(const ObjectMeta *m, const char *owner_uid)
{
	for (size_t i = 0; i < m->n_ownerReferences; i++)
		if (str_eq(m->ownerReferences[i].uid, owner_uid))
			return API_GET(&m->ownerReferences[i], blockOwnerDeletion, false);
	return false;
}

static enum rc treat_dependant(const struct view *v, const struct api_kind *kind, const void *obj,
			       const ObjectMeta *owner, bool orphan, size_t *left, struct plan *out)
{
	const ObjectMeta *m = obj;
	bool waits = blocks(m, owner->uid) && !is_above(v, owner, m->uid);

	if (orphan) {
		++*left;
		return set_free(kind, obj, owner->uid, out);
	}
	*left += waits;
	if (m->deletionTimestamp)
		return RC_OK;
	return plan_delete(out, kind, m->namespace, m->name, m->uid, -1,
			   waits ? "Foreground" : "Background");
}

static enum rc drop_finalizer(const struct api_kind *kind, const void *obj, const char *finalizer,
			      struct plan *out)
{
	void *next = api_clone(kind->type, obj);

	if (!next)
		return RC_NOMEM;
	api_del_finalizer(next, finalizer);
	return plan_update(out, kind, obj, next, NULL);
}

static enum rc let_go(const struct view *v, const struct api_kind *kind, const void *obj,
		      bool orphan, struct plan *out)
{
	const ObjectMeta *m = obj;
	size_t left = 0;

	for (size_t k = 0; k < ARRAY_SIZE(gc_kinds); k++) {
		struct kiter it;
		const void *dep;

		view_children(v, gc_kinds[k], m->uid, &it);
		while ((dep = view_next(&it)))
			TRY(treat_dependant(v, gc_kinds[k], dep, m, orphan, &left, out));
	}
	/* an orphaning is done with the plan's own steps; a foreground delete waits for its dependants */
	if (left && !orphan)
		return RC_OK;
	return drop_finalizer(kind, obj, orphan ? FIN_ORPHAN : FIN_FOREGROUND, out);
}

static enum rc gc_reconcile(const struct view *v, const struct api_kind *kind, const char *ns,
			    const char *name, struct plan *out, struct err *err)
{
	const void *obj = view_get(v, kind, ns, name);
	const ObjectMeta *m = obj;
	enum rc rc;

	if (!obj)
		return RC_OK;
	if (m->deletionTimestamp && api_has_finalizer(m, FIN_ORPHAN))
		rc = let_go(v, kind, obj, true, out);
	else if (m->deletionTimestamp && api_has_finalizer(m, FIN_FOREGROUND))
		rc = let_go(v, kind, obj, false, out);
	else
		rc = collect(v, kind, m, out);
	return rc ? err_set(err, rc, "cannot collect %s '%s'", kind->kind, name) : RC_OK;
}

/* ---- what wakes it ---- */

/* Keys of kind that a change of obj may concern: what obj owns, and owners of obj that are going. */
static void gc_map(const struct view *v, const struct api_kind *kind, const struct kobj *obj,
		   ctl_emit_fn emit, void *ctx)
{
	const ObjectMeta *m = kobj_meta(obj);
	struct kiter it;
	const struct kobj *dep;

	kcache_by_owner(v->cache, kind, kobj_uid(obj), &it);
	while ((dep = kiter_next(&it)))
		emit(ctx, kobj_ns(dep), kobj_name(dep));
	for (size_t i = 0; i < m->n_ownerReferences; i++) {
		const OwnerReference *ref = &m->ownerReferences[i];
		const struct kobj *o;

		if (!str_eq(ref->kind, kind->kind))
			continue;
		o = kcache_get(v->cache, kind, kobj_ns(obj), ref->name);
		if (o && kobj_is_going(o))
			emit(ctx, kobj_ns(o), kobj_name(o));
	}
}

#define GC_DEF(K)                                                                               \
	static enum rc gc_reconcile_##K(const struct view *v, const char *ns, const char *name, \
					struct plan *out, struct err *err)                      \
	{                                                                                       \
		return gc_reconcile(v, &api_kind_##K, ns, name, out, err);                      \
	}                                                                                       \
	static void gc_map_##K(const struct view *v, const struct kobj *obj, ctl_emit_fn emit,  \
			       void *ctx)                                                       \
	{                                                                                       \
		gc_map(v, &api_kind_##K, obj, emit, ctx);                                       \
	}                                                                                       \
	static const struct ctl_map gc_maps_##K[] = {                                           \
		{&api_kind_VirtualMachine, gc_map_##K},                                         \
		{&api_kind_VirtualMachineInstance, gc_map_##K},                                 \
		{&api_kind_VirtualMachineInstanceMigration, gc_map_##K},                        \
		{&api_kind_Pod, gc_map_##K},                                                    \
		{&api_kind_PersistentVolumeClaim, gc_map_##K},                                  \
		{&api_kind_ControllerRevision, gc_map_##K},                                     \
		{&api_kind_PortBinding, gc_map_##K},                                            \
		{&api_kind_Handover, gc_map_##K},                                               \
		{&api_kind_Service, gc_map_##K},                                                \
		{&api_kind_EndpointSlice, gc_map_##K},                                          \
		{&api_kind_Secret, gc_map_##K},                                                 \
		{&api_kind_ConfigMap, gc_map_##K},                                              \
		{NULL, NULL},                                                                   \
	};                                                                                      \
	static const struct ctl_def gc_def_##K = {                                              \
		.name = "gc-" #K,                                                               \
		.primary = &api_kind_##K,                                                       \
		.reconcile = gc_reconcile_##K,                                                  \
		.maps = gc_maps_##K,                                                            \
	};
GC_KINDS(GC_DEF)
#undef GC_DEF

#define GC_DEF_PTR(K) &gc_def_##K,
const struct ctl_def *const gc_ctl_defs[] = {GC_KINDS(GC_DEF_PTR) NULL};
#undef GC_DEF_PTR
