#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv.h"
#include "ev/ev.h"
#include "kube/kube.h"
#include "sim/sim.h"

/* Theory of operation
 *
 * A request travels for a while, reaches the server (apisrv_handle), and its answer travels back.  Each
 * way has its own random delay, so requests overtake each other.  Whoever cancels or crashes does not
 * call back what is on its way: the server may still act on it ("ghosts").
 *
 * The chunks of a stream keep their order.  When a stream is cut, what was on its way is lost with it.
 */

struct chunk {
	struct list link;
	struct netop *op;
	struct ev_src *timer;
	char *bytes;
	size_t n;
	bool is_end;
};

struct netop {
	struct list link; /* in net.ops */
	struct net *net;
	struct net_client *client; /* NULL: gone, a ghost */
	char *method, *path, *type, *body;
	size_t n_body;
	kube_done_fn done;
	kube_data_fn data; /* NULL: a request */
	void *arg;
	struct apisrv_call *call;
	struct ev_src *timer; /* arrival, then delivery */
	struct list chunks;
	usec_t last_due; /* streams: of the newest chunk */
	enum rc rc;	 /* of the delivery */
	int status;
	char *answer;
	size_t n_answer;
	unsigned retry_after;
	bool has_arrived;
	bool is_answered;
	bool is_lost; /* its answer never arrives */
	bool is_twin; /* a duplicate: nobody waits for it */
	bool is_busy; /* inside its callback */
	bool is_over;
};

struct net_client {
	struct net *net;
	char *name;
	char *group;
	enum net_quality quality;
	uint64_t writes;
	uint64_t events;
	void (*on_write)(struct sim *s);
};

enum { MAX_WRITES = 10000 };

struct net {
	struct sim *sim;
	uint64_t writes;
	struct list ops;
	usec_t down_until;
};

static void op_destroy(struct netop *op);

enum rc net_new(struct net **out, struct sim *s)
{
	struct net *n = mem_alloc(sizeof(*n));

	if (!n)
		return RC_NOMEM;
	n->sim = s;
	list_init(&n->ops);
	*out = n;
	return RC_OK;
}

struct net *net_free(struct net *n)
{
	if (!n)
		return NULL;
	while (!list_is_empty(&n->ops))
		op_destroy(LIST_ENTRY(n->ops.next, struct netop, link));
	return mem_free(n);
}

struct net_client *net_client_new(struct net *n, const char *name, const char *group,
				  enum net_quality quality)
{
	struct net_client *c = mem_alloc(sizeof(*c));

	if (!c)
		return NULL;
	c->net = n;
	c->name = mem_strdup(name);
	c->group = mem_strdup(group);
	c->quality = quality;
	return c;
}

uint64_t net_client_writes(const struct net_client *c)
{
	return c->writes;
}

void net_client_on_write(struct net_client *c, void (*fn)(struct sim *s))
{
	c->on_write = fn;
}

/* Randomness of the network */

static const struct faults *faults_of(const struct netop *op)
{
	static const struct faults none;

	if (!op->client || op->client->quality != NET_FAULTY)
		return &none;
	return &op->net->sim->faults;
}

static usec_t one_way(struct netop *op)
{
	struct sim *s = op->net->sim;
	const struct faults *f = faults_of(op);

	if (op->client && op->client->quality == NET_PERFECT)
		return 0;
	if (sim_chance(s, f->slow))
		return sim_between(s, 0, f->slow_max);
	return sim_between(s, 50, 1500);
}

/* Life of an operation */

static void chunk_destroy(struct chunk *c)
{
	list_remove(&c->link);
	ev_src_free(c->timer);
	mem_free(c->bytes);
	mem_free(c);
}

static void op_destroy(struct netop *op)
{
	if (op->call)
		apisrv_cancel(STEAL(op->call));
	while (!list_is_empty(&op->chunks))
		chunk_destroy(LIST_ENTRY(op->chunks.next, struct chunk, link));
	list_remove(&op->link);
	ev_src_free(op->timer);
	mem_free(op->method);
	mem_free(op->path);
	mem_free(op->type);
	mem_free(op->body);
	mem_free(op->answer);
	mem_free(op);
}

