#include "cluster/apiserver/flow.h"

#include <assert.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "ctl/prom.h"
#include "ev/ev.h"

/* Theory of operation
 *
 * The server is one thread, so what one user takes of it in one turn of the loop is what others wait.  Work is counted
 * in units, one for a small request, more for large bodies and lists, and for what took long.  A user has a credit of QUANTUM units,
 * full again after each WINDOW: within it his requests run as they come, at the price of a look-up.  Beyond, they wait
 * in his queue, and on_dispatch() serves queues in turn (deficit round robin over users, turns over classes), SLICE
 * units at a time, so that whoever comes meanwhile is read and, with his own credit, runs before.
 *
 * A request has a seat from its start to its answer, which for a write is the commit, and for a subresource may be
 * a node's answer.  Seats bound what waits for the disk; each class has its own, and one user at most some of
 * them.  A watch gives its seat back when it has begun, and is bounded by number instead.
 */
enum { QUANTUM = 32, SLICE = 64, DEBT_MAX = 32 * QUANTUM, BODY_UNIT = 32 * 1024, SWEEP_MIN = 256 };
static const usec_t WINDOW = 5 * USEC_PER_MSEC, WAIT_MAX = 10 * USEC_PER_SEC;
static const int RETRY_MAX = 30;

enum level { CLASS_SYSTEM, CLASS_ADMIN, CLASS_USER, CLASS_ANONYMOUS, CLASS__MAX };
static const char *const class_names[CLASS__MAX] = {"system", "admin", "user", "anonymous"};

enum reason { REASON_QUEUE_FULL, REASON_TIME_OUT, REASON_WATCHES, REASON__MAX };
static const char *const reason_names[REASON__MAX] = {"queue-full", "time-out", "too-many-watches"};

struct flow_class {
	struct map users; /* struct flow_user, by name */
	struct list ring; /* users with a queue */
	size_t sweep_at;  /* users: forget those that are idle */
	unsigned seats, user_seats, n_running, n_queued;
	uint64_t dispatched, rejected[REASON__MAX];
};

struct flow_user {
	struct flow_class *class;
	struct list link; /* in class->ring */
	struct list queue;
	unsigned n_calls, n_running, n_queued, n_watches;
	int credit; /* units that he may use at once; negative: used already */
	usec_t filled;
	uint64_t epoch;
	uint64_t turn;	   /* the last one in which a long list of his went on */
	usec_t last, pace; /* when his queue was served last, and how far apart that is */
};

struct flow {
	struct apisrv *srv;
	struct flow_class classes[CLASS__MAX];
	unsigned watches_max, n_watches; /* of others than Ferry's parts */
	enum level turn;		 /* whose queues are next */
	uint64_t epoch;			 /* all credits are full again */
	uint64_t turns;			 /* given to long lists */
	uint64_t dropped_reads, dropped_writes;
	struct ev_src *defer, *timer;
};

static void on_dispatch(void *arg);

/* ---- users ------------------------------------------------------------------------------------------- */

static void user_free(void *value)
{
	mem_free(value);
}

static enum level class_of(const struct apisrv_user *u)
{
	if (apisrv_user_is_component(u))
		return CLASS_SYSTEM;
	if (apisrv_user_in_group(u, GROUP_MASTERS))
		return CLASS_ADMIN;
	return str_eq(u->name, "system:anonymous") ? CLASS_ANONYMOUS : CLASS_USER;
}

static void sweep_users(struct flow_class *cl)
{
	for (size_t i = cl->users.n; i-- > 0;) {
		const struct flow_user *u = cl->users.items[i].value;

		if (u->n_calls)
			continue;
		CLEANUP(mem_freep) char *name = mem_strdup(cl->users.items[i].key);

		if (name)
			map_del(&cl->users, name); /* moves another one to i, which was seen */
	}
	cl->sweep_at = MAX((size_t)SWEEP_MIN, 2 * cl->users.n);
}

static struct flow_user *user_get(struct flow_class *cl, const char *name)
{
	struct flow_user *u = map_get(&cl->users, name);

