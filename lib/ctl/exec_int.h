/* lib/ctl/exec_int.h - what the executor's files share.  Private to lib/ctl. */
#ifndef CTL_EXEC_INT_H
#define CTL_EXEC_INT_H

#include "base/list.h"
#include "ctl/exec.h"

struct events; /* the recorder: exec_event.c */
struct ev_src;
struct kube_reply;

struct exec {
	struct loop *loop;
	struct kube *kube;
	struct kcache *cache; /* may be NULL */
	struct list runs;
	struct events *events;
	struct exec_count *counts;
	size_t n_counts;
	size_t cap_counts;
	uint64_t conflicts;
	uint64_t failures;
};

struct exec_count {
	const struct api_kind *kind;
	const char *verb; /* static text */
	uint64_t n;
};

/* One more write that the server acknowledged.  Losing count for want of memory is accepted. */
void exec_count_write(struct exec *x, const struct api_kind *kind, const char *verb);

MUST_CHECK enum rc events_new(struct events **out, struct exec *x, const struct exec_opts *opts,
			      struct err *err);
struct events *events_free(struct events *e); /* accepts NULL; returns NULL */

struct event_note {
	const struct api_kind *kind;
	const char *ns, *name, *uid;
	const char *type, *reason, *message;
};
void events_record(struct events *e, const struct event_note *n);
void events_metrics(const struct events *e, struct sbuf *out);

#endif
