/* tests/lib/promcheck.h - reads Prometheus' text format (0.0.4) as strictly as its own tool does, and holds a
 * program's metrics against a list in tests/golden/metrics. */
#ifndef TESTS_LIB_PROMCHECK_H
#define TESTS_LIB_PROMCHECK_H

/* Fails the test where the text is wrong: no head, a family in two places, a sample twice, a bad name, label,
 * escape or number, buckets that do not rise or do not end in +Inf and _count.  The result is sorted lines
 * "name type label,label", to be freed by mem_free(). */
char *prom_check(const char *text);

/* The lines of text are those of tests/golden/metrics/<name>.txt, none more and none less.  GOLDEN_UPDATE=1 writes
 * the file anew. */
void prom_golden(const char *name, const char *text);

#endif
