#include "virt/migration/forecast.h"

enum { PASSES_MAX = 50 };

/* A guest that writes nearly as fast as the link carries does not converge in any useful time: each pass would
 * leave 95 % of the one before. */
static bool outruns(int64_t dirty, int64_t rate)
{
	return dirty >= rate / 100 * 95;
}

/* What the link carries: the mean of the whole move, or what it does now if that is more.  QEMU's figure is of the last
 * moments, and at the end of a short pass it is far too low: it is no reason to call a guest faster than the link. */
static int64_t link_rate(const struct mig_stats *s)
{
	int64_t ms = s->elapsed_ms - MAX(s->setup_ms, 0);

	return ms > 0 ? MAX(s->rate, s->transferred / ms * 1000) : s->rate;
}

int64_t forecast_left(const struct mig_stats *s, int64_t pass_ms, int64_t limit_ms,
		      int64_t fixed_ms)
{
	double rate = (double)link_rate(s), left = (double)s->remaining, seconds = 0;
	double fits = rate * (double)MAX(limit_ms, 1) / 1000, since = (double)pass_ms / 1000;

	if (rate <= 0)
		return -1;
	/* A pass that has begun is gone through, however little of it is left. */
	for (int pass = 0; pass < PASSES_MAX && (left > fits || since > 0); pass++) {
		double took = left / rate;

		seconds += took;
		left = (double)s->dirty_rate * (took + since);
		if (left > (double)s->total)
			left = (double)s->total;
		since = 0;
	}
	return (int64_t)((seconds + left / rate) * 1000) + MAX(fixed_ms, 0);
}

int64_t forecast_post_copy(const struct mig_stats *s)
{
	int64_t rate = link_rate(s);

	return rate > 0 ? (int64_t)((double)s->remaining * 1000 / (double)rate) : -1;
}

struct forecast forecast_of(const struct mig_stats *s, int64_t limit_ms, int64_t fixed_ms)
{
	struct forecast f = {.pause_ms = -1, .left_ms = -1};
	int64_t rate = link_rate(s);

	if (rate <= 0 || s->total <= 0)
		return f;
	f.pause_ms = (int64_t)((double)s->remaining * 1000 / (double)rate) + MAX(fixed_ms, 0);
	if (s->passes >= 2 &&
	    (double)s->remaining > (double)rate * (double)MAX(limit_ms, 1) / 1000 &&
	    outruns(s->dirty_rate, rate)) {
		f.verdict = FORECAST_DIVERGES;
		return f;
	}
	f.verdict = FORECAST_CONVERGES;
	f.left_ms = forecast_left(s, 0, limit_ms, fixed_ms);
	return f;
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
