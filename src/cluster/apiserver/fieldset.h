/* src/cluster/apiserver/fieldset.h - sets of fields in Kubernetes' FieldsV1 form, and what server-side
 * apply does with them.
 *
 * Pure functions over JSON; loop thread only.  A set is an object whose keys are "f:<field>",
 * "k:{<key fields>}" (item of a list that is a map), "v:<value>" (item of a set); an empty object is a
 * member; "." makes a member of a node that has children.  Which lists are maps or sets, and which
 * values are atomic, comes from the schema.  Recursion follows the values, whose depth the JSON parser
 * bounds.  NULL as a set is the empty one; a NULL result of a function that makes a set is RC_NOMEM.
 */
#ifndef APISERVER_FIELDSET_H
#define APISERVER_FIELDSET_H

#include "api/type.h"
#include "json/json.h"

/* Every field of obj that its writer means: without apiVersion, kind, and what the server gives. */
struct json *fieldset_of(const struct api_kind *k, const struct json *obj);

struct json *fieldset_union(const struct json *a, const struct json *b);
struct json *fieldset_subtract(const struct json *a, const struct json *b);
struct json *fieldset_intersect(const struct json *a, const struct json *b);
bool fieldset_is_empty(const struct json *a);

/* Is it a set at all?  For what a client sent; false also when out of memory. */
bool fieldset_is_valid(const struct json *set);

/* The members of set whose values differ between the two objects. */
struct json *fieldset_differing(const struct api_kind *k, const struct json *a,
				const struct json *b, const struct json *set);
/* live with the fields of config written over it: structs and maps by key, map lists by item. */
struct json *fieldset_merge(const struct api_kind *k, const struct json *live,
			    const struct json *config);
/* Takes the members of set out of obj (changed in place), but no item of which keep has a part. */
MUST_CHECK enum rc fieldset_remove(const struct api_kind *k, struct json *obj,
				   const struct json *set, const struct json *keep);
/* Calls fn with each member as text: ".spec.ports[port=80,protocol=\"TCP\"].nodePort". */
typedef void (*fieldset_fn)(void *arg, const char *path);
void fieldset_each(const struct json *set, fieldset_fn fn, void *arg);

#endif
