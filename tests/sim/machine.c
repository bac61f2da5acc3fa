#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "sim/sim.h"

/* Theory of operation
 *
 * A machine holds guests; they live on when the node's agent crashes.  A guest is one launcher pod with
 * (later) one QEMU.  Moves are in move.c.  The checker looks after each change.
 */

struct machine {
	struct sim *sim;
	char name[16];
	struct list guests;
	struct agent *agent; /* NULL: down */
	usec_t up_at;	     /* loop time */
	usec_t rebooted;     /* 0: never */
};

static const char *const names[G__MAX] = {
	"pod-starting", "pod-running", "booting",  "running", "incoming",
	"moving",	"standing",    "released", "ended",
};

const char *guest_state_name(enum guest_state s)
{
	return names[s];
}

enum rc machine_new(struct machine **out, struct sim *s, unsigned index)
{
	struct machine *m = mem_alloc(sizeof(*m));

	if (!m)
		return RC_NOMEM;
	m->sim = s;
	snprintf(m->name, sizeof(m->name), "node-%u", index + 1);
	list_init(&m->guests);
	*out = m;
	return RC_OK;
}

struct machine *machine_free(struct machine *m)
{
	if (!m)
		return NULL;
	while (!list_is_empty(&m->guests))
		guest_free(LIST_ENTRY(m->guests.next, struct guest, link));
	return mem_free(m);
}

const char *machine_name(const struct machine *m)
{
	return m->name;
}

struct list *machine_guests(struct machine *m)
{
	return &m->guests;
}

bool machine_is_down(const struct machine *m)
{
	return loop_now(m->sim->loop) < m->up_at;
}

bool machine_has_agent(const struct machine *m)
{
	return m->agent != NULL;
}

struct sim *machine_sim(const struct machine *m)
{
	return m->sim;
}

usec_t machine_last_reboot(const struct sim *s)
{
	usec_t last = 0;

	for (unsigned i = 0; i < SIM_NODES; i++)
		last = MAX(last, s->machines[i]->rebooted);
	return last;
}

void machine_reboot(struct machine *m, usec_t down)
{
	sim_trace(m->sim, "%s: power fails for %llu ms", m->name, (unsigned long long)down / 1000);
	m->rebooted = loop_now(m->sim->loop);
	m->up_at = MAX(m->up_at, m->rebooted + down);
	for (unsigned i = 0; i < SIM_NODES; i++)
		if (m->sim->machines[i] == m)
			agent_crash(m->sim->agents[i], down);
	LIST_FOREACH_SAFE(l, tmp, &m->guests) {
		struct guest *g = LIST_ENTRY(l, struct guest, link);

		if (g->state != G_RELEASED)
			guest_free(g);
	}
	checker_guests(m->sim->checker);
}

void machine_set_agent(struct machine *m, struct agent *a)
{
	m->agent = a;
}

static void on_timer(void *arg);

struct guest *guest_new(struct machine *m, const char *ns, const char *pod, const char *pod_uid)
{
	struct guest *g = mem_alloc(sizeof(*g));

	if (!g || ev_timer_after(m->sim->loop, &g->timer, USEC_INFINITY, on_timer, g, NULL)) {
		mem_free(g);
		return NULL;
	}
	g->machine = m;
	g->ns = mem_strdup(ns);
	g->pod_name = mem_strdup(pod);
	g->pod_uid = mem_strdup(pod_uid);
	g->seen_at = loop_realtime(m->sim->loop);
	list_push_tail(&m->guests, &g->link);
	return g;
}

void guest_free(struct guest *g)
{
	if (!g)
		return;
	list_remove(&g->link);
	ev_src_free(g->timer);
	mem_free(g->pod_uid);
	mem_free(g->ns);
	mem_free(g->pod_name);
	mem_free(g->vmi_uid);
	mem_free(g->vmi_name);
	mem_free(g->migration_uid);
	mem_free(g->move_uid);
	mem_free(g);
}

