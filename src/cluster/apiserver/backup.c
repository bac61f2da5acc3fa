/* POST /ferry/v1/backup: the store's file as one stream, for administrators.
 *
 * The copy is made beside the store first, so that a slow reader holds nothing up, and is gone with the call.
 * The answer is lines of JSON with the file's bytes between two of them:
 *
 *   {"type":"progress","pages":640,"of":5120}      any number of times
 *   {"type":"file","bytes":20971520}               then exactly so many bytes, then a line feed
 *   {"type":"done","sha256":"…","revision":"81234","objects":8012,"format":2}
 *
 * {"type":"error","message":"…"} may stand in the place of any line and ends it; an answer without "done" is
 * no backup. */
#include "cluster/apiserver/apisrv_int.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/server.h"

enum { CHUNK = 256 * KIB, BACKLOG = 1024 * KIB, LOW = 256 * KIB, SHA256_BYTES = 32 };

#define PROGRESS_EVERY (100 * USEC_PER_MSEC)
#define STALL_LIMIT    (60 * USEC_PER_SEC) /* a reader that takes nothing for so long */

struct backup_call {
	struct apisrv_call *call; /* NULL: it is over, and the pool still reads */
	char *path;
	struct store_backup *copying; /* NULL: the copy is whole, or there is none */
	struct store_file_info info;
	struct ev_src *stall;
	usec_t told; /* when the last progress was */
	bool begun;  /* the stream */
	int fd;
	gnutls_hash_hd_t hash;
	uint64_t sent;
	bool is_reading; /* chunk, n and error are the pool's */
	size_t n;
	int error;
	char chunk[CHUNK];
};

static void send_next(struct backup_call *b);

static void release(struct backup_call *b)
{
	ev_src_free(b->stall);
	if (b->hash)
		gnutls_hash_deinit(b->hash, NULL);
	if (b->fd >= 0) {
		fd_close(b->fd);
		unlink(b->path);
	}
	mem_free(b->path);
	mem_free(b);
}

struct backup_call *backup_call_free(struct backup_call *b)
{
	if (!b)
		return NULL;
	if (b->copying)
		store_backup_cancel(b->copying);
	b->call = NULL;
	if (!b->is_reading)
		release(b);
	return NULL;
}

/* The stream ends, and the call with it: b is gone. */
static void end(struct backup_call *b)
{
	struct apisrv_call *c = b->call;

	call_enter(c);
	c->done = true;
	c->status = 200;
	if (c->sink)
		c->sink->stream_end(c->arg);
	call_leave(c);
}

static void begin(struct backup_call *b)
{
	struct apisrv_call *c = b->call;

	if (b->begun)
		return;
	b->begun = true;
	c->sink->stream_begin(c->arg, 200, "application/octet-stream", BACKLOG);
}

/* A line of JSON (consumed).  False: it could not be sent, the call is over. */
static bool send_line(struct backup_call *b, struct json *line)
{
	CLEANUP(sbuf_fini) struct sbuf text = SBUF_INIT(4 * KIB);
	struct apisrv_call *c = b->call;

	js_print(line, &text, false);
	sbuf_addc(&text, '\n');
	bool ok = line && !sbuf_rc(&text) && !c->sink->stream_write(c->arg, text.p, text.n);

	js_unref(line);
	if (!ok)
		end(b);
	return ok;
}

static void fail(struct backup_call *b, enum rc rc, const struct err *err)
{
	struct apisrv_call *c = b->call;

	log_warn("a backup for '%s' failed: %s", c->user.name, err->msg);
	if (!b->begun) {
		call_enter(c);
		call_fail_rc(c, rc, err);
		call_leave(c);
		return;
	}
	if (send_line(b, js_pack("{s:s, s:s}", "type", "error", "message", err->msg)))
		end(b);
}

/* ---- sending ------------------------------------------------------------------------------------- */

static void on_stall(void *arg)
{
	struct backup_call *b = arg;
	struct err err = {0};

	err_set(&err, RC_TIMEOUT, "nothing was read for a minute");
	fail(b, RC_TIMEOUT, &err);
}

static void finish(struct backup_call *b)
{
	uint8_t sum[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1], rev[24];

	gnutls_hash_deinit(b->hash, sum);
	b->hash = NULL;
	str_hex(sum, sizeof(sum), hex);
	snprintf(rev, sizeof(rev), "%lld", (long long)b->info.rev);
	log_info("a backup of revision %s, %zu objects, %llu bytes, for '%s'", rev, b->info.objects,
		 (unsigned long long)b->info.bytes, b->call->user.name);
	/* the first line feed ends the bytes */
	if (b->call->sink->stream_write(b->call->arg, "\n", 1))
		end(b);
	else if (send_line(b, js_pack("{s:s, s:s, s:s, s:I, s:i}", "type", "done", "sha256", hex,
				      "revision", rev, "objects", (int64_t)b->info.objects,
				      "format", b->info.format)))
		end(b);
}

