#include "virt/migration/forecast.h"

enum { PASSES_MAX = 50, RATE_WINDOW_MS = 500, MEASURE_MAX = 60 };

/* A guest that writes nearly as fast as the link carries does not converge in any useful time: each pass would
 * leave 95 % of the one before. */
static bool outruns(double leaves, double left)
{
	return leaves >= left * 0.95;
}

/* Figures of a peer could be anything. */
static int64_t in_ms(double seconds)
{
	double ms = seconds * 1000;

	return ms > 0 ? (int64_t)MIN(ms, 1e15) : 0;
}

static double left_of(const struct forecast_in *in)
{
	return (double)MAX(in->stats.remaining, 0);
}

/* Empty pages take no time.  In the first pass the rest of the memory is taken to have as many of them as what was looked
 * through so far; later there are hardly any. */
static double full(const struct forecast_in *in)
{
	const struct mig_stats *s = &in->stats;
	double empty = (double)MAX(s->zero_pages, 0), other = (double)MAX(s->normal_pages, 0);

	return s->passes <= 1 && other > 0 ? other / (other + empty) : 1;
}

static double mean(int64_t bytes, int64_t ms)
{
	return ms > 0 ? (double)bytes * 1000 / (double)ms : 0;
}

/* What the link carries: the mean of the whole move, without the first moment; or what it does now, if that is so much more
 * that the link must have changed.  QEMU's figure is of the last tenth of a second, and at the end of a short pass it is
 * far too low: it is no reason to call a guest faster than the link. */
static double link_rate(const struct forecast_in *in)
{
	const struct mig_stats *s = &in->stats;
	int64_t ms = s->elapsed_ms - MAX(s->setup_ms, 0), window = s->elapsed_ms - in->since_ms;
	double now = (double)s->rate, whole = mean(s->transferred, ms);

	if (in->since_ms <= 0 || window < RATE_WINDOW_MS)
		return MAX(now, whole);
	whole = mean(s->transferred - in->since_bytes, window);
	return now > whole * 1.25 ? now : MAX(whole, 0);
}

static double writes(const struct forecast_in *in, double seconds)
{
	const struct mig_stats *s = &in->stats;
	double bytes = in->written.n ? (double)written_in(&in->written, in_ms(seconds))
				     : (double)s->dirty_rate * seconds;

	return MAX(MIN(bytes, (double)s->total), 0);
}

static double fits(double rate, int64_t limit_ms)
{
	return rate * (double)MAX(limit_ms, 1) / 1000;
}

/* A state of the passes to come. */
struct pass {
	double left, before; /* bytes: to be sent in this pass, and in the one before */
	int64_t number, limit_ms;
};

/* What the launcher does at the end of a pass that leaves p->left; true: this one is the last. */
static bool is_last(const struct forecast_in *in, struct pass *p, double rate, bool *never)
{
	const struct mig_options *o = &in->options;
	int64_t left = (int64_t)MIN(p->left, 1e18), before = (int64_t)MIN(p->before, 1e18);
	bool diverges = p->left > fits(rate, o->downtime_limit_ms) &&
			outruns(writes(in, p->left / rate), p->left);

	if (mig_wants_post_copy(o, diverges, p->number, left, before))
		return true;
	*never = diverges && !o->post_copy;
	p->limit_ms = mig_next_downtime(o, p->limit_ms, p->number, left, before);
	return p->left <= fits(rate, p->limit_ms);
}

int64_t forecast_left(const struct forecast_in *in)
{
	double rate = link_rate(in), seconds = 0, since = (double)in->pass_ms / 1000;
	struct pass p = {.left = left_of(in) * full(in),
			 .number = in->stats.passes,
			 .limit_ms = in->limit_ms};
	bool is_done = since <= 0 && p.left <= fits(rate, p.limit_ms), never = false;
	/* what the first pass sends stands for what was left before it */
	double before = p.number < 2 ? (double)in->stats.transferred + p.left
				     : (double)MAX(in->pass_bytes, 0);

	if (rate <= 0)
		return -1;
	/* A pass that has begun is gone through, however little of it is left. */
	for (int i = 0; i < PASSES_MAX && !is_done && !never; i++) {
		double took = p.left / rate;

		seconds += took;
		p.before = before;
		p.left = before = writes(in, took + since);
		p.number++;
		since = 0;
		is_done = is_last(in, &p, rate, &never);
	}
	if (!is_done)
		return -1;
	return in_ms(seconds + p.left / rate) + MAX(in->options.fixed_pause_ms, 0);
}

int64_t forecast_post_copy(const struct forecast_in *in)
{
	double rate = link_rate(in);

	return rate > 0 ? in_ms(left_of(in) / rate) : -1;
}

struct forecast forecast_of(const struct forecast_in *in)
{
	const struct mig_stats *s = &in->stats;
	struct forecast f = {.pause_ms = -1, .left_ms = -1};
	double rate = link_rate(in), left = left_of(in);

	if (rate <= 0 || s->total <= 0)
		return f;
	f.pause_ms = in_ms(left / rate) + MAX(in->options.fixed_pause_ms, 0);
	if (s->passes >= 2 && left > fits(rate, in->options.downtime_limit_ms) &&
	    outruns(writes(in, left / rate), left)) {
		f.verdict = FORECAST_DIVERGES;
		return f;
	}
	f.verdict = FORECAST_CONVERGES;
	f.left_ms = forecast_left(in);
	return f;
}

/* By what was looked through, not by what went over: empty pages take no time, and many of them may come.  Four times as long
 * each time, or as long as there still is time: only a longer one tells whether the guest writes the same pages again, and
 * the sooner it ends the better. */
int64_t forecast_measure_next(const struct forecast_in *in, int64_t last_seconds)
{
	const struct mig_stats *s = &in->stats;
	int64_t next = last_seconds > 0 ? MIN(4 * MIN(last_seconds, MEASURE_MAX), MEASURE_MAX) : 1;
	double done = (double)s->total - (double)s->remaining, took = (double)in->pass_ms / 1000;
	double rest = done > 0 && took > 0 ? left_of(in) / done * took : MEASURE_MAX;

	if (s->passes > 1 || s->remaining <= 0)
		return 0;
	if (rest < (double)next * 1.25)
		next = (int64_t)(rest / 1.25);
	return next > 0 && next >= last_seconds ? next : 0;
}

const char *forecast_name(enum forecast_verdict v)
{
	static const char *const names[] = {"Unknown", "Converges", "Diverges"};

	return names[v];
}

int64_t pause_fixed_cost(int64_t known, int64_t pause_ms, int64_t bytes, int64_t bytes_per_second)
{
	int64_t sent_ms = bytes_per_second > 0 ? bytes * 1000 / bytes_per_second : 0;
	int64_t fixed = MAX(pause_ms - sent_ms, 0);

	return known < 0 ? fixed : (3 * known + fixed + 2) / 4;
}

int64_t pause_budget(int64_t declared_ms, int64_t fixed_ms)
{
	return MAX(declared_ms - MAX(fixed_ms, 0), 1);
}
