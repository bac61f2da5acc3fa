#include <string.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "ctl/prom.h"
#include "ev/ev.h"
#include "http/client.h"
#include "http/server.h"
#include "http/ws.h"
#include "virt/subresources/subres_int.h"

/* A stream of a VMI (console, display, port): a websocket to the client and one to the agent of the VMI's node, and
 * bytes in both directions.  The client's handshake is answered only after the agent's came through, so that a
 * refusal of the agent is an HTTP answer.  When one side is slow the other one is not read.
 *
 * A stream that follows stays the VMI's when that moves: when the source's end of it is over the target's is asked for,
 * while the client waits, as soon as the VMI names the target.  That is about to happen, or has happened: the two nodes
 * say each for itself what they have done.  Nothing tells a subresource of changes, so the VMI is looked at.  A stream
 * whose protocol has a memory of its own (RFB) cannot: it ends with the source's end of it.
 */
static const char PROTOCOL[] = "plain.kubevirt.io";
static const usec_t DIAL_TIMEOUT = 10 * USEC_PER_SEC;
static const usec_t FOLLOW_FOR = 10 * USEC_PER_SEC, FOLLOW_LOOK = 20 * USEC_PER_MSEC;

struct stream {
	struct list link;
	struct virt_subres *s;
	const char *what, *family; /* for people; for who scrapes */
	bool follows, is_told_by_agent;
	struct hook_env *env;
	struct hook_call *call; /* until the upgrade */
	struct http_ws *agent;
	struct http_ws *client;
	char *ns, *name, *uid;
	char *path; /* below the VMI */
	char *node; /* whose agent this is */
	bool agent_closed, client_closed;
	bool is_following; /* the next agent is not known, or has not answered yet */
	struct ev_src *look;
	usec_t follow_until;
	uint16_t code; /* with which the last agent ended */
};

static void stream_free(struct stream *k)
{
	list_remove(&k->link);
	http_ws_free(k->agent);
	http_ws_free(k->client);
	ev_src_free(k->look);
	mem_free(k->ns);
	mem_free(k->name);
	mem_free(k->uid);
	mem_free(k->path);
	mem_free(k->node);
	mem_free(k);
}

static void forward(struct http_ws *from, struct http_ws *to, bool is_text, const uint8_t *bytes,
		    size_t n)
{
	if (!to || is_text) /* text messages are no part of the stream */
		return;
	/* Busy cannot be: reading stops at half of the backlog, and what is already read is less. */
	ignore_rc(http_ws_send(to, false, bytes, n));
	if (http_ws_backlog(to) > HTTP_WS_BACKLOG / 2)
		http_ws_pause(from, true);
}

/* One side ended: so does the other, with the same code. */
static void pass_close(struct http_ws **other, uint16_t code, const char *reason)
{
	if (!*other)
		return;
	if (code == HTTP_WS_ABNORMAL)
		*other = http_ws_free(*other); /* the client sees 1006 too */
	else
		http_ws_close(*other, code == HTTP_WS_NO_STATUS ? HTTP_WS_NORMAL : code, reason);
}

static void on_closed(struct stream *k)
{
	if ((k->agent_closed || !k->agent) && (k->client_closed || !k->client))
		stream_free(k);
}

/* The client's side */

static void client_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n,
			   void *arg)
{
	struct stream *k = arg;

	forward(ws, k->agent_closed || k->is_following ? NULL : k->agent, is_text, bytes, n);
}

static void client_room(struct http_ws *ws, void *arg)
{
	struct stream *k = arg;

	(void)ws;
	if (k->agent && !k->agent_closed)
		http_ws_pause(k->agent, false);
}

static void client_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
			 const struct err *why, void *arg)
{
	struct stream *k = arg;

	(void)ws;
	(void)status;
	(void)why;
	k->client_closed = true;
	if (!k->agent_closed)
		pass_close(&k->agent, code, reason);
	on_closed(k);
}

static const struct http_ws_ops client_ops = {
	.on_message = client_message, .on_room = client_room, .on_close = client_close};

/* The agent's side */

