#include "lib/promcheck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"

enum { MAX_FAMILIES = 512, MAX_LABELS = 24 };

struct family {
	char *name, *type;
	char *labels[MAX_LABELS];
	size_t n_labels;
};

struct check {
	struct family families[MAX_FAMILIES];
	size_t n;
	struct map samples; /* name and labels as they stand */
	/* The histogram that is being read: its labels without le. */
	char *series;
	double le, last;
	bool has_inf;
};

static char *own(const char *p, size_t n)
{
	char *text = mem_strndup(p, n);

	assert_non_null(text);
	return text;
}

static size_t name_length(const char *p)
{
	size_t n = 0;

	while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == ':')
		n++;
	return isdigit((unsigned char)*p) ? 0 : n;
}

static void add_label(struct family *f, const char *p, size_t n)
{
	for (size_t i = 0; i < f->n_labels; i++)
		if (strlen(f->labels[i]) == n && strncmp(f->labels[i], p, n) == 0)
			return;
	assert_true(f->n_labels < MAX_LABELS);
	f->labels[f->n_labels++] = own(p, n);
}

static const char *suffix_of(const struct family *f, const char *line, size_t n)
{
	size_t own_n = strlen(f->name);

	if (n < own_n || strncmp(line, f->name, own_n) != 0)
		return NULL;
	return line + own_n;
}

static void check_head(struct check *c, const char *line)
{
	bool is_help = str_has_prefix(line, "# HELP ");
	const char *name = line + 7;
	size_t n = name_length(name);

	if (!is_help && !str_has_prefix(line, "# TYPE "))
		fail_msg("neither a head nor a sample: %s", line);
	if (!n || name[n] != ' ' || !name[n + 1])
		fail_msg("a head without name or text: %s", line);
	if (is_help) {
		for (size_t i = 0; i < c->n; i++)
			if (strlen(c->families[i].name) == n &&
			    strncmp(c->families[i].name, name, n) == 0)
				fail_msg("this family is there twice: %s", line);
		assert_true(c->n < MAX_FAMILIES);
		c->families[c->n++].name = own(name, n);
		return;
	}
	struct family *f = c->n ? &c->families[c->n - 1] : NULL;

	if (!f || f->type || strlen(f->name) != n || strncmp(f->name, name, n) != 0)
		fail_msg("its HELP does not stand before it: %s", line);
	f->type = own(name + n + 1, strlen(name + n + 1));
	if (strcmp(f->type, "counter") != 0 && strcmp(f->type, "gauge") != 0 &&
	    strcmp(f->type, "histogram") != 0)
		fail_msg("not a type: %s", line);
}

/* Behind the labels; le and rest (labels without it) are of a bucket. */
static const char *check_labels(struct family *f, const char *p, const char *line, double *le,
				struct sbuf *rest)
{
	if (*p++ != '{')
		return p - 1;
	for (;;) {
		size_t n = name_length(p);
		const char *value = p + n + 2, *end = value;

		if (!n || p[n] != '=' || p[n + 1] != '"' || memchr(p, ':', n))
			fail_msg("a bad label: %s", line);
		while (*end && *end != '"') {
			if (*end == '\\' && !strchr("\\\"n", *++end))
				fail_msg("a bad escape: %s", line);
			end++;
		}
		if (!*end)
			fail_msg("a label without end: %s", line);
		if (strncmp(p, "le=", 3) == 0) {
			*le = strtod(value, NULL);
		} else {
			add_label(f, p, n);
			sbuf_add(rest, p, (size_t)(end + 1 - p));
		}
		p = end + 1;
		if (*p == '}')
			return p + 1;
		if (*p++ != ',')
			fail_msg("labels that are not parted by commas: %s", line);
	}
}

static void series_ends(struct check *c)
{
	if (c->series && !c->has_inf)
		fail_msg("buckets without +Inf: %s", c->series);
	c->series = mem_free(c->series);
	c->has_inf = false;
}

static void check_bucket(struct check *c, const char *series, double le, double value,
			 const char *line)
{
	if (!c->series || strcmp(c->series, series) != 0) {
		series_ends(c);
		c->series = own(series, strlen(series));
		c->le = -1;
		c->last = 0;
	}
	if (le <= c->le || value < c->last)
		fail_msg("buckets that do not rise: %s", line);
	c->le = le;
	c->last = value;
	c->has_inf = strstr(line, "le=\"+Inf\"") != NULL;
}

