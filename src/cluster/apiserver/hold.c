#include "cluster/apiserver/apisrv_int.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* A write is decided on the newest versions, those on their way to the disk included.  So a refusal ("already
 * exists", "not found", "conflict", a quota) or an update that changes nothing may tell of what a loss of power
 * takes back.  Such an answer waits for the commits that were under way; when one fails, what was decided
 * on it is void, and the client is asked to try again. */

struct held_answer {
	struct apisrv_call *call;
	struct store_barrier barrier;
	int status, retry_after;
	char *content_type, *body, *allow;
	size_t n;
};

struct held_answer *held_answer_free(struct held_answer *h)
{
	if (!h)
		return NULL;
	store_barrier_disarm(&h->barrier);
	mem_free(h->content_type);
	mem_free(h->body);
	mem_free(h->allow);
	return mem_free(h);
}

static void on_durable(void *arg, bool is_durable)
{
	struct held_answer *h = arg;
	struct apisrv_call *c = h->call;

	call_enter(c);
	c->held = NULL;
	c->is_settled = true;
	if (is_durable)
		call_release(c, &(struct apisrv_answer){.status = h->status,
							.content_type = h->content_type,
							.body = h->body,
							.owned = &h->body,
							.n = h->n,
							.retry_after = h->retry_after,
							.allow = h->allow});
	else
		call_fail(c, 503, "ServiceUnavailable", NULL,
			  "a write that this answer depended on failed: try again");
	held_answer_free(h);
	call_leave(c);
}

static bool copy(struct held_answer *h, const struct apisrv_answer *a)
{
	h->status = a->status;
	h->retry_after = a->retry_after;
	h->n = a->n;
	h->content_type = mem_strdup(a->content_type);
	h->allow = mem_strdup(a->allow);
	if (!a->owned) {
		h->body = mem_alloc(a->n + 1);
		if (h->body && a->n)
			memcpy(h->body, a->body, a->n);
	}
	return (h->body || a->owned) && (h->content_type || !a->content_type) &&
	       (h->allow || !a->allow);
}

bool call_hold(struct apisrv_call *c, struct apisrv_answer *a)
{
	bool writes = c->verb != VERB_GET && c->verb != VERB_LIST && c->verb != VERB_WATCH;

	if (!writes || c->is_settled || !c->sink || store_is_idle(c->srv->store))
		return false;
	struct held_answer *h = mem_alloc(sizeof(*h));

	if (!h || !copy(h, a)) {
		/* Without memory there is no waiting: say so instead. */
		held_answer_free(h);
		c->is_settled = true;
		call_nomem(c);
		return true;
	}
	if (a->owned)
		h->body = STEAL(*a->owned);
	h->call = c;
	bool is_armed = store_barrier_arm(c->srv->store, &h->barrier, on_durable, h);

	assert(is_armed); /* the store is not idle */
	c->held = h;
	return true;
}
