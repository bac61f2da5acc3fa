/* deletecollection: each object by a deletion of its own, as the caller, so many at a time. */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>

#include "base/mem.h"
#include "ev/ev.h"

/* A collection never has more than WINDOW writes on their way, so it does not fill the store's queue however large it
 * is; and when others have filled that, its deletions are tried again instead of ending the collection half way. */
enum { WINDOW = 64, TRIES = 600 };
static const usec_t PAUSE = 100 * USEC_PER_MSEC;

struct doomed_one {
	struct apisrv_call *call;
	struct obj *obj; /* a reference */
	bool is_sent;
};

struct doomed {
	struct doomed_one *ones;
	size_t n, next, n_running;
	unsigned n_tries;     /* pauses since the last deletion that went through */
	struct ev_src *timer; /* the pause */
};

struct doomed *doomed_free(struct doomed *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->n; i++)
		obj_unref(d->ones[i].obj);
	mem_free(d->ones);
	ev_src_free(d->timer);
	return mem_free(d);
}

static void collection_step(struct apisrv_call *c);

static void on_pause(void *arg)
{
	struct apisrv_call *c = arg;

	call_enter(c);
	collection_step(c);
	call_leave(c);
}

/* Too much waits for the disk: this one again, a little later.  False: that was tried long enough. */
static bool try_again(struct apisrv_call *c, struct doomed_one *one)
{
	struct doomed *d = c->doomed;

	if (d->n_tries >= TRIES)
		return false;
	if (!d->timer && ev_timer_after(c->srv->loop, &d->timer, USEC_INFINITY, on_pause, c, NULL))
		return false;
	if (!ev_timer_is_armed(d->timer)) {
		d->n_tries++;
		ev_timer_rearm(d->timer, PAUSE);
	}
	one->is_sent = false;
	d->next = MIN(d->next, (size_t)(one - d->ones));
	return true;
}

static void on_one_deleted(void *arg, int status, const struct json *obj)
{
	struct doomed_one *one = arg;
	struct apisrv_call *c = one->call;
	bool is_busy = status == 429 || status == 503;

	call_enter(c);
	c->doomed->n_running--;
	if (status < 400)
		c->doomed->n_tries = 0;
	/* Gone meanwhile is as good as deleted. */
	if (status >= 400 && status != 404 && !c->done && !(is_busy && try_again(c, one)))
		call_answer_json(c, status, js_copy(obj));
	collection_step(c);
	call_leave(c);
}

static bool delete_one(struct apisrv_call *c, struct doomed_one *one)
{
	CLEANUP(js_unrefp) struct json *obj = obj_json(one->obj);
	CLEANUP(mem_freep) char *target = NULL;
	const char *dry = call_is_dry_run(c) ? "?dryRun=All" : "";
	const char *root = *c->group ? "/apis/" : "/api", *ns = obj ? json_ns(obj) : "";

	if (obj)
		target = mem_printf("%s%s/%s%s%s/%s/%s%s", root, c->group, c->version,
				    *ns ? "/namespaces/" : "", ns, c->plural, json_name(obj), dry);
	if (!target)
		return false;
	one->is_sent = true;
	c->doomed->n_running++;
	enum rc rc = apisrv_inner(c->srv, c, &c->user, "DELETE", target, NULL,
				  c->json ? js_copy(c->json) : NULL, on_one_deleted, one, NULL);

	if (rc)
		c->doomed->n_running--;
	return rc == RC_OK;
}

static void collection_step(struct apisrv_call *c)
{
	struct doomed *d = c->doomed;

	if (c->done || (d->timer && ev_timer_is_armed(d->timer)))
		return;
	for (; d->next < d->n && d->n_running < WINDOW; d->next++)
		if (!d->ones[d->next].is_sent && !delete_one(c, &d->ones[d->next])) {
			call_nomem(c);
			return;
		}
	if (d->next == d->n && !d->n_running)
		call_answer_json(c, 200, STEAL(c->reply));
}

/* What is found goes into the answer and to its end. */
static bool doom(struct apisrv_call *c, struct filter *f, const struct obj_list *found)
{
	struct doomed *d = c->doomed = mem_alloc(sizeof(*d));

	if (!d)
		return false;
	d->ones = mem_calloc(found->n + 1, sizeof(*d->ones));
	for (size_t i = 0; d->ones && i < found->n; i++) {
		if (!filter_matches(f, found->items[i]))
			continue;
		CLEANUP(js_unrefp) struct json *obj = obj_json(found->items[i]);

		if (!obj || js_append(js_get(c->reply, "items"), list_item(c, obj)))
			return false;
		d->ones[d->n++] = (struct doomed_one){.call = c, .obj = obj_ref(found->items[i])};
	}
	flow_charge(c, d->n);
	return d->ones && !f->nomem;
}

void serve_deletecollection(struct apisrv_call *c)
{
	struct filter f;
	struct obj_list found = {0};
	bool more = false;
	char rv[24];

	if (!call_parse_dry_run(c, c->json) || !filter_parse(c, &f))
		return;
	struct store_page page = {.table = c->res->table, .prefix = f.prefix};
	enum rc rc = store_list(c->srv->store, &page, &found, &more, NULL, NULL);

	snprintf(rv, sizeof(rv), "%lld", (long long)store_rev(c->srv->store));
	c->reply =
		js_pack("{s:s, s:s, s:{s:s}, s:[]}", "kind", c->res->kind->list_kind, "apiVersion",
			c->res->kind->api_version, "metadata", "resourceVersion", rv, "items");
	bool ok = !rc && c->reply && doom(c, &f, &found);

	filter_fini(&f);
	obj_list_fini(&found);
	if (ok)
		collection_step(c);
	else
		call_nomem(c);
}
