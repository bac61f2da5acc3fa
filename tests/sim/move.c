#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "sim/sim.h"
#include "virt/migration/handoff.h"

/* Theory of operation
 *
 * A move between two machines, decided by the real tables of src/virt/migration/handoff.c.  QEMU is a
 * timer per step; the two agents talk by messages that get lost, are late, or find nobody at home.
 *
 *   source                                   target
 *   Preparing   -- key?  ----------------->  Listening -> Keyed
 *               <- key ------------------
 *   Starting, Moving, Switching (QEMU)
 *   Released (durable)
 *               -- permission ----------->   Permitted -> Running -> (agent writes the VMI) Done
 *   Given       <- taken -----------------
 *
 * The permission is sent again until it is answered, also by an agent that has restarted: the release is
 * on disk.  A key is handed out once; if its answer is lost, the move fails and the guest stays.
 */

enum msg_kind { MSG_KEY, MSG_KEY_ANSWER, MSG_PERMISSION, MSG_TAKEN, MSG_REFUSED };

struct msg {
	struct list link;
	struct sim *sim;
	struct ev_src *timer;
	enum msg_kind kind;
	char *migration_uid;
};

static const usec_t KEY_TIMEOUT = 3 * USEC_PER_SEC;
static const usec_t PERMISSION_AGAIN = 500 * USEC_PER_MSEC;

static void on_msg(void *arg);

static void msg_free(struct msg *m)
{
	list_remove(&m->link);
	ev_src_free(m->timer);
	mem_free(m->migration_uid);
	mem_free(m);
}

void moves_free(struct sim *s)
{
	while (s->msgs.next && !list_is_empty(&s->msgs))
		msg_free(LIST_ENTRY(s->msgs.next, struct msg, link));
}

static void send_msg(struct sim *s, enum msg_kind kind, const char *migration_uid)
{
	struct msg *m;
	usec_t delay = sim_between(s, 50, 2000);

	if (sim_chance(s, s->faults.lose_request))
		return;
	if (sim_chance(s, s->faults.slow))
		delay = sim_between(s, 0, s->faults.slow_max);
	m = mem_alloc(sizeof(*m));
	m->sim = s;
	m->kind = kind;
	m->migration_uid = mem_strdup(migration_uid);
	list_push_tail(&s->msgs, &m->link);
	if (ev_timer_after(s->loop, &m->timer, delay, on_msg, m, NULL))
		sim_fail(s, "out of memory in a move");
}

static struct guest *side_of(struct sim *s, const char *migration_uid, bool source)
{
	for (unsigned i = 0; i < SIM_NODES; i++) {
		LIST_FOREACH(l, machine_guests(s->machines[i])) {
			struct guest *g = LIST_ENTRY(l, struct guest, link);

			if (str_eq(source ? g->move_uid : g->migration_uid, migration_uid))
				return g;
		}
	}
	return NULL;
}

static bool has_agent(const struct guest *g)
{
	return machine_has_agent(g->machine);
}

/* The source's step: the table decides; false: refused. */
static bool src_step(struct guest *g, enum src_event e)
{
	enum src_state next;
	struct sim *s = machine_sim(g->machine);

	if (!src_next((enum src_state)g->src, e, &next))
		return false;
	sim_trace(s, "%s: source of %s: %s -> %s", machine_name(g->machine), g->pod_name,
		  src_state_name((enum src_state)g->src), src_state_name(next));
	g->src = next;
	return true;
}

static bool dst_step(struct guest *g, enum dst_event e)
{
	enum dst_state next;
	struct sim *s = machine_sim(g->machine);

	if (!dst_next((enum dst_state)g->dst, e, &next))
		return false;
	sim_trace(s, "%s: target of %s: %s -> %s", machine_name(g->machine), g->pod_name,
		  dst_state_name((enum dst_state)g->dst), dst_state_name(next));
	g->dst = next;
	return true;
}

/* Source */

/* The guest stays, or goes on, here. */
static void guest_back(struct guest *g, enum move_result how)
{
	g->move = how;
	guest_set(g, G_RUNNING, how == MOVE_ABORTED ? "move aborted" : "move failed");
	ev_timer_rearm(g->timer, USEC_INFINITY);
	if (g->is_stopping)
		guest_after(g, 10 * USEC_PER_MSEC, USEC_PER_SEC);
}

static void src_ended(struct guest *g, enum move_result how)
{
	if (src_step(g, SRCEV_ENDED))
		guest_back(g, how);
}

void move_begin(struct guest *g, const char *migration_uid)
{
	mem_free(g->move_uid);
	g->move_uid = mem_strdup(migration_uid);
	g->move = MOVE_RUNNING;
	g->move_began = loop_now(machine_sim(g->machine)->loop);
	g->outruns = sim_chance(machine_sim(g->machine), 200);
	g->src = SRC_IDLE;
	src_step(g, SRCEV_BEGIN);
	guest_set(g, G_MOVING, "move");
	send_msg(machine_sim(g->machine), MSG_KEY, migration_uid);
	ev_timer_rearm(g->timer, KEY_TIMEOUT);
}

void move_cancel(struct guest *g)
{
	if (g->state != G_MOVING && g->state != G_STANDS)
		return;
	if (!src_step(g, SRCEV_CANCEL))
		return; /* not now: what QEMU reports next counts */
	if (g->src == SRC_FAILED)
		guest_back(g, MOVE_ABORTED);
	else
		guest_after(g, 100, 20 * USEC_PER_MSEC);
}

