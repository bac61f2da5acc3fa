#include "virt/node/agent_http.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "http/server.h"
#include "json/json.h"
#include "virt/node/agent_answer.h"
#include "virt/node/agent_display.h"
#include "virt/node/agent_forward.h"
#include "virt/node/agent_session.h"
#include "virt/node/migration.h"
#include "virt/node/vm.h"

enum { SEGMENTS_MAX = 8, METRICS_BYTES = 4 * 1024 * 1024 };

struct agent_http {
	struct agent_http_config cfg;
	struct http_server *server;
	struct forwards *forwards;
	struct agent_sessions consoles; /* with the guest's serial line */
	struct list waits;
	struct agent_display *display;
};

/* A request that waits for the launcher. */
struct wait {
	struct list link;
	struct agent_http *a;
	struct http_req *req; /* NULL: the client has left */
	char *vm;
	const struct verb *verb; /* of the API server's; NULL: a move */
};

/* What the API server may ask of a VM that runs here. */
struct verb {
	const char *path;
	const char *http;   /* the request's method */
	const char *method; /* the launcher's */
	bool is_stream;	    /* a websocket, which the descriptor in the answer is joined to */
	bool has_body;	    /* its JSON object is the method's params */
	bool has_answer;    /* the launcher's result is the answer's body */
	unsigned seconds;   /* until the launcher has to have answered; 0: as every call */
};
static const struct verb verbs[] = {
	{.path = "console", .http = "GET", .method = "console", .is_stream = true},
	{.path = "pause", .http = "PUT", .method = "pause"},
	{.path = "unpause", .http = "PUT", .method = "unpause"},
	{.path = "reset", .http = "PUT", .method = "reset"},
	{.path = "softreboot", .http = "PUT", .method = "softReboot"},
	{.path = "guestosinfo",
	 .http = "GET",
	 .method = "guestInfo",
	 .has_answer = true,
	 .seconds = 40},
	{.path = "userlist", .http = "GET", .method = "guestUsers", .has_answer = true},
	{.path = "filesystemlist", .http = "GET", .method = "guestFilesystems", .has_answer = true},
	{.path = "freeze",
	 .http = "PUT",
	 .method = "guestFreeze",
	 .has_body = true,
	 .seconds = 130},
	{.path = "unfreeze", .http = "PUT", .method = "guestThaw", .seconds = 70},
};

static bool is_in_group(const struct http_peer *p, const char *group)
{
	for (size_t i = 0; p->has_cert && i < p->n_orgs; i++)
		if (strcmp(p->orgs[i], group) == 0)
			return true;
	return false;
}

/* --- requests that wait --- */

static void wait_free(struct wait *w)
{
	list_remove(&w->link);
	mem_free(w->vm);
	mem_free(w);
}

static void on_cancel(struct http_req *req, void *arg)
{
	struct wait *w = arg;

	(void)req;
	w->req = NULL;
}

static void on_done(enum rc rc, const char *message, const struct json *result, int fd, void *arg)
{
	struct wait *w = arg;
	char *text = NULL;

	if (!w->req || !w->a) {
		fd_close(fd);
	} else if (rc) {
		http_req_on_cancel(w->req, NULL, NULL);
		agent_answer_rc(w->req, rc, message);
	} else if (w->verb->is_stream && fd >= 0) {
		http_req_on_cancel(w->req, NULL, NULL);
		agent_sessions_open(&w->a->consoles, w->req, w->vm, fd);
	} else {
		fd_close(fd);
		http_req_on_cancel(w->req, NULL, NULL);
		if (w->verb->has_answer)
			text = js_to_text(result);
		if (text)
			http_respond_take(w->req, 200, "application/json", text, strlen(text), NULL,
					  0);
		else if (w->verb->has_answer)
			agent_answer_rc(w->req, RC_NOMEM, "out of memory");
		else
			http_respond(w->req, 200, NULL, "", 0, NULL, 0);
	}
	wait_free(w);
}

/* NULL: the request has been answered. */
static struct vm *find_vm(struct agent_http *a, struct http_req *req, const char *ns,
			  const char *name)
{
	struct vm *vm = vmhost_find(a->cfg.host, ns, name);

	if (!vm)
		agent_answer(req, 404, "NotFound",
			     "virtualmachineinstances.kubevirt.io \"%s\" does not run on this node",
			     name);
	return vm;
}

static void display(struct agent_http *a, struct http_req *req, const char *ns, const char *name,
		    bool is_picture)
{
	struct vm *vm = find_vm(a, req, ns, name);
	CLEANUP(mem_freep) char *whole = mem_printf("%s/%s", ns, name);

	if (vm && !whole)
		agent_answer_rc(req, RC_NOMEM, "out of memory");
	else if (vm && is_picture)
		agent_display_screenshot(a->display, req, vm, whole);
	else if (vm)
		agent_display_vnc(a->display, req, vm, whole);
}

