#include <string.h>

#include "base/mem.h"
#include "ev/ev.h"
#include "http/client.h"
#include "virt/subresources/subres_int.h"

/* What the agent of the VMI's node is asked.  A guest that is being moved is for a moment nobody's, or another node's
 * than was thought: then the same is asked again of the node that the VMI names by then, until the call's time is over.
 * That does no harm: an agent that says "not here" or "busy" has done nothing. */
static const usec_t ASK_TIMEOUT = 20 * USEC_PER_SEC, ASK_AGAIN = 50 * USEC_PER_MSEC;

struct asked {
	struct list link;
	struct virt_subres *s;
	struct hook_call *call;
	struct http_slot *slot;
	struct ev_src *again;
	struct node_ask ask;
	char *body, *node;
	usec_t until;
};

static struct asked *asked_free(struct asked *p)
{
	list_remove(&p->link);
	http_slot_free(p->slot);
	ev_src_free(p->again);
	mem_free(p->body);
	mem_free(p->node);
	return mem_free(p);
}

static void on_cancel(struct hook_call *call)
{
	asked_free(hook_call_data(call));
	hook_call_set_data(call, NULL);
}

void node_ask_failed(struct hook_call *call, int status, const char *why)
{
	if (!status)
		fail_internal(call, "the node's agent does not answer: %s", why);
	else if (status == 409)
		fail_conflict(call, "virtualmachineinstance", "%s", why);
	else
		fail_internal(call, "%s", why);
}

static void conclude(struct hook_call *call, const struct node_ask *ask,
		     const struct http_result *r)
{
	void (*failed)(struct hook_call *, int, const char *) =
		ask->failed ? ask->failed : node_ask_failed;
	CLEANUP(js_unrefp) struct json *status = NULL;
	const char *text;

	if (!r->rc && r->status / 100 == 2) {
		if (ask->done)
			ask->done(call, r);
		else
			reply_empty(call, 200);
		return;
	}
	if (r->rc) {
		failed(call, 0, r->err->msg);
		return;
	}
	ignore_rc(js_parse(r->body, r->n, &status, NULL)); /* no text then */
	text = js_get_str(status, "message");
	failed(call, r->status,
	       text		  ? text
	       : r->status == 409 ? "refused"
				  : "the node's agent refused");
}

/* r may lie in the slot, which goes last. */
static void ended(struct asked *p, const struct http_result *r)
{
	hook_call_on_cancel(p->call, NULL);
	hook_call_set_data(p->call, NULL);
	conclude(p->call, &p->ask, r);
	asked_free(p);
}

/* Busy (429) is "ask again".  Not there (404), or gone with its node: the guest may be elsewhere by now. */
static bool is_to_be_asked_again(const struct asked *p, const struct http_result *r)
{
	const struct json *vmi = get_vmi(p->call);
	const char *node = js_str(js_at(vmi, "status", "nodeName", NULL));

	if (!vmi_is_running(vmi) || loop_now(p->s->loop) >= p->until)
		return false;
	if (!r->rc && r->status == 429)
		return true;
	if (r->rc ? r->rc == RC_TIMEOUT : r->status != 404 && r->status != 503)
		return false;
	return !str_eq(node, p->node) || vmi_is_leaving(vmi, p->node);
}

static enum rc send_ask(struct asked *p, struct err *err);

static void on_again(void *arg)
{
	struct asked *p = arg;
	struct err err = {0};

	p->again = ev_src_free(p->again);
	if (send_ask(p, &err)) {
		const struct http_result r = {.rc = err.rc, .err = &err};

		ended(p, &r);
	}
}

static void on_answer(const struct http_result *r, void *arg)
{
	struct asked *p = arg;

	if (is_to_be_asked_again(p, r) &&
	    ev_timer_after(p->s->loop, &p->again, ASK_AGAIN, on_again, p, NULL) == RC_OK)
		p->slot = http_slot_free(p->slot);
	else
		ended(p, r);
}

static enum rc send_ask(struct asked *p, struct err *err)
{
	const struct json *vmi = get_vmi(p->call);
	const char *node = js_str(js_at(vmi, "status", "nodeName", NULL));
	CLEANUP(mem_freep) char *url = NULL;
	usec_t now = loop_now(p->s->loop);
	struct http_call http = {.method = p->ask.method ? p->ask.method : "PUT",
				 .body = p->body,
				 .n_body = p->body ? strlen(p->body) : 0,
				 .content_type = p->body ? "application/json" : NULL,
				 .timeout = p->until > now ? p->until - now : 1,
				 .response_max = p->ask.answer_max,
				 .done = on_answer,
				 .arg = p};

	mem_free(p->node);
	p->node = mem_strdup(node ? node : "");
	if (!p->node)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = agent_url(hook_call_env(p->call), vmi, p->ask.what, &url, err);

	http.url = url;
	return rc ? rc : http_call(p->s->agents, &p->slot, &http, err);
}

void node_ask(struct hook_call *call, const struct node_ask *ask, struct json *body)
{
	struct virt_subres *s = hook_arg(hook_call_env(call));
	struct asked *p = s ? mem_alloc(sizeof(*p)) : NULL;
	struct err err = {0};
	enum rc rc = RC_OK;

	if (!p) {
		js_unref(body);
		fail_internal(call, s ? "out of memory" : "this server has no connection to nodes");
		return;
	}
	p->s = s;
	p->call = call;
	p->ask = *ask;
	p->until = loop_now(s->loop) + (ask->timeout ? ask->timeout : ASK_TIMEOUT);
	list_push_tail(&s->pending, &p->link);
	if (body) {
		p->body = js_to_text(body);
		js_unref(body);
		rc = p->body ? RC_OK : err_set(&err, RC_NOMEM, "out of memory");
	}
	if (!rc)
		rc = send_ask(p, &err);
	if (rc) {
		asked_free(p);
		fail_internal(call, "%s", err.msg);
		return;
	}
	hook_call_set_data(call, p);
	hook_call_on_cancel(call, on_cancel);
}
