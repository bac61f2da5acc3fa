#include "cli/drain_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/names.h"

static const char *const names[DRAIN__MAX] = {"Moves", "Waits",	 "ShutDown",
					      "Stays", "Leaves", "Arrives"};

const char *drain_verdict_name(enum drain_verdict v)
{
	return names[v];
}

/* ---- what the objects say ---- */

static const char *text_or(const char *s, const char *fallback)
{
	return str_is_empty(s) ? fallback : s;
}

static const char *node_of(const struct json *vmi)
{
	return text_or(js_str(js_at(vmi, "status", "nodeName", NULL)), "");
}

static const char *phase_of(const struct json *vmi)
{
	return text_or(js_str(js_at(vmi, "status", "phase", NULL)), "");
}

static const char *strategy_of(const struct json *vmi)
{
	return text_or(js_str(js_at(vmi, "spec", "evictionStrategy", NULL)), "None");
}

static bool wants_move(const char *strategy)
{
	return str_eq(strategy, "LiveMigrate") || str_eq(strategy, "LiveMigrateIfPossible");
}

static const struct json *migratable(const struct json *vmi)
{
	const struct json *list = js_at(vmi, "status", "conditions", NULL);

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "type"), "LiveMigratable"))
			return js_item(list, i);
	return NULL;
}

static bool is_deleted(const struct json *obj)
{
	return js_at(obj, "metadata", "deletionTimestamp", NULL) != NULL;
}

static bool is_going(const struct drain_facts *f)
{
	const char *phase = phase_of(f->vmi);

	return !f->vmi || is_deleted(f->pod) || is_deleted(f->vmi) || str_eq(phase, "Succeeded") ||
	       str_eq(phase, "Failed");
}

static bool is_target(const struct drain_facts *f)
{
	const char *uid = js_str(js_at(f->pod, "metadata", "labels", LABEL_MIGRATION_UID, NULL));

	return uid && f->open && str_eq(uid, js_str(js_at(f->open, "metadata", "uid", NULL)));
}

static bool is_marked(const struct drain_facts *f)
{
	return str_eq(js_str(js_at(f->vmi, "status", "evacuationNodeName", NULL)), f->node);
}

/* It runs here, and nothing about itself keeps it from moving. */
static bool can_move(const struct drain_facts *f)
{
	return !is_going(f) && str_eq(node_of(f->vmi), f->node) &&
	       str_eq(phase_of(f->vmi), "Running") && wants_move(strategy_of(f->vmi)) &&
	       str_eq(js_get_str(migratable(f->vmi), "status"), "True");
}

/* ---- sentences ---- */

#define SAY(row_, verdict_, ...)                                                     \
	do {                                                                         \
		(row_)->verdict = (verdict_);                                        \
		(void)snprintf((row_)->reason, sizeof((row_)->reason), __VA_ARGS__); \
	} while (0)

static const struct json *placement_of(const struct json *vmim)
{
	return js_at(vmim, "status", "ferry", "placement", NULL);
}

static void say_nodes(enum drain_verdict v, const struct json *first, size_t others,
		      struct drain_row *out)
{
	const char *node = text_or(js_get_str(first, "node"), "?");

	if (others > 1)
		SAY(out, v, "%s: %s (and %zu more nodes)", node,
		    text_or(js_get_str(first, "message"), "no reason given"), others - 1);
	else
		SAY(out, v, "%s: %s", node,
		    text_or(js_get_str(first, "message"), "no reason given"));
}

