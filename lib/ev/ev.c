#include "ev/ev.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/list.h"
#include "base/mem.h"

/* Theory of operation
 *
 * A struct ev_src wraps one sd-event source, or, on a virtual loop, one entry of a binary-ordered
 * list of timers.  A source may be freed inside its own callback: `busy` keeps the memory until the
 * callback has returned.
 *
 * The pool has POOL_THREADS threads that take items from one queue.  Finished items go onto a second
 * list and an eventfd wakes the loop, which calls after().  Ordered items carry a queue number; an
 * item whose number is being worked on is passed over until that work is done, and so is a slow one while
 * slow ones have all threads but one.  The two lists and the set of busy numbers are all that threads share,
 * under one mutex.
 */

enum { POOL_THREADS = 6, POOL_SLOW_MAX = 3 };
static const usec_t VIRTUAL_EPOCH = (usec_t)1767225600 * USEC_PER_SEC; /* 2026-01-01T00:00:00Z */

enum src_kind { SRC_TIMER, SRC_DEFER, SRC_IO, SRC_SIGNAL, SRC_CHILD };

struct ev_src {
	struct loop *loop;
	enum src_kind kind;
	sd_event_source *sd; /* NULL on a virtual loop */
	bool busy;
	bool freed;
	bool armed;
	usec_t due;	  /* virtual */
	uint64_t order;	  /* virtual: ties go first come, first served */
	struct list link; /* virtual: in loop->timers, sorted */
	void *arg;
	union {
		ev_timer_fn timer;
		ev_io_fn io;
		ev_signal_fn signal;
		ev_child_fn child;
	} fn;
};

struct work {
	struct list link;
	pool_fn work;
	pool_fn after;
	void *arg;
	unsigned queue; /* 0: unordered */
};

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t threads[POOL_THREADS];
	unsigned n_threads, n_joined;
	struct list todo;
	struct list done;
	unsigned busy_queues[POOL_THREADS];
	bool stopping;
	int done_fd;
	struct ev_src *done_src;
	bool has_ended; /* loop thread only: pool_end() */
	size_t pending; /* loop thread only: submitted, after() not yet called */
};

struct loop {
	enum loop_kind kind;
	sd_event *sd;
	struct list timers; /* virtual */
	usec_t now;	    /* virtual */
	usec_t epoch;	    /* virtual */
	uint64_t next_order;
	struct pool pool;
	bool quit;
	int code;
	size_t n_sources;
};

enum rc loop_new(struct loop **out, enum loop_kind kind, struct err *err)
{
	struct loop *l = mem_alloc(sizeof(*l));

	if (!l)
		return err_set(err, RC_NOMEM, "cannot allocate the event loop");
	l->kind = kind;
	l->epoch = VIRTUAL_EPOCH;
	list_init(&l->timers);
	list_init(&l->pool.todo);
	list_init(&l->pool.done);
	l->pool.done_fd = -1;
	if (kind == LOOP_REAL) {
		int r = sd_event_new(&l->sd);

		if (r < 0) {
			mem_free(l);
			return err_set_sys(err, -r, "cannot make the event loop");
		}
	}
	*out = l;
	return RC_OK;
}

/* The threads do what is left to do, then end. */
static void pool_join(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	for (; p->n_joined < p->n_threads; p->n_joined++)
		pthread_join(p->threads[p->n_joined], NULL);
}

static void pool_stop(struct pool *p)
{
	pool_join(p);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->wake);
	p->done_src = ev_src_free(p->done_src);
	p->done_fd = fd_close(p->done_fd);
	for (struct list *it; (it = list_pop_head(&p->done)) || (it = list_pop_head(&p->todo));)
		mem_free(LIST_ENTRY(it, struct work, link));
}

struct loop *loop_free(struct loop *l)
{
	if (!l)
		return NULL;
	if (l->pool.n_threads)
		pool_stop(&l->pool);
	sd_event_unref(l->sd);
	return mem_free(l);
}

