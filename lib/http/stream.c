#include <string.h>

#include "base/mem.h"
#include "http/server_int.h"

/* A stream is a chunked response whose reader takes from `queue`.  When the queue is empty the reader
 * suspends the connection; http_stream_write() resumes it, and libmicrohttpd writes in the loop's next
 * turn, so that events of one turn share a record and a packet.
 */

enum { STREAM_BLOCK = 16 * 1024 };

static size_t queued(const struct http_req *r)
{
	return r->queue.n - r->queue_off;
}

static void after_read(struct http_req *r)
{
	if (r->queue_off == r->queue.n) {
		r->queue_off = 0;
		if (r->queue.cap > (size_t)4 * STREAM_BLOCK)
			sbuf_fini(&r->queue); /* an idle watch keeps little memory */
		else
			sbuf_reset(&r->queue);
	} else if (r->queue_off > r->queue.n / 2) {
		sbuf_drop(&r->queue, r->queue_off);
		r->queue_off = 0;
	}
	if (r->room_due && queued(r) <= r->room_low && r->is_owned) {
		r->room_due = false;
		if (r->room)
			r->room(r, r->room_arg);
	}
}

static ssize_t on_read(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct http_req *r = cls;
	size_t n = MIN(queued(r), max);

	(void)pos;
	if (r->is_gone)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (n) {
		memcpy(buf, r->queue.p + r->queue_off, n);
		r->queue_off += n;
		r->queue_first -= MIN(r->queue_first, n);
		guard_give_answer(r, n);
		after_read(r);
		return (ssize_t)n;
	}
	if (r->is_ended)
		return MHD_CONTENT_READER_END_OF_STREAM;
	req_suspend(r);
	return 0;
}

void http_stream_begin(struct http_req *r, int status, const char *content_type, size_t max_backlog,
		       const struct http_header *extra, size_t n_extra)
{
	struct MHD_Response *m =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_read, r, NULL);

	assert(r->is_owned && !r->is_stream);
	if (m && response_headers(m, content_type, extra, n_extra)) {
		MHD_destroy_response(m);
		m = NULL;
	}
	/* The front of the queue is freed lazily, hence twice the bound on what waits. */
	sbuf_init(&r->queue, max_backlog * 2);
	r->queue_max = max_backlog;
	r->is_stream = true;
	r->server->n_streams++;
	req_answer(r, m, status);
}

enum rc http_stream_write(struct http_req *r, const void *bytes, size_t n)
{
	enum rc rc;

	assert(r->is_owned && r->is_stream);
	if (queued(r) + n > r->queue_max + r->queue_first || guard_take_answer(r, n, NULL))
		return RC_BUSY;
	sbuf_add(&r->queue, bytes, n);
	rc = sbuf_rc(&r->queue);
	if (rc)
		return rc;
	if (r->room && queued(r) > r->room_low)
		r->room_due = true;
	req_resume(r);
	return RC_OK;
}

void http_stream_settle(struct http_req *r, size_t max_backlog)
{
	assert(r->is_owned && r->is_stream);
	r->queue_first = queued(r);
	r->queue_max = MIN(max_backlog, r->queue_max - r->queue_first);
}

size_t http_stream_backlog(const struct http_req *r)
{
	return queued(r);
}

void http_stream_on_room(struct http_req *r, size_t low, http_room_fn fn, void *arg)
{
	assert(r->is_owned && r->is_stream);
	r->room = fn;
	r->room_arg = arg;
	r->room_low = low;
	r->room_due = queued(r) > low;
}

static void stream_leave(struct http_req *r)
{
	assert(r->is_owned && r->is_stream);
	r->is_owned = false;
	r->cancel = NULL;
	r->room = NULL;
	r->server->n_streams--;
	req_resume(r);
}

void http_stream_end(struct http_req *r)
{
	r->is_ended = true;
	stream_leave(r);
}

void http_stream_abort(struct http_req *r)
{
	r->is_gone = true;
	stream_leave(r);
}
