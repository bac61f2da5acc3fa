#include "cluster/apiserver/apisrv.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/gen/api_types.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "cluster/apiserver/quota.h"
#include "ev/ev.h"

#define EVENT_TTL (3600 * USEC_PER_SEC)

enum { TTL_INTERVAL = 60, BOOKMARK_INTERVAL = 60, MAX_PATH_KEY = 256 };

static const char *const verb_names[VERB__MAX] = {
	[VERB_GET] = "get",	  [VERB_LIST] = "list",
	[VERB_WATCH] = "watch",	  [VERB_CREATE] = "create",
	[VERB_UPDATE] = "update", [VERB_PATCH] = "patch",
	[VERB_DELETE] = "delete", [VERB_DELETECOLLECTION] = "deletecollection",
};

const char *verb_name(enum verb v)
{
	return verb_names[v];
}

enum verb verb_of(const char *name)
{
	for (int v = 0; v < VERB__MAX; v++)
		if (str_eq(verb_names[v], name))
			return v;
	return VERB__MAX;
}

/* ---- identity of things ----------------------------------------------------------------------- */

static const char *const self_groups[] = {GROUP_MASTERS, GROUP_CONTROLLERS};
const struct apisrv_user apisrv_self = {
	.name = "system:apiserver",
	.n_groups = ARRAY_SIZE(self_groups),
	.groups = self_groups,
};

bool apisrv_user_in_group(const struct apisrv_user *u, const char *group)
{
	for (size_t i = 0; i < u->n_groups; i++)
		if (strcmp(u->groups[i], group) == 0)
			return true;
	return false;
}

bool apisrv_user_is_component(const struct apisrv_user *u)
{
	return apisrv_user_in_group(u, GROUP_CONTROLLERS) || apisrv_user_in_group(u, GROUP_NODES);
}

struct resource *apisrv_resource(struct apisrv *s, const char *table)
{
	return map_get(&s->by_table, table);
}

const struct served *apisrv_served_at(struct apisrv *s, const char *group, const char *version,
				      const char *plural)
{
	char path[MAX_PATH_KEY];

	/* What is cut is longer than any key of the map. */
	snprintf(path, sizeof(path), "%s/%s/%s", group, version, plural);
	return map_get(&s->by_path, path);
}

char *object_key(const struct resource *res, const char *ns, const char *name)
{
	if (res->kind->is_namespaced)
		return mem_printf("%s/%s/%s", res->table, ns, name);
	return mem_printf("%s/%s", res->table, name);
}