usec_t loop_now(const struct loop *l)
{
	return l->kind == LOOP_VIRTUAL ? l->now : clock_monotonic();
}

usec_t loop_realtime(const struct loop *l)
{
	return l->kind == LOOP_VIRTUAL ? l->epoch + l->now : clock_realtime();
}

void loop_virtual_set_epoch(struct loop *l, usec_t realtime)
{
	l->epoch = realtime - l->now;
}

/* Sources */

static enum rc src_new(struct loop *l, enum src_kind kind, void *arg, struct ev_src **out,
		       struct err *err)
{
	struct ev_src *s = mem_alloc(sizeof(*s));

	if (!s)
		return err_set(err, RC_NOMEM, "cannot allocate an event source");
	s->loop = l;
	s->kind = kind;
	s->arg = arg;
	l->n_sources++;
	*out = s;
	return RC_OK;
}

static void src_destroy(struct ev_src *s)
{
	s->loop->n_sources--;
	mem_free(s);
}

struct ev_src *ev_src_free(struct ev_src *s)
{
	if (!s || s->freed)
		return NULL;
	if (s->sd) {
		sd_event_source_set_enabled(s->sd, SD_EVENT_OFF);
		s->sd = sd_event_source_unref(s->sd);
	}
	list_remove(&s->link);
	s->freed = true;
	if (!s->busy)
		src_destroy(s);
	return NULL;
}

static void src_enter(struct ev_src *s)
{
	assert(!s->busy);
	s->busy = true;
}

static void src_leave(struct ev_src *s)
{
	s->busy = false;
	if (s->freed)
		src_destroy(s);
}

static int on_sd_time(sd_event_source *sd, uint64_t usec, void *arg)
{
	struct ev_src *s = arg;

	(void)sd;
	(void)usec;
	s->armed = false;
	src_enter(s);
	s->fn.timer(s->arg);
	src_leave(s);
	return 0;
}

static int on_sd_defer(sd_event_source *sd, void *arg)
{
	return on_sd_time(sd, 0, arg);
}

static int on_sd_io(sd_event_source *sd, int fd, uint32_t revents, void *arg)
{
	struct ev_src *s = arg;

	(void)sd;
	(void)fd;
	src_enter(s);
	s->fn.io(revents, s->arg);
	src_leave(s);
	return 0;
}

static int on_sd_signal(sd_event_source *sd, const struct signalfd_siginfo *si, void *arg)
{
	struct ev_src *s = arg;

	(void)sd;
	src_enter(s);
	s->fn.signal((int)si->ssi_signo, s->arg);
	src_leave(s);
	return 0;
}

static int on_sd_child(sd_event_source *sd, const siginfo_t *si, void *arg)
{
	struct ev_src *s = arg;
	int status;

	(void)sd;
	/* Back into wait(2)'s encoding, so that WIFEXITED & co work. */
	if (si->si_code == CLD_EXITED)
		status = (si->si_status & 0xff) << 8;
	else
		status = (si->si_status & 0x7f) | (si->si_code == CLD_DUMPED ? 0x80 : 0);
	s->armed = false;
	src_enter(s);
	s->fn.child(si->si_pid, status, s->arg);
	src_leave(s);
	return 0;
}

static void virtual_insert(struct ev_src *s)
{
	struct loop *l = s->loop;
	struct list *after = l->timers.prev;

	s->order = l->next_order++;
	while (after != &l->timers && LIST_ENTRY(after, struct ev_src, link)->due > s->due)
		after = after->prev;
	s->link.prev = after;
	s->link.next = after->next;
	after->next->prev = &s->link;
	after->next = &s->link;
	s->armed = true;
}

static usec_t due_after(const struct loop *l, usec_t delay)
{
	usec_t now = loop_now(l);

	return delay > USEC_INFINITY - 1 - now ? USEC_INFINITY - 1 : now + delay;
}

