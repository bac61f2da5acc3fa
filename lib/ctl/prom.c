#include "ctl/prom.h"

#include "base/sbuf.h"

void prom_head(struct sbuf *out, const char *name, const char *type, const char *help)
{
	sbuf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void prom_label_add(struct sbuf *out, const char *name, const char *value)
{
	sbuf_addf(out, "%s%s=\"", out->n ? "," : "", name);
	for (const char *p = value ? value : ""; *p; p++) {
		if (*p == '\n') {
			sbuf_adds(out, "\\n");
			continue;
		}
		if (*p == '"' || *p == '\\')
			sbuf_addc(out, '\\');
		sbuf_addc(out, *p);
	}
	sbuf_addc(out, '"');
}

static void add_value(struct sbuf *out, double value)
{
	/* Up to there every whole number has its own double. */
	bool is_whole = value > -9e15 && value < 9e15 && (double)(int64_t)value == value;

	sbuf_addf(out, is_whole ? " %.0f\n" : " %.6f\n", value);
}

void prom_sample(struct sbuf *out, const char *name, const struct prom_label *labels, size_t n,
		 const struct sbuf *rest, double value)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(out->max);

	for (size_t i = 0; i < n; i++)
		prom_label_add(&b, labels[i].name, labels[i].value);
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
