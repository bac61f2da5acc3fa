/* lib/ev/ev.h - the event loop: timers, descriptors, signals, children, deferred calls, a pool.
 *
 * One loop, one owning thread per process; everything here is for that thread unless it says
 * otherwise.  A callback runs to completion, never blocks, and may free its own source.
 *
 * Two back ends.  LOOP_REAL runs on sd-event.  LOOP_VIRTUAL knows timers and deferred calls only:
 * when nothing is due, time jumps to the next timer, so that a cluster's hour passes in
 * milliseconds and the same seed gives the same run.
 */
#ifndef EV_EV_H
#define EV_EV_H

#include <sys/types.h>

#include "base/err.h"

struct loop;
struct ev_src; /* one registration; owned by whoever holds the pointer */

enum loop_kind { LOOP_REAL, LOOP_VIRTUAL };

MUST_CHECK enum rc loop_new(struct loop **out, enum loop_kind kind, struct err *err);
struct loop *loop_free(struct loop *l); /* all sources must be gone; joins the pool */
DEFINE_CLEANUP(struct loop *, loop_free);

/* Runs until loop_quit(), or (virtual only) until nothing is left to do.  *code is loop_quit's. */
MUST_CHECK enum rc loop_run(struct loop *l, int *code, struct err *err);
/* One round: waits at most timeout (USEC_INFINITY: until something happens), dispatches what is due.
 * *did is false when nothing was dispatched (may be NULL). */
MUST_CHECK enum rc loop_step(struct loop *l, usec_t timeout, bool *did, struct err *err);
void loop_quit(struct loop *l, int code);

usec_t loop_now(const struct loop *l); /* monotonic, as of now (virtual: simulated) */
usec_t loop_realtime(
	const struct loop *l); /* since the epoch; virtual: a fixed start + loop_now() */
void loop_virtual_set_epoch(struct loop *l, usec_t realtime);

typedef void (*ev_timer_fn)(void *arg);
typedef void (*ev_io_fn)(uint32_t revents, void *arg); /* EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR */
typedef void (*ev_signal_fn)(int signo, void *arg);
typedef void (*ev_child_fn)(pid_t pid, int wait_status, void *arg);

/* One-shot; the source stays allocated after it fired: rearm or free it. */
MUST_CHECK enum rc ev_timer_after(struct loop *l, struct ev_src **out, usec_t delay, ev_timer_fn fn,
				  void *arg, struct err *err);
/* New delay from now; also revives one that fired.  USEC_INFINITY disarms. */
void ev_timer_rearm(struct ev_src *s, usec_t delay);
bool ev_timer_is_armed(const struct ev_src *s);
/* Called once, from the loop, after what is running now. */
MUST_CHECK enum rc ev_defer(struct loop *l, struct ev_src **out, ev_timer_fn fn, void *arg,
			    struct err *err);
/* The descriptor stays the caller's; level triggered. RC_UNSUPPORTED on a virtual loop. */
MUST_CHECK enum rc ev_io(struct loop *l, struct ev_src **out, int fd, uint32_t events, ev_io_fn fn,
			 void *arg, struct err *err);
void ev_io_set(struct ev_src *s, uint32_t events);
/* The signal is blocked in the calling thread; call before threads are made. */
MUST_CHECK enum rc ev_signal(struct loop *l, struct ev_src **out, int signo, ev_signal_fn fn,
			     void *arg, struct err *err);
/* Reaps the child and calls once (pidfd underneath). */
MUST_CHECK enum rc ev_child(struct loop *l, struct ev_src **out, pid_t pid, ev_child_fn fn,
			    void *arg, struct err *err);
/* Accepts NULL; safe inside the source's own callback; returns NULL. */
struct ev_src *ev_src_free(struct ev_src *s);
DEFINE_CLEANUP(struct ev_src *, ev_src_free);

/* Blocking work: work(arg) runs on a pool thread (it must touch nothing but arg), then
 * after(arg) runs on the loop, exactly once.  The pool has few threads: work that waits for other
 * work would deadlock.  There is no cancel: an owner that goes away marks its arg and lets
 * after() free it.  On a virtual loop work() runs inline and after() is deferred. */
typedef void (*pool_fn)(void *arg);
MUST_CHECK enum rc pool_run(struct loop *l, pool_fn work, pool_fn after, void *arg,
			    struct err *err);
/* Added to a queue's number, which may be 0 then: the item may take long, or for ever.  All such items together hold
 * three threads at most, and leave as many to the others. */
enum { POOL_SLOW = 1 << 30 };
/* As pool_run(), but items with the same queue number run one after the other in order (queue >= 1). */
MUST_CHECK enum rc pool_run_ordered(struct loop *l, unsigned queue, pool_fn work, pool_fn after,
				    void *arg, struct err *err);
/* Before an end frees what work may still use: waits until everything handed over is done, and calls none of its
 * after().  From then on pool_run() says RC_CLOSED.  Only the process' end may follow. */
void pool_end(struct loop *l);

#endif
