#include "cli/backup_stream.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/str.h"
#include "json/json.h"

enum { MAX_LINE = 4 * KIB, SHA256_BYTES = 32 };

enum rc backup_stream_init(struct backup_stream *s, struct err *err)
{
	gnutls_hash_hd_t h = NULL;

	s->line = (struct sbuf)SBUF_INIT(MAX_LINE);
	if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
		return err_set(err, RC_NOMEM, "out of memory");
	s->hash = h;
	return RC_OK;
}

void backup_stream_fini(struct backup_stream *s)
{
	if (s->hash)
		gnutls_hash_deinit(s->hash, NULL);
	s->hash = NULL;
	sbuf_fini(&s->line);
}

static enum rc unknown(struct err *err)
{
	return err_set(err, RC_IO, "the server's answer is no backup");
}

static enum rc take_done(struct backup_stream *s, const struct json *line, struct err *err)
{
	const char *sum = js_get_str(line, "sha256"), *rev = js_get_str(line, "revision");

	if (!sum || strlen(sum) != 2 * (size_t)SHA256_BYTES || !rev ||
	    strlen(rev) >= sizeof(s->revision))
		return unknown(err);
	(void)snprintf(s->sha256, sizeof(s->sha256), "%s", sum);
	(void)snprintf(s->revision, sizeof(s->revision), "%s", rev);
	s->objects = js_get_int(line, "objects", 0);
	s->format = js_get_int(line, "format", 0);
	s->state = BACKUP_DONE;
	return RC_OK;
}

static enum rc take_file(struct backup_stream *s, const struct json *line, struct err *err)
{
	int64_t bytes = js_get_int(line, "bytes", -1);

	if (bytes < 0)
		return unknown(err);
	s->bytes = s->left = (uint64_t)bytes;
	s->state = s->left ? BACKUP_BYTES : BACKUP_LF;
	return RC_OK;
}

static enum rc take_line(struct backup_stream *s, struct err *err)
{
	CLEANUP(js_unrefp) struct json *line = NULL;

	if (js_parse(sbuf_str(&s->line), s->line.n, &line, NULL))
		return unknown(err);
	const char *type = js_get_str(line, "type");
	bool head = s->state == BACKUP_HEAD;

	if (str_eq(type, "error"))
		return err_set(err, RC_IO, "%s", js_get_str(line, "message"));
	if (head && str_eq(type, "progress")) {
		if (s->progress)
			s->progress(s->arg, (uint64_t)js_get_int(line, "pages", 0),
				    (uint64_t)js_get_int(line, "of", 0));
		return RC_OK;
	}
	if (head && str_eq(type, "file"))
		return take_file(s, line, err);
	if (!head && str_eq(type, "done"))
		return take_done(s, line, err);
	return unknown(err);
}

/* Part of a line, or the end of one; returns how many bytes were taken in *n. */
static enum rc feed_line(struct backup_stream *s, const char *p, size_t *n, struct err *err)
{
	const char *lf = memchr(p, '\n', *n);

	if (lf)
		*n = (size_t)(lf - p) + 1;
	sbuf_add(&s->line, p, lf ? *n - 1 : *n);
	if (sbuf_rc(&s->line))
		return unknown(err);
	enum rc rc = lf ? take_line(s, err) : RC_OK;

	if (lf)
		sbuf_reset(&s->line);
	return rc;
}

static enum rc feed_bytes(struct backup_stream *s, const char *p, size_t *n, struct err *err)
{
	*n = (size_t)MIN((uint64_t)*n, s->left);
	if (gnutls_hash(s->hash, p, *n) < 0)
		return err_set(err, RC_NOMEM, "out of memory");
	s->left -= *n;
	if (!s->left)
		s->state = BACKUP_LF;
	return s->write(s->arg, p, *n, err);
}

enum rc backup_stream_feed(struct backup_stream *s, const void *bytes, size_t n, struct err *err)
{
	const char *p = bytes;
	enum rc rc = RC_OK;

	while (n && !rc) {
		size_t used = n;

		if (s->state == BACKUP_BYTES) {
			rc = feed_bytes(s, p, &used, err);
		} else if (s->state == BACKUP_LF) {
			used = 1;
			s->state = BACKUP_TAIL;
			if (*p != '\n')
				rc = unknown(err);
		} else if (s->state == BACKUP_DONE) {
			rc = unknown(err);
		} else {
			rc = feed_line(s, p, &used, err);
		}
		p += used;
		n -= used;
	}
	return rc;
}

enum rc backup_stream_end(struct backup_stream *s, struct err *err)
{
	uint8_t sum[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1];

	if (s->state != BACKUP_DONE)
		return err_set(err, RC_IO, "the server's answer ended before the backup did");
	gnutls_hash_output(s->hash, sum);
	str_hex(sum, sizeof(sum), hex);
	if (strcmp(hex, s->sha256) != 0)
		return err_set(err, RC_IO, "what came is not what was sent (SHA-256 differs)");
	return RC_OK;
}
