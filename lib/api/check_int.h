/* lib/api/check_int.h - the state of one check; private to lib/api. */
#ifndef API_CHECK_INT_H
#define API_CHECK_INT_H

#include "api/api.h"
#include "api/api_int.h"
#include "base/sbuf.h"

struct check {
	struct field_errs *fe;
	const struct api_kind *kind; /* NULL: a body that is no kind */
	unsigned flags;		     /* API_CHECK_* */
	bool in_status;
	struct sbuf path; /* scratch of check_path() */
};

/* Borrowed until the next call. */
const char *check_path(struct check *c, const struct api_path *path);
/* Why text does not have this format, in Kubernetes' words; NULL when it does. */
const char *check_format(enum api_format fmt, const char *text);
/* Name, labels, annotations and finalizers: what their types do not say. */
void check_meta(struct check *c, const struct json *meta);

#endif
