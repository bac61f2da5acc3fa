#include "sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv.h"
#include "cluster/apiserver/store.h"
#include "cluster/controllers/controllers.h"
#include "cluster/scheduler/scheduler.h"
#include "ctl/ctl.h"
#include "ctl/exec.h"
#include "ev/ev.h"
#include "kube/kube.h"
#include "virt/admission/admission.h"
#include "virt/controller/evacuation/evacuation.h"
#include "virt/controller/fence/fence.h"
#include "virt/controller/fence/fencer.h"
#include "virt/controller/fence/witness.h"
#include "virt/controller/migration/migration.h"
#include "virt/controller/vm/vm.h"
#include "virt/controller/vmi/alloc.h"
#include "virt/controller/vmi/vmi.h"
#include "virt/subresources/subresources.h"

enum { MAX_DEFS = 96 };

static const usec_t DEFAULT_FAULT_TIME = 60 * USEC_PER_SEC;
static const usec_t TRAVEL_TIME = 3 * USEC_PER_SEC; /* of an older state */
static const usec_t QUIET = 45 * USEC_PER_SEC;	    /* nothing happened for so long: it is over */
static const usec_t LIMIT = 60 * 60 * USEC_PER_SEC; /* after the fault window: liveness */

/* Small things */

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->result->ok)
		return;
	s->result->ok = false;
	va_start(ap, fmt);
	vsnprintf(s->result->why, sizeof(s->result->why), fmt, ap);
	va_end(ap);
	sim_trace(s, "FAILED: %s", s->result->why);
}

