#include "virt/launcher/meter.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/launcher/launcher_int.h"
#include "virt/launcher/move_int.h"

/* Page sampling: a thread of QEMU's own hashes some pages of the guest, waits, and hashes them again.  It holds no
 * lock that the guest or the monitor needs, works with every accelerator, and sees what a page holds, so that the
 * same value written again is none.  The cost is the hashing: about a microsecond a page, twice.
 *
 *   rest --(a minute)--> calc-dirty-rate 1 s --> query-dirty-rate --> calc-dirty-rate 4 s --> ... --> rest
 */

static const usec_t FIRST = 5 * USEC_PER_SEC, PERIOD = 60 * USEC_PER_SEC,
		    PERIOD_MAX = 3600 * USEC_PER_SEC, MARGIN = 100 * USEC_PER_MSEC,
		    FRESH = 180 * USEC_PER_SEC;

/* Of the whole guest, whatever its size: 12 % of it written are known to 6 % with the one, to 2 % with the other. */
enum {
	PAGES_NOW_AND_THEN = 2048,
	PAGES_OF_A_MOVE = 16384,
	SHORT_SECONDS = 1,
	LONG_SECONDS = 4,
	ASKS_MAX = 20
};

struct meter {
	struct launcher *l;
	struct ev_src *timer;
	struct qmp_slot *slot;
	int64_t seconds; /* of the measurement under way; 0: none */
	bool is_for_move;
	usec_t began; /* realtime */
	unsigned asks;
	usec_t rest;
	bool is_unknown; /* this QEMU does not have the command */
	int64_t commands;
	/* what is known */
	struct written written;
	usec_t written_at; /* monotonic */
	int64_t rate;
	usec_t rate_at; /* realtime; 0: never */
};

static void on_time(void *arg);

static void arm(struct meter *m, usec_t delay)
{
	struct err err = {0};

	if (m->timer)
		ev_timer_rearm(m->timer, delay);
	else if (ev_timer_after(m->l->loop, &m->timer, delay, on_time, m, &err))
		log_warn("vm: what the guest writes is not measured: %s", err.msg);
}

static void invoke(struct meter *m, const char *command, struct json *args, qmp_reply_fn fn)
{
	struct qmp_call c = {
		.command = command, .args = args, .timeout = QMP_TIMEOUT, .fn = fn, .arg = m};
	struct err err = {0};

	m->commands++;
	if (qmp_invoke(m->l->qmp, &m->slot, &c, &err)) {
		log_debug("vm: %s: %s", command, err.msg);
		m->seconds = 0;
		arm(m, m->rest);
	}
}

/* --- results --- */

/* A guest that stood meanwhile has not shown how it writes. */
static bool counts(const struct meter *m)
{
	const struct launcher *l = m->l;

	return (l->state == VM_RUNNING || l->state == VM_MIGRATING) && l->last_stop < m->began;
}

static int64_t take(struct meter *m, const struct mig_measured *r)
{
	/* QEMU cuts to whole MiB/s: half of one is lost on average. */
	int64_t more = r->bytes_per_second ? (int64_t)1 << 19 : 0;
	int64_t bytes = (r->bytes_per_second + more) * m->seconds;

	written_add(&m->written, m->seconds * 1000, bytes);
	m->written_at = loop_now(m->l->loop);
	if (m->seconds == SHORT_SECONDS) {
		m->rate = r->bytes_per_second;
		m->rate_at = loop_realtime(m->l->loop);
		ipc_server_event(m->l->server, "dirtyRate", meter_json(m->l));
	}
	return bytes;
}

static void begin(struct meter *m, int64_t seconds, bool for_move);

/* The measurement has ended, one way or the other. */
static void ended(struct meter *m, const struct mig_measured *r)
{
	struct launcher *l = m->l;
	int64_t seconds = m->seconds, bytes = 0;
	bool is_good = r && counts(m);

	if (is_good)
		bytes = take(m, r);
	m->seconds = 0;
	arm(m, m->rest);
	if (move_is_measured(l)) {
		struct move_writes w = {is_good ? seconds : 0, bytes, m->is_for_move};

		move_measured(l, &w);
		return;
	}
	if (is_good && !m->is_for_move && seconds == SHORT_SECONDS && l->state == VM_RUNNING)
		begin(m, LONG_SECONDS, false);
}

/* --- asking --- */

