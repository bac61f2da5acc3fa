/* src/cli/cpu_models.c - which CPU models do nodes have in common, and what tells them apart. */
#include "cli/cpu_models.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"

#define LABEL_MODEL   "cpu-model.node.kubevirt.io/"
#define LABEL_FEATURE "cpu-feature.node.kubevirt.io/"

enum { NODES_MAX = 1024 };

struct picked {
	const struct json *nodes[NODES_MAX];
	size_t n;
};

static const char *name_of(const struct json *node)
{
	const char *name = js_str(js_at(node, "metadata", "name", NULL));

	return name ? name : "";
}

static const struct json *labels_of(const struct json *node)
{
	return js_at(node, "metadata", "labels", NULL);
}

static enum rc pick(const struct json *items, char *const *names, size_t n, struct picked *out,
		    struct err *err)
{
	out->n = 0;
	for (size_t i = 0; !n && i < js_len(items) && out->n < NODES_MAX; i++)
		out->nodes[out->n++] = js_item(items, i);
	for (size_t k = 0; k < n && out->n < NODES_MAX; k++) {
		const struct json *found = NULL;

		for (size_t i = 0; i < js_len(items); i++)
			if (str_eq(name_of(js_item(items, i)), names[k]))
				found = js_item(items, i);
		if (!found)
			return err_set(err, RC_NOT_FOUND, "there is no node '%s'", names[k]);
		out->nodes[out->n++] = found;
	}
	return out->n ? RC_OK : err_set(err, RC_NOT_FOUND, "there is no node");
}

/* ---- names below a label family, of any of the nodes, sorted ---- */

struct names {
	const char **v;
	size_t n, cap;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum rc collect(const struct picked *p, const char *family, struct names *out)
{
	for (size_t i = 0; i < p->n; i++)
		JS_FOREACH(it, labels_of(p->nodes[i])) {
			if (!str_has_prefix(it.key, family))
				continue;
			if (!mem_grow((void **)&out->v, &out->cap, out->n + 1, sizeof(*out->v)))
				return RC_NOMEM;
			out->v[out->n++] = it.key;
		}
	if (!out->n)
		return RC_OK;
	qsort(out->v, out->n, sizeof(*out->v), by_text);
	size_t kept = 1;

	for (size_t i = 1; i < out->n; i++)
		if (strcmp(out->v[i], out->v[kept - 1]) != 0)
			out->v[kept++] = out->v[i];
	out->n = kept;
	return RC_OK;
}

static size_t count_with(const struct picked *p, const char *label)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		n += js_get(labels_of(p->nodes[i]), label) != NULL;
	return n;
}

static void print_without(const struct picked *p, const char *label, struct sbuf *out)
{
	const char *before = "not ";

	for (size_t i = 0; i < p->n; i++) {
		if (js_get(labels_of(p->nodes[i]), label))
			continue;
		sbuf_addf(out, "%s%s", before, name_of(p->nodes[i]));
		before = ", ";
	}
}

/* ---- the two parts ---- */

static void print_models(const struct picked *p, const struct names *models, bool all,
			 size_t *n_common, struct sbuf *out)
{
	size_t width = strlen("MODEL"), skip = strlen(LABEL_MODEL);

	*n_common = 0;
	for (size_t i = 0; i < models->n; i++)
		width = MAX(width, strlen(models->v[i]) - skip);
	sbuf_addf(out, "%-*s   NODES\n", (int)width, "MODEL");
	for (size_t i = 0; i < models->n; i++) {
		size_t n = count_with(p, models->v[i]);

		*n_common += n == p->n;
		if (n < p->n && !all)
			continue;
		sbuf_addf(out, "%-*s   %zu/%zu", (int)width, models->v[i] + skip, n, p->n);
		if (n < p->n) {
			sbuf_adds(out, "   ");
			print_without(p, models->v[i], out);
		}
		sbuf_addc(out, '\n');
	}
}

static void print_differences(const struct picked *p, const struct names *features,
			      struct sbuf *out)
{
	size_t skip = strlen(LABEL_FEATURE);
	bool any = false;

	for (size_t i = 0; i < features->n; i++) {
		if (count_with(p, features->v[i]) == p->n)
			continue;
		sbuf_addf(out, "%s  %s   ", any ? "" : "\nFeatures that not all have:\n",
			  features->v[i] + skip);
		print_without(p, features->v[i], out);
		sbuf_addc(out, '\n');
		any = true;
	}
	if (!any && p->n > 1)
		sbuf_adds(out, "\nAll of them have the same CPU features.\n");
}

enum rc cpu_models_print(const struct json *items, char *const *names, size_t n, bool all,
			 struct sbuf *out, size_t *n_common, struct err *err)
{
	CLEANUP(mem_freep) struct picked *p = mem_alloc(sizeof(*p));
	struct names models = {0}, features = {0};
	enum rc rc = p ? pick(items, names, n, p, err) : err_set(err, RC_NOMEM, "out of memory");

	if (rc)
		return rc;
	rc = collect(p, LABEL_MODEL, &models);
	if (!rc)
		rc = collect(p, LABEL_FEATURE, &features);
	if (!rc) {
		print_models(p, &models, all, n_common, out);
		print_differences(p, &features, out);
		rc = sbuf_rc(out);
	}
	mem_free(models.v);
	mem_free(features.v);
	return rc ? err_set(err, rc, "cannot print the table") : RC_OK;
}
