/* lib/hook/hook.h - what an API server calls in src/virt: admission and subresources.
 *
 * An interface only: src/virt fills the table, and whoever runs it (src/cluster/apiserver, or a test)
 * implements the hook_*() functions.  So neither side includes the other.
 *
 * Loop thread only.  One table (struct apisrv_hooks) is handed to apisrv_new() by the composition
 * root; the server works without it.  Nothing here blocks: admission answers at once, a subresource
 * answers its call now or later.
 *
 * A resource is named as kubectl does: "pods", "virtualmachines.kubevirt.io".
 */
#ifndef HOOK_HOOK_H
#define HOOK_HOOK_H

#include "base/err.h"

struct api_kind;
struct api_subresource;
struct field_errs;
struct hook_call;
struct hook_env; /* the server, as hooks see it */
struct http_req;
struct json;
struct loop;

/* What else is known of a user, by whoever authenticated him: "scopes" and their values. */
struct apisrv_extra {
	const char *key; /* lower case */
	size_t n;
	const char *const *values;
};
struct apisrv_user {
	const char *name; /* "system:anonymous" without credentials */
	size_t n_groups;
	const char *const *groups;
	const char *uid; /* NULL: not known */
	size_t n_extra;
	const struct apisrv_extra *extra;
};
bool apisrv_user_in_group(const struct apisrv_user *u, const char *group);
/* Ferry's own controllers and nodes (groups system:masters excluded, system:ferry:controllers and
 * system:nodes included): who may write what KubeVirt reserves for its components. */
bool apisrv_user_is_component(const struct apisrv_user *u);

/* ---- lookups --------------------------------------------------------------------------------
 *
 * Of admission, a lookup that runs out of memory shows less than there is; whatever the hook makes of
 * that, the request is answered with "internal error". */

/* The newest version of an object; NULL: none.  Borrowed until the hook returns.  ns NULL or "":
 * cluster-scoped. */
const struct json *hook_get(struct hook_env *env, const char *resource, const char *ns,
			    const char *name);
/* Each object of a resource (ns NULL: all namespaces) until fn returns false. */
typedef bool (*hook_each_fn)(const struct json *obj, void *arg);
void hook_each(struct hook_env *env, const char *resource, const char *ns, hook_each_fn fn,
	       void *arg);
/* spec.configuration of the one KubeVirt object, spec of the one FerryConfig; NULL: absent. */
const struct json *hook_kubevirt_config(struct hook_env *env);
const struct json *hook_ferry_config(struct hook_env *env);
usec_t hook_now(struct hook_env *env); /* wall clock */
struct loop *hook_loop(struct hook_env *env);

/* ---- admission ------------------------------------------------------------------------------- */

enum hook_op { HOOK_CREATE, HOOK_UPDATE, HOOK_DELETE };

struct hook_ctx {
	struct hook_env *env;
	const struct apisrv_user *user;
	enum hook_op op;
	bool dry_run;
	const char *ns;		 /* "" when cluster-scoped */
	const char *name;	 /* generateName is resolved before */
	const char *subresource; /* "", "status" */
	const struct json *obj;	 /* new version (DELETE: NULL), as decoded, unknown fields pruned */
	const struct json *old;	 /* CREATE: NULL */
	void *warnings;		 /* see hook_warn() */
};
/* Adds a Warning header to the answer. */
void hook_warn(struct hook_ctx *ctx, const char *fmt, ...) PRINTF_LIKE(2, 3);

struct admission_hook {
	const char *resource;
	/* Name in "admission webhook "<this>" denied the request: …"; NULL: the bare message. */
	const char *denied_by;
	const char *denied_by_update; /* for UPDATE, DELETE; NULL: as denied_by */
	const char *denied_by_delete;
	/* Changes obj in place (never metadata.name, .namespace, .uid, .resourceVersion). NULL: none.
	 * Called for CREATE and UPDATE, the status subresource included. */
	enum rc (*mutate)(struct hook_ctx *ctx, struct json *obj, struct err *err);
	/* Changes nothing.  obj and old are typed (as api_decode gives; DELETE: obj NULL; CREATE: old
	 * NULL).  All faults go into fe: the answer is 422 with causes.  A failed return instead
	 * answers with that rc's code and err's text alone (RC_BAD_REQUEST: 400, RC_FORBIDDEN: 403). */
	enum rc (*validate)(struct hook_ctx *ctx, const void *obj, const void *old,
			    struct field_errs *fe, struct err *err);
};

