/* src/cluster/apiserver/quota.h - ResourceQuotas and LimitRanges of the API server; for its files only.
 *
 * Loop thread only.  A namespace that has a quota has an account here: what its newest objects (waiting
 * writes included) use, kept by each write as it is queued, so that no create looks through the
 * namespace and none of a storm slips through.  docs/internals/quota.md draws the picture.
 */
#ifndef APISERVER_QUOTA_H
#define APISERVER_QUOTA_H

#include "api/quantity.h"
#include "base/err.h"

struct apisrv;
struct change;
struct json;
struct quotas;

/* Listens to the store and brings each quota's status up to date.  RC_NOMEM. */
MUST_CHECK enum rc quotas_new(struct quotas **out, struct apisrv *s, struct err *err);
struct quotas *quotas_free(struct quotas *q); /* NULL is fine; returns NULL */
/* May the change be stored (a create, or an update of what grows)?  False: answered 403 in Kubernetes'
 * words. */
bool quota_admit(struct change *ch);
/* Faults of a ResourceQuota beyond its schema, into ch->fe (quota_check.c). */
void quota_validate(struct change *ch);

/* Gives a new pod's containers what the namespace's LimitRanges say.  RC_NOMEM. */
MUST_CHECK enum rc limitrange_default(struct change *ch);
/* Does a new pod or a claim keep to the LimitRanges?  False: answered 403, all faults at once. */
bool limitrange_admit(struct change *ch);
/* A LimitRange's own defaults (default from max, defaultRequest from default or min). */
MUST_CHECK enum rc limitrange_prepare(struct change *ch, struct err *err);
/* Faults of a LimitRange beyond its schema, into ch->fe. */
void limitrange_validate(struct change *ch);

/* Amounts that were written as numbers become text, as in Kubernetes, for all readers: of pods, claims, quotas
 * and limit ranges.  obj: a new version, to be changed.  RC_NOMEM. */
MUST_CHECK enum rc usage_amounts_to_text(const char *table, struct json *obj);

/* ---- usage.c: what single objects use --------------------------------------------------------- */

/* An amount in billionths; NULL, and what is none: 0. */
__int128 usage_nano(const char *text);
/* The table whose objects a resource of spec.hard counts ("pods" for all that containers ask for). */
const char *usage_table(const char *resource);
/* Is there such a resource for quotas, and is it counted whole? */
bool usage_is_known(const char *resource);
bool usage_is_whole(const char *resource);
/* Does the amount depend on what the object says, beyond that it exists? */
bool usage_needs_content(const char *resource);
/* What one object of usage_table() uses of it, in billionths.  obj may be NULL where the content does not
 * matter. */
__int128 usage_of(const char *resource, const struct json *obj);
/* Does a pod count for a quota with these scopes (spec of a ResourceQuota)? */
bool usage_in_scope(const struct json *spec, const struct json *pod);
/* What a container asks for or is limited to, as text; NULL: nothing.  A limit is also a request. */
const char *usage_asked(const struct json *container, bool limit, const char *name);
/* The same of a whole pod, in billionths: its containers together, or its largest first one. */
__int128 usage_of_pod(const struct json *pod, bool limit, const char *name);

#endif