static void on_told(const struct qmp_reply *r, void *arg)
{
	struct meter *m = arg;
	struct mig_measured told;

	m->slot = qmp_slot_free(m->slot);
	if (r->rc == RC_CLOSED)
		return;
	if (r->rc) {
		log_debug("vm: query-dirty-rate: %s", r->desc);
		m->rest = MIN(2 * m->rest, PERIOD_MAX); /* it hangs, perhaps */
		ended(m, NULL);
		return;
	}
	mig_measured_parse(r->value, &told);
	m->rest = PERIOD;
	if (told.is_done)
		ended(m, &told);
	else if (++m->asks < ASKS_MAX)
		arm(m, MARGIN);
	else
		ended(m, NULL);
}

static void on_begun(const struct qmp_reply *r, void *arg)
{
	struct meter *m = arg;

	m->slot = qmp_slot_free(m->slot);
	if (r->rc == RC_CLOSED)
		return;
	if (!r->rc) {
		m->asks = 0;
		arm(m, (usec_t)m->seconds * USEC_PER_SEC + MARGIN);
		return;
	}
	log_debug("vm: calc-dirty-rate: %s", r->desc);
	m->is_unknown = str_eq(r->error_class, "CommandNotFound");
	m->rest = r->rc == RC_TIMEOUT ? MIN(2 * m->rest, PERIOD_MAX) : PERIOD;
	ended(m, NULL);
}

static void begin(struct meter *m, int64_t seconds, bool for_move)
{
	m->seconds = seconds;
	m->is_for_move = for_move;
	m->began = loop_realtime(m->l->loop);
	invoke(m, "calc-dirty-rate",
	       mig_measure(seconds, m->l->spec->memory_bytes,
			   for_move ? PAGES_OF_A_MOVE : PAGES_NOW_AND_THEN),
	       on_begun);
}

/* In post-copy a page that is looked at is a page that is asked for, so not before a move is over. */
static bool may_measure(const struct meter *m)
{
	const struct launcher *l = m->l;

	return !m->is_unknown && l->state == VM_RUNNING && qmp_is_ready(l->qmp) &&
	       (!l->move || move_is_over(l->move));
}

static void on_time(void *arg)
{
	struct meter *m = arg;

	if (m->slot)
		return; /* its answer or its deadline goes on */
	if (m->seconds && qmp_is_ready(m->l->qmp)) {
		invoke(m, "query-dirty-rate", NULL, on_told);
		return;
	}
	m->seconds = 0;
	if (may_measure(m))
		begin(m, SHORT_SECONDS, false);
	else
		arm(m, m->rate_at ? PERIOD : FIRST);
}

/* --- what others ask --- */

void meter_start(struct launcher *l)
{
	if (!l->meter) {
		l->meter = mem_alloc(sizeof(*l->meter));
		if (!l->meter) {
			log_warn("vm: what the guest writes is not measured: out of memory");
			return;
		}
		l->meter->l = l;
	}
	l->meter->rest = PERIOD;
	arm(l->meter, FIRST);
}

void meter_lost(struct launcher *l)
{
	struct meter *m = l->meter;

	if (!m)
		return;
	m->slot = qmp_slot_free(m->slot);
	m->seconds = 0;
	m->commands = 0; /* as the monitor counts them */
}

struct meter *meter_free(struct meter *m)
{
	if (!m)
		return NULL;
	m->slot = qmp_slot_free(m->slot);
	m->timer = ev_src_free(m->timer);
	return mem_free(m);
}

void meter_measure(struct launcher *l, int64_t seconds)
{
	struct meter *m = l->meter;

	if (m && !m->is_unknown && !m->seconds && !m->slot && qmp_is_ready(l->qmp))
		begin(m, seconds, true);
}

struct written meter_written(const struct launcher *l)
{
	const struct meter *m = l->meter;
	bool fresh = m && m->written_at && loop_now(l->loop) - m->written_at < FRESH;

	return fresh ? m->written : (struct written){0};
}

struct json *meter_json(const struct launcher *l)
{
	const struct meter *m = l->meter;

	return m && m->rate_at
		       ? js_pack("{s:I, s:I}", "bytesPerSecond", m->rate, "at", (int64_t)m->rate_at)
		       : NULL;
}

int64_t meter_commands(const struct launcher *l)
{
	return l->meter ? l->meter->commands : 0;
}
