#include "unit/kube/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"

static enum rc start(struct fake *f, const struct kube_request *rq, kube_done_fn done,
		     kube_data_fn data, void *arg, void **out, struct err *err)
{
	struct fake_op *op = &f->ops[f->n];

	if (f->refuse) {
		f->refuse--;
		return err_set(err, RC_NOMEM, "refused by the test");
	}
	assert_true(f->n < FAKE_MAX);
	f->n++;
	*op = (struct fake_op){.fake = f, .done = done, .data = data, .arg = arg, .open = true};
	snprintf(op->method, sizeof(op->method), "%s", rq->method);
	snprintf(op->path, sizeof(op->path), "%s", rq->path);
	snprintf(op->type, sizeof(op->type), "%s", rq->content_type ? rq->content_type : "");
	snprintf(op->body, sizeof(op->body), "%.*s", (int)rq->n_body, rq->body ? rq->body : "");
	*out = op;
	return RC_OK;
}

static enum rc fake_request(void *ctx, const struct kube_request *rq, kube_done_fn fn, void *arg,
			    void **op, struct err *err)
{
	return start(ctx, rq, fn, NULL, arg, op, err);
}

static enum rc fake_watch_open(void *ctx, const struct kube_request *rq,
			       const struct kube_stream_fns *fns, void *arg, void **op,
			       struct err *err)
{
	return start(ctx, rq, fns->on_end, fns->on_data, arg, op, err);
}

static void fake_cancel(void *ctx, void *p)
{
	struct fake_op *op = p;

	assert_ptr_equal(op->fake, ctx);
	assert_true(op->open); /* never after its end */
	op->open = false;
	op->cancelled = true;
}

const struct kube_transport fake_transport = {
	.request = fake_request,
	.watch_open = fake_watch_open,
	.cancel = fake_cancel,
};

struct fake_op *fake_find(struct fake *f, const char *prefix)
{
	char line[600];

	for (size_t i = f->n; i-- > 0;) {
		snprintf(line, sizeof(line), "%s %s", f->ops[i].method, f->ops[i].path);
		if (f->ops[i].open && str_has_prefix(line, prefix))
			return &f->ops[i];
	}
	for (size_t i = 0; i < f->n; i++)
		print_message("  %s %s %s\n", f->ops[i].method, f->ops[i].path,
			      f->ops[i].open ? "open" : "");
	fail_msg("no open request '%s'", prefix);
	return NULL;
}

size_t fake_open(const struct fake *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		n += f->ops[i].open;
	return n;
}

static void finish(struct fake_op *op, const struct kube_response *r)
{
	assert_true(op->open);
	op->open = false;
	op->done(r, op->arg);
}

void fake_answer(struct fake_op *op, int status, const char *fmt, ...)
{
	char body[16384];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(body, sizeof(body), fmt, ap);
	va_end(ap);
	assert_in_range(n, 0, sizeof(body) - 1);
	finish(op, &(struct kube_response){.status = status, .body = body, .n_body = (size_t)n});
}

void fake_fail(struct fake_op *op, enum rc rc)
{
	finish(op, &(struct kube_response){.rc = rc});
}

void fake_bytes(struct fake_op *op, const char *text)
{
	assert_true(op->open && op->data);
	op->data(text, strlen(text), op->arg);
}

void fake_event(struct fake_op *op, const char *type, const char *fmt, ...)
{
	char object[8192], line[9000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(object, sizeof(object), fmt, ap);
	va_end(ap);
	snprintf(line, sizeof(line), "{\"type\":\"%s\",\"object\":%s}\n", type, object);
	fake_bytes(op, line);
}

void fake_end(struct fake_op *op)
{
	finish(op, &(struct kube_response){.status = 200});
}