/* The params of a method: the body, as far as the method has any. */
static enum rc read_params(struct http_req *req, const struct verb *v, struct json **out,
			   struct err *err)
{
	size_t n = 0;
	const char *text = http_req_body(req, &n);

	*out = NULL;
	if (!v->has_body || !n)
		return RC_OK;
	TRY(js_parse(text, n, out, err));
	if (js_is_object(*out))
		return RC_OK;
	*out = js_unref(*out);
	return err_set(err, RC_BAD_REQUEST, "the body must be an object");
}

static void command(struct agent_http *a, struct http_req *req, const char *ns, const char *name,
		    const struct verb *verb)
{
	struct vm *vm = find_vm(a, req, ns, name);
	struct json *params = NULL;
	struct wait *w;
	struct err err = {0};

	if (!vm)
		return;
	if (read_params(req, verb, &params, &err)) {
		agent_answer_rc(req, err.rc, err.msg);
		return;
	}
	w = mem_alloc(sizeof(*w));
	if (w)
		w->vm = mem_printf("%s/%s", ns, name);
	if (!w || !w->vm) {
		js_unref(params);
		mem_free(w);
		agent_answer_rc(req, RC_NOMEM, "out of memory");
		return;
	}
	w->a = a;
	w->req = req;
	w->verb = verb;
	list_push_tail(&a->waits, &w->link);
	http_req_on_cancel(req, on_cancel, w);
	if (vm_command(vm, verb->method, params, verb->seconds * USEC_PER_SEC, on_done, w, &err)) {
		http_req_on_cancel(req, NULL, NULL);
		wait_free(w);
		agent_answer_rc(req, err.rc, err.msg);
	}
}

/* --- moves --- */

static void on_move(enum rc rc, const char *message, struct json *body, void *arg)
{
	struct wait *w = arg;

	if (w->req && w->a) {
		http_req_on_cancel(w->req, NULL, NULL);
		char *text = rc ? NULL : js_to_text(body);

		if (rc || !text)
			agent_answer_rc(w->req, rc ? rc : RC_NOMEM, message);
		else
			http_respond_take(w->req, 200, "application/json", text, strlen(text), NULL,
					  0);
	}
	js_unref(body);
	wait_free(w);
}

static void move(struct agent_http *a, struct http_req *req, const char *vmi_uid, const char *what)
{
	CLEANUP(js_unrefp) struct json *body = NULL;
	struct wait *w;
	struct err err = {0};
	size_t n = 0;
	const char *text = http_req_body(req, &n);
	const char *cn = http_req_peer(req)->cn;

	if (!str_has_prefix(cn, "system:node:")) {
		agent_answer(req, 403, "Forbidden", "only nodes may take part in moves");
		return;
	}
	if (js_parse(text, n, &body, &err)) {
		agent_answer_rc(req, err.rc, err.msg);
		return;
	}
	w = mem_alloc(sizeof(*w));
	if (!w) {
		agent_answer_rc(req, RC_NOMEM, "out of memory");
		return;
	}
	w->a = a;
	w->req = req;
	list_push_tail(&a->waits, &w->link);
	http_req_on_cancel(req, on_cancel, w);
	mig_target_request(a->cfg.host, vmi_uid, what, cn + strlen("system:node:"), body, on_move,
			   w);
}

/* --- routing --- */

static size_t split_path(char *path, char *seg[SEGMENTS_MAX])
{
	size_t n = 0;

	for (char *save = NULL, *s = strtok_r(path, "/", &save); s && n < SEGMENTS_MAX;
	     s = strtok_r(NULL, "/", &save))
		seg[n++] = s;
	return n;
}

static void serve_metrics(struct agent_http *a, struct http_req *req)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(METRICS_BYTES);

	a->cfg.metrics(&b, a->cfg.arg);
	if (sbuf_rc(&b))
		agent_answer_rc(req, sbuf_rc(&b), "the metrics are too large");
	else
		http_respond(req, 200, "text/plain; version=0.0.4", sbuf_str(&b), b.n, NULL, 0);
}

static void forward(struct agent_http *a, struct http_req *req, char *seg[SEGMENTS_MAX])
{
	struct vm *vm = find_vm(a, req, seg[2], seg[4]);

	if (vm)
		forward_open(a->forwards, req, vm_address(vm), seg[6], seg[7]);
}

static const struct verb *verb_of(struct http_req *req, const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(verbs[i].path, path) == 0 &&
		    strcmp(verbs[i].http, http_req_method(req)) == 0 &&
		    verbs[i].is_stream == http_req_wants_upgrade(req))
			return &verbs[i];
	return NULL;
}