/* Where it could go.  False: it is not told. */
static bool judge_placement(const struct json *vmim, struct drain_row *out)
{
	const struct json *rows = placement_of(vmim), *wait = NULL, *no = NULL, *yes = NULL;
	size_t n_yes = 0, n_wait = 0, n_no = 0;

	for (size_t i = 0; i < js_len(rows); i++) {
		const struct json *p = js_item(rows, i);

		if (str_eq(js_get_str(p, "reason"), "Source"))
			continue;
		if (js_get_bool(p, "allowed", false)) {
			yes = n_yes++ ? yes : p;
		} else if (js_get_bool(p, "lasting", false)) {
			no = n_no++ ? no : p;
		} else {
			wait = n_wait++ ? wait : p;
		}
	}
	if (n_yes == 1)
		SAY(out, DRAIN_MOVES, "to %s", text_or(js_get_str(yes, "node"), "?"));
	else if (n_yes)
		SAY(out, DRAIN_MOVES, "to one of %zu nodes", n_yes);
	else if (n_wait)
		say_nodes(DRAIN_WAITS, wait, n_wait, out);
	else if (n_no)
		say_nodes(DRAIN_STAYS, no, n_no, out);
	else if (js_len(rows))
		SAY(out, DRAIN_STAYS, "there is no other node");
	return js_len(rows) > 0;
}

/* An attempt since it was asked failed, and no other can do better.  What failed before may go now. */
static bool is_hopeless(const struct drain_facts *f)
{
	const char *reason = js_str(js_at(f->ended, "status", "ferry", "reason", NULL));
	const char *uid = js_str(js_at(f->ended, "metadata", "uid", NULL));

	return f->was_asked && !(f->ended_before && str_eq(uid, f->ended_before)) &&
	       str_eq(js_str(js_at(f->ended, "metadata", "annotations", ANN_EVACUATION, NULL)),
		      f->node) &&
	       (str_eq(reason, "NoCandidate") || str_eq(reason, "OnlyOneNode") ||
		str_eq(reason, "TargetIsSource") || str_eq(reason, "NotMigratable"));
}

static const char *why_ended(const struct drain_facts *f)
{
	const char *message = js_str(js_at(f->ended, "status", "ferry", "message", NULL));
	const char *failure =
		js_str(js_at(f->ended, "status", "migrationState", "failureReason", NULL));

	return text_or(message, text_or(failure, "no reason given"));
}

static void say_hopeless(const struct drain_facts *f, struct drain_row *out)
{
	if (!judge_placement(f->ended, out) || out->verdict != DRAIN_STAYS)
		SAY(out, DRAIN_STAYS, "%s", why_ended(f));
}

static void judge_open(const struct drain_facts *f, struct drain_row *out)
{
	const char *stage = js_str(js_at(f->open, "status", "ferry", "stage", NULL));

	if (str_eq(stage, "BackingOff") && is_hopeless(f))
		say_hopeless(f, out);
	else if (str_eq(stage, "BackingOff"))
		SAY(out, DRAIN_WAITS, "it is tried again; the last attempt: %s", why_ended(f));
	else if (!str_eq(stage, "WaitingForNode") || !judge_placement(f->open, out) ||
		 out->verdict == DRAIN_MOVES)
		SAY(out, DRAIN_MOVES, "a move is under way");
}

/* The cluster has given it up: it was asked to leave, and its tries are used up. */
static const struct json *given_up(const struct drain_facts *f)
{
	const struct json *tries = js_at(f->vmi, "status", "ferry", "evacuation", NULL);

	return is_marked(f) && str_eq(js_get_str(tries, "node"), f->node) &&
			       js_get_str(tries, "reason")
		       ? tries
		       : NULL;
}

static void judge_movable(const struct drain_facts *f, struct drain_row *out)
{
	if (!f->open && given_up(f))
		SAY(out, DRAIN_STAYS, "%s (it may be tried anew after 'ferry evacuate-cancel')",
		    text_or(js_get_str(given_up(f), "message"), "its attempts are used up"));
	else if (f->open)
		judge_open(f, out);
	else if (f->was_asked && !is_marked(f))
		SAY(out, DRAIN_STAYS, "its evacuation was cancelled");
	else if (is_hopeless(f))
		say_hopeless(f, out);
	else if (f->was_asked)
		SAY(out, DRAIN_MOVES, "it was asked to leave");
	else if (f->refusal)
		SAY(out, DRAIN_STAYS, "%s", f->refusal);
	else if (js_at(f->answer, "status", "ferry", "stage", NULL))
		SAY(out, DRAIN_WAITS, "it is not ready to move yet");
	else if (!judge_placement(f->answer, out))
		SAY(out, DRAIN_MOVES, "the server does not tell where it could go");
}

