/* Lists whose items are made anew - tables, metadata alone, events under their newer names -, some in each turn of the
 * loop.
 *
 * To read an object and to make its row takes fifty times as long as to copy its text, so that a list of thousands
 * made at once is what everybody else waits for.  What is shown is the moment of the request: the objects are held, which are
 * never changed, and each is let go when its item is made.  One slice is made in the call itself; what has more stands in
 * apisrv->slices and is served by on_turn(), users in turn, one list of each at a time.  So there is one answer in
 * the making for each user at most.
 */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "ev/ev.h"

/* Of one turn: a table of VMIs takes about 3 ms for it. */
enum { SLICE_OBJECTS = 64, SLICE_BYTES = 256 * 1024 };

struct slices {
	struct list link; /* in apisrv->slices; unlinked: it is the call's first turn */
	struct apisrv_call *call;
	slice_fn item;
	usec_t now;
	struct obj_list found;
	size_t next;
	struct sbuf out;
	char *tail; /* what follows the items */
};

static void on_turn(void *arg);

struct slices *slices_free(struct slices *sl)
{
	if (!sl)
		return NULL;
	list_remove(&sl->link);
	obj_list_fini(&sl->found);
	sbuf_fini(&sl->out);
	mem_free(sl->tail);
	return mem_free(sl);
}

/* ---- text -------------------------------------------------------------------------------------------- */

static void print(const struct slices *sl, const struct json *j, struct sbuf *out)
{
	if (sl->call->out.pretty)
		js_print_pretty(j, out, 2);
	else
		js_print(j, out, false);
}

/* The shell is printed without items; they go into its last member, an empty array. */
static enum rc begin(struct slices *sl, const struct json *shell)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_RESPONSE_BYTES);

	print(sl, shell, &b);
	enum rc rc = sbuf_rc(&b);

	if (rc)
		return rc;
	char *end = strrchr(b.p, ']');

	sbuf_add(&sl->out, b.p, (size_t)(end - b.p));
	sl->tail = mem_printf("%s%s", sl->call->out.pretty && sl->found.n ? "\n  " : "", end);
	return sl->tail ? sbuf_rc(&sl->out) : RC_NOMEM;
}

/* Newlines in texts are escaped: each one here begins a line of the item. */
static void add_indented(struct sbuf *out, const char *text)
{
	for (const char *line = text, *end; line; line = end ? end + 1 : NULL) {
		end = strchr(line, '\n');
		sbuf_adds(out, "\n    ");
		sbuf_add(out, line, end ? (size_t)(end - line) : strlen(line));
	}
}

static bool add_item(struct slices *sl, struct obj *o)
{
	CLEANUP(js_unrefp) struct json *obj = obj_json(o);
	CLEANUP(js_unrefp) struct json *item = obj ? sl->item(sl->call, obj, sl->now) : NULL;

	if (!item)
		return false;
	if (sl->next)
		sbuf_addc(&sl->out, ',');
	if (!sl->call->out.pretty) {
		print(sl, item, &sl->out);
		return true;
	}
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_RESPONSE_BYTES);

	print(sl, item, &b);
	if (sbuf_rc(&b))
		return false;
	add_indented(&sl->out, b.p);
	return true;
}

/* ---- turns ------------------------------------------------------------------------------------------- */

static void finish(struct slices *sl)
{
	struct apisrv_call *c = sl->call;
	char *text = NULL;
	size_t n = 0;

	sbuf_adds(&sl->out, sl->tail);
	enum rc rc = sbuf_take(&sl->out, &text, &n);

	if (rc == RC_TOO_BIG)
		call_too_large_list(c);
	else if (rc)
		call_nomem(c);
	else
		call_answer_take(c, 200, "application/json", text, n);
}

/* False: there is more to do; else the call is answered. */
static bool one_slice(struct slices *sl)
{
	size_t n = 0, bytes = 0, n_text;

	for (; sl->next < sl->found.n && n < SLICE_OBJECTS && bytes < SLICE_BYTES; n++) {
		struct obj **o = &sl->found.items[sl->next];

		obj_text(*o, &n_text);
		bytes += n_text;
		if (!add_item(sl, *o)) {
			call_nomem(sl->call);
			return true;
		}
		*o = obj_unref(*o);
		sl->next++;
	}
	if (sl->next < sl->found.n && sl->out.rc == RC_OK)
		return false;
	finish(sl);
	return true;
}

/* The one that has waited longest, of the user whose turn is the longest ago. */
static struct slices *whose_turn(struct apisrv *s)
{
	struct slices *best = NULL;

	LIST_FOREACH(it, &s->slices) {
		struct slices *sl = LIST_ENTRY(it, struct slices, link);

		if (!best || flow_last_turn(sl->call) < flow_last_turn(best->call))
			best = sl;
	}
	return best;
}

static bool arm(struct apisrv *s)
{
	return s->slices_defer || !ev_defer(s->loop, &s->slices_defer, on_turn, s, NULL);
}

static void on_turn(void *arg)
{
	struct apisrv *s = arg;
	struct slices *sl = whose_turn(s);

	s->slices_defer = ev_src_free(s->slices_defer);
	if (!sl)
		return;
	struct apisrv_call *c = sl->call;
	usec_t start = loop_now(s->loop);

	call_enter(c);
	flow_take_turn(c);
	if (one_slice(sl))
		c->slices = slices_free(sl);
	flow_worked(c, loop_now(s->loop) - start);
	call_leave(c);
	/* No memory for a next turn: nobody is left waiting for it. */
	while (!list_is_empty(&s->slices) && !arm(s)) {
		sl = LIST_ENTRY(s->slices.next, struct slices, link);
		c = sl->call;
		call_enter(c);
		call_nomem(c);
		c->slices = slices_free(sl);
		call_leave(c);
	}
}

void serve_slices(struct apisrv_call *c, struct json *shell, struct obj_list *found, slice_fn item)
{
	struct slices *sl = shell ? mem_alloc(sizeof(*sl)) : NULL;
	CLEANUP(js_unrefp) struct json *own = shell;

	if (!sl) {
		call_nomem(c);
		return;
	}
	list_init(&sl->link);
	sbuf_init(&sl->out, LIMIT_RESPONSE_BYTES);
	sl->call = c;
	sl->item = item;
	sl->now = loop_realtime(c->srv->loop);
	sl->found = *found;
	*found = (struct obj_list){0};
	bool is_over = begin(sl, own) != RC_OK;

	if (is_over)
		call_nomem(c);
	else
		is_over = one_slice(sl);
	if (!is_over && !arm(c->srv)) {
		call_nomem(c);
		is_over = true;
	}
	if (is_over) {
		slices_free(sl);
		return;
	}
	c->slices = sl;
	list_push_tail(&c->srv->slices, &sl->link);
}