/* What the API server asks of a VM: "v1/namespaces/NS/virtualmachineinstances/NAME/...". */
static void route_vm(struct agent_http *a, struct http_req *req, char *seg[SEGMENTS_MAX], size_t n)
{
	const struct verb *verb = n == 6 ? verb_of(req, seg[5]) : NULL;
	bool is_stream = http_req_wants_upgrade(req), is_vnc = strcmp(seg[5], "vnc") == 0;
	bool is_picture = n == 7 && is_vnc && strcmp(seg[6], "screenshot") == 0 &&
			  strcmp(http_req_method(req), "GET") == 0;

	if (!is_in_group(http_req_peer(req), "system:masters"))
		agent_answer(req, 403, "Forbidden", "only the API server may do this");
	else if (verb)
		command(a, req, seg[2], seg[4], verb);
	else if (is_picture || (n == 6 && is_vnc && is_stream))
		display(a, req, seg[2], seg[4], is_picture);
	else if (n == 8 && is_stream && strcmp(seg[5], "portforward") == 0)
		forward(a, req, seg);
	else
		agent_answer(req, 404, "NotFound", "the node has no such path");
}

static bool is_path_of_vmi(char *const seg[SEGMENTS_MAX], size_t n)
{
	return n >= 6 && strcmp(seg[0], "v1") == 0 && strcmp(seg[1], "namespaces") == 0 &&
	       strcmp(seg[3], "virtualmachineinstances") == 0;
}

static void route(struct agent_http *a, struct http_req *req, char *seg[SEGMENTS_MAX], size_t n)
{
	const char *method = http_req_method(req);
	bool master = is_in_group(http_req_peer(req), "system:masters");

	if (is_path_of_vmi(seg, n)) {
		route_vm(a, req, seg, n);
	} else if (n == 4 && strcmp(seg[0], "v1") == 0 && strcmp(seg[1], "moves") == 0 &&
		   strcmp(method, "POST") == 0) {
		move(a, req, seg[2], seg[3]);
	} else if (n == 1 && strcmp(seg[0], "metrics") == 0 && master) {
		serve_metrics(a, req);
	} else {
		agent_answer(req, 404, "NotFound", "the node has no such path");
	}
}

static void on_request(struct http_req *req, void *arg)
{
	struct agent_http *a = arg;
	char *seg[SEGMENTS_MAX];

	if (strcmp(http_req_path(req), "/healthz") == 0) {
		http_respond(req, 200, "text/plain", "ok", 2, NULL, 0);
		return;
	}
	if (!http_req_peer(req)->has_cert) {
		agent_answer(req, 401, "Unauthorized",
			     "a client certificate of this cluster is needed");
		return;
	}
	CLEANUP(mem_freep) char *path = mem_strdup(http_req_path(req));

	if (path)
		route(a, req, seg, split_path(path, seg));
	else
		agent_answer_rc(req, RC_NOMEM, "out of memory");
}

enum rc agent_http_new(struct agent_http **out, const struct agent_http_config *config,
		       struct err *err)
{
	CLEANUP(agent_http_freep) struct agent_http *a = mem_alloc(sizeof(*a));
	struct http_server_config sc = {.address = config->address,
					.port = config->port,
					.cert_file = config->cert_file,
					.key_file = config->key_file,
					.ca_file = config->ca_file,
					.connections_max = 256,
					.handler = on_request};

	if (!a)
		return err_set(err, RC_NOMEM, "out of memory");
	a->cfg = *config;
	agent_sessions_init(&a->consoles, "console", "the console has ended");
	list_init(&a->waits);
	a->forwards = forwards_new(config->loop);
	if (!a->forwards)
		return err_set(err, RC_NOMEM, "out of memory");
	sc.arg = a;
	a->display = agent_display_new();
	if (!a->display)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = http_server_new(&a->server, config->loop, &sc, err);

	if (rc)
		return rc;
	*out = STEAL(a);
	return RC_OK;
}

enum rc agent_http_reload_tls(struct agent_http *a, struct err *err)
{
	return http_server_reload_tls(a->server, err);
}

struct agent_http *agent_http_free(struct agent_http *a)
{
	if (!a)
		return NULL;
	agent_sessions_fini(&a->consoles);
	agent_display_free(a->display);
	forwards_free(a->forwards);
	http_server_free(a->server);
	/* Answers of launchers that are still to come find nobody. */
	LIST_FOREACH_SAFE(it, tmp, &a->waits) {
		struct wait *w = LIST_ENTRY(it, struct wait, link);

		list_remove(&w->link);
		w->a = NULL;
		w->req = NULL;
	}
	return mem_free(a);
}