static enum rc sd_result(struct ev_src *s, int r, struct ev_src **out, struct err *err)
{
	if (r < 0) {
		src_destroy(s);
		return err_set_sys(err, -r, "cannot add an event source");
	}
	*out = s;
	return RC_OK;
}

enum rc ev_timer_after(struct loop *l, struct ev_src **out, usec_t delay, ev_timer_fn fn, void *arg,
		       struct err *err)
{
	struct ev_src *s = NULL;
	enum rc rc = src_new(l, SRC_TIMER, arg, &s, err);

	if (rc)
		return rc;
	s->fn.timer = fn;
	if (l->kind == LOOP_VIRTUAL) {
		*out = s;
		ev_timer_rearm(s, delay);
		return RC_OK;
	}
	int r = sd_event_add_time(l->sd, &s->sd, CLOCK_MONOTONIC,
				  delay == USEC_INFINITY ? USEC_INFINITY - 1 : due_after(l, delay),
				  1, on_sd_time, s);

	if (r >= 0 && delay == USEC_INFINITY)
		sd_event_source_set_enabled(s->sd, SD_EVENT_OFF);
	s->armed = delay != USEC_INFINITY;
	return sd_result(s, r, out, err);
}

void ev_timer_rearm(struct ev_src *s, usec_t delay)
{
	assert(s->kind == SRC_TIMER && !s->freed);
	if (s->loop->kind == LOOP_VIRTUAL) {
		list_remove(&s->link);
		s->armed = false;
		if (delay != USEC_INFINITY) {
			s->due = due_after(s->loop, delay);
			virtual_insert(s);
		}
		return;
	}
	s->armed = delay != USEC_INFINITY;
	if (!s->armed) {
		sd_event_source_set_enabled(s->sd, SD_EVENT_OFF);
		return;
	}
	sd_event_source_set_time(s->sd, due_after(s->loop, delay));
	sd_event_source_set_enabled(s->sd, SD_EVENT_ONESHOT);
}

bool ev_timer_is_armed(const struct ev_src *s)
{
	return s && s->armed;
}

enum rc ev_defer(struct loop *l, struct ev_src **out, ev_timer_fn fn, void *arg, struct err *err)
{
	struct ev_src *s = NULL;
	enum rc rc = src_new(l, SRC_DEFER, arg, &s, err);

	if (rc)
		return rc;
	s->fn.timer = fn;
	if (l->kind == LOOP_VIRTUAL) {
		s->due = l->now;
		virtual_insert(s);
		*out = s;
		return RC_OK;
	}
	return sd_result(s, sd_event_add_defer(l->sd, &s->sd, on_sd_defer, s), out, err);
}

static enum rc real_only(const struct loop *l, struct err *err)
{
	if (l->kind == LOOP_VIRTUAL)
		return err_set(err, RC_UNSUPPORTED,
			       "a virtual loop has timers and deferred calls only");
	return RC_OK;
}

enum rc ev_io(struct loop *l, struct ev_src **out, int fd, uint32_t events, ev_io_fn fn, void *arg,
	      struct err *err)
{
	struct ev_src *s = NULL;
	enum rc rc = real_only(l, err);

	if (!rc)
		rc = src_new(l, SRC_IO, arg, &s, err);
	if (rc)
		return rc;
	s->fn.io = fn;
	return sd_result(s, sd_event_add_io(l->sd, &s->sd, fd, events, on_sd_io, s), out, err);
}

void ev_io_set(struct ev_src *s, uint32_t events)
{
	assert(s->kind == SRC_IO && !s->freed);
	sd_event_source_set_io_events(s->sd, events);
}

enum rc ev_signal(struct loop *l, struct ev_src **out, int signo, ev_signal_fn fn, void *arg,
		  struct err *err)
{
	struct ev_src *s = NULL;
	sigset_t set;
	enum rc rc = real_only(l, err);

	if (!rc)
		rc = src_new(l, SRC_SIGNAL, arg, &s, err);
	if (rc)
		return rc;
	s->fn.signal = fn;
	sigemptyset(&set);
	sigaddset(&set, signo);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return sd_result(s, sd_event_add_signal(l->sd, &s->sd, signo, on_sd_signal, s), out, err);
}

