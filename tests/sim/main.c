#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "sim/sim.h"

/* sim - runs the simulation: many seeds, one seed with its trace, or one fault at every place. */

enum { DEFAULT_SEEDS = 200, MOST_BACK = 16 };

struct args {
	uint64_t seed;
	uint64_t seeds;
	uint64_t first;
	bool has_seed;
	bool each; /* a crash after each write, a break at each event */
	struct sim_opts opts;
};

static int usage(const char *wrong)
{
	FILE *to = wrong ? stderr : stdout;

	if (wrong)
		fprintf(to, "sim: %s\n", wrong);
	fprintf(to,
		"Usage: sim [--seeds N] [--first N] [--seed N [--trace] [--crash-at-write N] "
		"[--cut-at-event N]]\n"
		"           [--each] [--no-faults] [--fencing | --lying-fence]\n"
		"           [--storage-lock | --lying-lock] [--seconds N]\n\n"
		"A whole cluster in one process on virtual time, with faults drawn from a seed.\n"
		"  --seeds N           run N seeds (default %d)\n"
		"  --first N           the first of them (default 1)\n"
		"  --seed N            run this one\n"
		"  --trace             print what happens\n"
		"  --crash-at-write N  the controllers crash after their Nth write\n"
		"  --cut-at-event N    the controllers' watch breaks at its Nth event, which is "
		"lost\n"
		"  --travel-at N --travel-to M  they crash after write N, and find the state after "
		"write M\n"
		"  --each              one seed without other faults: crash after each write, break "
		"at each\n"
		"                      event, find each older state; one run each\n"
		"  --no-faults         fair weather\n"
		"  --fencing           nodes are lost for long, and a fence agent switches them off\n"
		"  --lying-fence       the same, but it does not: the run must fail\n"
		"  --storage-lock      nodes are lost for long, and the locks of disks tell of their VMs\n"
		"  --lying-lock        the same, but they are given away: the run must fail\n"
		"  --seconds N         how long people and faults are at work (default 60)\n",
		DEFAULT_SEEDS);
	return wrong ? 2 : 0;
}

static bool number(char **argv, int *i, const char *name, uint64_t *out)
{
	struct err err = {0};

	if (strcmp(argv[*i], name) != 0 || !argv[*i + 1])
		return false;
	if (str_to_u64(argv[++*i], UINT64_MAX, out, &err)) {
		fprintf(stderr, "sim: %s: %s\n", name, err.msg);
		exit(2);
	}
	return true;
}

static void tell_failure(const struct sim_opts *o, const struct sim_result *r)
{
	printf("FAILED seed %llu: %s\n", (unsigned long long)o->seed, r->why);
	printf("  again: sim --seed %llu --trace", (unsigned long long)o->seed);
	if (o->no_faults)
		printf(" --no-faults");
	if (o->fencing)
		printf(o->lying_lock	 ? " --lying-lock"
		       : o->storage_lock ? " --storage-lock"
		       : o->lying_fence	 ? " --lying-fence"
					 : " --fencing");
	if (o->crash_at_write)
		printf(" --crash-at-write %llu", (unsigned long long)o->crash_at_write);
	if (o->cut_at_event)
		printf(" --cut-at-event %llu", (unsigned long long)o->cut_at_event);
	if (o->travel_at)
		printf(" --travel-at %llu --travel-to %llu", (unsigned long long)o->travel_at,
		       (unsigned long long)o->travel_to);
	if (o->fault_time)
		printf(" --seconds %llu", (unsigned long long)(o->fault_time / USEC_PER_SEC));
	putchar('\n');
}

static int run_one(const struct sim_opts *o, struct sim_result *r)
{
	size_t before = mem_live_blocks();

	if (!sim_run(o, r)) {
		tell_failure(o, r);
		return 1;
	}
	if (mem_live_blocks() != before) {
		snprintf(r->why, sizeof(r->why), "%zu blocks of memory leaked",
			 mem_live_blocks() - before);
		tell_failure(o, r);
		return 1;
	}
	return 0;
}