static void agent_open(struct http_ws *ws, const char *protocol, void *arg)
{
	static const char *const supported[] = {PROTOCOL, NULL};
	struct stream *k = arg;
	struct hook_call *call = STEAL(k->call);
	struct err err = {0};

	(void)ws;
	(void)protocol;
	if (!call) { /* the client has been there for long */
		k->is_following = false;
		http_ws_pause(k->client, false);
		return;
	}
	struct http_req *req = hook_call_http(call);

	hook_call_on_cancel(call, NULL);
	hook_call_set_data(call, NULL);
	if (http_upgrade_ws(req, http_req_ws_protocol(req, supported), &client_ops, k, &k->client,
			    &err)) {
		fail_bad_request(call, "%s", err.msg);
		stream_free(k);
		return;
	}
	hook_call_upgraded(call);
}

static void agent_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n,
			  void *arg)
{
	struct stream *k = arg;

	forward(ws, k->client_closed ? NULL : k->client, is_text, bytes, n);
}

static void agent_room(struct http_ws *ws, void *arg)
{
	struct stream *k = arg;

	(void)ws;
	if (k->client && !k->client_closed)
		http_ws_pause(k->client, false);
}

static void refused(struct stream *k, int status, const struct err *why)
{
	struct hook_call *call = STEAL(k->call);
	const char *text = why ? why->msg : "the connection ended";

	hook_call_on_cancel(call, NULL);
	hook_call_set_data(call, NULL);
	if (status == 409)
		fail_conflict(call, "virtualmachineinstance", "%s", text);
	else if (status == 400 || status == 404)
		fail_bad_request(call, "%s", text); /* clients try again on 400 */
	else if (status == 503)
		hook_call_fail(call, RC_CLOSED, "%s", text);
	else if (k->is_told_by_agent)
		fail_internal(call, "%s", text);
	else
		fail_internal(call, "the node's agent does not give a %s: %s", k->what, text);
	stream_free(k);
}

static void agent_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
			const struct err *why, void *arg);

static const struct http_ws_ops agent_ops = {.on_open = agent_open,
					     .on_message = agent_message,
					     .on_room = agent_room,
					     .on_close = agent_close};

static enum rc connect_to(struct stream *k, const struct json *vmi, struct err *err)
{
	const char *node = js_str(js_at(vmi, "status", "nodeName", NULL));
	CLEANUP(mem_freep) char *url = NULL;
	char *copy = mem_strdup(node ?: "");

	if (!copy)
		return err_set(err, RC_NOMEM, "out of memory");
	mem_free(k->node);
	k->node = copy;
	TRY(agent_url(k->env, vmi, k->path, &url, err));
	return http_ws_connect(k->s->agents, &k->agent, url, PROTOCOL, DIAL_TIMEOUT, &agent_ops, k,
			       err);
}

static void on_look(void *arg);

/* Its console goes on where the guest runs by now, or will in a moment.  False: there is no such place. */
static bool follow(struct stream *k)
{
	const struct json *vmi = hook_get(k->env, VMI_RESOURCE, k->ns, k->name);
	struct err err = {0};
	enum rc rc;

	if (!vmi || !vmi_is_running(vmi) ||
	    !str_eq(js_str(js_at(vmi, "metadata", "uid", NULL)), k->uid))
		return false;
	if (!str_eq(js_str(js_at(vmi, "status", "nodeName", NULL)), k->node)) {
		k->agent = http_ws_free(k->agent);
		rc = connect_to(k, vmi, &err);
		k->agent_closed = rc != RC_OK;
	} else if (vmi_is_leaving(vmi, k->node) && loop_now(k->s->loop) < k->follow_until) {
		rc = ev_timer_after(k->s->loop, &k->look, FOLLOW_LOOK, on_look, k, &err);
	} else {
		return false;
	}
	if (rc) {
		log_warn("%s of '%s/%s': it ends with the move: %s", k->what, k->ns, k->name,
			 err.msg);
		return false;
	}
	k->is_following = true;
	http_ws_pause(k->client, true);
	return true;
}

static void end_with_agent(struct stream *k, const char *reason)
{
	k->is_following = false;
	if (!k->client_closed)
		pass_close(&k->client, k->code, reason);
	on_closed(k);
}

static void on_look(void *arg)
{
	struct stream *k = arg;

	k->look = ev_src_free(k->look);
	if (!follow(k))
		end_with_agent(k, "the guest's end of it on the node it was on has ended");
}