static void on_room(struct http_req *req, void *arg)
{
	struct backup_call *b = arg;

	http_stream_on_room(req, LOW, NULL, NULL);
	send_next(b);
}

static void read_work(void *arg)
{
	struct backup_call *b = arg;
	ssize_t n = pread(b->fd, b->chunk, CHUNK, (off_t)b->sent);

	b->error = n < 0 ? errno : n == 0 ? EIO : 0; /* shorter than it was */
	b->n = n > 0 ? (size_t)n : 0;
}

static void read_after(void *arg)
{
	struct backup_call *b = arg;
	struct apisrv_call *c = b->call;
	struct err err = {0};

	b->is_reading = false;
	if (!c) {
		release(b);
		return;
	}
	if (b->error || gnutls_hash(b->hash, b->chunk, b->n) < 0) {
		err_set(&err, RC_IO, "the copy cannot be read: %s", strerror(b->error));
		fail(b, RC_IO, &err);
		return;
	}
	b->sent += b->n;
	if (c->sink->stream_write(c->arg, b->chunk, b->n)) {
		end(b);
		return;
	}
	ev_timer_rearm(b->stall, STALL_LIMIT);
	if (c->http && http_stream_backlog(c->http) > LOW)
		http_stream_on_room(c->http, LOW, on_room, b);
	else
		send_next(b);
}

static void send_next(struct backup_call *b)
{
	struct err err = {0};

	if (b->sent == b->info.bytes) {
		finish(b);
		return;
	}
	b->is_reading = true;
	enum rc rc = pool_run(b->call->srv->loop, read_work, read_after, b, &err);

	if (rc) {
		b->is_reading = false;
		fail(b, rc, &err);
	}
}

/* ---- copying ------------------------------------------------------------------------------------- */

static void on_progress(void *arg, size_t pages, size_t of)
{
	struct backup_call *b = arg;
	usec_t now = loop_now(b->call->srv->loop);

	if (b->begun && now - b->told < PROGRESS_EVERY)
		return;
	b->told = now;
	begin(b);
	send_line(b, js_pack("{s:s, s:I, s:I}", "type", "progress", "pages", (int64_t)pages, "of",
			     (int64_t)of));
}

static void on_copied(void *arg, enum rc rc, const struct store_file_info *info,
		      const struct err *why)
{
	struct backup_call *b = arg;
	struct err err = {0};

	b->copying = NULL;
	if (rc) {
		fail(b, rc, why);
		return;
	}
	b->info = *info;
	b->fd = open(b->path, O_RDONLY | O_CLOEXEC);
	if (b->fd < 0) {
		err_set_sys(&err, errno, "the copy cannot be read");
		fail(b, RC_IO, &err);
		return;
	}
	if (gnutls_hash_init(&b->hash, GNUTLS_DIG_SHA256) < 0) {
		b->hash = NULL;
		fail(b, RC_NOMEM, &(struct err){.rc = RC_NOMEM, .msg = "out of memory"});
		return;
	}
	begin(b);
	if (!send_line(b, js_pack("{s:s, s:I}", "type", "file", "bytes", (int64_t)info->bytes)))
		return;
	ev_timer_rearm(b->stall, STALL_LIMIT);
	send_next(b);
}

static enum rc start(struct apisrv_call *c, struct backup_call *b, struct err *err)
{
	const char *store = store_path(c->srv->store);
	struct store_backup_opts o = {.progress = on_progress, .done = on_copied, .arg = b};

	if (store && !(b->path = store_backup_place(c->srv->store)))
		return err_set(err, RC_NOMEM, "out of memory");
	o.path = b->path;
	enum rc rc = ev_timer_after(c->srv->loop, &b->stall, USEC_INFINITY, on_stall, b, err);

	return rc ? rc : store_backup(c->srv->store, &o, &b->copying, err);
}

void serve_backup(struct apisrv_call *c)
{
	struct err err = {0};

	c->verb = VERB_CREATE;
	audit_judged(c, apisrv_user_in_group(&c->user, GROUP_MASTERS), NULL);
	if (!apisrv_user_in_group(&c->user, GROUP_MASTERS)) {
		call_fail(
			c, 403, "Forbidden", js_new_object(),
			"forbidden: User \"%s\" cannot make a backup: only the group " GROUP_MASTERS
			" can",
			c->user.name);
		return;
	}
	if (strcmp(c->method, "POST") != 0) {
		call_fail(c, 405, "MethodNotAllowed", js_new_object(),
			  "a backup is asked for with POST");
		return;
	}
	if (!c->sink->stream_begin) {
		call_bad_request(c, "a backup needs a connection of its own");
		return;
	}
	struct backup_call *b = mem_alloc(sizeof(*b));

	if (!b) {
		call_nomem(c);
		return;
	}
	b->call = c;
	b->fd = -1;
	enum rc rc = start(c, b, &err);

	if (rc) {
		release(b);
		call_fail_rc(c, rc, &err);
		return;
	}
	c->backup = b;
}
