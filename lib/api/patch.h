/* lib/api/patch.h - JSON patch, merge patch, strategic merge patch, and the difference of two objects.
 *
 * Pure: inputs are not changed; results belong to the caller and may share unchanged parts with the
 * inputs by reference (js_copy() before changing them).
 */
#ifndef API_PATCH_H
#define API_PATCH_H

#include "api/type.h"
#include "json/json.h"

/* RFC 6902.  RC_BAD_REQUEST for a malformed patch; RC_INVALID when it does not apply ("the server
 * rejected our request due to an error in our request" family: missing path, failed test). */
MUST_CHECK enum rc api_patch_json(const struct json *doc, const struct json *ops, struct json **out,
				  struct err *err);
/* RFC 7386. */
MUST_CHECK enum rc api_patch_merge(const struct json *doc, const struct json *patch,
				   struct json **out, struct err *err);
/* Kubernetes' strategic merge: list merge keys from the schema of t, $patch: merge|replace|delete,
 * $retainKeys, $setElementOrder/x, $deleteFromPrimitiveList/x. */
MUST_CHECK enum rc api_patch_strategic(const struct api_type *t, const struct json *doc,
				       const struct json *patch, struct json **out,
				       struct err *err);
/* The merge patch that turns old into new; *out is an empty object when they are equal. */
MUST_CHECK enum rc api_merge_diff(const struct json *old, const struct json *new_,
				  struct json **out);

#endif
