/* lib/ctl/view.h - what a reconciler may see: a snapshot of objects, and what time it is.
 *
 * Valid during one reconcile call.  All results are borrowed from the cache and immutable.
 */
#ifndef CTL_VIEW_H
#define CTL_VIEW_H

#include "kube/kcache.h"
#include "kube/kobj.h"

struct view {
	const struct kcache *cache;
	usec_t now; /* realtime, microseconds since the epoch */
	/* The server's answer that stopped this key's last plan, when it was a refusal of the content
	 * (invalid, forbidden, quota): what the object may want to tell its user.  NULL: none. */
	const struct err *refused;
};

/* The typed object, to be cast to the kind's struct; NULL: not there (or not yet seen). */
static inline const void *view_get(const struct view *v, const struct api_kind *kind,
				   const char *ns, const char *name)
{
	return kobj_typed(kcache_get(v->cache, kind, ns, name));
}

/* All objects of a kind; ns NULL: of all namespaces. */
static inline void view_list(const struct view *v, const struct api_kind *kind, const char *ns,
			     struct kiter *it)
{
	kcache_list(v->cache, kind, ns, it);
}

/* Objects with an ownerReference to this uid. */
static inline void view_children(const struct view *v, const struct api_kind *kind,
				 const char *owner_uid, struct kiter *it)
{
	kcache_by_owner(v->cache, kind, owner_uid, it);
}

/* Objects found under value in an index that the controller's definition declares. */
static inline void view_by(const struct view *v, const struct api_kind *kind, const char *index,
			   const char *value, struct kiter *it)
{
	kcache_by(v->cache, kind, index, value, it);
}

/* The next typed object, NULL at the end. */
static inline const void *view_next(struct kiter *it)
{
	return kobj_typed(kiter_next(it));
}

#endif
