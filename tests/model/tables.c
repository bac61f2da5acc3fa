/* Prints the two agents' tables (src/virt/migration/handoff.c): as Promela for the model (default), or as
 * JSON for the check of logs (--json).  Nothing about the tables is written down a second time. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "virt/migration/handoff.h"

struct side {
	const char *prefix, *fn; /* "SRC", "src" */
	int n_states, n_events;
	const char *(*state)(int s);
	const char *(*event)(int e);
	bool (*next)(int s, int e, int *next);
	bool (*may_run)(int s);
};

#define SIDE(p_, P_)                                                                              \
	static const char *p_##_state(int s)                                                      \
	{                                                                                         \
		return p_##_state_name((enum p_##_state)s);                                       \
	}                                                                                         \
	static const char *p_##_event(int e)                                                      \
	{                                                                                         \
		return p_##_event_name((enum p_##_event)e);                                       \
	}                                                                                         \
	static bool p_##_edge(int s, int e, int *next)                                            \
	{                                                                                         \
		enum p_##_state n = P_##_IDLE;                                                    \
		bool ok = p_##_next((enum p_##_state)s, (enum p_##_event)e, &n);                  \
                                                                                                  \
		*next = (int)n;                                                                   \
		return ok;                                                                        \
	}                                                                                         \
	static bool p_##_runs(int s)                                                              \
	{                                                                                         \
		return p_##_may_run((enum p_##_state)s);                                          \
	}                                                                                         \
	static const struct side p_##_side = {#P_,	  #p_,	      P_##__STATES, P_##__EVENTS, \
					      p_##_state, p_##_event, p_##_edge,    p_##_runs};

SIDE(src, SRC)
SIDE(dst, DST)

static void print_name(const char *prefix, const char *kind, const char *name)
{
	printf("%s%s_", prefix, kind);
	for (; *name; name++)
		putchar(toupper((unsigned char)*name));
}

static void print_promela(const struct side *t)
{
	int next;

	for (int s = 0; s < t->n_states; s++) {
		printf("#define ");
		print_name(t->prefix, "", t->state(s));
		printf(" %d\n", s);
	}
	printf("#define %s_NO %d\n", t->prefix, t->n_states);
	for (int e = 0; e < t->n_events; e++) {
		int n = 0;

		printf("#define %s_next_", t->fn);
		print_name(t->prefix, "EV", t->event(e));
		printf("(s_) (");
		for (int s = 0; s < t->n_states; s++) {
			if (!t->next(s, e, &next))
				continue;
			printf("(s_) == ");
			print_name(t->prefix, "", t->state(s));
			printf(" -> ");
			print_name(t->prefix, "", t->state(next));
			printf(" : (");
			n++;
		}
		printf("%s_NO)", t->prefix);
		while (n--)
			putchar(')');
		putchar('\n');
	}
	printf("#define %s_next(s_, e_) %s_next_##e_(s_)\n", t->fn, t->fn);
	printf("#define %s_may_run(s_) (false", t->fn);
	for (int s = 0; s < t->n_states; s++)
		if (t->may_run(s)) {
			printf(" || (s_) == ");
			print_name(t->prefix, "", t->state(s));
		}
	printf(")\n\n");
}

static void print_json(const struct side *t, const char *name, const char *end)
{
	const char *sep = "";
	int next;

	printf("\"%s\": {\"edges\": [", name);
	for (int s = 0; s < t->n_states; s++)
		for (int e = 0; e < t->n_events; e++)
			if (t->next(s, e, &next)) {
				printf("%s\n  [\"%s\", \"%s\", \"%s\"]", sep, t->state(s),
				       t->event(e), t->state(next));
				sep = ",";
			}
	printf("],\n \"may_run\": [");
	sep = "";
	for (int s = 0; s < t->n_states; s++)
		if (t->may_run(s)) {
			printf("%s\"%s\"", sep, t->state(s));
			sep = ", ";
		}
	printf("]}%s\n", end);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--json") == 0) {
		printf("{");
		print_json(&src_side, "source", ",");
		print_json(&dst_side, "target", "}");
	} else {
		print_promela(&src_side);
		print_promela(&dst_side);
	}
	return 0;
}
