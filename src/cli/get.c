/* src/cli/get.c - get and describe: tables as the server makes them, JSON, YAML, names. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/resource.h"
#include "json/json.h"

static const char TABLE_ACCEPT[] = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

struct get_args {
	struct client_flags flags;
	const char *output;
	const char *selector;
	bool all_namespaces;
	bool watch;
	bool no_headers;
	bool show_labels;
};

/* Percent-encodes what a query value may not hold. */
static void add_query(struct sbuf *b, char sep, const char *key, const char *value)
{
	sbuf_addf(b, "%c%s=", sep, key);
	for (const char *p = value; *p; p++) {
		if (isalnum((unsigned char)*p) || strchr("-._~/", *p))
			sbuf_addc(b, *p);
		else
			sbuf_addf(b, "%%%02X", (unsigned char)*p);
	}
}

static bool column_shown(const struct json *column, bool wide)
{
	return wide || js_get_int(column, "priority", 0) == 0;
}

static void cell_text(const struct json *cell, struct sbuf *out)
{
	const char *s = js_str(cell);

	if (s)
		sbuf_adds(out, s);
	else if (js_is_null(cell))
		sbuf_adds(out, "<none>");
	else
		js_print(cell, out, false);
}

struct table {
	size_t cols;
	size_t rows;
	char **cells;
	size_t *width;
};

static void table_fini(struct table *t)
{
	for (size_t i = 0; t->cells && i < t->rows * t->cols; i++)
		mem_free(t->cells[i]);
	mem_free(t->cells);
	mem_free(t->width);
}

static enum rc table_put(struct table *t, size_t row, size_t col, struct sbuf *text)
{
	char **cell = &t->cells[row * t->cols + col];
	enum rc rc = sbuf_take(text, cell, NULL);

	if (!rc && strlen(*cell) > t->width[col])
		t->width[col] = strlen(*cell);
	return rc;
}

static void table_print(const struct table *t, bool headers)
{
	for (size_t r = headers ? 0 : 1; r < t->rows; r++) {
		for (size_t c = 0; c < t->cols; c++) {
			const char *s = t->cells[r * t->cols + c];

			if (c + 1 == t->cols)
				printf("%s\n", s ? s : "");
			else
				printf("%-*s   ", (int)t->width[c], s ? s : "");
		}
	}
}

/* One metav1.Table as kubectl lays it out. */
static enum rc print_table(const struct json *table, const struct get_args *a, bool with_ns)
{
	const struct json *defs = js_get(table, "columnDefinitions");
	const struct json *rows = js_get(table, "rows");
	bool wide = str_eq(a->output, "wide");
	CLEANUP(table_fini) struct table t = {.rows = js_len(rows) + 1};
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_OBJECT_BYTES);
	enum rc rc = RC_OK;

	for (size_t i = 0; i < js_len(defs); i++)
		t.cols += column_shown(js_item(defs, i), wide);
	t.cols += with_ns;
	t.cells = mem_calloc(t.rows * t.cols, sizeof(*t.cells));
	t.width = mem_calloc(t.cols, sizeof(*t.width));
	if (!t.cells || !t.width)
		return RC_NOMEM;
	for (size_t r = 0; r < t.rows && !rc; r++) {
		const struct json *row = r ? js_item(rows, r - 1) : NULL;
		size_t col = 0;

		if (with_ns) {
			const char *ns =
				js_str(js_at(row, "object", "metadata", "namespace", NULL));

			sbuf_adds(&b, r ? ns ? ns : "" : "NAMESPACE");
			rc = table_put(&t, r, col++, &b);
		}
		for (size_t i = 0; i < js_len(defs) && !rc; i++) {
			const struct json *def = js_item(defs, i);

			if (!column_shown(def, wide))
				continue;
			if (r)
				cell_text(js_item(js_get(row, "cells"), i), &b);
			else
				for (const char *p = js_get_str(def, "name"); p && *p; p++)
					sbuf_addc(&b, (char)toupper((unsigned char)*p));
			rc = table_put(&t, r, col++, &b);
		}
	}
	if (!rc)
		table_print(&t, !a->no_headers);
	return rc;
}