struct guest *guest_find(struct machine *m, const char *pod_uid)
{
	LIST_FOREACH(l, &m->guests) {
		struct guest *g = LIST_ENTRY(l, struct guest, link);

		if (str_eq(g->pod_uid, pod_uid))
			return g;
	}
	return NULL;
}

bool guest_executes(const struct guest *g)
{
	return g->state == G_RUNNING || g->state == G_MOVING;
}

void guest_set(struct guest *g, enum guest_state to, const char *why)
{
	struct sim *s = g->machine->sim;

	sim_trace(s, "%s: guest of pod %s: %s -> %s (%s)", g->machine->name, g->pod_name,
		  names[g->state], names[to], why);
	g->state = to;
	checker_guests(s->checker);
	if (g->machine->agent)
		agent_wake(g->machine->agent, g->ns, g->pod_name);
}

void guest_found_dead(struct guest *g)
{
	g->exit_code = 137;
	g->reason = "NodeReboot";
	guest_set(g, G_ENDED, "the machine was down");
}

void guest_after(struct guest *g, usec_t low, usec_t high)
{
	ev_timer_rearm(g->timer, sim_between(g->machine->sim, low, high));
}

void guest_start_pod(struct guest *g)
{
	guest_after(g, 5 * USEC_PER_MSEC, 300 * USEC_PER_MSEC);
}

void guest_boot(struct guest *g)
{
	guest_set(g, G_BOOTING, "boot");
	guest_after(g, 20 * USEC_PER_MSEC, 400 * USEC_PER_MSEC);
}

static void ended(struct guest *g, int code, const char *reason)
{
	struct sim *s = g->machine->sim;
	bool was = guest_executes(g) || g->state == G_STANDS;

	if (g->state == G_ENDED)
		return;
	ev_timer_rearm(g->timer, USEC_INFINITY);
	g->exit_code = code;
	g->reason = reason;
	if (was)
		checker_guest_lost(s->checker, g, reason);
	g->moved_away = g->state == G_RELEASED;
	guest_set(g, G_ENDED, reason);
}

void guest_end(struct guest *g, int code, const char *reason)
{
	ended(g, code, reason);
}

void guest_stop(struct guest *g, usec_t grace)
{
	usec_t deadline = loop_now(g->machine->sim->loop) + grace;

	if (g->state == G_ENDED || (g->is_stopping && deadline >= g->deadline))
		return;
	g->is_stopping = true;
	g->deadline = deadline;
	if (g->state == G_MOVING || g->state == G_STANDS || g->state == G_RELEASED)
		return; /* when the move is over */
	/* Guests shut down within their grace or are killed at its end. */
	guest_after(g, 10 * USEC_PER_MSEC, MAX(grace, 20 * USEC_PER_MSEC));
}

void guest_kill(struct guest *g)
{
	ended(g, 137, "Killed");
}

enum move_result guest_move_result(const struct guest *g, const char *migration_uid)
{
	return str_eq(g->move_uid, migration_uid) ? g->move : MOVE_NONE;
}

static void on_timer(void *arg)
{
	struct guest *g = arg;

	switch (g->state) {
	case G_POD_STARTING:
		if (g->is_stopping) {
			ended(g, 137, "Killed");
			break;
		}
		g->started_at = loop_realtime(g->machine->sim->loop);
		guest_set(g, g->migration_uid ? G_INCOMING : G_POD_RUNNING, "pod started");
		break;
	case G_BOOTING:
		if (g->is_stopping) {
			ended(g, 137, "Killed");
		} else {
			g->machine->sim->result->starts++;
			guest_set(g, G_RUNNING, "booted");
		}
		break;
	case G_MOVING:
	case G_STANDS:
	case G_RELEASED:
		move_timer(g);
		break;
	case G_POD_RUNNING:
	case G_RUNNING:
	case G_INCOMING:
		if (g->is_stopping)
			ended(g, 0,
			      loop_now(g->machine->sim->loop) >= g->deadline ? "GraceExpired"
									     : "HostShutdown");
		break;
	case G_ENDED:
	case G__MAX:
		break;
	}
}