enum rc ev_child(struct loop *l, struct ev_src **out, pid_t pid, ev_child_fn fn, void *arg,
		 struct err *err)
{
	struct ev_src *s = NULL;
	sigset_t set;
	enum rc rc = real_only(l, err);

	if (!rc)
		rc = src_new(l, SRC_CHILD, arg, &s, err);
	if (rc)
		return rc;
	s->fn.child = fn;
	s->armed = true;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &set, NULL); /* sd-event asks for it */
	return sd_result(s, sd_event_add_child(l->sd, &s->sd, pid, WEXITED, on_sd_child, s), out,
			 err);
}

/* Running */

static bool virtual_step(struct loop *l, usec_t timeout)
{
	if (list_is_empty(&l->timers)) {
		if (timeout != USEC_INFINITY)
			l->now += timeout;
		return false;
	}
	struct ev_src *s = LIST_ENTRY(l->timers.next, struct ev_src, link);

	if (s->due > l->now) {
		if (timeout != USEC_INFINITY && s->due - l->now > timeout) {
			l->now += timeout;
			return false;
		}
		l->now = s->due;
	}
	list_remove(&s->link);
	s->armed = false;
	src_enter(s);
	s->fn.timer(s->arg);
	src_leave(s);
	return true;
}

enum rc loop_step(struct loop *l, usec_t timeout, bool *did, struct err *err)
{
	bool some;

	if (l->kind == LOOP_VIRTUAL) {
		some = virtual_step(l, timeout);
	} else {
		int r = sd_event_run(l->sd, timeout == USEC_INFINITY ? (uint64_t)-1 : timeout);

		if (r < 0)
			return err_set_sys(err, -r, "the event loop failed");
		some = r > 0;
	}
	if (did)
		*did = some;
	return RC_OK;
}

enum rc loop_run(struct loop *l, int *code, struct err *err)
{
	l->quit = false;
	while (!l->quit) {
		bool did;
		enum rc rc = loop_step(l, USEC_INFINITY, &did, err);

		if (rc)
			return rc;
		if (!did && l->kind == LOOP_VIRTUAL)
			break;
	}
	if (code)
		*code = l->code;
	return RC_OK;
}

void loop_quit(struct loop *l, int code)
{
	l->quit = true;
	l->code = code;
}

/* Pool */

static unsigned order_of(unsigned queue)
{
	return queue & ~(unsigned)POOL_SLOW;
}

static bool may_begin(const struct pool *p, unsigned queue)
{
	unsigned order = order_of(queue), n_slow = 0;

	for (unsigned i = 0; i < POOL_THREADS; i++) {
		if (order && order_of(p->busy_queues[i]) == order)
			return false;
		n_slow += (p->busy_queues[i] & POOL_SLOW) != 0;
	}
	return !(queue & POOL_SLOW) || n_slow < POOL_SLOW_MAX;
}

static struct work *pool_next(struct pool *p)
{
	LIST_FOREACH(it, &p->todo) {
		struct work *w = LIST_ENTRY(it, struct work, link);

		if (may_begin(p, w->queue)) {
			list_remove(it);
			return w;
		}
	}
	return NULL;
}

struct thread_arg {
	struct pool *pool;
	unsigned index;
};