static uint64_t seeded(struct apisrv *s)
{
	s->seed += 0x9e3779b97f4a7c15u;
	uint64_t z = s->seed;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void apisrv_uuid(struct apisrv *s, char out[37])
{
	if (!s->seed) {
		rand_uuid(out);
		return;
	}
	uint64_t a = seeded(s), b = seeded(s);

	snprintf(out, 37, "%08x-%04x-4%03x-8%03x-%012llx", (unsigned)(a >> 32),
		 (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xfff, (unsigned)(b >> 48) & 0xfff,
		 (unsigned long long)(b & 0xffffffffffffu));
}

void apisrv_rand_name(struct apisrv *s, char *out, size_t n)
{
	static const char alphabet[] = "bcdfghjklmnpqrstvwxz2456789";

	if (!s->seed) {
		rand_name(out, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		out[i] = alphabet[seeded(s) % (sizeof(alphabet) - 1)];
	out[n] = '\0';
}

/* ---- life of a call --------------------------------------------------------------------------- */

static void call_free(struct apisrv_call *c)
{
	list_remove(&c->link);
	if (c->write)
		store_write_forget(c->write);
	c->watch = watcher_free(c->watch);
	c->backup = backup_call_free(c->backup);
	c->slices = slices_free(c->slices);
	c->held = held_answer_free(c->held);
	flow_leave(c);
	inner_cancel_all(&c->inner);
	c->doomed = doomed_free(c->doomed);
	http_uri_fini(&c->uri);
	user_fini(&c->user);
	user_fini(&c->by);
	audit_end(c);
	for (size_t i = 0; i < c->n_warnings; i++)
		mem_free(c->warnings[i]);
	mem_free(c->warnings);
	mem_free(c->content_type);
	mem_free(c->if_none_match);
	mem_free(c->body);
	js_unref(c->json);
	js_unref(c->duplicates);
	js_unref(c->reply);
	mem_free(c);
}

void call_enter(struct apisrv_call *c)
{
	c->depth++;
}

static void account(struct apisrv_call *c)
{
	usec_t took = loop_now(c->srv->loop) - c->started;

	metrics_count(c->srv->metrics, c, took);
	audit_call(c);
}

void call_leave(struct apisrv_call *c)
{
	if (--c->depth || !c->done)
		return;
	account(c);
	call_free(c);
}

const char *call_param(const struct apisrv_call *c, const char *name)
{
	return http_uri_param(&c->uri, name);
}

bool call_param_bool(const struct apisrv_call *c, const char *name)
{
	const char *v = call_param(c, name);

	return v && (str_eq(v, "true") || str_eq(v, "1") || str_eq(v, "True"));
}

bool call_is_dry_run(const struct apisrv_call *c)
{
	return c->is_dry_run;
}

/* "application/json; charset=utf-8" -> "application/json" */
static enum rc copy_content_type(struct apisrv_call *c, const char *text)
{
	if (str_is_empty(text))
		return RC_OK;
	struct str rest = str_of(text);
	struct str type = str_trim(str_split(&rest, ';'));

	c->content_type = mem_strndup(type.p, type.n);
	return c->content_type ? RC_OK : RC_NOMEM;
}

const char *call_manager(const struct apisrv_call *c)
{
	const char *manager = call_param(c, "fieldManager");

	return !str_is_empty(manager) ? manager : *c->agent ? c->agent : "unknown";
}

static enum rc call_new(struct apisrv_call **out, struct apisrv *s, const struct apisrv_request *r,
			const struct apisrv_sink *sink, void *arg)
{
	static const struct apisrv_user anonymous = {.name = "system:anonymous"};
	struct apisrv_call *c = mem_alloc(sizeof(*c));

	if (!c)
		return RC_NOMEM;
	c->srv = s;
	c->sink = sink;
	c->arg = arg;
	c->http = r->http;
	c->is_inner = r->is_inner;
	c->started = loop_now(s->loop);
	c->out.meta_version = "meta.k8s.io/v1";
	c->group = c->version = c->ns = c->plural = c->name = c->sub = c->rest = "";
	list_init(&c->inner);
	list_push_tail(&s->calls, &c->link);
	if (r->user_agent) {
		snprintf(c->agent, sizeof(c->agent), "%.*s", (int)strcspn(r->user_agent, "/"),
			 r->user_agent);
		text_clean(c->agent);
	}
	snprintf(c->method, sizeof(c->method), "%s",
		 strcmp(r->method, "HEAD") == 0 ? "GET" : r->method);
	if (user_copy(&c->user, r->user ? r->user : &anonymous) || audit_begin(c, r) ||
	    copy_content_type(c, r->content_type)) {
		call_free(c);
		return RC_NOMEM;
	}
	if (r->if_none_match && !(c->if_none_match = mem_strdup(r->if_none_match))) {
		call_free(c);
		return RC_NOMEM;
	}
	if (r->n_body) {
		c->body = mem_alloc(r->n_body + 1);
		if (!c->body) {
			call_free(c);
			return RC_NOMEM;
		}
		memcpy(c->body, r->body, r->n_body);
		c->n_body = r->n_body;
	}
	*out = c;
	return RC_OK;
}

/* ---- routing ---------------------------------------------------------------------------------- */

enum { MAX_SEGMENTS = 10 };

/* Cuts uri.path at its slashes; the last segment keeps the rest. */
static size_t split_path(char *path, const char *seg[MAX_SEGMENTS])
{
	size_t n = 0;

	for (char *p = path; *p;) {
		while (*p == '/')
			*p++ = '\0';
		if (!*p)
			break;
		seg[n++] = p;
		if (n == MAX_SEGMENTS)
			break;
		while (*p && *p != '/')
			p++;
	}
	return n;
}

static size_t count_segments(const char *path)
{
	size_t n = 0;

	for (; *path; path++)
		if (*path != '/' && path[-1] == '/')
			n++;
	return n;
}

/* Joins segments again: what is between them are the NULs that split_path() wrote. */
static void join_tail(const char *const *seg, size_t n)
{
	for (size_t i = 1; i < n; i++)
		((char *)(uintptr_t)seg[i])[-1] = '/';
}

/* Everything behind /api/<v>/ or /apis/<g>/<v>/. */
static void route_resource(struct apisrv_call *c, const char **seg, size_t n)
{
	bool in_ns = n >= 3 && str_eq(seg[0], "namespaces");

	/* namespaces/<name>/status and /finalize are the namespace's own. */
	if (in_ns && n == 3 && !*c->group &&
	    (str_eq(seg[2], "status") || str_eq(seg[2], "finalize")))
		in_ns = false;
	if (in_ns) {
		c->ns = seg[1];
		seg += 2;
		n -= 2;
	}
	c->plural = seg[0];
	if (n > 1)
		c->name = seg[1];
	if (n > 2) {
		c->sub = seg[2];
		join_tail(seg + 2, n - 2);
	}
	const struct served *at = apisrv_served_at(c->srv, c->group, c->version, c->plural);

	if (!at || (!at->kind->is_namespaced && *c->ns))
		return;
	c->res = at->res;
	c->alias = at->kind->alias_of ? at->kind : NULL;
}

static bool set_verb(struct apisrv_call *c)
{
	bool has_name = *c->name;

	if (strcmp(c->method, "GET") == 0)
		c->verb = call_param_bool(c, "watch") && !*c->sub ? VERB_WATCH
			  : has_name				  ? VERB_GET
								  : VERB_LIST;
	else if (strcmp(c->method, "POST") == 0)
		c->verb = VERB_CREATE;
	else if (strcmp(c->method, "PUT") == 0)
		c->verb = VERB_UPDATE;
	else if (strcmp(c->method, "PATCH") == 0)
		c->verb = VERB_PATCH;
	else if (strcmp(c->method, "DELETE") == 0)
		c->verb = has_name ? VERB_DELETE : VERB_DELETECOLLECTION;
	else
		return false;
	return true;
}

static void fail_method(struct apisrv_call *c)
{
	call_fail(c, 405, "MethodNotAllowed", js_new_object(),
		  "the server does not allow this method on the requested resource");
}

/* The versions that a group has instead of the one asked for; empty: its version is not what is wrong. */
static void other_versions(const struct apisrv_call *c, struct sbuf *out)
{
	const char *last = "";

	for (size_t i = 0; *c->group && api_served[i]; i++) {
		const struct api_kind *k = api_served[i];

		if (!str_eq(k->group, c->group) || str_eq(k->version, last))
			continue;
		last = k->version;
		if (str_eq(last, c->version)) {
			sbuf_reset(out);
			return;
		}
		sbuf_addf(out, "%s%s/%s", out->n ? ", " : "", c->group, last);
	}
}

/* Manifests of years ago name versions that are served no more: beside Kubernetes' words, those that are. */
static void fail_no_resource(struct apisrv_call *c)
{
	CLEANUP(sbuf_fini) struct sbuf have = SBUF_INIT(4096);

	other_versions(c, &have);
	if (have.n)
		call_fail(
			c, 404, "NotFound", js_new_object(),
			"the server could not find the requested resource: %s/%s is not served, but %s",
			c->group, c->version, sbuf_str(&have));
	else
		call_fail(c, 404, "NotFound", js_new_object(),
			  "the server could not find the requested resource");
}

/* Subresources of single kinds; false: it is none. */
static bool dispatch_own_sub(struct apisrv_call *c)
{
	static const struct {
		const struct api_subresource *at;
		void (*serve)(struct apisrv_call *c);
	} own[] = {
		{&api_sub_get_nodes_certificate, serve_node_certificate},
		{&api_sub_post_nodes_certificate, serve_node_certificate},
		{&api_sub_post_pods_binding, serve_binding},
		{&api_sub_post_pods_eviction, serve_eviction},
		{&api_sub_post_serviceaccounts_token, serve_token},
	};
	bool is_known = false;

	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		const struct api_subresource *at = own[i].at;

		if (strcmp(at->group, c->group) != 0 || strcmp(at->resource, c->plural) != 0 ||
		    strcmp(at->path, c->sub) != 0)
			continue;
		is_known = true;
		if (strcmp(at->method, c->method) != 0)
			continue;
		own[i].serve(c);
		return true;
	}
	if (is_known)
		fail_method(c);
	return is_known;
}

static void dispatch_sub(struct apisrv_call *c)
{
	const struct api_kind *k = c->res->kind;
	bool pod = strcmp(c->res->table, "pods") == 0;

	if (strcmp(c->sub, "status") == 0 && k->subresources & API_SUB_STATUS) {
		if (c->verb == VERB_GET)
			serve_get(c);
		else if (c->verb == VERB_UPDATE)
			serve_update(c);
		else if (c->verb == VERB_PATCH)
			serve_patch(c);
		else
			fail_method(c);
	} else if (call_is_scale(c)) {
		serve_scale(c);
	} else if (dispatch_own_sub(c)) {
		return;
	} else if (pod && (str_eq(c->sub, "log") || str_eq(c->sub, "exec") ||
			   str_eq(c->sub, "attach") || str_eq(c->sub, "portforward"))) {
		call_fail(
			c, 501, "NotImplemented", NULL,
			"pods of Ferry run a virtual machine, not containers: '%s' has nothing to act on; "
			"use the console of the virtual machine",
			c->sub);
	} else {
		call_fail(
			c, 404, "NotFound", js_new_object(),
			"the server could not find the requested resource: %s have no subresource "
			"'%s'",
			c->res->table, c->sub);
	}
}

static void dispatch(struct apisrv_call *c)
{
	static void (*const serve[VERB__MAX])(struct apisrv_call *) = {
		[VERB_GET] = serve_get,	      [VERB_LIST] = serve_list,
		[VERB_WATCH] = serve_watch,   [VERB_CREATE] = serve_create,
		[VERB_UPDATE] = serve_update, [VERB_PATCH] = serve_patch,
		[VERB_DELETE] = serve_delete, [VERB_DELETECOLLECTION] = serve_deletecollection,
	};
	bool needs_name = c->verb == VERB_UPDATE || c->verb == VERB_PATCH;

	if (*c->sub)
		dispatch_sub(c);
	else if (c->res->kind->is_create_only && c->verb != VERB_CREATE)
		fail_method(c);
	else if ((needs_name && !*c->name) || (c->verb == VERB_CREATE && *c->name))
		fail_method(c);
	else if (c->res->kind->is_namespaced && !*c->ns && c->verb != VERB_LIST &&
		 c->verb != VERB_WATCH)
		fail_method(c);
	else
		serve[c->verb](c);
}

/* It is its turn. */
static void go_resource(struct apisrv_call *c, const char *accept)
{
	bool other_method = false;

	if (serve_review(c))
		return;
	c->subres = subres_find(c, &other_method);
	if (!c->subres && !c->res) {
		if (other_method)
			fail_method(c);
		else
			fail_no_resource(c);
		return;
	}
	if (!authorize(c))
		return;
	if (c->res)
		version_warn(c, c->alias ? c->alias : c->res->kind);
	if (c->subres)
		serve_subres(c);
	else if (parse_accept(c, accept) && parse_body(c))
		dispatch(c);
}

/* Requests for stored resources and for hooks' subresources: "/apis/<group>/<version>/<more>". */
static void serve_resource(struct apisrv_call *c, const char **seg, size_t n, const char *accept)
{
	route_resource(c, seg, n);
	if (set_verb(c))
		flow_enter(c, accept, go_resource);
	else
		fail_method(c);
}

/* Everything else; whether the server lives is told at once. */
static void serve_other(struct apisrv_call *c, const char *accept)
{
	if (is_public_path(c->uri.path))
		serve_discovery(c, accept);
	else
		flow_enter(c, accept, serve_discovery);
}

static void route(struct apisrv_call *c, const struct apisrv_request *r)
{
	const char *seg[MAX_SEGMENTS];
	struct err err = {0};
	enum rc rc = http_uri_parse(&c->uri, r->target, strlen(r->target), &err);

	if (rc) {
		call_fail_rc(c, rc, &err);
		return;
	}
	c->is_dry_run = !str_is_empty(call_param(c, "dryRun"));
	if (r->authorization && !token_login(c, r->authorization))
		return;
	if (r->as && !impersonate(c, r->as))
		return;
	if (strcmp(c->uri.path, BACKUP_PATH) == 0) {
		serve_backup(c);
		return;
	}
	bool core = str_has_prefix(c->uri.path, "/api/v1/");
	bool named = str_has_prefix(c->uri.path, "/apis/");

	if (!core && !named) {
		serve_other(c, r->accept);
		return;
	}
	size_t skip = core ? 2 : 3;

	if (count_segments(c->uri.path) <= skip) { /* only the group or version itself */
		serve_other(c, r->accept);
		return;
	}
	size_t n = split_path(c->uri.path, seg);

	assert(n > skip); /* as counted */
	c->group = core ? "" : seg[1];
	c->version = core ? "v1" : seg[2];
	serve_resource(c, seg + skip, n - skip, r->accept);
}

struct apisrv_call *apisrv_handle(struct apisrv *s, const struct apisrv_request *req,
				  const struct apisrv_sink *sink, void *arg)
{
	struct apisrv_call *c = NULL;

	if (call_new(&c, s, req, sink, arg)) {
		static const char text[] = "out of memory";
		struct apisrv_answer a = {.status = 500,
					  .content_type = "text/plain",
					  .body = text,
					  .n = sizeof(text) - 1};

		sink->answer(arg, &a);
		return NULL;
	}
	call_enter(c);
	route(c, req);
	bool done = c->done;

	call_leave(c);
	return done ? NULL : c;
}

void apisrv_cancel(struct apisrv_call *c)
{
	c->sink = NULL;
	if (c->watch) /* that is how watches end */
		c->status = 200;
	c->done = true;
	hook_call_dropped(c);
	if (c->depth)
		return;
	account(c);
	call_free(c);
}

/* ---- the server ------------------------------------------------------------------------------- */

static void on_store_event(void *arg, const struct store_event *ev)
{
	struct apisrv *s = arg;

	watch_event(s, ev);
	rbac_event(s->rbac, ev);
	if (strcmp(obj_table(ev->obj), TABLE_CLUSTER_ROLES) == 0)
		rbac_aggregate_poke(s);
	rootca_event(s, ev);
	if (ev->type == STORE_DELETED || strcmp(obj_table(ev->obj), "namespaces") == 0)
		namespaces_poke(s);
	if (strcmp(obj_table(ev->obj), "events") == 0 && !ev_timer_is_armed(s->ttl_timer))
		ev_timer_rearm(s->ttl_timer, TTL_INTERVAL * USEC_PER_SEC);
}

static void on_ttl(void *arg)
{
	struct apisrv *s = arg;

	ttl_sweep(s);
	if (store_count(s->store, "events"))
		ev_timer_rearm(s->ttl_timer, TTL_INTERVAL * USEC_PER_SEC);
}

static void on_bookmark(void *arg)
{
	struct apisrv *s = arg;

	watch_bookmarks(s);
	if (s->n_watchers)
		ev_timer_rearm(s->bookmark_timer, BOOKMARK_INTERVAL * USEC_PER_SEC);
}

static const struct admission_hook *find_hook(const struct apisrv *s, const char *table)
{
	for (size_t i = 0; i < s->hooks.n_admission; i++)
		if (strcmp(s->hooks.admission[i].resource, table) == 0)
			return &s->hooks.admission[i];
	return NULL;
}

static enum rc add_resource(struct apisrv *s, const struct api_kind *k)
{
	struct resource *r = &s->resources[s->n_resources];

	r->kind = k;
	r->table = *k->group ? mem_printf("%s.%s", k->plural, k->group) : mem_strdup(k->plural);
	r->watched = r->table ? mem_alloc(sizeof(*r->watched)) : NULL;
	if (!r->watched) {
		r->table = mem_free(r->table);
		return RC_NOMEM;
	}
	list_init(&r->watchers);
	s->n_resources++;
	r->strategy = strategy_find(r->table);
	r->hook = find_hook(s, r->table);
	return map_get(&s->by_table, r->table) ? RC_OK : map_set(&s->by_table, r->table, r);
}

/* Some kinds exist only as bodies of requests. */
static bool is_stored(const struct api_kind *k)
{
	return !str_is_empty(k->plural) && strcmp(k->plural, "bindings") != 0;
}

static enum rc add_served(struct apisrv *s, const struct api_kind *k)
{
	const struct api_kind *own = k->alias_of ? k->alias_of : k;
	struct served *at = &s->served[s->n_served];
	char path[MAX_PATH_KEY];
	int n = snprintf(path, sizeof(path), "%s/%s/%s", k->group, k->version, k->plural);

	assert(n > 0 && (size_t)n < sizeof(path) - 1);
	at->kind = k;
	for (size_t i = 0; i < s->n_resources; i++)
		if (s->resources[i].kind == own)
			at->res = &s->resources[i];
	s->n_served++;
	return map_set(&s->by_path, path, at);
}

static enum rc make_served(struct apisrv *s)
{
	size_t n = 0;

	while (api_served[n])
		n++;
	s->served = mem_calloc(n + 1, sizeof(*s->served));
	if (!s->served)
		return RC_NOMEM;
	for (size_t i = 0; i < n; i++)
		if (is_stored(api_served[i]) && add_served(s, api_served[i]))
			return RC_NOMEM;
	return RC_OK;
}

static enum rc make_resources(struct apisrv *s)
{
	size_t n = 0;

	while (api_kinds[n])
		n++;
	s->resources = mem_calloc(n + 1, sizeof(*s->resources));
	if (!s->resources)
		return RC_NOMEM;
	for (size_t i = 0; i < n; i++)
		if (is_stored(api_kinds[i]) && add_resource(s, api_kinds[i]))
			return RC_NOMEM;
	return make_served(s);
}

static enum rc parse_ranges(struct apisrv *s, const struct apisrv_config *config, struct err *err)
{
	const char *cidr = config->service_cidr ? config->service_cidr : "10.96.0.0/16";
	const char *ports = config->node_port_range ? config->node_port_range : "30000-32767";
	unsigned a, b, c, d, bits;
	char end;

	if (sscanf(cidr, "%u.%u.%u.%u/%u%c", &a, &b, &c, &d, &bits, &end) != 5 || a > 255 ||
	    b > 255 || c > 255 || d > 255 || bits < 8 || bits > 28)
		return err_set(err, RC_INVALID,
			       "service range '%s' is not an IPv4 CIDR of /8 to /28", cidr);
	s->service_mask = UINT32_MAX << (32 - bits);
	s->service_net = (a << 24 | b << 16 | c << 8 | d) & s->service_mask;
	if (sscanf(ports, "%d-%d%c", &s->port_min, &s->port_max, &end) != 2 || s->port_min < 1 ||
	    s->port_max > 65535 || s->port_min > s->port_max)
		return err_set(err, RC_INVALID,
			       "node port range '%s' is not of the form 30000-32767", ports);
	return RC_OK;
}

static void on_bootstrap(void *arg, int status, const struct json *obj)
{
	(void)arg;
	if (status != 201 && status != 409)
		log_error("cannot make a standard namespace: %s", js_get_str(obj, "message"));
}

static enum rc bootstrap(struct apisrv *s, struct err *err)
{
	static const char *const names[] = {"default", "kube-system", "kube-public",
					    "kube-node-lease", "kubevirt"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char key[64];

		snprintf(key, sizeof(key), "namespaces/%s", names[i]);
		if (store_newest(s->store, key))
			continue;
		struct json *ns = js_pack("{s:s, s:s, s:{s:s}}", "kind", "Namespace", "apiVersion",
					  "v1", "metadata", "name", names[i]);
		enum rc rc = apisrv_inner(s, NULL, &apisrv_self, "POST", "/api/v1/namespaces", NULL,
					  ns, on_bootstrap, NULL, err);

		if (rc)
			return rc;
	}
	return RC_OK;
}

static enum rc make_timers(struct apisrv *s, struct err *err)
{
	enum rc rc =
		ev_timer_after(s->loop, &s->bookmark_timer, USEC_INFINITY, on_bookmark, s, err);

	if (!rc)
		rc = ev_timer_after(s->loop, &s->ttl_timer, USEC_INFINITY, on_ttl, s, err);
	if (!rc && store_count(s->store, "events"))
		ev_timer_rearm(s->ttl_timer, TTL_INTERVAL * USEC_PER_SEC);
	return rc;
}

enum rc apisrv_new(struct apisrv **out, struct loop *loop, const struct apisrv_config *config,
		   struct err *err)
{
	CLEANUP(apisrv_freep) struct apisrv *s = mem_alloc(sizeof(*s));

	if (!s)
		return err_set(err, RC_NOMEM, "out of memory");
	s->loop = loop;
	s->store = config->store;
	s->seed = config->seed;
	s->tokens = config->tokens;
	s->audit = config->audit;
	s->more_metrics = config->more_metrics;
	s->metrics_arg = config->metrics_arg;
	if (config->continue_key)
		memcpy(s->continue_key, config->continue_key, sizeof(s->continue_key));
	else if (!s->seed)
		rand_bytes(s->continue_key, sizeof(s->continue_key));
	else
		memcpy(s->continue_key, &s->seed, sizeof(s->seed)); /* the simulation's */
	s->event_ttl = config->event_ttl ? config->event_ttl : EVENT_TTL;
	if (config->hooks)
		s->hooks = *config->hooks;
	map_init(&s->by_table, NULL);
	map_init(&s->by_path, NULL);
	map_init(&s->openapi_cache, NULL);
	list_init(&s->calls);
	list_init(&s->inner);
	list_init(&s->slices);
	enum rc rc = parse_ranges(s, config, err);

	if (!rc && (metrics_new(&s->metrics) || make_resources(s) || rbac_new(&s->rbac, s->store) ||
		    flow_new(&s->flow, s, config->requests_max, config->watches_max)))
		rc = err_set(err, RC_NOMEM, "out of memory");
	if (!rc)
		rc = make_timers(s, err);
	if (!rc)
		rc = quotas_new(&s->quotas, s, err);
	if (!rc)
		store_listen(s->store, on_store_event, s);
	if (!rc && !config->no_bootstrap)
		rc = bootstrap(s, err);
	if (!rc && config->with_roles)
		rc = rbac_bootstrap(s, err);
	if (rc)
		return rc;
	namespaces_poke(s);
	*out = STEAL(s);
	return RC_OK;
}

void apisrv_drain(struct apisrv *s)
{
	s->is_draining = true;
	LIST_FOREACH_SAFE(it, tmp, &s->calls) {
		struct apisrv_call *c = LIST_ENTRY(it, struct apisrv_call, link);

		if (c->watch)
			watcher_end(c->watch);
	}
}

/* Requests to ourselves go before the calls that made them, and all before the calls themselves. */
static void cancel_inner(struct apisrv *s)
{
	bool again = true;

	inner_cancel_all(&s->inner);
	while (again) {
		again = false;
		LIST_FOREACH(it, &s->calls) {
			struct apisrv_call *c = LIST_ENTRY(it, struct apisrv_call, link);

			if (list_is_empty(&c->inner))
				continue;
			inner_cancel_all(&c->inner); /* takes calls off the list */
			again = true;
			break;
		}
	}
}

struct apisrv *apisrv_free(struct apisrv *s)
{
	if (!s)
		return NULL;
	store_listen(s->store, NULL, NULL);
	cancel_inner(s);
	while (!list_is_empty(&s->calls)) {
		struct apisrv_call *c = LIST_ENTRY(s->calls.next, struct apisrv_call, link);

		c->sink = NULL;
		hook_call_dropped(c);
		call_free(c);
	}
	hook_borrow_fini(s);
	s->quotas = quotas_free(s->quotas);
	s->flow = flow_free(s->flow);
	ev_src_free(s->bookmark_timer);
	ev_src_free(s->ttl_timer);
	ev_src_free(s->ns_defer);
	ev_src_free(s->slices_defer);
	ev_src_free(s->aggregate_defer);
	ev_src_free(s->ca_defer);
	mem_free(s->ca);
	signer_free(s->signer);
	rbac_free(s->rbac);
	map_fini(&s->by_table);
	map_fini(&s->by_path);
	map_fini(&s->openapi_cache);
	for (size_t i = 0; i < s->n_resources; i++) {
		mem_free(s->resources[i].table);
		mem_free(s->resources[i].watched);
	}
	metrics_free(s->metrics);
	mem_free(s->served);
	mem_free(s->resources);
	return mem_free(s);
}