void sim_trace(struct sim *s, const char *fmt, ...)
{
	usec_t now = s->loop ? loop_now(s->loop) : 0;
	va_list ap;

	if (!s->opts.trace)
		return;
	printf("%5llu.%06llu ", (unsigned long long)(now / USEC_PER_SEC),
	       (unsigned long long)(now % USEC_PER_SEC));
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

/* splitmix64 */
uint64_t sim_rand(struct sim *s)
{
	uint64_t z = s->rand += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

bool sim_chance(struct sim *s, unsigned per_mille)
{
	return per_mille && sim_rand(s) % 1000 < per_mille;
}

usec_t sim_between(struct sim *s, usec_t low, usec_t high)
{
	return high <= low ? low : low + sim_rand(s) % (high - low + 1);
}

bool sim_is_calm(const struct sim *s)
{
	return loop_now(s->loop) >= s->chaos_end;
}

/* The controller process */

static size_t all_defs(const struct ctl_def **defs)
{
	static const struct ctl_def *const fixed[] = {
		&vm_ctl_def,	       &vmi_ctl_def,	    &alloc_ctl_def,
		&mig_ctl_def,	       &scheduler_ctl_def,  &endpoints_ctl_def,
		&claim_ctl_def,	       &volume_ctl_def,	    &nodelifecycle_ctl_def,
		&installation_ctl_def, &evacuation_ctl_def, &disruption_ctl_def,
		&fence_ctl_def,	       &witness_ctl_def,    &account_ctl_def,
	};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		defs[n++] = fixed[i];
	for (const struct ctl_def *const *d = gc_ctl_defs; *d && n < MAX_DEFS; d++)
		defs[n++] = *d;
	return n;
}

static void on_plan(const struct ctl_def *def, const char *ns, const char *name,
		    const struct plan *plan, void *arg)
{
	struct sim *s = arg;
	CLEANUP(sbuf_fini)
	struct sbuf b = SBUF_INIT(1 << 20);

	if (!s->opts.trace || plan_is_empty(plan))
		return;
	plan_print(plan, &b);
	sim_trace(s, "%s %s/%s plans:\n%s", def->name, ns, name, sbuf_str(&b));
}

static void on_failure(const struct ctl_def *def, const char *ns, const char *name,
		       const struct err *err, unsigned in_a_row, void *arg)
{
	struct sim *s = arg;

	sim_trace(s, "%s %s/%s failed (%u): %s", def->name, ns, name, in_a_row, err->msg);
	/* What the server says about a plan's content is a bug of the reconciler, not of the network.
	 * One refusal is fair: the answer to a create got lost, and the second KubeVirt object is denied
	 * in words of its own.  It shows up in the cache a moment later. */
	if (def == &installation_ctl_def && strstr(err->msg, "already created"))
		return;
	/* A VMI may end, or begin to move, between the view and the create: KubeVirt's admission says 400 to
	 * that.  It may not go on like this. */
	if (def == &evacuation_ctl_def && in_a_row < 8)
		return;
	if (err->rc == RC_INVALID || err->rc == RC_BAD_REQUEST || err->rc == RC_FORBIDDEN)
		sim_fail(s, "controller %s, key %s/%s: %s", def->name, ns, name, err->msg);
}

static void on_ctl_write(struct sim *s)
{
	s->result->writes++;
	if (s->opts.travel_at && s->result->writes == s->opts.travel_to)
		s->old_rev = store_rev(s->store);
	if (s->opts.travel_at && s->result->writes == s->opts.travel_at) {
		s->old_until = USEC_INFINITY; /* from the restart on, TRAVEL_TIME */
		sim_crash_controller(s, "and finds an older state");
	}
	if (s->opts.crash_at_write && s->result->writes == s->opts.crash_at_write)
		sim_crash_controller(s, "after this write");
}

static enum rc ctl_start_process(struct sim *s)
{
	const struct ctl_def *defs[MAX_DEFS];
	size_t n = all_defs(defs);
	struct kcache_opts co = {.seed = sim_rand(s) | 1};
	struct ctl_opts opts = {.component = "virt-controller",
				.seed = sim_rand(s) | 1,
				.on_plan = on_plan,
				.on_failure = on_failure,
				.arg = s};
	struct err err = {0};
	enum rc rc;

	s->ctl_client = net_client_new(s->net, "system:ferry-controller",
				       "system:ferry:controllers", NET_FAULTY);
	net_client_on_write(s->ctl_client, on_ctl_write);
	rc = kube_new_over(&s->ctl_kube, s->loop, &net_transport, s->ctl_client, &err);
	if (!rc)
		rc = kcache_new(&s->ctl_cache, s->loop, s->ctl_kube, &co, &err);
	if (!rc)
		rc = ctl_new(&s->ctl, s->loop, s->ctl_kube, s->ctl_cache, defs, n, &opts, &err);
	if (!rc)
		rc = ctl_start(s->ctl, &err);
	if (!rc)
		rc = fencer_new(&s->fencer, s->loop, s->ctl_kube, s->ctl_cache, &sim_fence_ops, s,
				&err);
	if (!rc) /* as ferry-controller does */
		rc = ctl_wake(s->ctl, installation_ctl_def.name, INSTALLATION_NS, INSTALLATION_NAME,
			      &err);
	if (rc)
		sim_fail(s, "cannot start the controllers: %s", err.msg);
	return rc;
}

static void ctl_stop_process(struct sim *s)
{
	s->fencer = fencer_free(s->fencer);
	s->ctl = ctl_free(s->ctl);
	s->ctl_cache = kcache_free(s->ctl_cache);
	s->ctl_client = NULL;
	s->ctl_kube = kube_free(s->ctl_kube);
}

static void on_ctl_restart(void *arg)
{
	struct sim *s = arg;

	sim_trace(s, "controllers start");
	if (s->old_until == USEC_INFINITY)
		s->old_until = loop_now(s->loop) + TRAVEL_TIME;
	ignore_rc(ctl_start_process(s)); /* a failure was noted */
}

static void on_crash(void *arg)
{
	struct sim *s = arg;

	s->crash_pending = false;
	if (!s->ctl)
		return;
	s->result->crashes++;
	ctl_stop_process(s);
	ev_timer_rearm(s->ctl_restart, sim_between(s, 50 * USEC_PER_MSEC, 4 * USEC_PER_SEC));
}

void sim_crash_controller(struct sim *s, const char *why)
{
	if (s->crash_pending || !s->ctl)
		return;
	sim_trace(s, "controllers crash (%s)", why);
	s->crash_pending = true;
	ev_timer_rearm(s->crash, 0);
}

/* Chaos */

static void on_chaos(void *arg)
{
	struct sim *s = arg;

	if (sim_is_calm(s)) {
		sim_trace(s, "---- calm ----");
		s->faults = (struct faults){0};
		user_settle(s->user);
		return;
	}
	if (sim_chance(s, s->faults.crash_controller))
		sim_crash_controller(s, "fault");
	for (unsigned i = 0; i < SIM_NODES; i++)
		if (sim_chance(s, s->faults.crash_agent))
			agent_crash(s->agents[i], 0);
	for (unsigned i = 0; i < SIM_NODES; i++)
		if (sim_chance(s, s->faults.lose_agent))
			agent_crash(s->agents[i], sim_between(s, 30, 1800) * USEC_PER_SEC);
	for (unsigned i = 0; i < SIM_NODES; i++)
		if (sim_chance(s, s->faults.reboot))
			machine_reboot(s->machines[i],
				       sim_between(s, USEC_PER_SEC, 90 * USEC_PER_SEC));
	for (unsigned i = 0; i < SIM_NODES; i++)
		if (sim_chance(s, s->faults.lose_machine))
			machine_reboot(s->machines[i], sim_between(s, 20, 1200) * USEC_PER_SEC);
	if (sim_chance(s, s->faults.restart_server))
		net_restart_server(s->net, sim_between(s, 0, 3 * USEC_PER_SEC));
	ev_timer_rearm(s->chaos, USEC_PER_SEC);
}

/* Each seed has its own weather. */
static void draw_faults(struct sim *s)
{
	struct faults *f = &s->faults;
	unsigned strength = (unsigned)(sim_rand(s) % 4); /* 0: fair weather */

	if (s->opts.fencing || sim_chance(s, 300))
		s->silence = (unsigned)sim_between(s, 12, 40);
	if (s->opts.no_faults || !strength)
		return;
	f->lose_request = (unsigned)(sim_rand(s) % (20 * strength));
	f->lose_answer = (unsigned)(sim_rand(s) % (20 * strength));
	f->duplicate = (unsigned)(sim_rand(s) % (10 * strength));
	f->slow = (unsigned)(sim_rand(s) % (50 * strength));
	f->slow_max = sim_between(s, 10 * USEC_PER_MSEC, 2 * USEC_PER_SEC);
	f->stale_list = sim_chance(s, 500) ? 300 : 0;
	f->stale_max = 2 * USEC_PER_SEC;
	f->cut_watch = (unsigned)(sim_rand(s) % (10 * strength));
	f->crash_controller = sim_chance(s, 500) ? 20 * strength : 0;
	f->crash_agent = sim_chance(s, 500) ? 10 * strength : 0;
	f->restart_server = sim_chance(s, 300) ? 10 * strength : 0;
	f->lose_agent = sim_chance(s, 250) ? 5 * strength : 0;
	f->reboot = sim_chance(s, 250) ? 4 * strength : 0;
	if (s->opts.fencing) { /* half of them with guests that run on, unseen */
		f->lose_agent = 3 * strength;
		f->lose_machine = sim_chance(s, 500) ? 3 * strength : 0;
	}
	if (s->opts.lying_fence || s->opts.lying_lock)
		f->lose_machine = f->reboot = 0;
	f->fail_move = sim_chance(s, 300) ? 150 * strength : 0;
}

/* The run */

static enum rc build(struct sim *s)
{
	struct store_opts so = {0};
	struct apisrv_hooks hooks = {.n_admission = n_virt_admission,
				     .admission = virt_admission,
				     .n_subres = n_virt_subres,
				     .subres = virt_subres};
	struct apisrv_config ac = {.hooks = &hooks};
	struct err err = {0};
	enum rc rc = loop_new(&s->loop, LOOP_VIRTUAL, &err);

	if (!rc)
		rc = store_open(&s->store, s->loop, &so, &err);
	ac.store = s->store;
	if (!rc)
		rc = virt_subres_new(&s->subres, s->loop, NULL, NULL, NULL, &err);
	hooks.arg = s->subres;
	if (!rc)
		rc = apisrv_new(&s->api, s->loop, &ac, &err);
	if (!rc)
		rc = net_new(&s->net, s);
	for (unsigned i = 0; !rc && i < SIM_NODES; i++)
		rc = machine_new(&s->machines[i], s, i);
	if (!rc)
		rc = checker_new(&s->checker, s);
	for (unsigned i = 0; !rc && i < SIM_NODES; i++)
		rc = agent_new(&s->agents[i], s, s->machines[i]);
	if (!rc)
		rc = user_new(&s->user, s);
	if (!rc)
		rc = ev_timer_after(s->loop, &s->ctl_restart, 0, on_ctl_restart, s, &err);
	if (!rc)
		rc = ev_timer_after(s->loop, &s->crash, USEC_INFINITY, on_crash, s, &err);
	if (!rc)
		rc = ev_timer_after(s->loop, &s->chaos, USEC_PER_SEC, on_chaos, s, &err);
	if (rc)
		sim_fail(s, "cannot build the cluster: %s %s", rc_name(rc), err.msg);
	return rc;
}

static void tear_down(struct sim *s)
{
	ctl_stop_process(s);
	ev_src_free(s->ctl_restart);
	ev_src_free(s->crash);
	ev_src_free(s->chaos);
	user_free(s->user);
	for (unsigned i = 0; i < SIM_NODES; i++)
		agent_free(s->agents[i]);
	s->checker = checker_free(s->checker);
	for (unsigned i = 0; i < SIM_NODES; i++)
		machine_free(s->machines[i]);
	moves_free(s);
	bolts_free(s);
	net_free(s->net);
	apisrv_free(s->api);
	virt_subres_free(s->subres);
	store_close(s->store);
	loop_free(s->loop);
}

static bool all_up(const struct sim *s)
{
	for (unsigned i = 0; i < SIM_NODES; i++)
		if (!agent_is_up(s->agents[i]))
			return false;
	return s->ctl != NULL;
}

static bool is_over(const struct sim *s)
{
	return sim_is_calm(s) && all_up(s) && user_is_idle(s->user) &&
	       !checker_has_open_move(s->checker) && loop_now(s->loop) > s->chaos_end + QUIET &&
	       loop_now(s->loop) > checker_last_change(s->checker) + QUIET;
}

bool sim_run(const struct sim_opts *opts, struct sim_result *result)
{
	struct sim sim = {
		.opts = *opts, .rand = opts->seed * 0x2545f4914f6cdd1dull + 1, .result = result};
	struct sim *s = &sim;
	bool did = true;

	*result = (struct sim_result){.ok = true};
	rand_fix(opts->seed * 0x9e3779b97f4a7c15ull | 1);
	list_init(&s->msgs);
	list_init(&s->bolts);
	draw_faults(s);
	s->chaos_end = opts->fault_time ? opts->fault_time : DEFAULT_FAULT_TIME;
	if (opts->fencing && !opts->fault_time)
		s->chaos_end = 5 * DEFAULT_FAULT_TIME;
	if (!build(s)) {
		while (result->ok && did && !is_over(s)) {
			if (loop_step(s->loop, USEC_INFINITY, &did, NULL))
				sim_fail(s, "the loop failed");
			result->steps++;
			if (loop_now(s->loop) > s->chaos_end + LIMIT)
				sim_fail(s,
					 "it does not come to rest: the last change was %llu s ago",
					 (unsigned long long)((loop_now(s->loop) -
							       checker_last_change(s->checker)) /
							      USEC_PER_SEC));
		}
		if (result->ok)
			checker_final(s->checker);
		result->time = loop_now(s->loop);
	}
	tear_down(s);
	rand_fix(0);
	return result->ok;
}