void move_finish(struct guest *g)
{
	if (!g->outruns)
		return;
	sim_trace(machine_sim(g->machine), "%s: %s is to stand, so that its move ends",
		  machine_name(g->machine), g->pod_name);
	g->outruns = false;
	if (g->src == SRC_MOVING)
		guest_after(g, 100, 100 * USEC_PER_MSEC);
}

static void release(struct guest *g)
{
	struct sim *s = machine_sim(g->machine);

	if (!src_step(g, SRCEV_RELEASED))
		return;
	checker_moved(s->checker, g->move_uid, g->vmi_uid);
	g->move = MOVE_DONE;
	guest_set(g, G_RELEASED, "released");
	guest_after(g, 0, 1000);
}

static bool target_listens(struct guest *g)
{
	struct sim *s = machine_sim(g->machine);
	struct guest *t = side_of(s, g->move_uid, false);

	return t && t->state == G_INCOMING && t->dst == DST_KEYED && !machine_is_down(t->machine);
}

/* QEMU's next step, or a wait that is over. */
void move_timer(struct guest *g)
{
	struct sim *s = machine_sim(g->machine);
	bool breaks = sim_chance(s, s->faults.fail_move / 4);

	switch ((enum src_state)g->src) {
	case SRC_PREPARING: /* no key came */
		src_ended(g, MOVE_FAILED);
		break;
	case SRC_STARTING:
		if (breaks || !target_listens(g)) {
			src_ended(g, MOVE_FAILED);
			break;
		}
		src_step(g, SRCEV_ACCEPTED);
		guest_set(g, G_MOVING,
			  "accepted"); /* a cancel that came before is looked at again */
		guest_after(g, 20 * USEC_PER_MSEC, 3 * USEC_PER_SEC);
		break;
	case SRC_MOVING:
		if (breaks || !target_listens(g)) {
			src_ended(g, MOVE_FAILED);
			break;
		}
		if (g->outruns) {
			guest_after(g, USEC_PER_SEC, 5 * USEC_PER_SEC);
			break;
		}
		src_step(g, SRCEV_STANDS);
		guest_set(g, G_STANDS, "pre-switchover");
		guest_after(g, USEC_PER_MSEC, 30 * USEC_PER_MSEC);
		break;
	case SRC_SWITCHING:
		if (breaks || !target_listens(g))
			src_ended(g, MOVE_FAILED);
		else
			release(g);
		break;
	case SRC_CANCELLING: /* the cancel and the completion race */
		if (g->state == G_STANDS && sim_chance(s, 300) && target_listens(g))
			release(g);
		else
			src_ended(g, MOVE_ABORTED);
		break;
	case SRC_RELEASED:
		if (has_agent(g) && !machine_is_down(g->machine))
			send_msg(s, MSG_PERMISSION, g->move_uid);
		ev_timer_rearm(g->timer, PERMISSION_AGAIN);
		break;
	default:
		break;
	}
}

/* Messages */

static void at_target(struct sim *s, struct msg *m, struct guest *t)
{
	if (!t || t->state == G_ENDED) {
		if (m->kind == MSG_PERMISSION)
			send_msg(s, MSG_REFUSED, m->migration_uid);
		return;
	}
	if (m->kind == MSG_KEY) {
		if (dst_step(t, DSTEV_KEY))
			send_msg(s, MSG_KEY_ANSWER, m->migration_uid);
		return;
	}
	if (t->dst == DST_RUNNING || t->dst == DST_DONE) {
		send_msg(s, MSG_TAKEN, m->migration_uid); /* asked again */
		return;
	}
	if (!dst_step(t, DSTEV_PERMISSION)) {
		send_msg(s, MSG_REFUSED, m->migration_uid);
		return;
	}
	dst_step(t, DSTEV_RESUMED);
	t->is_target = false;
	t->took_over = true;
	guest_set(t, G_RUNNING, "permission");
	send_msg(s, MSG_TAKEN, m->migration_uid);
}

static void at_source(struct sim *s, struct msg *m, struct guest *g)
{
	if (!g)
		return;
	if (m->kind == MSG_KEY_ANSWER) {
		if (g->src == SRC_PREPARING && src_step(g, SRCEV_READY))
			guest_after(g, USEC_PER_MSEC, 20 * USEC_PER_MSEC);
		return;
	}
	if (g->src != SRC_RELEASED)
		return;
	if (m->kind == MSG_REFUSED && src_step(g, SRCEV_REFUSED)) {
		checker_guest_lost(s->checker, g, "target lost after the release");
		guest_end(g, 0, "MovedAway");
	} else if (m->kind == MSG_TAKEN && src_step(g, SRCEV_TAKEN)) {
		guest_end(g, 0, "MovedAway");
	}
}

static void on_msg(void *arg)
{
	struct msg *m = arg;
	struct sim *s = m->sim;
	bool to_target = m->kind == MSG_KEY || m->kind == MSG_PERMISSION;
	struct guest *g = side_of(s, m->migration_uid, !to_target);

	/* Nobody at home: the message is lost.  A target that nothing knows is asked at its machine,
	 * which answers that it has none. */
	if (!g || (has_agent(g) && !machine_is_down(g->machine))) {
		if (to_target)
			at_target(s, m, g);
		else
			at_source(s, m, g);
	}
	msg_free(m);
}

void move_listen(struct guest *g)
{
	if (g->dst != DST_IDLE)
		return;
	dst_step(g, DSTEV_BEGIN);
	dst_step(g, DSTEV_LISTENS);
}

void move_written(struct guest *g)
{
	dst_step(g, DSTEV_WRITTEN);
}
