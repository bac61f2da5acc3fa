/* lib/api/meta.h - what every object has: finalizers, owners, conditions, labels.
 *
 * No state; works on objects that the caller owns.
 */
#ifndef API_META_H
#define API_META_H

#include "api/api.h"
#include "api/gen/api_types.h"

bool api_has_finalizer(const ObjectMeta *m, const char *finalizer);
MUST_CHECK enum rc api_add_finalizer(ObjectMeta *m, const char *finalizer); /* once */
bool api_del_finalizer(ObjectMeta *m, const char *finalizer);		    /* false: was absent */

/* The owner with controller: true; NULL when none.  Borrowed. */
const OwnerReference *api_controller_of(const ObjectMeta *m);
bool api_is_owned_by(const ObjectMeta *m, const char *uid);
/* Adds (or replaces, by uid) a reference. */
MUST_CHECK enum rc api_add_owner(ObjectMeta *m, const struct api_kind *kind,
				 const ObjectMeta *owner, bool is_controller, bool blocks_deletion);

static inline const char *api_label(const ObjectMeta *m, const char *key)
{
	return api_map_get(&m->labels, key);
}

static inline const char *api_annotation(const ObjectMeta *m, const char *key)
{
	return api_map_get(&m->annotations, key);
}

/* Conditions, over any list whose items have {type, status, reason?, message?,
 * lastTransitionTime?}.  t is the item's type, list the address of the list pointer:
 *   api_cond_set(&api_type_PodCondition, &st->conditions, &st->n_conditions, &c, now)  */
struct api_cond {
	const char *type;
	const char *status; /* "True", "False", "Unknown" */
	const char *reason; /* NULL: absent */
	const char *message;
};

/* Adds or changes it; lastTransitionTime moves only when status does.  now: realtime.
 * *changed (may be NULL) tells whether anything differs. */
MUST_CHECK enum rc api_cond_set(const struct api_type *t, void *list, uint32_t *n,
				const struct api_cond *c, usec_t now, bool *changed);
/* Borrowed texts; false (and *out untouched) when there is none of this type. */
bool api_cond_get(const struct api_type *t, const void *list, size_t n, const char *type,
		  struct api_cond *out);
bool api_cond_is(const struct api_type *t, const void *list, size_t n, const char *type,
		 const char *status);
bool api_cond_del(const struct api_type *t, void *list, uint32_t *n, const char *type);

/* The three for a struct with a `conditions` list: API_COND_SET(&vmi->status, Condition type...) */
#define API_COND_SET(obj_, item_, now_, ...)                                        \
	api_cond_set(&api_type_##item_, &(obj_)->conditions, &(obj_)->n_conditions, \
		     &(struct api_cond){__VA_ARGS__}, now_, NULL)
#define API_COND_IS(obj_, item_, type_, status_) \
	api_cond_is(&api_type_##item_, (obj_)->conditions, (obj_)->n_conditions, type_, status_)
#define API_COND_GET(obj_, item_, type_, out_) \
	api_cond_get(&api_type_##item_, (obj_)->conditions, (obj_)->n_conditions, type_, out_)
#define API_COND_DEL(obj_, item_, type_) \
	api_cond_del(&api_type_##item_, &(obj_)->conditions, &(obj_)->n_conditions, type_)

/* Name limits of Kubernetes: is text a label key / label value? */
bool api_is_qualified_name(const char *s);
bool api_is_label_value(const char *s);

#endif