static void op_over(struct netop *op)
{
	op->is_over = true;
	if (!op->is_busy)
		op_destroy(op);
}

static bool is_write(const struct netop *op)
{
	return !str_eq(op->method, "GET");
}

/* Is its client one that a lagging server answers? */
static bool is_old(const struct netop *op)
{
	const struct sim *s = op->net->sim;

	return op->client && op->client == s->ctl_client && loop_now(s->loop) < s->old_until;
}

static void on_deliver(void *arg)
{
	struct netop *op = arg;
	struct kube_response r = {.rc = op->rc,
				  .status = op->status,
				  .body = op->answer ? op->answer : "",
				  .n_body = op->n_answer,
				  .retry_after = op->retry_after * USEC_PER_SEC};

	if (op->client && !op->is_twin) {
		op->is_busy = true;
		op->done(&r, op->arg);
		op->is_busy = false;
	}
	op_destroy(op);
}

static void deliver_after(struct netop *op, usec_t delay)
{
	ev_src_free(op->timer);
	op->timer = NULL;
	if (ev_timer_after(op->net->sim->loop, &op->timer, delay, on_deliver, op, NULL))
		sim_fail(op->net->sim, "out of memory in the network");
}

static void fail_after(struct netop *op, enum rc rc, usec_t delay)
{
	op->rc = rc;
	deliver_after(op, delay);
}

/* The server's side */

static void sink_answer(void *arg, const struct apisrv_answer *a)
{
	struct netop *op = arg;
	struct sim *s = op->net->sim;
	const struct faults *f = faults_of(op);
	usec_t delay = one_way(op);

	op->call = NULL;
	op->is_answered = true;
	op->status = a->status;
	op->answer = mem_strndup(a->body ? a->body : "", a->n);
	op->n_answer = a->n;
	op->retry_after = (unsigned)a->retry_after;
	if (is_write(op) && op->client)
		sim_trace(s, "  api: %s %s -> %d", op->method, op->path, a->status);
	if (is_write(op) && op->client && !op->is_twin && a->status < 300) {
		op->client->writes++;
		if (++op->net->writes > MAX_WRITES)
			sim_fail(s, "more than %d writes in one run: somebody fights", MAX_WRITES);
		if (op->client->on_write)
			op->client->on_write(s);
	}
	if (op->data && a->status == 200)
		delay = 0; /* not a stream after all */
	if (!op->client || op->is_twin) {
		deliver_after(op, 0);
		return;
	}
	if (op->is_lost) {
		/* Half of the clients see the connection break, the others hear nothing. */
		if (sim_chance(s, 500))
			fail_after(op, RC_CLOSED, delay);
		return;
	}
	if (str_eq(op->method, "GET") && strstr(op->path, "limit=") && sim_chance(s, f->stale_list))
		delay += sim_between(s, 0, f->stale_max);
	deliver_after(op, delay);
}

static void sink_begin(void *arg, int status, const char *content_type, size_t max_backlog)
{
	struct netop *op = arg;

	(void)content_type;
	(void)max_backlog;
	op->status = status;
}

static void on_chunk(void *arg)
{
	struct chunk *c = arg;
	struct netop *op = c->op;

	c->timer = ev_src_free(c->timer);
	if (c->is_end) {
		op->rc = RC_OK;
		op->n_answer = 0;
		chunk_destroy(c);
		on_deliver(op);
		return;
	}
	if (op->client) {
		op->client->events++;
		op->is_busy = true;
		op->data(c->bytes, c->n, op->arg);
		op->is_busy = false;
	}
	chunk_destroy(c);
	if (op->is_over)
		op_destroy(op);
}

static enum rc push_chunk(struct netop *op, const char *bytes, size_t n, bool is_end)
{
	struct sim *s = op->net->sim;
	struct chunk *c = mem_alloc(sizeof(*c));
	usec_t due = loop_now(s->loop) + one_way(op);