static void print_names(const struct api_kind *k, const struct json *value)
{
	const struct json *items = js_get(value, "items");

	for (size_t i = 0; i < (items ? js_len(items) : 1); i++) {
		const struct json *o = items ? js_item(items, i) : value;
		CLEANUP(mem_freep)
		char *title = resource_title(k, js_str(js_at(o, "metadata", "name", NULL)));

		printf("%s\n", title ? title : "");
	}
}

static char *get_path(struct client *c, const struct api_kind *k, const struct get_args *a,
		      const char *name, bool watch)
{
	CLEANUP(mem_freep)
	char *base = resource_path(k, a->all_namespaces ? NULL : client_ns(c), name);
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_URL_BYTES);
	char sep = '?';
	char *out = NULL;

	if (!base)
		return NULL;
	sbuf_adds(&b, base);
	if (a->selector) {
		add_query(&b, sep, "labelSelector", a->selector);
		sep = '&';
	}
	if (watch && name) {
		/* a watch of one object is a watch of its kind with a field selector */
		b.n -= strlen(name) + 1;
		sbuf_addf(&b, "?fieldSelector=metadata.name%%3D%s", name);
		sep = '&';
	}
	if (watch)
		add_query(&b, sep, "watch", "true");
	return sbuf_take(&b, &out, NULL) ? NULL : out;
}

/* got: an object, or a list of k; a new reference to the same with items as a manifest needs them.  NULL: out of memory. */
static struct json *with_types(const struct api_kind *k, const struct json *got)
{
	const struct json *items = js_get(got, "items");
	CLEANUP(js_unrefp) struct json *whole = js_new_array();
	CLEANUP(js_unrefp) struct json *out = js_new_object();

	if (js_type(items) != JS_ARRAY || !str_eq(js_get_str(got, "kind"), k->list_kind))
		return js_ref(got);
	for (size_t i = 0; i < js_len(items); i++)
		if (!whole || js_append(whole, resource_with_type(js_item(items, i), k->api_version,
								  k->kind)))
			return NULL;
	JS_FOREACH(it, got)
		if (!out || !whole ||
		    js_set(out, it.key, js_ref(strcmp(it.key, "items") == 0 ? whole : it.value)))
			return NULL;
	return STEAL(out);
}

static bool is_structured(const char *output)
{
	return str_eq(output, "json") || str_eq(output, "yaml") || str_eq(output, "name");
}

static enum rc get_one(struct client *c, const struct api_kind *k, const struct get_args *a,
		       const char *name, struct json *into, struct err *err)
{
	CLEANUP(mem_freep) char *path = get_path(c, k, a, name, false);
	CLEANUP(answer_fini) struct answer ans = {0};
	bool structured = is_structured(a->output);

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = client_call(c, "GET", path, structured ? "application/json" : TABLE_ACCEPT,
				 NULL, NULL, 0, &ans, err);

	if (rc)
		return rc;
	if (structured)
		return js_append(into, with_types(k, ans.json))
			       ? err_set(err, RC_NOMEM, "out of memory")
			       : RC_OK;
	if (!js_len(js_get(ans.json, "rows"))) {
		if (a->all_namespaces || !k->is_namespaced)
			fprintf(stderr, "No resources found\n");
		else
			fprintf(stderr, "No resources found in %s namespace.\n", client_ns(c));
		return RC_OK;
	}
	return print_table(ans.json, a, a->all_namespaces && k->is_namespaced);
}

static enum rc print_structured(const struct api_kind *k, const struct json *all,
				const char *output, struct err *err)
{
	if (str_eq(output, "name")) {
		for (size_t i = 0; i < js_len(all); i++)
			print_names(k, js_item(all, i));
		return RC_OK;
	}
	if (js_len(all) == 1)
		return cmd_print_value(js_item(all, 0), output, err);
	CLEANUP(js_unrefp)
	struct json *list = js_pack("{s:s,s:s,s:O,s:{s:s}}", "apiVersion", "v1", "kind", "List",
				    "items", all, "metadata", "resourceVersion", "");

	return list ? cmd_print_value(list, output, err) : err_set(err, RC_NOMEM, "out of memory");
}

