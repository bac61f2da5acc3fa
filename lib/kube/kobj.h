/* lib/kube/kobj.h - an immutable, counted, typed API object, as caches hold it.
 *
 * Loop thread only.  What kobj_typed() returns is const to everyone: to change an object, clone it
 * (api_clone()) and plan an update.  Builds with a sanitizer check at the end that nobody did.
 */
#ifndef KUBE_KOBJ_H
#define KUBE_KOBJ_H

#include "base/err.h"

struct ObjectMeta;
struct api_kind;
struct json;
struct kobj;

/* Consumes obj (a struct of that kind, from api_new/api_decode), also on failure. */
MUST_CHECK enum rc kobj_new(struct kobj **out, const struct api_kind *kind, void *obj);
/* Decoded leniently: fields that the schema does not know are dropped, and metadata.managedFields too. */
MUST_CHECK enum rc kobj_decode(struct kobj **out, const struct api_kind *kind, const struct json *j,
			       struct err *err);
struct kobj *kobj_ref(const struct kobj *o);   /* NULL in, NULL out */
struct kobj *kobj_unref(const struct kobj *o); /* accepts NULL, returns NULL */
DEFINE_CLEANUP(struct kobj *, kobj_unref);

const struct api_kind *kobj_kind(const struct kobj *o);
const void *kobj_typed(const struct kobj *o); /* cast to the kind's struct; NULL in, NULL out */
const struct ObjectMeta *kobj_meta(const struct kobj *o);
const char *kobj_ns(const struct kobj *o); /* "" for cluster-scoped objects */
const char *kobj_name(const struct kobj *o);
const char *kobj_uid(const struct kobj *o); /* "" when absent */
/* metadata.resourceVersion as a number; 0 when absent or not a number.  Kubernetes defines versions of
 * one resource as comparable numbers since 1.35, and every server before it behaved so. */
uint64_t kobj_rv(const struct kobj *o);
bool kobj_is_going(const struct kobj *o); /* has a deletionTimestamp */

#endif
