/* lib/api/api.h - typed API objects: make, free, clone, compare, to and from JSON, check.
 *
 * No state: objects belong to their owner's thread.  Objects in caches are shared and const.
 * Everything works on the descriptor tables of type.h; per type wrappers are generated into
 * api_types.h (VirtualMachine_new(), _free(), _clone(), _equal(), _decode(), _encode()).
 */
#ifndef API_API_H
#define API_API_H

#include "api/fielderr.h"
#include "api/map.h"
#include "api/type.h"

/* Zeroed; NULL when out of memory. */
void *api_new(const struct api_type *t);
/* Frees what obj owns and obj; NULL is fine; returns NULL. */
void *api_free(const struct api_type *t, void *obj);
/* Frees what obj owns and zeroes it; for structs held by value. */
void api_fini(const struct api_type *t, void *obj);
/* Deep copy (struct json fields are shared by reference); NULL when out of memory. */
void *api_clone(const struct api_type *t, const void *obj);
/* Deep copy into *dst, which is overwritten, not freed first.  On failure *dst is zeroed. */
MUST_CHECK enum rc api_copy(const struct api_type *t, void *dst, const void *src);
bool api_equal(const struct api_type *t, const void *a, const void *b);
/* A deep copy in one block, each text in it once, and those that other objects have, too, shared with them: a third of the
 * memory, for what is kept and never changed.  Read like any other object; freed by api_pack_free() alone, on the thread that
 * packs (base/textpool.h).  NULL when out of memory. */
const void *api_pack(const struct api_type *t, const void *obj);
/* NULL is fine; returns NULL. */
void *api_pack_free(const struct api_type *t, const void *packed);

/* Lenient: unknown fields are ignored, null means absent; a value of the wrong type is RC_INVALID
 * with its path.  apiVersion and kind are not looked at.  *out is the caller's. */
MUST_CHECK enum rc api_decode(const struct api_type *t, const struct json *j, void **out,
			      struct err *err);
/* Schema order, absent fields left out; kinds get apiVersion and kind.  NULL when out of memory. */
struct json *api_encode(const struct api_type *t, const void *obj);

enum {
	API_CHECK_UPDATE =
		1, /* the object exists: metadata.name is required, generateName is not enough */
	API_CHECK_NO_SUPPORT = 2,  /* skip support levels (objects written by Ferry itself) */
	API_CHECK_ONLY_STATUS = 4, /* look below .status only (status subresource) */
	API_CHECK_SKIP_STATUS = 8, /* do not look below .status (it is dropped anyway) */
};

/* Everything the schema can say about an object: types, required and unknown fields, limits, enums,
 * formats, names, labels, support levels.  Changes nothing.  All findings go to fe (at most
 * LIMIT_FIELD_ERRORS), warnings too; never fails otherwise (fe->rc for out of memory).
 * Support levels are not applied below .status: that is Ferry's to write. */
void api_check(const struct api_kind *k, const struct json *obj, unsigned flags,
	       struct field_errs *fe);
/* The same for a body that is not a kind (StartOptions, DeleteOptions...), paths from its root. */
void api_check_type(const struct api_type *t, const struct json *obj, unsigned flags,
		    struct field_errs *fe);
/* Fields marked immutable that differ between the stored and the new object. */
void api_check_update(const struct api_kind *k, const struct json *old, const struct json *obj,
		      struct field_errs *fe);
/* Writes the schema's defaults into obj (changed in place) for kinds that have them: below objects
 * that exist; metadata and status are left alone. */
MUST_CHECK enum rc api_set_defaults(const struct api_kind *k, struct json *obj);
/* Removes what the schema does not know (fieldValidation=Ignore/Warn), in place: obj must not be shared. */
MUST_CHECK enum rc api_prune(const struct api_kind *k, struct json *obj);

/* Replaces *field by a copy of v (NULL: clears it). */
MUST_CHECK enum rc api_set_str(char **field, const char *v);
/* As api_set_str() with formatted text. */
MUST_CHECK enum rc api_set_strf(char **field, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Sets an optional integer or bool: API_SET(&vmi->status, runtimeUser, 107). */
#define API_SET(obj_, field_, value_) ((obj_)->has_##field_ = true, (obj_)->field_ = (value_))
/* The value or a fallback: API_GET(spec, terminationGracePeriodSeconds, 30). */
#define API_GET(obj_, field_, fallback_) ((obj_)->has_##field_ ? (obj_)->field_ : (fallback_))
/* One more zeroed item at the end of a list: `Disk *d = api_append(&devs->disks, &devs->n_disks,
 * sizeof(Disk));`  Valid until the list grows again.  NULL when out of memory. */
void *api_append(void *list, uint32_t *n, size_t item_size);
MUST_CHECK enum rc api_append_str(char ***list, uint32_t *n, const char *v);
/* Removes item i of a list of structs (freeing it), closing the gap. */
void api_remove(const struct api_type *t, void *list, uint32_t *n, size_t i);
/* The object under *field, made when absent; NULL when out of memory. */
void *api_ensure(const struct api_type *t, void *field);

#endif