	if (!c)
		return RC_NOMEM;
	if (is_old(op))
		due = MAX(due, s->old_until); /* what came after the old state follows late */
	due = MAX(due, op->last_due);	      /* in order */
	op->last_due = due;
	c->op = op;
	c->bytes = mem_strndup(bytes, n);
	c->n = n;
	c->is_end = is_end;
	list_push_tail(&op->chunks, &c->link);
	return ev_timer_after(s->loop, &c->timer, due - loop_now(s->loop), on_chunk, c, NULL);
}

static void cut_stream(struct netop *op, const char *why)
{
	sim_trace(op->net->sim, "  net: %s's stream of %s breaks (%s)",
		  op->client ? op->client->name : "?", op->path, why);
	if (op->call)
		apisrv_cancel(STEAL(op->call));
	while (!list_is_empty(&op->chunks))
		chunk_destroy(LIST_ENTRY(op->chunks.next, struct chunk, link));
	fail_after(op, RC_CLOSED, one_way(op));
}

static void on_cut(void *arg)
{
	struct netop *op = arg;

	op->timer = ev_src_free(op->timer);
	cut_stream(op, "fault");
}

static enum rc sink_write(void *arg, const void *bytes, size_t n)
{
	struct netop *op = arg;
	struct sim *s = op->net->sim;

	if (!op->client || op->timer)
		return RC_OK; /* it breaks already */
	if (op->client == s->ctl_client && s->opts.cut_at_event &&
	    ++s->result->events == s->opts.cut_at_event)
		goto cut;
	if (op->client == s->ctl_client && !s->opts.cut_at_event)
		s->result->events++;
	if (sim_chance(s, faults_of(op)->cut_watch))
		goto cut;
	return push_chunk(op, bytes, n, false);
cut:
	/* Not from inside the server's own call. */
	return ev_timer_after(s->loop, &op->timer, 0, on_cut, op, NULL);
}

static void sink_end(void *arg)
{
	struct netop *op = arg;

	op->call = NULL;
	if (op->timer) /* it breaks already */
		return;
	if (push_chunk(op, "", 0, true))
		sim_fail(op->net->sim, "out of memory in the network");
}

static const struct apisrv_sink sink = {
	.answer = sink_answer,
	.stream_begin = sink_begin,
	.stream_write = sink_write,
	.stream_end = sink_end,
};

static void on_arrive(void *arg)
{
	struct netop *op = arg;
	struct net *n = op->net;
	const char *groups[1] = {op->client && op->client->group ? op->client->group
								 : "system:masters"};
	struct apisrv_user user = {
		.name = op->client ? op->client->name : "ghost", .groups = groups, .n_groups = 1};
	struct apisrv_request rq = {.method = op->method,
				    .target = op->path,
				    .content_type = op->type,
				    .body = op->body ? op->body : "",
				    .n_body = op->n_body,
				    .user = &user};
	struct apisrv_call *call;
	char *old = NULL;

	op->timer = ev_src_free(op->timer);
	op->has_arrived = true;
	if (is_old(op) && !op->data && strstr(op->path, "limit=") &&
	    !strstr(op->path, "continue=")) {
		old = mem_printf("%s&resourceVersion=%lld&resourceVersionMatch=Exact", op->path,
				 (long long)n->sim->old_rev);
		mem_free(op->path);
		op->path = old;
		rq.target = old;
	}
	if (loop_now(n->sim->loop) < n->down_until) {
		fail_after(op, RC_CLOSED, one_way(op));
		return;
	}
	/* The answer may come inside the call. */
	call = apisrv_handle(n->sim->api, &rq, &sink, op);
	if (call)
		op->call = call;
}

/* The client's side */

static struct netop *op_new(struct net_client *c, const struct kube_request *rq)
{
	struct netop *op = mem_alloc(sizeof(*op));