static int run_seeds(const struct args *a)
{
	struct sim_result sum = {0};
	uint64_t failed = 0;

	for (uint64_t i = 0; i < a->seeds; i++) {
		struct sim_opts o = a->opts;
		struct sim_result r;

		o.seed = a->first + i;
		failed += (uint64_t)run_one(&o, &r);
		sum.writes += r.writes;
		sum.time += r.time;
		sum.starts += r.starts;
		sum.moved += r.moved;
		sum.not_moved += r.not_moved;
		sum.crashes += r.crashes;
		sum.fenced += r.fenced;
		sum.taken += r.taken;
		fflush(stdout);
	}
	printf("%llu seeds, %llu failed; %llu h of cluster time, %llu starts, %llu moves and %llu "
	       "refused or "
	       "failed ones, %llu crashes, %llu nodes fenced, %llu locks taken, %llu writes of "
	       "controllers\n",
	       (unsigned long long)a->seeds, (unsigned long long)failed,
	       (unsigned long long)(sum.time / USEC_PER_SEC / 3600), (unsigned long long)sum.starts,
	       (unsigned long long)sum.moved, (unsigned long long)sum.not_moved,
	       (unsigned long long)sum.crashes, (unsigned long long)sum.fenced,
	       (unsigned long long)sum.taken, (unsigned long long)sum.writes);
	return failed ? 1 : 0;
}

static int run_each(const struct args *a)
{
	struct sim_opts o = a->opts;
	struct sim_result base, r;
	uint64_t failed = 0, travels = 0;

	o.seed = a->seed;
	o.no_faults = true;
	if (!o.fault_time)
		o.fault_time = 20 * USEC_PER_SEC;
	if (run_one(&o, &base))
		return 1;
	for (uint64_t i = 1; i <= base.writes; i++) {
		o.crash_at_write = i;
		failed += (uint64_t)run_one(&o, &r);
	}
	o.crash_at_write = 0;
	for (uint64_t i = 1; i <= base.events; i++) {
		o.cut_at_event = i;
		failed += (uint64_t)run_one(&o, &r);
	}
	o.cut_at_event = 0;
	for (o.travel_at = 2; o.travel_at <= base.writes; o.travel_at++)
		for (uint64_t back = 1; back < o.travel_at && back <= MOST_BACK; back *= 2) {
			o.travel_to = o.travel_at - back;
			travels++;
			failed += (uint64_t)run_one(&o, &r);
		}
	printf("seed %llu: a crash after each of %llu writes, a break at each of %llu events, %llu "
	       "crashes that found an older state: %llu failed\n",
	       (unsigned long long)a->seed, (unsigned long long)base.writes,
	       (unsigned long long)base.events, (unsigned long long)travels,
	       (unsigned long long)failed);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct args a = {.seeds = DEFAULT_SEEDS, .first = 1, .seed = 1};
	struct sim_result r;
	uint64_t seconds = 0;

	js_use_mem();
	log_setup("sim", LOG_LVL_ERROR, false);
	for (int i = 1; i < argc; i++) {
		if (number(argv, &i, "--seeds", &a.seeds) ||
		    number(argv, &i, "--first", &a.first) ||
		    number(argv, &i, "--seconds", &seconds) ||
		    number(argv, &i, "--crash-at-write", &a.opts.crash_at_write) ||
		    number(argv, &i, "--cut-at-event", &a.opts.cut_at_event) ||
		    number(argv, &i, "--travel-at", &a.opts.travel_at) ||
		    number(argv, &i, "--travel-to", &a.opts.travel_to))
			continue;
		if (number(argv, &i, "--seed", &a.seed))
			a.has_seed = true;
		else if (str_eq(argv[i], "--trace"))
			a.opts.trace = true;
		else if (str_eq(argv[i], "--each"))
			a.each = true;
		else if (str_eq(argv[i], "--fencing"))
			a.opts.fencing = true;
		else if (str_eq(argv[i], "--lying-fence"))
			a.opts.fencing = a.opts.lying_fence = true;
		else if (str_eq(argv[i], "--storage-lock"))
			a.opts.fencing = a.opts.storage_lock = true;
		else if (str_eq(argv[i], "--lying-lock"))
			a.opts.fencing = a.opts.storage_lock = a.opts.lying_lock = true;
		else if (str_eq(argv[i], "--no-faults"))
			a.opts.no_faults = true;
		else if (str_eq(argv[i], "--help"))
			return usage(NULL);
		else
			return usage(argv[i]);
	}
	a.opts.fault_time = seconds * USEC_PER_SEC;
	if (a.each)
		return run_each(&a);
	if (!a.has_seed)
		return run_seeds(&a);
	a.opts.seed = a.seed;
	if (run_one(&a.opts, &r))
		return 1;
	printf("seed %llu: fine; %llu writes of controllers, %llu events, %llu s of cluster time\n",
	       (unsigned long long)a.seed, (unsigned long long)r.writes,
	       (unsigned long long)r.events, (unsigned long long)(r.time / USEC_PER_SEC));
	return 0;
}