struct watch_print {
	const struct get_args *a;
	struct client *c;
	const struct api_kind *k;
};

/* Each change is shown as the table row that a get of this moment gives. */
static bool on_change(const char *type, const struct json *object, void *arg)
{
	struct watch_print *w = arg;
	const char *name = js_str(js_at(object, "metadata", "name", NULL));
	const char *ns = js_str(js_at(object, "metadata", "namespace", NULL));

	(void)type;
	if (js_get(object, "rows"))
		(void)print_table(object, w->a, w->a->all_namespaces);
	else if (is_structured(w->a->output) && !str_eq(w->a->output, "name"))
		ignore_rc(cmd_print_value(object, w->a->output, NULL)); /* the next one may fit */
	else
		printf("%-9s %s%s%s  %s%s\n", type, ns ? ns : "", ns ? "/" : "", name ? name : "?",
		       js_str(js_at(object, "status", "phase", NULL)) ?: "",
		       js_str(js_at(object, "status", "printableStatus", NULL)) ?: "");
	fflush(stdout);
	return true;
}

static int get_run(const struct cmd *c, int argc, char **argv)
{
	struct get_args a = {.output = ""};
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &a.flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &a.flags.ns},
		{.name = "--output", .letter = 'o', .value = &a.output},
		{.name = "--selector", .letter = 'l', .value = &a.selector},
		{.name = "--all-namespaces",
		 .letter = 'A',
		 .is_flag = true,
		 .flag = &a.all_namespaces},
		{.name = "--watch", .letter = 'w', .is_flag = true, .flag = &a.watch},
		{.name = "--no-headers", .is_flag = true, .flag = &a.no_headers},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(js_unrefp) struct json *all = js_new_array();
	struct resource_args ra;
	struct err err = {0};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (*a.output && !is_structured(a.output) && !str_eq(a.output, "wide"))
		return cmd_usage(
			c,
			"unable to match a printer suitable for the output format \"%s\", allowed "
			"formats are: json,name,wide,yaml",
			a.output);
	enum rc rc = resource_parse_args(&ra, n, argv, &err);

	if (rc == RC_INVALID)
		return cmd_usage(c, "%s", err.msg);
	if (!rc)
		rc = client_open(&client, &a.flags, &err);
	for (size_t i = 0; i < MAX(ra.n_names, 1) && !rc; i++)
		rc = get_one(client, ra.kind, &a, ra.n_names ? ra.names[i] : NULL, all, &err);
	if (!rc && is_structured(a.output))
		rc = print_structured(ra.kind, all, a.output, &err);
	if (!rc && a.watch) {
		CLEANUP(mem_freep)
		char *path = get_path(client, ra.kind, &a, ra.n_names ? ra.names[0] : NULL, true);
		struct watch_print w = {&a, client, ra.kind};

		rc = client_watch(client, path, USEC_INFINITY, on_change, &w, &err);
	}
	return rc ? cmd_fail(&err) : EXIT_OK;
}

const struct cmd cmd_get = {
	.name = "get",
	.args = "TYPE [NAME...] [-n NS | -A] [-o wide|json|yaml|name] [-l SELECTOR] [-w]",
	.summary = "Show objects: vm, vmi, vmim, nodes, pods, services, pvc, events, ...",
	.run = get_run,
};

/* describe */

static void print_heading(const char *key, unsigned indent)
{
	printf("%*s", (int)indent, "");
	for (const char *p = key; *p; p++) {
		if (p == key)
			putchar(toupper((unsigned char)*p));
		else if (isupper((unsigned char)*p) && islower((unsigned char)p[-1]))
			printf(" %c", *p);
		else
			putchar(*p);
	}
	putchar(':');
}