/* ---- subresources ---------------------------------------------------------------------------- */

/* Where it is, and how discovery tells of it, stands in the schema (api_sub_*). */
struct subres_hook {
	const struct api_subresource *at;
	void (*handle)(struct hook_call *call);
};

/* A call lives until it is answered (hook_call_reply*, _fail, _status, _upgraded: exactly one of
 * them, from inside handle or later from the loop) or the client leaves (on_cancel, after which it
 * must not be touched).  What the getters return is borrowed for the call's life. */
struct hook_env *hook_call_env(struct hook_call *call);
const struct apisrv_user *hook_call_user(const struct hook_call *call);
const char *hook_call_ns(const struct hook_call *call);
const char *hook_call_name(const struct hook_call *call);
const char *hook_call_rest(const struct hook_call *call);    /* "22/tcp"; "" when nothing follows */
const char *hook_call_version(const struct hook_call *call); /* "v1", "v1alpha3" */
const char *hook_call_param(const struct hook_call *call, const char *name); /* NULL: absent */
const char *hook_call_body(const struct hook_call *call, size_t *n); /* raw; "" when empty */
/* The parsed body of a subresource of a stored kind: JSON or Kubernetes'
 * protobuf.  NULL: it was empty. */
const struct json *hook_call_json(const struct hook_call *call);
const char *hook_call_content_type(const struct hook_call *call); /* NULL: none */
/* NULL: the server runs in-process, without sockets: no websockets. */
struct http_req *hook_call_http(struct hook_call *call);
void hook_call_set_data(struct hook_call *call, void *data);
void *hook_call_data(const struct hook_call *call);
void hook_call_on_cancel(struct hook_call *call, void (*fn)(struct hook_call *call));

/* body is consumed; NULL: empty body. */
void hook_call_reply(struct hook_call *call, int status, struct json *body);
void hook_call_reply_bytes(struct hook_call *call, int status, const char *content_type,
			   const void *bytes, size_t n);
/* A Status object with the rc's code and reason. */
void hook_call_fail(struct hook_call *call, enum rc rc, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The same with group, kind (both as in details) and name in details; message is the whole text. */
void hook_call_fail_details(struct hook_call *call, enum rc rc, const char *group, const char *kind,
			    const char *name, const char *message);
/* After http_upgrade_ws(hook_call_http(call), ...) returned RC_OK: the call is over. */
void hook_call_upgraded(struct hook_call *call);

/* A request to this server, as from outside.  HOOK_AS_CALLER: checked and audited as the caller;
 * HOOK_AS_COMPONENT: as the cluster's own API component.  target: "/apis/…?dryRun=All" (escaped).
 * content_type NULL: application/json.  body is consumed.  then runs once, from the loop, unless the
 * client of the call left.  status: HTTP status; obj: the answer or the Status, borrowed, may be NULL. */
enum hook_as { HOOK_AS_CALLER, HOOK_AS_COMPONENT };
typedef void (*hook_then_fn)(struct hook_call *call, int status, const struct json *obj);
MUST_CHECK enum rc hook_call_request(struct hook_call *call, enum hook_as as, const char *method,
				     const char *target, const char *content_type,
				     struct json *body, hook_then_fn then, struct err *err);
/* Passes the answer of hook_call_request() on as it is. */
void hook_call_reply_status(struct hook_call *call, int status, const struct json *obj);

/* ---- the table ------------------------------------------------------------------------------- */

struct apisrv_hooks {
	size_t n_admission;
	const struct admission_hook *admission;
	size_t n_subres;
	const struct subres_hook *subres;
	void *arg; /* for the hooks' own state: hook_arg() */
};
void *hook_arg(struct hook_env *env);

#endif
