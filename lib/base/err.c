#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int http;
	const char *reason;
	enum retry retry;
} rows[] = {
#define RC_ROW(code, http_, reason_, retry_) [code] = {#code, http_, reason_, retry_},
	RC_MAP(RC_ROW)
#undef RC_ROW
};
static_assert(ARRAY_SIZE(rows) == RC__MAX, "every result has a row");

enum rc(err_set)(struct err *err, enum rc rc, const char *fmt, ...)
{
	if (err) {
		va_list ap;

		err->rc = rc;
		err->sys = 0;
		va_start(ap, fmt);
		(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap); /* cut texts stay valid */
		va_end(ap);
	}
	return rc;
}

enum rc rc_from_errno(int errno_)
{
	switch (errno_) {
	case 0:
		return RC_OK;
	case ENOENT:
	case ENODEV:
	case ESRCH:
		return RC_NOT_FOUND;
	case EEXIST:
	case EADDRINUSE:
		return RC_EXISTS;
	case EACCES:
	case EPERM:
	case EROFS:
		return RC_FORBIDDEN;
	case ENOMEM:
		return RC_NOMEM;
	case EINVAL:
		return RC_INVALID;
	case EAGAIN:
	case EBUSY:
		return RC_BUSY;
	case ETIMEDOUT:
		return RC_TIMEOUT;
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
	case ENOTCONN:
		return RC_CLOSED;
	default:
		return RC_IO;
	}
}

enum rc(err_set_sys)(struct err *err, int errno_, const char *fmt, ...)
{
	enum rc rc = rc_from_errno(errno_);

	if (!rc)
		rc = RC_IO;
	if (err) {
		va_list ap;
		int n;

		err->rc = rc;
		err->sys = errno_;
		va_start(ap, fmt);
		n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
		va_end(ap);
		if (n >= 0 && (size_t)n < sizeof(err->msg))
			(void)snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s",
				       strerror(errno_));
	}
	return rc;
}

enum rc err_prepend(struct err *err, const char *fmt, ...)
{
	char head[sizeof(err->msg)];
	char all[sizeof(err->msg)];
	va_list ap;

	if (!err)
		return RC_IO;
	va_start(ap, fmt);
	(void)vsnprintf(head, sizeof(head), fmt, ap);
	va_end(ap);
	size_t n = strnlen(head, sizeof(head) - 1);

	memcpy(all, head, n);
	(void)snprintf(all + n, sizeof(all) - n, ": %s", err->msg);
	memcpy(err->msg, all, sizeof(all));
	err->msg[sizeof(err->msg) - 1] = '\0';
	return err->rc;
}

enum rc err_copy(struct err *dst, const struct err *src)
{
	if (dst)
		*dst = *src;
	return src->rc;
}

void err_clear(struct err *err)
{
	if (err)
		*err = (struct err){0};
}

const char *rc_name(enum rc rc)
{
	return (unsigned)rc < RC__MAX ? rows[rc].name : "RC_?";
}

const char *rc_reason(enum rc rc)
{
	return (unsigned)rc < RC__MAX ? rows[rc].reason : "InternalError";
}

int rc_http(enum rc rc)
{
	return (unsigned)rc < RC__MAX ? rows[rc].http : 500;
}

enum retry rc_retry(enum rc rc)
{
	return (unsigned)rc < RC__MAX ? rows[rc].retry : RETRY_NO;
}

enum rc rc_from_http(int status, const char *reason)
{
	if (status >= 200 && status < 300)
		return RC_OK;
	for (unsigned rc = 1; reason && *reason && rc < RC__MAX; rc++)
		if (strcmp(rows[rc].reason, reason) == 0)
			return (enum rc)rc;
	for (unsigned rc = 1; rc < RC__MAX; rc++)
		if (rows[rc].http == status)
			return (enum rc)rc;
	return RC_IO;
}