static void agent_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
			const struct err *why, void *arg)
{
	struct stream *k = arg;

	(void)ws;
	k->agent_closed = true;
	k->is_following = false;
	if (k->call) {
		refused(k, status, why);
		return;
	}
	k->code = code;
	k->follow_until = loop_now(k->s->loop) + FOLLOW_FOR;
	if (k->client_closed || !k->follows || !follow(k))
		end_with_agent(k, reason);
}

static void on_cancel(struct hook_call *call)
{
	stream_free(hook_call_data(call));
	hook_call_set_data(call, NULL);
}

static void dial(struct hook_call *call, const struct json *vmi, const struct stream_kind *kind)
{
	struct virt_subres *s = hook_arg(hook_call_env(call));
	struct stream *k = s ? mem_alloc(sizeof(*k)) : NULL;
	struct err err = {0};

	if (!k) {
		fail_internal(call, s ? "out of memory" : "this server has no connection to nodes");
		return;
	}
	k->s = s;
	k->what = kind->name;
	k->family = kind->family;
	k->follows = kind->follows;
	k->is_told_by_agent = kind->is_told_by_agent;
	k->env = hook_call_env(call);
	k->ns = mem_strdup(hook_call_ns(call));
	k->name = mem_strdup(hook_call_name(call));
	k->uid = mem_strdup(js_str(js_at(vmi, "metadata", "uid", NULL)) ?: "");
	k->path = mem_strdup(kind->path);
	list_push_tail(&s->streams, &k->link);
	enum rc rc = k->ns && k->name && k->uid && k->path
			     ? connect_to(k, vmi, &err)
			     : err_set(&err, RC_NOMEM, "out of memory");

	if (rc) {
		stream_free(k);
		fail_internal(call, "%s", err.msg);
		return;
	}
	k->call = call;
	hook_call_set_data(call, k);
	hook_call_on_cancel(call, on_cancel);
}

void stream_open(struct hook_call *call, const struct json *vmi, const struct stream_kind *kind)
{
	struct http_req *req = hook_call_http(call);

	if (req && http_req_wants_upgrade(req))
		dial(call, vmi, kind);
	else
		fail_bad_request(call, "a %s is a websocket: ask with Upgrade: websocket",
				 kind->name);
}

/* What is open now */

static enum rc count_one(struct map *counts, const struct stream *k)
{
	CLEANUP(sbuf_fini) struct sbuf labels = SBUF_INIT(1024);

	prom_label_add(&labels, "namespace", k->ns);
	prom_label_add(&labels, "vmi", k->name);
	TRY(sbuf_rc(&labels));
	size_t *n = map_get(counts, sbuf_str(&labels));

	if (!n) {
		n = mem_alloc(sizeof(*n));
		enum rc rc = n ? map_set(counts, sbuf_str(&labels), n) : RC_NOMEM;

		if (rc) {
			mem_free(n);
			return rc;
		}
	}
	++*n;
	return RC_OK;
}

static void free_count(void *n)
{
	mem_free(n);
}

static void print_open(const struct virt_subres *s, const char *family, const char *help,
		       struct sbuf *out)
{
	struct map counts;

	map_init(&counts, free_count);
	LIST_FOREACH(it, &s->streams) {
		const struct stream *k = LIST_ENTRY(it, struct stream, link);
		bool is_open = k->client && !k->client_closed && str_eq(k->family, family);
		enum rc rc = is_open ? count_one(&counts, k) : RC_OK;

		if (rc && !out->rc)
			out->rc = rc;
	}
	prom_head(out, family, "gauge", help);
	MAP_FOREACH(it, &counts)
		sbuf_addf(out, "%s{%s} %zu\n", family, it->key, *(size_t *)it->value);
	map_fini(&counts);
}

void virt_subres_metrics(const struct virt_subres *s, struct sbuf *out)
{
	print_open(s, STREAM_CONSOLES, "Serial consoles of the instance that clients have open.",
		   out);
	print_open(s, STREAM_DISPLAYS, "Displays of the instance that clients have open.", out);
	print_open(s, STREAM_PORTS, "Ports of the instance to which clients have a connection.",
		   out);
}

struct virt_subres *virt_subres_free(struct virt_subres *s)
{
	if (!s)
		return NULL;
	assert(list_is_empty(&s->pending));
	while (!list_is_empty(&s->streams))
		stream_free(LIST_ENTRY(s->streams.next, struct stream, link));
	http_client_free(s->agents);
	return mem_free(s);
}
