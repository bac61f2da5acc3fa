#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "sim/sim.h"
#include "virt/controller/fence/fencer.h"

/* Theory of operation
 *
 * The fence agent of the simulation pulls a machine's plug after a while.  It may fail, with the plug pulled
 * or not; what it set off goes on when the controllers crash meanwhile.  Its word that the machine is off is
 * true, except when a run is to show that the checker notices (--lying-fence).
 */

struct fence_run {
	struct sim *sim;
	fence_done_fn done;
	void *arg;
	struct bolt *bolt;
};

/* What is under way at the plug. */
struct bolt {
	struct list link;
	struct sim *sim;
	struct ev_src *timer;
	unsigned machine;
	bool pulls, says_off;
	struct fence_run *run; /* NULL: whoever asked has gone */
};

static void bolt_free(struct bolt *b)
{
	list_remove(&b->link);
	ev_src_free(b->timer);
	mem_free(b);
}

static void on_bolt(void *arg)
{
	struct bolt *b = arg;
	struct sim *s = b->sim;
	struct fence_run *run = b->run;
	bool says_off = b->says_off;

	sim_trace(s, "fence agent: %s: %s, says %s", machine_name(s->machines[b->machine]),
		  b->pulls ? "plug pulled" : "nothing done", says_off ? "off" : "failed");
	if (b->pulls)
		machine_reboot(s->machines[b->machine],
			       sim_between(s, 5 * USEC_PER_SEC, 300 * USEC_PER_SEC));
	bolt_free(b);
	if (!run)
		return;
	run->bolt = NULL;
	s->result->fenced += says_off;
	run->done(says_off ? 0 : 1, says_off ? "" : "the plug cannot be reached", run->arg);
}

static enum rc start(void *ctx, const struct fence_job *job, fence_done_fn done, void *arg,
		     void **op, struct err *err)
{
	struct sim *s = ctx;
	struct fence_run *run = mem_alloc(sizeof(*run));
	struct bolt *b = mem_alloc(sizeof(*b));
	bool works = sim_is_calm(s) || !sim_chance(s, 300);

	*run = (struct fence_run){.sim = s, .done = done, .arg = arg, .bolt = b};
	b->sim = s;
	b->run = run;
	for (unsigned i = 0; i < SIM_NODES; i++)
		if (str_eq(machine_name(s->machines[i]), job->node))
			b->machine = i;
	b->pulls = !s->opts.lying_fence && (works || sim_chance(s, 500));
	b->says_off = works;
	list_push_tail(&s->bolts, &b->link);
	*op = run;
	return ev_timer_after(s->loop, &b->timer,
			      sim_between(s, 10 * USEC_PER_MSEC, 8 * USEC_PER_SEC), on_bolt, b,
			      err);
}

static void free_run(void *op)
{
	struct fence_run *run = op;

	if (run->bolt)
		run->bolt->run = NULL; /* the plug is pulled all the same */
	mem_free(run);
}

const struct fence_ops sim_fence_ops = {.start = start, .free = free_run};

void bolts_free(struct sim *s)
{
	while (s->bolts.next && !list_is_empty(&s->bolts))
		bolt_free(LIST_ENTRY(s->bolts.next, struct bolt, link));
}