	if (u)
		return u;
	if (cl->users.n >= cl->sweep_at)
		sweep_users(cl);
	u = mem_alloc(sizeof(*u));
	if (!u || map_set(&cl->users, name, u))
		return mem_free(u);
	u->class = cl;
	u->credit = QUANTUM;
	list_init(&u->queue);
	return u;
}

static void fill(struct flow *f, struct flow_user *u)
{
	usec_t now = loop_now(f->srv->loop), n = (now - u->filled) / WINDOW;

	if (u->epoch != f->epoch || n > (usec_t)DEBT_MAX / QUANTUM)
		u->credit = QUANTUM;
	else
		u->credit = MIN(QUANTUM, u->credit + (int)n * QUANTUM);
	u->epoch = f->epoch;
	if (n)
		u->filled = now;
}

static bool has_seat_for(const struct flow_user *u)
{
	return u->class->n_running < u->class->seats && u->n_running < u->class->user_seats;
}

/* ---- running ----------------------------------------------------------------------------------------- */

static void arm_dispatch(struct flow *f)
{
	/* Out of memory: the timer of the queues' bound does it, later. */
	if (!f->defer && ev_defer(f->srv->loop, &f->defer, on_dispatch, f, NULL))
		ev_timer_rearm(f->timer, WINDOW);
}

static void give_seat(struct apisrv_call *c)
{
	struct flow_user *u = c->flow.user;

	if (!c->flow.has_seat)
		return;
	c->flow.has_seat = false;
	u->n_running--;
	if (u->class->n_running-- && u->class->n_queued)
		arm_dispatch(c->srv->flow);
}

void flow_charge(struct apisrv_call *c, size_t units)
{
	c->flow.units = MIN(c->flow.units + MIN(units, (size_t)DEBT_MAX), (unsigned)DEBT_MAX);
}

/* Twice what it took, if that is more: else a slow machine's clock gave credit as fast as it is used. */
static void charge_time(struct apisrv_call *c)
{
	usec_t units = c->flow.took * 2 * QUANTUM / WINDOW;

	if (units > c->flow.units)
		flow_charge(c, units - c->flow.units);
}

void flow_worked(struct apisrv_call *c, usec_t took)
{
	struct flow_user *u = c->flow.user;
	unsigned before = c->flow.units;

	if (!u)
		return;
	c->flow.took += took;
	charge_time(c);
	u->credit = MAX(-DEBT_MAX, u->credit - (int)(c->flow.units - before));
}

uint64_t flow_last_turn(const struct apisrv_call *c)
{
	return c->flow.user ? c->flow.user->turn : 0;
}

void flow_take_turn(struct apisrv_call *c)
{
	if (c->flow.user)
		c->flow.user->turn = ++c->srv->flow->turns;
}

static void run(struct apisrv_call *c, const char *accept)
{
	struct flow_user *u = c->flow.user;
	usec_t start = loop_now(c->srv->loop);

	c->flow.has_seat = true;
	u->n_running++;
	u->class->n_running++;
	u->class->dispatched++;
	c->flow.go(c, accept);
	c->flow.took = loop_now(c->srv->loop) - start;
	charge_time(c);
	u->credit = MAX(-DEBT_MAX, u->credit - 1 - (int)c->flow.units);
	if (c->watch)
		give_seat(c);
}

/* ---- refusing ---------------------------------------------------------------------------------------- */

static void reject(struct apisrv_call *c, struct flow_class *cl, enum reason why, usec_t later,
		   const char *text)
{
	struct flow *f = c->srv->flow;
	int seconds = (int)MIN(later / USEC_PER_SEC + 1, (usec_t)RETRY_MAX);
	bool reads = c->verb == VERB_GET || c->verb == VERB_LIST || c->verb == VERB_WATCH;

	cl->rejected[why]++;
	if (reads)
		f->dropped_reads++;
	else
		f->dropped_writes++;
	c->is_settled = true; /* nothing was looked at */
	c->retry_after = seconds;
	call_fail(c, 429, "TooManyRequests", js_pack("{s:i}", "retryAfterSeconds", seconds), "%s",
		  text);
}

