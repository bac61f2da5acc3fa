#include "cli/placement.h"

#include <string.h>

#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"

enum { COLUMNS = 4 };

enum verdict { V_YES, V_NO, V_WAIT, V_SOURCE, V__MAX };

static const char *const verdict_names[V__MAX] = {"Yes", "No", "Wait", "Source"};

static enum verdict verdict_of(const struct json *p)
{
	if (js_get_bool(p, "allowed", false))
		return V_YES;
	if (str_eq(js_get_str(p, "reason"), "Source"))
		return V_SOURCE;
	return js_get_bool(p, "lasting", false) ? V_NO : V_WAIT;
}

static const struct json *rows_of(const struct json *vmim)
{
	return js_at(vmim, "status", "ferry", "placement", NULL);
}

static bool is_asked(const struct json *p, const char *node)
{
	return !node || str_eq(js_get_str(p, "node"), node);
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

static void cells_of(const struct json *p, const char *cells[COLUMNS])
{
	cells[0] = or_empty(js_get_str(p, "node"));
	cells[1] = verdict_names[verdict_of(p)];
	cells[2] = or_empty(js_get_str(p, "reason"));
	cells[3] = or_empty(js_get_str(p, "message"));
}

static void widen(size_t width[COLUMNS], const char *const cells[COLUMNS])
{
	for (size_t i = 0; i < COLUMNS; i++)
		width[i] = MAX(width[i], strlen(cells[i]));
}

static void print_row(struct sbuf *out, const size_t width[COLUMNS],
		      const char *const cells[COLUMNS])
{
	size_t last = COLUMNS;

	while (last > 1 && !*cells[last - 1])
		last--;
	for (size_t i = 0; i + 1 < last; i++)
		sbuf_addf(out, "%-*s   ", (int)width[i], cells[i]);
	sbuf_addf(out, "%s\n", cells[last - 1]);
}

static void print_table(const struct json *rows, const char *node, struct sbuf *out)
{
	static const char *const head[COLUMNS] = {"NODE", "VERDICT", "REASON", "MESSAGE"};
	const char *cells[COLUMNS];
	size_t width[COLUMNS] = {0};

	widen(width, head);
	for (size_t i = 0; i < js_len(rows); i++) {
		cells_of(js_item(rows, i), cells);
		if (is_asked(js_item(rows, i), node))
			widen(width, cells);
	}
	print_row(out, width, head);
	for (size_t i = 0; i < js_len(rows); i++) {
		cells_of(js_item(rows, i), cells);
		if (is_asked(js_item(rows, i), node))
			print_row(out, width, cells);
	}
	sbuf_addc(out, '\n');
}

static void conclude_node(const char *vm, const char *node, const size_t n[V__MAX],
			  struct sbuf *out)
{
	if (n[V_YES])
		sbuf_addf(out, "VM %s can move to %s now.\n", vm, node);
	else if (n[V_WAIT])
		sbuf_addf(out, "VM %s cannot move to %s now; a move would wait for it.\n", vm,
			  node);
	else if (n[V_SOURCE])
		sbuf_addf(out, "VM %s runs on %s already.\n", vm, node);
	else
		sbuf_addf(out, "VM %s cannot move to %s, and no waiting helps.\n", vm, node);
}

static void conclude(const char *vm, const size_t n[V__MAX], struct sbuf *out)
{
	size_t others = n[V_YES] + n[V_NO] + n[V_WAIT];

	if (!others)
		sbuf_addf(out, "VM %s cannot move: there is no other node.\n", vm);
	else if (n[V_YES])
		sbuf_addf(out, "VM %s can move now: %zu of %zu other nodes can take it.\n", vm,
			  n[V_YES], others);
	else if (n[V_WAIT])
		sbuf_addf(out,
			  "VM %s cannot move now: a move would wait for %zu of %zu other nodes.\n",
			  vm, n[V_WAIT], others);
	else
		sbuf_addf(out,
			  "VM %s cannot move: none of %zu other nodes can take it, and no waiting "
			  "helps.\n",
			  vm, others);
}

static void count(const struct json *rows, const char *node, size_t n[V__MAX])
{
	for (size_t i = 0; i < js_len(rows); i++)
		if (is_asked(js_item(rows, i), node))
			n[verdict_of(js_item(rows, i))]++;
}

bool placement_print(const struct json *vmim, const char *vm, const char *node, struct sbuf *out)
{
	const struct json *rows = rows_of(vmim);
	size_t n[V__MAX] = {0};

	count(rows, node, n);
	if (!js_len(rows)) {
		bool waits = js_at(vmim, "status", "ferry", "stage", NULL) != NULL;

		sbuf_addf(
			out,
			waits ? "VM %s does not run yet: which nodes could take it is known then.\n"
			      : "The server does not tell where VM %s could go.\n",
			vm);
		return false;
	}
	if (!(n[V_YES] + n[V_NO] + n[V_WAIT] + n[V_SOURCE])) {
		sbuf_addf(out, "VM %s cannot move to %s: there is no such node.\n", vm, node);
		return false;
	}
	print_table(rows, node, out);
	if (node)
		conclude_node(vm, node, n, out);
	else
		conclude(vm, n, out);
	return n[V_YES] > 0;
}
