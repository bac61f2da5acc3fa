#include "virt/controller/migration/table.h"

#include "api/api.h"
#include "base/log.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/mig_int.h"

#define MIG_NAME(code, name, ...) [code] = name,
static const char *const state_names[] = {MIG_STATE_MAP(MIG_NAME)};
static const char *const event_names[] = {MIG_EVENT_MAP(MIG_NAME)};
#undef MIG_NAME
static_assert(ARRAY_SIZE(state_names) == MIG_STATE__MAX, "name every state");
static_assert(ARRAY_SIZE(event_names) == MIG_EV__MAX, "name every event");

/* An empty cell is a refused event; a row with only empty cells is final. */
#define TO(next_, act_)                                                       \
	{                                                                     \
		.next = MIG_##next_, .act = mig_act_##act_, .act_name = #act_ \
	}
static const struct mig_edge edges[MIG_STATE__MAX][MIG_EV__MAX] = {
	[MIG_NEW] =
		{
			[MIG_EV_SEEN] = TO(PENDING, none),
			[MIG_EV_CANCEL] =
				TO(FAILED, drop_target), /* made before a crash, but not recorded */
			[MIG_EV_FAIL] = TO(FAILED, drop_target),
		},
	[MIG_PENDING] =
		{
			[MIG_EV_SLOT] = TO(SCHEDULING, create_target),
			[MIG_EV_CANCEL] = TO(FAILED, drop_target),
			[MIG_EV_FAIL] = TO(FAILED, drop_target),
		},
	[MIG_SCHEDULING] =
		{
			[MIG_EV_POD_READY] = TO(SCHEDULED, none),
			[MIG_EV_CANCEL] = TO(FAILED, drop_target),
			[MIG_EV_FAIL] = TO(FAILED, drop_target),
		},
	[MIG_SCHEDULED] =
		{
			[MIG_EV_HANDOFF] = TO(PREPARING, hand_off),
			[MIG_EV_CANCEL] = TO(FAILED, abandon),
			[MIG_EV_FAIL] = TO(FAILED, abandon),
		},
	[MIG_PREPARING] =
		{
			[MIG_EV_LISTENING] = TO(TARGET_READY, none),
			[MIG_EV_CANCEL] = TO(FAILED, abandon),
			[MIG_EV_FAIL] = TO(FAILED, abandon),
		},
	[MIG_TARGET_READY] =
		{
			[MIG_EV_STARTED] = TO(RUNNING, none),
			[MIG_EV_CANCEL] = TO(FAILED, abandon),
			[MIG_EV_FAIL] = TO(FAILED, abandon),
		},
	[MIG_RUNNING] =
		{
			[MIG_EV_COMPLETED] = TO(SUCCEEDED, succeed),
			[MIG_EV_CANCEL] = TO(RUNNING, request_abort),
			[MIG_EV_ABORT] = TO(RUNNING, request_abort),
			[MIG_EV_FINISH] = TO(RUNNING, request_finish),
			[MIG_EV_FAIL] = TO(FAILED, finish_failed),
		},
};
#undef TO

const struct mig_edge *mig_edge(enum mig_state s, enum mig_event e)
{
	assert(s < MIG_STATE__MAX && e < MIG_EV__MAX);
	return &edges[s][e];
}

const char *mig_state_name(enum mig_state s)
{
	return s < MIG_STATE__MAX ? state_names[s] : "?";
}

const char *mig_event_name(enum mig_event e)
{
	return e < MIG_EV__MAX ? event_names[e] : "?";
}

enum mig_state mig_state_of(const char *phase)
{
	for (enum mig_state s = 0; s < MIG_STATE__MAX; s++)
		if (str_eq(state_names[s], phase ? phase : ""))
			return s;
	return MIG_STATE__MAX;
}

/* A migration goes forward only, and what it must have by then it has. */
static bool invariant(const struct mig *m, enum mig_state from)
{
	if (m->state < from)
		return false;
	return m->state < MIG_PREPARING || mig_is_final(m->state) || m->target_name;
}

static enum rc stamp(struct mig *m)
{
	VirtualMachineInstanceMigrationStatus *st = &m->next->status;

	TRY(api_set_str(&st->phase, state_names[m->state]));
	if (mig_stamp_of(m->next, m->state))
		return RC_OK; /* the first time counts */
	VirtualMachineInstanceMigrationPhaseTransitionTimestamp *t = api_append(
		&st->phaseTransitionTimestamps, &st->n_phaseTransitionTimestamps, sizeof(*t));

	if (!t)
		return RC_NOMEM;
	TRY(api_set_str(&t->phase, state_names[m->state]));
	return kit_stamp(&t->phaseTransitionTimestamp, m->v->now);
}

enum rc mig_step(struct mig *m, enum mig_event e)
{
	const struct mig_edge *edge = mig_edge(m->state, e);
	enum mig_state from = m->state;

	if (!edge->act)
		return err_set(m->err, RC_CONFLICT,
			       "migration '%s': %s is not allowed in state '%s'",
			       m->old->metadata.name, mig_event_name(e), mig_state_name(from));
	TRY(edge->act(m));
	m->state = edge->next;
	TRY(stamp(m));
	log_debug("migration '%s': %s -> %s on %s", m->old->metadata.name, mig_state_name(from),
		  mig_state_name(m->state), mig_event_name(e));
	assert(invariant(m, from));
	return RC_OK;
}