/* When his queue will be empty, as it goes now. */
static usec_t drain_time(const struct flow *f, const struct flow_user *u)
{
	const struct apisrv_call *head =
		list_is_empty(&u->queue) ? NULL
					 : LIST_ENTRY(u->queue.next, struct apisrv_call, flow.link);
	usec_t waited = head ? loop_now(f->srv->loop) - head->flow.since : 0;

	return MAX(u->n_queued * u->pace, waited);
}

/* ---- queues ------------------------------------------------------------------------------------------ */

static void dequeue(struct apisrv_call *c)
{
	struct flow_user *u = c->flow.user;

	list_remove(&c->flow.link);
	c->flow.accept = mem_free(c->flow.accept);
	u->class->n_queued--;
	if (--u->n_queued == 0)
		list_remove(&u->link);
}

static void queue(struct apisrv_call *c, const char *accept)
{
	struct flow_user *u = c->flow.user;
	struct flow *f = c->srv->flow;

	if (u->n_queued >= FLOW_QUEUE) {
		reject(c, u->class, REASON_QUEUE_FULL, drain_time(f, u),
		       "too many requests of this user wait already, please try again later");
		return;
	}
	c->flow.accept = mem_strdup(accept);
	if (accept && !c->flow.accept) {
		call_nomem(c);
		return;
	}
	c->flow.since = loop_now(f->srv->loop);
	list_push_tail(&u->queue, &c->flow.link);
	if (u->n_queued++ == 0) {
		list_push_tail(&u->class->ring, &u->link);
		u->last = c->flow.since;
	}
	u->class->n_queued++;
	if (!ev_timer_is_armed(f->timer))
		ev_timer_rearm(f->timer, WAIT_MAX);
	if (has_seat_for(u))
		arm_dispatch(f);
}

/* The next user of a class who has work, a seat and credit; everybody who is passed gets his QUANTUM. */
static struct flow_user *next_user(struct flow_class *cl)
{
	unsigned n = 0, blocked = 0;

	if (cl->n_running >= cl->seats)
		return NULL;
	LIST_FOREACH(it, &cl->ring)
		n++;
	while (!list_is_empty(&cl->ring) && blocked < n) {
		struct flow_user *u = LIST_ENTRY(cl->ring.next, struct flow_user, link);

		if (u->credit > 0 && has_seat_for(u))
			return u;
		blocked = has_seat_for(u) ? 0 : blocked + 1;
		u->credit = MIN(QUANTUM, u->credit + QUANTUM);
		list_remove(&u->link);
		list_push_tail(&cl->ring, &u->link);
	}
	return NULL;
}

static struct flow_user *next_of_all(struct flow *f)
{
	for (int i = 0; i < CLASS__MAX; i++) {
		struct flow_user *u = next_user(&f->classes[f->turn]);

		f->turn = (f->turn + 1) % CLASS__MAX;
		if (u)
			return u;
	}
	return NULL;
}

static unsigned serve_one(struct flow *f, struct flow_user *u)
{
	struct apisrv_call *c = LIST_ENTRY(u->queue.next, struct apisrv_call, flow.link);
	CLEANUP(mem_freep) char *accept = STEAL(c->flow.accept);
	usec_t now = loop_now(f->srv->loop), gap = now - u->last;

	u->last = now;
	u->pace = u->pace ? (u->pace * 7 + gap) / 8 : gap;
	dequeue(c);
	call_enter(c);
	run(c, accept);
	unsigned units = 1 + c->flow.units;

	call_leave(c);
	return units;
}

static bool is_anyone_waiting(const struct flow *f)
{
	for (int i = 0; i < CLASS__MAX; i++)
		if (f->classes[i].n_queued)
			return true;
	return false;
}

static void on_dispatch(void *arg)
{
	struct flow *f = arg;
	struct flow_user *u;
	unsigned used = 0;

	f->defer = ev_src_free(f->defer);
	while (used < SLICE && (u = next_of_all(f)))
		used += serve_one(f, u);
	if (!is_anyone_waiting(f))
		f->epoch++; /* nobody is worse off for what others had */
	else if (used >= SLICE)
		arm_dispatch(f); /* else a seat that becomes free does */
}

