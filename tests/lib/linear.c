#include "linear.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EVENTS = 512, WORDS = MAX_EVENTS / 64, BUCKETS = 1 << 12 };

/* What has been tried: which events have happened, and the value then. */
struct seen {
	struct seen *next;
	uint64_t done[WORDS];
	int value;
};

struct search {
	const struct lin_event *events;
	size_t n;
	uint64_t done[WORDS];
	size_t left; /* events with an answer that have not happened yet */
	struct seen *buckets[BUCKETS];
};

static bool is_done(const struct search *s, size_t i)
{
	return s->done[i / 64] >> (i % 64) & 1;
}

static bool seen_before(struct search *s, int value)
{
	uint64_t h = (uint64_t)value * 0x9e3779b97f4a7c15u;

	for (size_t i = 0; i < WORDS; i++)
		h = (h ^ s->done[i]) * 0xff51afd7ed558ccdu;
	struct seen **b = &s->buckets[(h >> 40) % BUCKETS];

	for (struct seen *x = *b; x; x = x->next)
		if (x->value == value && memcmp(x->done, s->done, sizeof(s->done)) == 0)
			return true;
	struct seen *x = malloc(sizeof(*x));

	assert(x);
	*x = (struct seen){.next = *b, .value = value};
	memcpy(x->done, s->done, sizeof(s->done));
	*b = x;
	return false;
}

/* Can it happen with this value there?  *after: what is there then. */
static bool can_happen(const struct lin_event *e, int value, int *after)
{
	*after = value;
	switch (e->op) {
	case LIN_READ:
		return e->unknown || e->value == value;
	case LIN_CREATE:
		if (!e->unknown && e->refused)
			return value != 0;
		*after = e->value;
		return value == 0;
	case LIN_SWAP:
		if (!e->unknown && e->refused)
			return value != e->expect;
		*after = e->value;
		return value == e->expect;
	case LIN_DELETE:
		if (!e->unknown && e->refused)
			return value == 0;
		*after = 0;
		return value != 0;
	}
	return false;
}

static bool run(struct search *s, int value)
{
	int64_t first_return = INT64_MAX, last_call = INT64_MIN;

	if (!s->left)
		return true;
	if (seen_before(s, value))
		return false;
	for (size_t i = 0; i < s->n; i++) {
		const struct lin_event *e = &s->events[i];

		if (is_done(s, i) && e->call > last_call)
			last_call = e->call;
		if (!is_done(s, i) && !e->unknown && e->ret < first_return)
			first_return = e->ret;
	}
	for (size_t i = 0; i < s->n; i++) {
		const struct lin_event *e = &s->events[i];
		int after;

		/* Nothing happens after the return of what has still to happen, and nothing after its server's end. */
		if (is_done(s, i) || e->call > first_return || (e->unknown && e->ret < last_call) ||
		    !can_happen(e, value, &after))
			continue;
		s->done[i / 64] |= 1ull << (i % 64);
		s->left -= !e->unknown;
		bool ok = run(s, after);

		s->left += !e->unknown;
		s->done[i / 64] &= ~(1ull << (i % 64));
		if (ok)
			return true;
	}
	return false;
}

bool linear_check(const struct lin_event *events, size_t n)
{
	struct search *s = calloc(1, sizeof(*s));

	assert(s && n <= MAX_EVENTS);
	s->events = events;
	s->n = n;
	for (size_t i = 0; i < n; i++)
		s->left += !events[i].unknown;
	bool ok = run(s, 0);

	for (size_t i = 0; i < BUCKETS; i++)
		for (struct seen *x = s->buckets[i], *next; x; x = next) {
			next = x->next;
			free(x);
		}
	free(s);
	return ok;
}
