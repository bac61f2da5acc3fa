/* src/cluster/apiserver/managed.h - metadata.managedFields: who set which field of an object.
 *
 * Loop thread only.  docs/design/0010 says which objects have them.
 */
#ifndef APISERVER_MANAGED_H
#define APISERVER_MANAGED_H

#include "cluster/apiserver/apisrv_int.h"

enum {
	MANAGED_MAX = 64,	   /* entries of one object */
	MANAGED_MAX_APPLIERS = 50, /* of them made by apply */
	MANAGED_MAX_UPDATERS =
		10, /* of them made by other writes; older ones are joined, as Kubernetes does */
};

/* One entry of metadata.managedFields. */
struct manager {
	struct json *entry; /* as it stands in the object; a reference */
	struct json *set;   /* its fields, replaced when they change */
	bool is_changed;
};

struct managers {
	struct manager items[MANAGED_MAX];
	size_t n;
};

void managers_fini(struct managers *m);
/* list: metadata.managedFields; NULL: none.  RC_TOO_BIG: more than MANAGED_MAX entries. */
MUST_CHECK enum rc managers_load(struct managers *m, const struct json *list);
/* Adds an entry with fields set (consumed; NULL: RC_NOMEM), marked as changed. */
MUST_CHECK enum rc managers_add(struct managers *m, const char *manager, const char *operation,
				const char *api_version, const char *sub, struct json *set);
/* The entry of a writer at the change's address, made when absent. */
MUST_CHECK enum rc managers_find(struct managers *m, const struct change *ch, const char *name,
				 const char *operation, struct manager **out);
size_t managers_count(const struct managers *m, const char *operation);
/* Replaces the fields of an entry; set is consumed (NULL: RC_NOMEM). */
MUST_CHECK enum rc manager_set_fields(struct manager *m, struct json *set);
/* The list for the object; entries without fields are gone, changed ones get the time.  NULL: out of
 * memory. */
struct json *managers_render(const struct managers *m, usec_t now);

/* Of a create, before hooks change it: all fields are the creator's, where the kind is tracked (ch->managed).
 * What admission adds is not: a finalizer, say, would go with the first apply that does not mention it. */
MUST_CHECK enum rc managed_begin_create(struct change *ch);
/* What managedFields an update begins with: the client's, when it edits or clears them, otherwise the stored
 * ones.  Faults of the client's go to ch->fe. */
MUST_CHECK enum rc managed_begin_update(struct change *ch);
/* After admission of an update: moves what changed to the writer, in objects that have managedFields. */
MUST_CHECK enum rc managed_track_update(struct change *ch);

#endif
