#include "virt/migration/forecast.h"

enum { PASSES_MAX = 50 };

/* A guest that writes nearly as fast as the link carries does not converge in any useful time: each pass would
 * leave 95 % of the one before. */
static bool outruns(int64_t dirty, int64_t rate)
{
	return dirty >= rate / 100 * 95;
}

struct forecast forecast_of(const struct mig_stats *s, int64_t limit_ms, int64_t fixed_ms)
{
	struct forecast f = {.pause_ms = -1, .left_ms = -1};
	double rate = (double)s->rate, left = (double)s->remaining, seconds = 0;
	double fits = rate * (double)MAX(limit_ms, 1) / 1000;

	if (s->rate <= 0 || s->total <= 0)
		return f;
	f.pause_ms = (int64_t)(left * 1000 / rate) + MAX(fixed_ms, 0);
	if (s->passes >= 2 && left > fits && outruns(s->dirty_rate, s->rate)) {
		f.verdict = FORECAST_DIVERGES;
		return f;
	}
	f.verdict = FORECAST_CONVERGES;
	for (int pass = 0; pass < PASSES_MAX && left > fits; pass++) {
		double took = left / rate;

		seconds += took;
		left = (double)s->dirty_rate * took;
		if (left > (double)s->total)
			left = (double)s->total;
	}
	f.left_ms = (int64_t)((seconds + left / rate) * 1000) + MAX(fixed_ms, 0);
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