static void check_sample(struct check *c, const char *line)
{
	CLEANUP(sbuf_fini) struct sbuf rest = SBUF_INIT(65536);
	struct family *f = c->n ? &c->families[c->n - 1] : NULL;
	size_t n = name_length(line);
	double le = -1, value;
	char *end;

	if (!f || !f->type || !n)
		fail_msg("a sample without head: %s", line);
	const char *suffix = suffix_of(f, line, n);
	const char *p = check_labels(f, line + n, line, &le, &rest);
	CLEANUP(mem_freep) char *key = own(line, (size_t)(p - line));

	if (!suffix)
		fail_msg("not of the family %s: %s", f->name, line);
	size_t n_suffix = (size_t)(line + n - suffix);

	if (map_get(&c->samples, key))
		fail_msg("a sample twice: %s", line);
	assert_int_equal(map_set(&c->samples, key, c), RC_OK);
	value = strtod(p + 1, &end);
	if (*p != ' ' || end == p + 1 || *end)
		fail_msg("not a number: %s", line);
	if (strcmp(f->type, "histogram") != 0) {
		if (n_suffix || (strcmp(f->type, "counter") == 0 && value < 0))
			fail_msg("not a sample of a %s: %s", f->type, line);
		return;
	}
	if (n_suffix == 7 && strncmp(suffix, "_bucket", 7) == 0)
		check_bucket(c, sbuf_str(&rest), le, value, line);
	else if (n_suffix == 6 && strncmp(suffix, "_count", 6) == 0) {
		if (!c->series || strcmp(c->series, sbuf_str(&rest)) != 0 || value != c->last)
			fail_msg("a count that is not that of the buckets: %s", line);
		series_ends(c);
	} else if (n_suffix != 4 || strncmp(suffix, "_sum", 4) != 0)
		fail_msg("not of a histogram: %s", line);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *list_of(struct check *c)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(MIB);
	char *lines[MAX_FAMILIES], *text = NULL;

	for (size_t i = 0; i < c->n; i++) {
		struct family *f = &c->families[i];
		CLEANUP(sbuf_fini) struct sbuf line = SBUF_INIT(65536);
		size_t n;

		if (!f->type)
			fail_msg("a family without type: %s", f->name);
		qsort(f->labels, f->n_labels, sizeof(char *), by_text);
		sbuf_addf(&line, "%s %s ", f->name, f->type);
		for (size_t k = 0; k < f->n_labels; k++)
			sbuf_addf(&line, "%s%s", k ? "," : "", f->labels[k]);
		if (!f->n_labels)
			sbuf_addc(&line, '-');
		assert_int_equal(sbuf_take(&line, &lines[i], &n), RC_OK);
	}
	qsort(lines, c->n, sizeof(char *), by_text);
	for (size_t i = 0; i < c->n; i++) {
		sbuf_addf(&b, "%s\n", lines[i]);
		mem_free(lines[i]);
	}
	size_t n;

	assert_int_equal(sbuf_take(&b, &text, &n), RC_OK);
	return text;
}

static void check_fini(struct check *c)
{
	for (size_t i = 0; i < c->n; i++) {
		for (size_t k = 0; k < c->families[i].n_labels; k++)
			mem_free(c->families[i].labels[k]);
		mem_free(c->families[i].name);
		mem_free(c->families[i].type);
	}
	map_fini(&c->samples);
	mem_free(c->series);
	mem_free(c);
}

char *prom_check(const char *text)
{
	struct check *c = mem_alloc(sizeof(*c));

	assert_non_null(c);
	map_init(&c->samples, NULL);
	while (*text) {
		size_t n = strcspn(text, "\n");
		CLEANUP(mem_freep) char *line = own(text, n);

		if (text[n] != '\n')
			fail_msg("a last line without end: %s", line);
		if (*line == '#') {
			series_ends(c);
			check_head(c, line);
		} else {
			check_sample(c, line);
		}
		text += n + 1;
	}
	series_ends(c);
	char *list = list_of(c);

	check_fini(c);
	return list;
}

void prom_golden(const char *name, const char *text)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s.txt", METRICS_GOLDEN_DIR, name);
	CLEANUP(mem_freep) char *list = prom_check(text);
	CLEANUP(mem_freep) char *want = NULL;
	size_t n;

	assert_non_null(path);
	if (getenv("GOLDEN_UPDATE")) {
		FILE *f = fopen(path, "w");

		assert_non_null(f);
		assert_true(fputs(list, f) >= 0);
		assert_int_equal(fclose(f), 0);
	}
	assert_int_equal(file_read(path, MIB, &want, &n, NULL), RC_OK);
	if (strcmp(list, want) != 0)
		fail_msg(
			"metrics changed: if that is meant, run with GOLDEN_UPDATE=1 and tell users. Now:\n"
			"%s",
			list);
}