/* Not for it to move: shut down, somebody else's, or neither. */
static void judge_immovable(const struct drain_facts *f, struct drain_row *out)
{
	const char *strategy = strategy_of(f->vmi);
	const struct json *c = migratable(f->vmi);
	const char *why = text_or(js_get_str(c, "message"), "it is not live-migratable");

	if (str_eq(strategy, "External"))
		SAY(out, DRAIN_WAITS, "evictionStrategy External: somebody else has to move it");
	else if (!wants_move(strategy))
		SAY(out, DRAIN_SHUTDOWN, "evictionStrategy %s", strategy);
	else if (!c || !str_eq(phase_of(f->vmi), "Running"))
		SAY(out, DRAIN_WAITS, "it does not run yet");
	else if (str_eq(strategy, "LiveMigrate"))
		SAY(out, DRAIN_STAYS, "%s", why);
	else
		SAY(out, DRAIN_SHUTDOWN, "evictionStrategy %s: %s", strategy, why);
}

void drain_judge(const struct drain_facts *f, struct drain_row *out)
{
	const char *at = node_of(f->vmi);

	if (!f->vmi)
		SAY(out, DRAIN_LEAVES, "its virtual machine is gone");
	else if (is_going(f))
		SAY(out, DRAIN_LEAVES, "it is being shut down");
	else if (*at && !str_eq(at, f->node) && is_target(f))
		SAY(out, DRAIN_ARRIVES, "a move brings it from %s", at);
	else if (*at && !str_eq(at, f->node))
		SAY(out, DRAIN_LEAVES, "it runs on %s", at);
	else if (can_move(f))
		judge_movable(f, out);
	else
		judge_immovable(f, out);
}

bool drain_wants_answer(const struct drain_facts *f)
{
	return can_move(f) && !f->open && !f->was_asked;
}

bool drain_may_evict(const struct drain_facts *f, const struct drain_row *row, bool force)
{
	if (f->was_asked || is_going(f) || !str_eq(node_of(f->vmi), f->node))
		return false;
	if (row->verdict == DRAIN_SHUTDOWN)
		return force;
	return (row->verdict == DRAIN_MOVES || row->verdict == DRAIN_WAITS) &&
	       (can_move(f) || str_eq(strategy_of(f->vmi), "External"));
}

/* ---- the table ---- */

bool drain_can_go(const struct drain_row *row, bool force)
{
	return row->verdict != DRAIN_STAYS && (row->verdict != DRAIN_SHUTDOWN || force);
}

static size_t title_len(const struct drain_row *row)
{
	return strlen(row->ns) + 1 + strlen(row->name);
}

size_t drain_width(const struct drain_row *rows, size_t n)
{
	size_t width = strlen("VM");

	for (size_t i = 0; i < n; i++)
		width = MAX(width, title_len(&rows[i]));
	return width;
}

void drain_print(const struct drain_row *rows, size_t n, bool force, struct sbuf *out)
{
	size_t width = drain_width(rows, n);

	sbuf_addf(out, "%-*s   %-8s   WHY\n", (int)width, "VM", "WHAT");
	for (size_t i = 0; i < n; i++) {
		const struct drain_row *r = &rows[i];
		bool is_left = r->verdict == DRAIN_SHUTDOWN && !force;

		sbuf_addf(out, "%s/%s%*s   %-8s   %s%s\n", r->ns, r->name,
			  (int)(width - title_len(r)), "", names[r->verdict], r->reason,
			  is_left ? " (it is left alone: only with --force)" : "");
	}
}

/* ---- the end ---- */

enum drain_end drain_end_of(const struct drain_row *rows, size_t n, bool force)
{
	for (size_t i = 0; i < n; i++)
		if (drain_can_go(&rows[i], force))
			return DRAIN_GOES_ON;
	return n ? DRAIN_BLOCKED : DRAIN_EMPTY;
}

bool drain_all_can_go(const struct drain_row *rows, size_t n, bool force)
{
	for (size_t i = 0; i < n; i++)
		if (!drain_can_go(&rows[i], force) || rows[i].verdict == DRAIN_WAITS)
			return false;
	return true;
}