static void time_out_user(struct flow *f, struct flow_user *u, usec_t now, usec_t *next)
{
	while (u->n_queued) {
		struct apisrv_call *c = LIST_ENTRY(u->queue.next, struct apisrv_call, flow.link);
		usec_t due = c->flow.since + WAIT_MAX;

		if (due > now) {
			*next = MIN(*next, due - now);
			return;
		}
		usec_t later = drain_time(f, u);

		dequeue(c);
		call_enter(c);
		reject(c, u->class, REASON_TIME_OUT, later,
		       "the request waited too long for its turn, please try again later");
		call_leave(c);
	}
}

static void on_timer(void *arg)
{
	struct flow *f = arg;
	usec_t now = loop_now(f->srv->loop), next = USEC_INFINITY;

	for (int i = 0; i < CLASS__MAX; i++)
		LIST_FOREACH_SAFE(it, tmp, &f->classes[i].ring)
			time_out_user(f, LIST_ENTRY(it, struct flow_user, link), now, &next);
	if (!is_anyone_waiting(f))
		return;
	ev_timer_rearm(f->timer, next);
	arm_dispatch(f);
}

/* ---- calls ------------------------------------------------------------------------------------------- */

void flow_enter(struct apisrv_call *c, const char *accept, flow_fn go)
{
	struct flow *f = c->srv->flow;
	/* Whoever may be others does not get their shares beside his own. */
	const struct apisrv_user *who = c->by.name ? &c->by : &c->user;
	enum level class = c->is_inner ? CLASS_SYSTEM : class_of(who);
	struct flow_class *cl = &f->classes[class];

	if (class == CLASS_SYSTEM) {
		cl->dispatched++;
		go(c, accept);
		return;
	}
	struct flow_user *u = user_get(cl, who->name);

	if (!u) {
		call_nomem(c);
		return;
	}
	u->n_calls++;
	c->flow.user = u;
	c->flow.go = go;
	c->flow.units = (unsigned)MIN(c->n_body / BODY_UNIT, (size_t)DEBT_MAX);
	fill(f, u);
	if (!u->n_queued && u->credit > 0 && has_seat_for(u))
		run(c, accept);
	else
		queue(c, accept);
}

void flow_leave(struct apisrv_call *c)
{
	struct flow_user *u = c->flow.user;

	if (!u)
		return;
	if (list_is_linked(&c->flow.link))
		dequeue(c);
	give_seat(c);
	if (c->flow.is_watching) {
		u->n_watches--;
		c->srv->flow->n_watches--;
	}
	u->n_calls--;
	c->flow.user = NULL;
}

/* A watch lives for three quarters of an hour, so one of n ends after this. */
static usec_t watch_gap(unsigned n)
{
	return 2700 * USEC_PER_SEC / MAX(n, 1u);
}

bool flow_may_watch(struct apisrv_call *c)
{
	struct flow *f = c->srv->flow;
	struct flow_user *u = c->flow.user;
	struct flow_class *cl = u ? u->class : &f->classes[CLASS_SYSTEM];
	unsigned all = (unsigned)c->srv->n_watchers;

	if (u && u->n_watches >= f->watches_max) {
		reject(c, cl, REASON_WATCHES, watch_gap(u->n_watches),
		       "too many watches of this user are open");
		return false;
	}
	if (all >= LIMIT_WATCHERS || (u && f->n_watches >= LIMIT_WATCHERS - LIMIT_WATCHERS_KEPT)) {
		reject(c, cl, REASON_WATCHES, watch_gap(all),
		       "too many watches are open on this server");
		return false;
	}
	if (u) {
		c->flow.is_watching = true;
		u->n_watches++;
		f->n_watches++;
	}
	return true;
}

/* ---- metrics ----------------------------------------------------------------------------------------- */

#define FLOW_METRIC(name_) "apiserver_flowcontrol_" name_

static void level_sample(struct sbuf *out, const char *name, int level, double value)
{
	prom_sample(out, name, &(struct prom_label){"priority_level", class_names[level]}, 1, NULL,
		    value);
}

