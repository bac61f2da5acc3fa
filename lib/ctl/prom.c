#include "ctl/prom.h"

#include <string.h>

#include "base/mem.h"
#include "base/sbuf.h"

enum { LABELS_BYTES = 16 * 1024 };

void prom_head(struct sbuf *out, const char *name, const char *type, const char *help)
{
	sbuf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Several for each request of an API server: no formatting. */
void prom_label_add(struct sbuf *out, const char *name, const char *value)
{
	if (out->n)
		sbuf_addc(out, ',');
	sbuf_adds(out, name);
	sbuf_adds(out, "=\"");
	for (const char *p = value ? value : ""; *p;) {
		size_t plain = strcspn(p, "\n\"\\");

		sbuf_add(out, p, plain);
		p += plain;
		if (!*p)
			break;
		sbuf_addc(out, '\\');
		sbuf_addc(out, *p == '\n' ? 'n' : *p);
		p++;
	}
	sbuf_addc(out, '"');
}

static void add_value(struct sbuf *out, double value)
{
	/* Up to there every whole number has its own double. */
	bool is_whole = value > -9e15 && value < 9e15 && (double)(int64_t)value == value;

	sbuf_addf(out, is_whole ? " %.0f\n" : " %.6f\n", value);
}

static void add_labels(struct sbuf *out, const struct prom_label *labels, size_t n)
{
	for (size_t i = 0; i < n; i++)
		prom_label_add(out, labels[i].name, labels[i].value);
}

void prom_sample(struct sbuf *out, const char *name, const struct prom_label *labels, size_t n,
		 const struct sbuf *rest, double value)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(out->max);

	add_labels(&b, labels, n);
	if (rest && rest->n)
		sbuf_addf(&b, "%s%s", b.n ? "," : "", sbuf_str(rest));
	sbuf_adds(out, name);
	if (b.n)
		sbuf_addf(out, "{%s}", sbuf_str(&b));
	add_value(out, value);
	enum rc rc = sbuf_rc(&b) || !rest ? sbuf_rc(&b) : sbuf_rc(rest);

	if (rc && !out->rc)
		out->rc = rc;
}

void prom_one(struct sbuf *out, const char *name, const char *type, const char *help, double value)
{
	prom_head(out, name, type, help);
	prom_sample(out, name, NULL, 0, NULL, value);
}

/* ---- histograms ---- */

void prom_hist_add(struct prom_hist *h, const struct prom_buckets *b, double value)
{
	size_t i = 0;

	while (i < b->n && value > b->le[i])
		i++;
	h->n[i]++;
	h->sum += value;
}

static void print_hist(struct sbuf *out, const char *name, const char *labels,
		       const struct prom_buckets *b, const struct prom_hist *h)
{
	const char *comma = *labels ? "," : "";
	uint64_t n = 0;

	for (size_t i = 0; i <= b->n; i++) {
		n += h->n[i];
		sbuf_addf(out, "%s_bucket{%s%sle=\"", name, labels, comma);
		if (i < b->n)
			sbuf_addf(out, "%.12g\"} %llu\n", b->le[i], (unsigned long long)n);
		else
			sbuf_addf(out, "+Inf\"} %llu\n", (unsigned long long)n);
	}
	sbuf_addf(out, *labels ? "%s_sum{%s}" : "%s_sum%s", name, labels);
	add_value(out, h->sum);
	sbuf_addf(out, *labels ? "%s_count{%s}" : "%s_count%s", name, labels);
	sbuf_addf(out, " %llu\n", (unsigned long long)n);
}

void prom_hist_print(struct sbuf *out, const char *name, const struct sbuf *labels,
		     const struct prom_buckets *b, const struct prom_hist *h)
{
	enum rc rc = labels ? sbuf_rc(labels) : RC_OK;

	print_hist(out, name, labels ? sbuf_str(labels) : "", b, h);
	if (rc && !out->rc)
		out->rc = rc;
}

/* ---- families ---- */

static void free_series(void *p)
{
	mem_free(p);
}

void prom_family_init(struct prom_family *f, const char *name, const char *help,
		      const struct prom_buckets *buckets, size_t max)
{
	*f = (struct prom_family){.name = name, .help = help, .buckets = buckets, .max = max};
	map_init(&f->series, free_series);
}

void prom_family_fini(struct prom_family *f)
{
	map_fini(&f->series);
}

static void *series_of(struct prom_family *f, const char *labels)
{
	void *have = map_get(&f->series, labels);

	if (have || f->series.n > f->max)
		return have;
	have = mem_alloc(f->buckets ? sizeof(struct prom_hist) : sizeof(uint64_t));
	if (have && map_set(&f->series, labels, have))
		have = mem_free(have);
	return have;
}

static void *other_of(struct prom_family *f, const struct prom_label *labels, size_t n)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LABELS_BYTES);

	for (size_t i = 0; i < n; i++)
		prom_label_add(&b, labels[i].name, "other");
	return sbuf_rc(&b) ? NULL : series_of(f, sbuf_str(&b));
}

void prom_family_add(struct prom_family *f, const struct prom_label *labels, size_t n, double value)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LABELS_BYTES);

	add_labels(&b, labels, n);
	if (sbuf_rc(&b))
		return;
	void *to = f->series.n < f->max ? series_of(f, sbuf_str(&b))
					: map_get(&f->series, sbuf_str(&b));

	if (!to)
		to = other_of(f, labels, n);
	if (to && f->buckets)
		prom_hist_add(to, f->buckets, value);
	else if (to)
		*(uint64_t *)to += (uint64_t)value;
}

void prom_family_print(const struct prom_family *f, struct sbuf *out)
{
	prom_head(out, f->name, f->buckets ? "histogram" : "counter", f->help);
	MAP_FOREACH(it, &f->series) {
		if (f->buckets)
			print_hist(out, f->name, it->key, f->buckets, it->value);
		else
			sbuf_addf(out, *it->key ? "%s{%s} %llu\n" : "%s%s %llu\n", f->name, it->key,
				  (unsigned long long)*(uint64_t *)it->value);
	}
}
