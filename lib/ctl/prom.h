/* lib/ctl/prom.h - lines of Prometheus' text format (version 0.0.4).
 *
 * Pure.  All samples of a family have to follow its head.  Errors stick to the buffer.
 */
#ifndef CTL_PROM_H
#define CTL_PROM_H

#include "base/err.h"

struct sbuf;

struct prom_label {
	const char *name;  /* [a-zA-Z_][a-zA-Z0-9_]* */
	const char *value; /* any text, escaped here; NULL: "" */
};

/* help: one line.  type: "counter", "gauge". */
void prom_head(struct sbuf *out, const char *name, const char *type, const char *help);
/* rest: more labels as prom_label_add() made them, or NULL; its error is out's too. */
void prom_sample(struct sbuf *out, const char *name, const struct prom_label *labels, size_t n,
		 const struct sbuf *rest, double value);
/* "name=\"value\"", with a comma before it unless the buffer is empty. */
void prom_label_add(struct sbuf *out, const char *name, const char *value);

#endif