/* What is bounded; nothing is for Ferry's own parts. */
static void print_seats(const struct flow *f, struct sbuf *out)
{
	static const char running[] = FLOW_METRIC("current_executing_requests"),
			  queued[] = FLOW_METRIC("current_inqueue_requests"),
			  seats[] = FLOW_METRIC("nominal_limit_seats");

	prom_head(out, running, "gauge", "Requests that run, or wait for the disk or a node.");
	for (int i = CLASS_ADMIN; i < CLASS__MAX; i++)
		level_sample(out, running, i, f->classes[i].n_running);
	prom_head(out, queued, "gauge", "Requests that wait for their turn.");
	for (int i = CLASS_ADMIN; i < CLASS__MAX; i++)
		level_sample(out, queued, i, f->classes[i].n_queued);
	prom_head(out, seats, "gauge", "Requests that may run at a time.");
	for (int i = CLASS_ADMIN; i < CLASS__MAX; i++)
		level_sample(out, seats, i, f->classes[i].seats);
}

void flow_metrics(const struct flow *f, struct sbuf *out)
{
	static const char dispatched[] = FLOW_METRIC("dispatched_requests_total"),
			  rejected[] = FLOW_METRIC("rejected_requests_total"),
			  dropped[] = "apiserver_dropped_requests_total";

	prom_head(out, dispatched, "counter", "Requests that were begun.");
	for (int i = 0; i < CLASS__MAX; i++)
		level_sample(out, dispatched, i, (double)f->classes[i].dispatched);
	prom_head(out, rejected, "counter", "Requests that were answered 429.");
	for (int i = 0; i < CLASS__MAX; i++)
		for (int r = 0; r < REASON__MAX; r++) {
			const struct prom_label labels[] = {{"priority_level", class_names[i]},
							    {"reason", reason_names[r]}};

			prom_sample(out, rejected, labels, ARRAY_SIZE(labels), NULL,
				    (double)f->classes[i].rejected[r]);
		}
	print_seats(f, out);
	prom_head(out, dropped, "counter", "Requests that were answered 429.");
	prom_sample(out, dropped, &(struct prom_label){"request_kind", "readOnly"}, 1, NULL,
		    (double)f->dropped_reads);
	prom_sample(out, dropped, &(struct prom_label){"request_kind", "mutating"}, 1, NULL,
		    (double)f->dropped_writes);
}

/* ---- life -------------------------------------------------------------------------------------------- */

enum rc flow_new(struct flow **out, struct apisrv *s, unsigned seats, unsigned watches)
{
	struct flow *f = mem_alloc(sizeof(*f));

	if (!f)
		return RC_NOMEM;
	if (ev_timer_after(s->loop, &f->timer, USEC_INFINITY, on_timer, f, NULL)) {
		mem_free(f);
		return RC_NOMEM;
	}
	seats = seats ? seats : FLOW_SEATS;
	f->srv = s;
	f->watches_max = watches ? watches : LIMIT_WATCHERS_USER;
	for (int i = 0; i < CLASS__MAX; i++) {
		map_init(&f->classes[i].users, user_free);
		list_init(&f->classes[i].ring);
		f->classes[i].sweep_at = SWEEP_MIN;
	}
	/* Of all seats: five eighths for users, three tenths for administrators, the rest for nobody. */
	f->classes[CLASS_USER].seats = MAX(1u, seats * 5 / 8);
	f->classes[CLASS_USER].user_seats = MAX(1u, f->classes[CLASS_USER].seats / 4);
	f->classes[CLASS_ADMIN].seats = MAX(1u, seats * 3 / 10);
	f->classes[CLASS_ADMIN].user_seats = MAX(1u, f->classes[CLASS_ADMIN].seats / 4 * 3);
	f->classes[CLASS_ANONYMOUS].seats = MAX(1u, seats * 3 / 40);
	f->classes[CLASS_ANONYMOUS].user_seats = f->classes[CLASS_ANONYMOUS].seats;
	*out = f;
	return RC_OK;
}

struct flow *flow_free(struct flow *f)
{
	if (!f)
		return NULL;
	ev_src_free(f->defer);
	ev_src_free(f->timer);
	for (int i = 0; i < CLASS__MAX; i++)
		map_fini(&f->classes[i].users);
	return mem_free(f);
}
