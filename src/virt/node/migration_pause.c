/* The declared pause (maxDowntimeMs): what QEMU may plan for under it, and what a pause between two nodes costs
 * beside the bytes, learnt from the moves between them. */
#include <stdio.h>

#include "api/api.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/migration/forecast.h"
#include "virt/node/migration_source_int.h"

int64_t mig_pause_declared(const VirtualMachineInstanceMigrationState *s)
{
	const VMIMConfigurationOptions *c = s ? s->migrationConfiguration : NULL;

	return c ? API_GET(c, maxDowntimeMs, 0) : 0;
}

int64_t mig_pause_fixed(const struct vmhost *h, const char *node)
{
	const int64_t *ms = map_get(&h->pause_costs, node);

	return ms ? *ms : -1;
}

/* What is not known yet, or cannot be kept, ends no move: it would never move again. */
int64_t mig_pause_enforced(int64_t declared, int64_t fixed_ms)
{
	return fixed_ms >= 0 && fixed_ms < declared ? declared : 0;
}

void mig_pause_warn(struct mig_source *m)
{
	int64_t declared = mig_pause_declared(mig_state(m->vm));
	int64_t fixed = mig_pause_fixed(m->host, m->target_node);

	if (declared && fixed >= declared)
		mig_event(m->vm, "Warning", "PauseLimitBelowFloor",
			  "maxDowntimeMs is %lld, and a pause on the way to node %s costs %lld ms "
			  "beside the bytes: the guest will stand for longer.",
			  (long long)declared, m->target_node, (long long)fixed);
}

static void learn(struct vmhost *h, const char *node, int64_t ms)
{
	int64_t *cost = map_get(&h->pause_costs, node);

	if (cost) {
		*cost = ms;
		return;
	}
	cost = mem_alloc(sizeof(*cost));
	if (!cost || map_set(&h->pause_costs, node, cost)) {
		mem_free(cost); /* then it is learnt at the next move */
		return;
	}
	*cost = ms;
}

void mig_pause_measured(struct mig_source *m, usec_t resume_at)
{
	const struct json *memory = js_at(m->last, "stats", "memory", NULL);
	int64_t declared = mig_pause_declared(mig_state(m->vm));

	/* a guest that stood before has no pause of the move's */
	if (!m->stop_at || resume_at < m->stop_at || js_get_bool(m->last, "guestPaused", false))
		return;
	int64_t pause = (int64_t)((resume_at - m->stop_at + 500) / USEC_PER_MSEC);

	/* A pause that was asked for sends at another rate than the move before it, and for long. */
	if (!js_get_bool(m->last, "postCopy", false) && !mig_is_finishing(m->last)) {
		int64_t fixed = pause_fixed_cost(mig_pause_fixed(m->host, m->target_node), pause,
						 js_get_int(m->last, "downtimeBytes", 0),
						 js_get_int(memory, "bytesPerSecond", 0));

		learn(m->host, m->target_node, fixed);
		log_debug("move %s: a pause to %s costs %lld ms beside the bytes", m->uid,
			  m->target_node, (long long)fixed);
	}
	if (!declared || pause <= declared || m->finish_by || mig_is_finishing(m->last))
		return;
	m->host->n_pause_overruns++;
	mig_event(
		m->vm, "Warning", "PauseLimitExceeded",
		"The guest stood for %lld ms while it moved; %lld ms were declared (maxDowntimeMs).",
		(long long)pause, (long long)declared);
}
