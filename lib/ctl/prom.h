/* lib/ctl/prom.h - lines of Prometheus' text format (version 0.0.4), and what is counted for them.
 *
 * Printing is pure; a family belongs to its owner's thread.  All samples of a family have to follow its head.
 * Errors stick to the buffer.
 */
#ifndef CTL_PROM_H
#define CTL_PROM_H

#include "base/err.h"
#include "base/map.h"

struct sbuf;

struct prom_label {
	const char *name;  /* [a-zA-Z_][a-zA-Z0-9_]* */
	const char *value; /* any text, escaped here; NULL: "" */
};

/* help: one line.  type: "counter", "gauge", "histogram". */
void prom_head(struct sbuf *out, const char *name, const char *type, const char *help);
/* rest: more labels as prom_label_add() made them, or NULL; its error is out's too. */
void prom_sample(struct sbuf *out, const char *name, const struct prom_label *labels, size_t n,
		 const struct sbuf *rest, double value);
/* "name=\"value\"", with a comma before it unless the buffer is empty. */
void prom_label_add(struct sbuf *out, const char *name, const char *value);
/* A family of one sample without labels. */
void prom_one(struct sbuf *out, const char *name, const char *type, const char *help, double value);

/* Histograms. */
enum { PROM_BUCKETS_MAX = 24 };

struct prom_buckets {
	size_t n;
	double le[PROM_BUCKETS_MAX]; /* rising upper bounds; +Inf is not among them */
};

/* All zero: nothing was seen. */
struct prom_hist {
	uint64_t n[PROM_BUCKETS_MAX + 1]; /* of each bucket alone; [buckets->n]: above all bounds */
	double sum;
};

void prom_hist_add(struct prom_hist *h, const struct prom_buckets *b, double value);
/* labels: as prom_label_add() made them, or NULL. */
void prom_hist_print(struct sbuf *out, const char *name, const struct sbuf *labels,
		     const struct prom_buckets *b, const struct prom_hist *h);

/* A family with as many samples as there were values of its labels, at most max of them: what comes
 * beyond is counted with "other" as the value of every label. */
struct prom_family {
	const char *name, *help;
	const struct prom_buckets *buckets; /* NULL: a counter */
	size_t max;
	struct map series; /* labels -> struct prom_hist, or uint64_t */
};

void prom_family_init(struct prom_family *f, const char *name, const char *help,
		      const struct prom_buckets *buckets, size_t max);
void prom_family_fini(struct prom_family *f);
/* A counter grows by value, a whole number; a histogram sees it.  Out of memory: it is not counted. */
void prom_family_add(struct prom_family *f, const struct prom_label *labels, size_t n,
		     double value);
void prom_family_print(const struct prom_family *f, struct sbuf *out);

/* What Prometheus' own clients tell of a process.  started: its start, since 1970. */
void prom_process(struct sbuf *out, usec_t started);

#endif