	if (!op)
		return NULL;
	op->net = c->net;
	op->client = c;
	list_init(&op->chunks);
	list_push_tail(&c->net->ops, &op->link);
	op->method = mem_strdup(rq->method);
	op->path = mem_strdup(rq->path);
	op->type = mem_strdup(rq->content_type);
	if (rq->body)
		op->body = mem_strndup(rq->body, rq->n_body);
	op->n_body = rq->n_body;
	return op;
}

static enum rc send_op(struct netop *op, struct err *err)
{
	struct sim *s = op->net->sim;
	const struct faults *f = faults_of(op);

	if (sim_chance(s, f->lose_request)) {
		sim_trace(s, "  net: lost on the way: %s %s of %s", op->method, op->path,
			  op->client->name);
		fail_after(op, RC_CLOSED, one_way(op));
		return RC_OK;
	}
	op->is_lost = !op->data && sim_chance(s, f->lose_answer);
	return ev_timer_after(s->loop, &op->timer, one_way(op), on_arrive, op, err);
}

static enum rc net_request(void *ctx, const struct kube_request *rq, kube_done_fn fn, void *arg,
			   void **out, struct err *err)
{
	struct net_client *c = ctx;
	struct netop *op = op_new(c, rq);

	if (!op)
		return err_set(err, RC_NOMEM, "out of memory in the network");
	op->done = fn;
	op->arg = arg;
	if (is_write(op) && sim_chance(c->net->sim, faults_of(op)->duplicate)) {
		struct netop *twin = op_new(c, rq);

		if (!twin)
			return err_set(err, RC_NOMEM, "out of memory in the network");
		twin->is_twin = true;
		if (send_op(twin, err))
			return RC_NOMEM;
	}
	*out = op;
	return send_op(op, err);
}

static enum rc net_watch_open(void *ctx, const struct kube_request *rq,
			      const struct kube_stream_fns *fns, void *arg, void **out,
			      struct err *err)
{
	struct netop *op = op_new(ctx, rq);

	if (!op)
		return err_set(err, RC_NOMEM, "out of memory in the network");
	op->done = fns->on_end;
	op->data = fns->on_data;
	op->arg = arg;
	*out = op;
	return send_op(op, err);
}

/* Nobody waits any more.  What is on its way to the server may arrive all the same. */
static void abandon(struct netop *op)
{
	struct sim *s = op->net->sim;

	if (op->is_busy) {
		op->is_over = true;
		op->client = NULL;
		return;
	}
	if (!op->data && !op->has_arrived && !op->rc && op->client->quality == NET_FAULTY &&
	    sim_chance(s, 500)) {
		op->is_twin = true; /* a ghost that still knows whose it was */
		return;
	}
	op_over(op);
}

static void net_cancel(void *ctx, void *p)
{
	(void)ctx;
	abandon(p);
}

static void net_client_free(void *ctx)
{
	struct net_client *c = ctx;

	LIST_FOREACH_SAFE(l, tmp, &c->net->ops) {
		struct netop *op = LIST_ENTRY(l, struct netop, link);

		if (op->client != c)
			continue;
		op->client = NULL;
		/* Ghosts go on without their owner; all others were cancelled by kube_free(). */
		if (!op->is_twin)
			op_destroy(op);
	}
	mem_free(c->name);
	mem_free(c->group);
	mem_free(c);
}

const struct kube_transport net_transport = {
	.request = net_request,
	.watch_open = net_watch_open,
	.cancel = net_cancel,
	.free = net_client_free,
};

void net_restart_server(struct net *n, usec_t down)
{
	sim_trace(n->sim, "API server: restart, down for %llu ms", (unsigned long long)down / 1000);
	n->down_until = loop_now(n->sim->loop) + down;
	LIST_FOREACH_SAFE(l, tmp, &n->ops) {
		struct netop *op = LIST_ENTRY(l, struct netop, link);

		if (op->client && op->client->quality == NET_PERFECT)
			continue;
		if (!op->call)
			continue;
		if (op->data) {
			cut_stream(op, "server restart");
			continue;
		}
		/* A write in progress: done or not, nobody can tell. */
		op->is_lost = true;
	}
}