/* Recursion follows a parsed value, whose depth is bounded. */
static void describe_value(const struct json *j, unsigned indent)
{
	JS_FOREACH(it, j) {
		print_heading(it.key, indent);
		if (js_is_object(it.value) && js_len(it.value)) {
			putchar('\n');
			describe_value(it.value, indent + 2);
		} else if (js_is_array(it.value)) {
			putchar('\n');
			for (size_t i = 0; i < js_len(it.value); i++) {
				const struct json *item = js_item(it.value, i);

				if (js_is_object(item)) {
					describe_value(item, indent + 2);
					if (i + 1 < js_len(it.value))
						putchar('\n');
				} else {
					CLEANUP(mem_freep) char *text = js_to_text(item);

					printf("%*s%s\n", (int)indent + 2, "",
					       js_str(item) ? js_str(item)
					       : text	    ? text
							    : "");
				}
			}
		} else {
			CLEANUP(mem_freep) char *text = js_to_text(it.value);

			printf("  %s\n", js_str(it.value) ? js_str(it.value) : text ? text : "");
		}
	}
}

static enum rc describe_events(struct client *c, const struct json *o, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf path = SBUF_INIT(LIMIT_URL_BYTES);
	CLEANUP(js_unrefp) struct json *list = NULL;
	const char *ns = js_str(js_at(o, "metadata", "namespace", NULL));
	const char *uid = js_str(js_at(o, "metadata", "uid", NULL));

	sbuf_addf(&path, "/api/v1/namespaces/%s/events?fieldSelector=involvedObject.uid%%3D%s",
		  ns ? ns : "default", uid ? uid : "");
	enum rc rc = client_get(c, sbuf_str(&path), &list, err);

	if (rc)
		return rc;
	const struct json *items = js_get(list, "items");

	if (!js_len(items)) {
		printf("Events:  <none>\n");
		return RC_OK;
	}
	printf("Events:\n  %-8s %-28s %-21s %s\n", "Type", "Reason", "Last Seen", "Message");
	for (size_t i = 0; i < js_len(items); i++) {
		const struct json *e = js_item(items, i);
		const char *when = js_get_str(e, "lastTimestamp");

		if (!when)
			when = js_get_str(e, "eventTime");
		printf("  %-8s %-28s %-21.20s %s\n", js_get_str(e, "type") ?: "",
		       js_get_str(e, "reason") ?: "", when ?: "", js_get_str(e, "message") ?: "");
	}
	return RC_OK;
}

static enum rc describe_one(struct client *c, const struct api_kind *k, const char *name,
			    struct err *err)
{
	CLEANUP(mem_freep) char *path = resource_path(k, client_ns(c), name);
	CLEANUP(js_unrefp) struct json *raw = NULL;
	enum rc rc =
		path ? client_get(c, path, &raw, err) : err_set(err, RC_NOMEM, "out of memory");

	if (rc)
		return rc;
	CLEANUP(js_unrefp) struct json *got = with_types(k, raw);
	const struct json *items = js_get(got, "items");

	if (!got)
		return err_set(err, RC_NOMEM, "out of memory");
	for (size_t i = 0; i < (items ? js_len(items) : 1) && !rc; i++) {
		CLEANUP(js_unrefp) struct json *o = js_copy(items ? js_item(items, i) : got);
		struct json *meta = js_get(o, "metadata");

		if (i)
			printf("\n\n");
		printf("Name:         %s\n", js_get_str(meta, "name"));
		if (k->is_namespaced)
			printf("Namespace:    %s\n", js_get_str(meta, "namespace"));
		js_del(meta, "name");
		js_del(meta, "namespace");
		js_del(meta, "managedFields");
		describe_value(o, 0);
		rc = describe_events(c, items ? js_item(items, i) : got, err);
	}
	return rc;
}

static int describe_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &flags.ns},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	struct resource_args ra;
	struct err err = {0};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	enum rc rc = resource_parse_args(&ra, n, argv, &err);

	if (rc == RC_INVALID)
		return cmd_usage(c, "%s", err.msg);
	if (!rc)
		rc = client_open(&client, &flags, &err);
	for (size_t i = 0; i < MAX(ra.n_names, 1) && !rc; i++) {
		if (i)
			printf("\n\n");
		rc = describe_one(client, ra.kind, ra.n_names ? ra.names[i] : NULL, &err);
	}
	return rc ? cmd_fail(&err) : EXIT_OK;
}

const struct cmd cmd_describe = {
	.name = "describe",
	.args = "TYPE [NAME...] [-n NS]",
	.summary = "Show one object in full, with its events.",
	.run = describe_run,
};
