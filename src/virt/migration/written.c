#include "virt/migration/written.h"

#include <string.h>

/* Some figures of a peer could be anything. */
static const int64_t MS_MAX = (int64_t)1000 * 3600 * 24 * 365, BYTES_MAX = (int64_t)1 << 60;

/* Of what the longest measurement saw, at most. */
static const double BEYOND = 1.5;

static int64_t scaled(int64_t bytes, int64_t ms, int64_t of_ms)
{
	double d = (double)bytes * (double)ms / (double)of_ms;

	return d < (double)BYTES_MAX ? (int64_t)d : BYTES_MAX;
}

static double ratio(const struct written *w, size_t i)
{
	return (double)w->at[i].ms / (double)w->at[i - 1].ms;
}

/* The nearest neighbour goes where there is no room: two points close to each other say the same. */
static void drop_one(struct written *w)
{
	size_t least = 1;

	for (size_t i = 2; i < w->n; i++)
		if (ratio(w, i) < ratio(w, least))
			least = i;
	memmove(&w->at[least], &w->at[least + 1], (w->n - least - 1) * sizeof(w->at[0]));
	w->n--;
}

static void bend(struct written_point *old, int64_t ms, int64_t bytes)
{
	int64_t line = scaled(bytes, old->ms, ms);

	if (old->ms < ms)
		old->bytes = MIN(MAX(old->bytes, line), bytes);
	else
		old->bytes = MIN(MAX(old->bytes, bytes), line);
}

void written_add(struct written *w, int64_t ms, int64_t bytes)
{
	size_t at = 0;

	if (ms <= 0 || ms > MS_MAX || bytes < 0 || bytes > BYTES_MAX)
		return;
	for (size_t i = 0; i < w->n; i++)
		bend(&w->at[i], ms, bytes);
	/* Less than a tenth apart: the same question. */
	for (size_t i = 0; i < w->n; i++)
		if (w->at[i].ms >= ms - ms / 10 && w->at[i].ms <= ms + ms / 10) {
			memmove(&w->at[i], &w->at[i + 1], (w->n - i - 1) * sizeof(w->at[0]));
			w->n--;
			i--;
		}
	if (w->n == WRITTEN_POINTS)
		drop_one(w);
	while (at < w->n && w->at[at].ms < ms)
		at++;
	memmove(&w->at[at + 1], &w->at[at], (w->n - at) * sizeof(w->at[0]));
	w->at[at] = (struct written_point){.ms = ms, .bytes = bytes};
	w->n++;
}

static double slope(const struct written *w, size_t i)
{
	struct written_point before = i ? w->at[i - 1] : (struct written_point){0};

	return (double)(w->at[i].bytes - before.bytes) / (double)(w->at[i].ms - before.ms);
}

static int64_t beyond(const struct written *w, int64_t ms)
{
	size_t n = w->n;
	const struct written_point *last = &w->at[n - 1];
	double grows = slope(w, n - 1), more = grows * ((double)ms - (double)last->ms);
	double most = (BEYOND - 1) * (double)last->bytes;
	double before = n > 1 ? slope(w, n - 2) : 0;

	if (grows < before) { /* each such time grows by that much less: the sum of it all */
		double len = (double)(last->ms - w->at[n - 2].ms);

		most = MIN(most, grows * len * grows / (before - grows));
	}
	return last->bytes + (int64_t)MIN(more, most);
}

int64_t written_in(const struct written *w, int64_t ms)
{
	struct written_point before = {0};

	if (!w->n || ms <= 0)
		return 0;
	for (size_t i = 0; i < w->n; i++) {
		const struct written_point *p = &w->at[i];

		if (ms <= p->ms)
			return before.bytes +
			       scaled(p->bytes - before.bytes, ms - before.ms, p->ms - before.ms);
		before = *p;
	}
	return beyond(w, ms);
}
