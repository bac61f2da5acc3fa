/* lib/base/err.h - the closed set of results, and what each one means to an HTTP
 * client and to a retry loop.  Add a row here and everything else follows.
 *
 * Thread rule: a struct err belongs to its caller; nothing here is shared.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/macro.h"

enum retry { RETRY_NO, RETRY_NOW, RETRY_BACKOFF };

/* X(code, HTTP status, API reason, retry class).  RETRY_NOW still passes the per-key back-off. */
#define RC_MAP(X)                                              \
	X(RC_OK, 200, "", RETRY_NO)                            \
	X(RC_INVALID, 422, "Invalid", RETRY_NO)                \
	X(RC_BAD_REQUEST, 400, "BadRequest", RETRY_NO)         \
	X(RC_UNAUTHORIZED, 401, "Unauthorized", RETRY_NO)      \
	X(RC_FORBIDDEN, 403, "Forbidden", RETRY_NO)            \
	X(RC_NOT_FOUND, 404, "NotFound", RETRY_NO)             \
	X(RC_METHOD, 405, "MethodNotAllowed", RETRY_NO)        \
	X(RC_NOT_ACCEPTABLE, 406, "NotAcceptable", RETRY_NO)   \
	X(RC_EXISTS, 409, "AlreadyExists", RETRY_NO)           \
	X(RC_CONFLICT, 409, "Conflict", RETRY_NOW)             \
	X(RC_EXPIRED, 410, "Expired", RETRY_NOW)               \
	X(RC_TOO_BIG, 413, "RequestEntityTooLarge", RETRY_NO)  \
	X(RC_MEDIA, 415, "UnsupportedMediaType", RETRY_NO)     \
	X(RC_BUSY, 429, "TooManyRequests", RETRY_BACKOFF)      \
	X(RC_CLOSED, 503, "ServiceUnavailable", RETRY_BACKOFF) \
	X(RC_TIMEOUT, 504, "Timeout", RETRY_BACKOFF)           \
	X(RC_UNSUPPORTED, 501, "NotImplemented", RETRY_NO)     \
	X(RC_IO, 500, "InternalError", RETRY_BACKOFF)          \
	X(RC_NOMEM, 500, "InternalError", RETRY_BACKOFF)

#define RC_ENUM(code, http, reason, retry) code,
enum rc { RC_MAP(RC_ENUM) RC__MAX };
#undef RC_ENUM

/* Caller-owned, no allocation: text is a phrase without full stop or newline. */
struct err {
	enum rc rc;
	int sys; /* errno, 0 when no system call failed */
	char msg[512];
};

/* Each fills *err (which may be NULL) and returns rc, so that `return err_set(...)` reads well. */
enum rc err_set(struct err *err, enum rc rc, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* As err_set(), and appends ": <strerror>"; maps errno_ to the nearest rc. */
enum rc err_set_sys(struct err *err, int errno_, const char *fmt, ...) PRINTF_LIKE(3, 4);
#ifdef __clang_analyzer__ /* it does not look into other files: say what is returned */
#define err_set(err_, rc_, ...)	       ((void)err_set(err_, rc_, __VA_ARGS__), (rc_))
#define err_set_sys(err_, errno_, ...) ((void)err_set_sys(err_, errno_, __VA_ARGS__), RC_IO)
#endif
/* Puts context before the text already there ("context: text"); returns err->rc (RC_IO if err is NULL:
 * callers that may pass NULL must keep their own rc). */
enum rc err_prepend(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Copies src over dst (dst may be NULL); returns src->rc. */
enum rc err_copy(struct err *dst, const struct err *src);
void err_clear(struct err *err);

const char *rc_name(enum rc rc);   /* "RC_INVALID" */
const char *rc_reason(enum rc rc); /* "Invalid"; "" for RC_OK */
int rc_http(enum rc rc);	   /* 422 */
enum retry rc_retry(enum rc rc);
/* The code for an HTTP status and API reason of an answer; RC_IO when neither is known. */
enum rc rc_from_http(int status, const char *reason);
enum rc rc_from_errno(int errno_);

/* For results that are ignored on purpose: say why beside the call. */
static inline void ignore_rc(enum rc rc)
{
	(void)rc;
}

#endif