static void *pool_thread(void *arg)
{
	struct thread_arg *ta = arg;
	struct pool *p = ta->pool;
	unsigned me = ta->index;

	mem_free(ta);
	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct work *w = pool_next(p);

		if (!w) {
			if (p->stopping)
				break;
			pthread_cond_wait(&p->wake, &p->lock);
			continue;
		}
		p->busy_queues[me] = w->queue;
		pthread_mutex_unlock(&p->lock);
		w->work(w->arg);
		pthread_mutex_lock(&p->lock);
		p->busy_queues[me] = 0;
		list_push_tail(&p->done, &w->link);
		if (w->queue)
			pthread_cond_broadcast(&p->wake);
		uint64_t one = 1;

		if (write(p->done_fd, &one, sizeof(one)) < 0)
			continue; /* EAGAIN: the counter is full, the loop is awake anyway */
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void on_pool_done(uint32_t revents, void *arg)
{
	struct loop *l = arg;
	struct pool *p = &l->pool;
	struct list ready;
	uint64_t n;

	(void)revents;
	if (read(p->done_fd, &n, sizeof(n)) < 0)
		return; /* spurious */
	list_init(&ready);
	pthread_mutex_lock(&p->lock);
	for (struct list *it; (it = list_pop_head(&p->done));)
		list_push_tail(&ready, it);
	pthread_mutex_unlock(&p->lock);
	for (struct list *it; (it = list_pop_head(&ready));) {
		struct work w = *LIST_ENTRY(it, struct work, link);

		mem_free(LIST_ENTRY(it, struct work, link));
		p->pending--;
		w.after(w.arg);
	}
}

static enum rc pool_start(struct loop *l, struct err *err)
{
	struct pool *p = &l->pool;
	sigset_t all, old;
	int r = 0;

	p->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->done_fd < 0)
		return err_set_sys(err, errno, "cannot make an eventfd");
	enum rc rc = ev_io(l, &p->done_src, p->done_fd, EPOLLIN, on_pool_done, l, err);

	if (rc)
		return rc;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old); /* signals are the loop's */
	while (p->n_threads < POOL_THREADS) {
		struct thread_arg *ta = mem_alloc(sizeof(*ta));

		if (!ta)
			break;
		*ta = (struct thread_arg){p, p->n_threads};
		r = pthread_create(&p->threads[p->n_threads], NULL, pool_thread, ta);
		if (r) {
			mem_free(ta);
			break;
		}
		p->n_threads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!p->n_threads)
		return err_set_sys(err, r ? r : ENOMEM, "cannot start a worker thread");
	return RC_OK;
}

struct inline_work {
	pool_fn after;
	void *arg;
	struct ev_src *src;
};

static void on_inline_done(void *arg)
{
	struct inline_work w = *(struct inline_work *)arg;

	ev_src_free(w.src);
	mem_free(arg);
	w.after(w.arg);
}

static enum rc run_inline(struct loop *l, pool_fn work, pool_fn after, void *arg, struct err *err)
{
	struct inline_work *w = mem_alloc(sizeof(*w));

	if (!w)
		return err_set(err, RC_NOMEM, "out of memory");
	*w = (struct inline_work){.after = after, .arg = arg};
	enum rc rc = ev_defer(l, &w->src, on_inline_done, w, err);

	if (rc) {
		mem_free(w);
		return rc;
	}
	work(arg);
	return RC_OK;
}

enum rc pool_run_ordered(struct loop *l, unsigned queue, pool_fn work, pool_fn after, void *arg,
			 struct err *err)
{
	struct pool *p = &l->pool;
	enum rc rc;

	if (p->has_ended)
		return err_set(err, RC_CLOSED, "the process is ending");
	if (l->kind == LOOP_VIRTUAL)
		return run_inline(l, work, after, arg, err);
	if (!p->n_threads) {
		rc = pool_start(l, err);
		if (rc)
			return rc;
	}
	struct work *w = mem_alloc(sizeof(*w));

	if (!w)
		return err_set(err, RC_NOMEM, "out of memory");
	*w = (struct work){.work = work, .after = after, .arg = arg, .queue = queue};
	p->pending++;
	pthread_mutex_lock(&p->lock);
	list_push_tail(&p->todo, &w->link);
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	return RC_OK;
}

enum rc pool_run(struct loop *l, pool_fn work, pool_fn after, void *arg, struct err *err)
{
	return pool_run_ordered(l, 0, work, after, arg, err);
}

void pool_end(struct loop *l)
{
	l->pool.has_ended = true;
	if (l->pool.n_threads)
		pool_join(&l->pool);
}
