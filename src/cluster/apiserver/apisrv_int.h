/* src/cluster/apiserver/apisrv_int.h - what the files of the core share; for nobody else.
 *
 * Loop thread only.  A request passes these phases, each a function: parse, route, authorize, decode,
 * default, admit, validate, store, respond.  A phase that refuses answers the call and returns false.
 */
#ifndef APISERVER_APISRV_INT_H
#define APISERVER_APISRV_INT_H

#include "api/api.h"
#include "base/list.h"
#include "base/map.h"
#include "base/sbuf.h"
#include "cluster/apiserver/apisrv.h"
#include "cluster/apiserver/flow.h"
#include "cluster/apiserver/metrics.h"
#include "cluster/apiserver/rbac.h"
#include "cluster/apiserver/store.h"
#include "http/uri.h"
#include "json/json.h"

#define NODE_USER_PREFIX "system:node:"
#define SUBRES_GROUP	 "subresources.kubevirt.io"

enum verb {
	VERB_GET,
	VERB_LIST,
	VERB_WATCH,
	VERB_CREATE,
	VERB_UPDATE,
	VERB_PATCH,
	VERB_DELETE,
	VERB_DELETECOLLECTION,
	VERB__MAX
};
const char *verb_name(enum verb v);
enum verb verb_of(const char *name); /* VERB__MAX: none */

struct change;
struct resource;

/* What is special about a kind.  Every member may be NULL. */
struct strategy {
	const char *table;
	/* Normalises; may refuse through ch->fe.  After system metadata is set, before validation. */
	enum rc (*prepare_create)(struct change *ch, struct err *err);
	enum rc (*prepare_update)(struct change *ch, struct err *err);
	/* Changes nothing. */
	void (*validate)(struct change *ch);
	/* Seconds of grace when it is deleted (request: what the client asked for, -1: nothing). */
	int64_t (*grace)(const struct json *obj, int64_t request);
	/* False: answered (refused). */
	bool (*may_delete)(struct change *ch);
	/* Rewrites what is only another way to say the same (a Secret's stringData). */
	enum rc (*canonical)(struct json *obj);
	bool returns_deleted; /* a deletion is answered with the object, not with a Status */
	/* obj was just marked as being deleted. */
	enum rc (*mark_deleted)(struct json *obj);
};
const struct strategy *strategy_find(const char *table); /* never NULL */
/* Custom resources (KubeVirt's and Ferry's own) differ from built-in kinds in small ways. */
bool kind_is_custom(const struct api_kind *k);

struct resource {
	const struct api_kind *kind;
	char *table; /* "pods", "virtualmachines.kubevirt.io": also how messages name it */
	const struct strategy *strategy;
	const struct admission_hook *hook; /* NULL: none */
	struct list watchers;
	struct watch_counts *watched;
};

/* A resource under one of its versions. */
struct served {
	const struct api_kind *kind; /* alias_of is set for a further version */
	struct resource *res;
};

enum out_as { OUT_OBJECT, OUT_TABLE, OUT_PARTIAL };
enum out_include { INCLUDE_METADATA, INCLUDE_NONE, INCLUDE_OBJECT };

struct out_format {
	enum out_as as;
	enum out_include include;
	const char *meta_version; /* "meta.k8s.io/v1" */
	bool pretty;
};

struct apisrv {
	struct loop *loop;
	struct store *store;
	struct apisrv_hooks hooks;
	struct resource *resources;
	size_t n_resources;
	struct map by_table;
	struct served *served; /* in the order of api_served */
	size_t n_served;
	struct map by_path; /* struct served, by "group/version/plural" */
	struct list calls;
	struct list inner;  /* requests to ourselves that no call owns */
	struct list slices; /* lists that are made in several turns */
	struct ev_src *slices_defer;
	struct quotas *quotas;
	struct flow *flow;
	usec_t event_ttl;
	struct ev_src *bookmark_timer, *ttl_timer, *ns_defer;
	struct rbac *rbac;
	struct tokens *tokens;
	struct audit *audit; /* NULL: none */
	char *ca;	     /* apisrv_set_ca() */
	struct ev_src *ca_defer;
	struct signer *signer;		/* NULL: none */
	struct ev_src *aggregate_defer; /* roles that gather others' rules are looked at */
	struct json **borrowed;		/* lent to hooks until the loop goes on */
	size_t n_borrowed, cap_borrowed;
	struct ev_src *borrow_defer;
	bool lookup_failed; /* a hook's lookup ran out of memory and showed less than there is */
	size_t n_watchers;
	uint64_t seed; /* 0: kernel randomness */
	unsigned char continue_key[APISRV_KEY_BYTES];
	uint32_t service_net, service_mask;
	int port_min, port_max;
	struct map openapi_cache;
	struct metrics *metrics;
	/* More lines of /metrics; NULL: none. */
	void (*more_metrics)(struct sbuf *out, void *arg);
	void *metrics_arg;
	void (*listener_metrics)(struct sbuf *out, void *arg); /* of who listens; NULL: nobody */
	void *listener_arg;
	bool is_draining; /* goes away: not ready for new clients */
};

struct watcher;
struct slices;
struct backup_call;
struct held_answer;

struct apisrv_call {
	struct list link;
	struct apisrv *srv;
	const struct apisrv_sink *sink;
	void *arg;
	unsigned depth; /* on the stack this often: freed when it leaves the last frame answered */
	bool done;
	bool is_dry_run;
	usec_t started;
	int status;	 /* of the answer */
	size_t n_answer; /* bytes of its body */

	char method[8];
	struct http_uri uri;
	struct apisrv_user user; /* owned: user_copy() */
	struct apisrv_user by;	 /* who impersonates him; owned; name NULL: nobody */
	char *content_type;	 /* without parameters; NULL: none */
	char agent[64];		 /* the client's program, up to its version */
	char *if_none_match;	 /* NULL: the client has nothing */
	char *audit_target, *audit_agent, *audit_source; /* NULL without an audit log */
	const char *audit_decision;			 /* "allow", "forbid"; NULL: not judged */
	char *audit_reason;
	char *audit_name; /* of an object that the call makes */
	struct out_format out;
	char **warnings;
	size_t n_warnings, cap_warnings;

	enum verb verb;
	const struct resource *res; /* NULL: not a stored resource */
	/* The version of res that the address names, when that is not its own; NULL: it is. */
	const struct api_kind *alias;
	/* Parts of uri.path; "" when absent. */
	const char *group, *version, *ns, *plural, *name, *sub;

	char *body;
	size_t n_body;
	struct json *json;	 /* parsed body */
	struct json *duplicates; /* paths of keys that were there twice; NULL: none */

	struct store_write *write;
	bool is_settled; /* what its answer tells of is durable */
	struct held_answer *held;
	struct json *reply; /* answer of the write in flight, or NULL: what was stored */
	int reply_status;
	struct watcher *watch;
	struct backup_call *backup;
	struct slices *slices; /* NULL: it is no list, or was made in one turn */

	/* subresource of a hook */
	struct http_req *http;
	const struct subres_hook *subres;
	const char *rest; /* behind subres->path */
	void *hook_data;
	void (*hook_cancel)(struct hook_call *call);
	struct list inner;     /* struct inner_request */
	struct doomed *doomed; /* deletecollection; NULL: it is none */
	struct flow_place flow;
	bool is_inner;
	int retry_after; /* of a refusal, seconds; 0: 1 */
};

/* ---- apisrv.c -------------------------------------------------------------------------------- */

void call_enter(struct apisrv_call *c);
void call_leave(struct apisrv_call *c); /* may free it */
const char *call_param(const struct apisrv_call *c, const char *name);
bool call_param_bool(const struct apisrv_call *c, const char *name);
struct resource *apisrv_resource(struct apisrv *s, const char *table); /* NULL: none */
/* NULL: no such resource, or not under this version. */
const struct served *apisrv_served_at(struct apisrv *s, const char *group, const char *version,
				      const char *plural);
bool call_is_dry_run(const struct apisrv_call *c);
/* Key of an object; owned by the caller; NULL when out of memory. */
char *object_key(const struct resource *res, const char *ns, const char *name);
void apisrv_uuid(struct apisrv *s, char out[37]);
void apisrv_rand_name(struct apisrv *s, char *out, size_t n);

/* ---- body.c ---------------------------------------------------------------------------------- */

/* c->json, c->duplicates from c->body; false: answered. */
bool parse_body(struct apisrv_call *c);

/* ---- answer.c -------------------------------------------------------------------------------- */

bool parse_accept(struct apisrv_call *c, const char *accept); /* false: answered 406 */
void call_warn(struct apisrv_call *c, const char *text);
void call_answer(struct apisrv_call *c, int status, const char *content_type, const char *body,
		 size_t n);
/* body comes from mem_* and is consumed: large answers are not copied. */
void call_answer_take(struct apisrv_call *c, int status, const char *content_type, char *body,
		      size_t n);
/* A document that clients may keep: with its entity tag, or 304 when the client has it.  is_immutable: the
 * address has the hash of the content. */
void call_answer_cached(struct apisrv_call *c, const char *content_type, const char *body, size_t n,
			bool is_immutable);
void call_answer_cached_json(struct apisrv_call *c, struct json *body); /* consumed */
/* body is consumed. */
void call_answer_json(struct apisrv_call *c, int status, struct json *body);
/* An object in the form that the client asked for; borrowed. */
void call_answer_object(struct apisrv_call *c, int status, const struct json *obj);
void call_answer_stored(struct apisrv_call *c, int status, struct obj *o);
void call_answer_success(struct apisrv_call *c, int status,
			 const struct json *obj); /* Status Success */

struct json *status_new(int code, const char *reason, const char *message, struct json *details);
/* details is consumed; NULL: none. */
void call_fail(struct apisrv_call *c, int code, const char *reason, struct json *details,
	       const char *fmt, ...) PRINTF_LIKE(5, 6);
void call_fail_rc(struct apisrv_call *c, enum rc rc, const struct err *err);
void call_nomem(struct apisrv_call *c);
void call_bad_request(struct apisrv_call *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
void call_not_found(struct apisrv_call *c, const struct resource *res, const char *name);
void call_exists(struct apisrv_call *c, const struct resource *res, const char *name);
void call_conflict(struct apisrv_call *c, const struct resource *res, const char *name,
		   const char *why);
void call_forbidden(struct apisrv_call *c, const struct resource *res, const char *name,
		    const char *why, struct json *causes);
void call_invalid(struct apisrv_call *c, const struct resource *res, const char *name,
		  const struct field_errs *fe, const char *denied_by);
/* {name, group, kind}; kind is the plural (errors about an address) or the Kind (about content). */
struct json *status_details(const struct resource *res, const char *name, bool by_kind);

/* Table and PartialObjectMetadata.  The first is a table without rows; list_meta is consumed. */
struct json *render_table(const struct apisrv_call *c, struct json *list_meta);
struct json *render_row(const struct apisrv_call *c, const struct json *obj, usec_t now);
struct json *render_table_one(const struct apisrv_call *c, const struct json *obj);
struct json *render_partial(const struct json *obj, const char *meta_version);

/* ---- read.c, watch.c -------------------------------------------------------------------------- */

struct filter {
	struct api_selector *labels; /* NULL: everything */
	struct api_fields *fields;   /* NULL: everything */
	char *prefix;		     /* of the rest of a key */
	bool is_exact;		     /* the prefix is the whole rest */
	bool nomem;		     /* a match could not be decided */
};
bool filter_parse(struct apisrv_call *c, struct filter *f); /* false: answered */
void filter_fini(struct filter *f);
/* Out of memory: false, and f->nomem tells. */
bool filter_matches(struct filter *f, struct obj *o);
void call_too_large_rev(struct apisrv_call *c, int64_t rev);

void serve_get(struct apisrv_call *c);
void serve_list(struct apisrv_call *c);
void serve_watch(struct apisrv_call *c);
void watch_event(struct apisrv *s, const struct store_event *ev);
void watch_bookmarks(struct apisrv *s);
struct watcher *watcher_free(struct watcher *w);
void watcher_end(struct watcher *w); /* ends the stream; the call is over */

/* An object as it stands in a list of its kind; a new reference; NULL: out of memory. */
struct json *list_item(const struct apisrv_call *c, const struct json *obj);
void call_too_large_list(struct apisrv_call *c); /* 413 */

/* ---- slices.c --------------------------------------------------------------------------------- */

/* An item of the answer, a new object; NULL: out of memory.  now: wall clock of the request. */
typedef struct json *(*slice_fn)(const struct apisrv_call *c, const struct json *obj, usec_t now);
/* Answers with shell (consumed), whose last member is an empty array, and in that array an item of each object of found,
 * which is taken.  Now, or some in each turn of the loop. */
void serve_slices(struct apisrv_call *c, struct json *shell, struct obj_list *found, slice_fn item);
struct slices *slices_free(struct slices *sl); /* NULL is fine; returns NULL */

/* ---- options.c ------------------------------------------------------------------------------- */

/* What happens to fields that nobody knows, and to keys that are there twice. */
enum validation { VALIDATE_WARN, VALIDATE_STRICT, VALIDATE_IGNORE };
enum validation call_validation(const struct apisrv_call *c);
/* The parameters of a write: dryRun, fieldManager, fieldValidation, force.  False: answered 422 with all
 * faults.  kind: "CreateOptions", as Kubernetes names them. */
bool call_check_options(struct apisrv_call *c, const char *kind);
/* What Kubernetes says of a field manager's name (metav1 validation): at most 128 bytes, printable. */
void call_check_manager(struct field_errs *fe, const char *path, const char *name);

/* ---- continue.c ------------------------------------------------------------------------------ */

/* The token of the page behind the key start, of this very list (resource, namespace, selectors); rev: the
 * moment that the pages show, -1: the newest.  The caller's; NULL: out of memory. */
char *continue_make(const struct apisrv_call *c, int64_t rev, const char *start);
/* start is the caller's.  RC_BAD_REQUEST: it was not made by this server for this list. */
MUST_CHECK enum rc continue_parse(const struct apisrv_call *c, const char *token, int64_t *rev,
				  char **start);

/* ---- backup.c --------------------------------------------------------------------------------- */

#define BACKUP_PATH "/ferry/v1/backup"
void serve_backup(struct apisrv_call *c);
struct backup_call *backup_call_free(struct backup_call *b); /* NULL is fine; returns NULL */

/* ---- hold.c ----------------------------------------------------------------------------------- */

/* Answers of requests that write wait until everything that they may have looked at is durable.
 * True: a is kept (copied, or taken) and goes out later. */
bool call_hold(struct apisrv_call *c, struct apisrv_answer *a);
void call_release(struct apisrv_call *c, struct apisrv_answer *a); /* answer.c: now */
struct held_answer *held_answer_free(struct held_answer *h);	   /* NULL is fine; returns NULL */

/* ---- write.c, delete.c ------------------------------------------------------------------------ */

/* One write on its way through admission. */
struct change {
	struct apisrv_call *c;
	const struct resource *res;
	enum hook_op op;
	const char *ns, *name;
	bool status_only; /* status subresource */
	struct json *obj; /* new version; owned, may be changed until validation */
	struct json *old; /* CREATE: NULL; a reference, never changed */
	struct obj *cur;  /* what old was parsed from; borrowed */
	struct field_errs fe;
	struct json *managed; /* new metadata.managedFields; owned; NULL: as before */
	struct json
		*sent; /* obj in the names of call_is_view(); owned; NULL: it had the stored ones */
};
void change_fini(struct change *ch);
/* What an update, a patch and an apply begin with: the call's object, or its status. */
struct change change_of_update(struct apisrv_call *c);

void serve_create(struct apisrv_call *c);
void serve_update(struct apisrv_call *c);
void serve_patch(struct apisrv_call *c);
void serve_delete(struct apisrv_call *c);
void serve_deletecollection(struct apisrv_call *c);
/* dryRun of DeleteOptions (NULL: none came) and of the address; false: answered. */
bool call_parse_dry_run(struct apisrv_call *c, const struct json *body);
struct doomed *doomed_free(struct doomed *d); /* NULL is fine; returns NULL */
/* Takes the body as ch->obj, checked against the address; false: answered. */
bool change_decode(struct change *ch);
void change_create(struct change *ch); /* ch->obj is decoded */
void change_update(struct change *ch); /* ch->obj, ch->old, ch->cur are there */
/* The call's JSON or merge patch (or strategic one, for kinds that have it) of base; a new object;
 * NULL: answered. */
struct json *change_patched(struct apisrv_call *c, const struct json *base);
/* Finds the object (newest version) for a change; false: answered 404. */
bool change_load(struct change *ch);
bool change_admit(struct change *ch); /* false: answered */
/* Of an object that is refused whatever it says: adds what the schema and the webhook say of it; levels of support and
 * unknown fields do not matter then.  false: answered. */
bool change_find_faults(struct change *ch);
/* Stores ch->obj (consumed) and answers with status when it is durable. */
void change_commit(struct change *ch, enum store_op op, int status, struct json *reply);
/* Takes the difference of ch->obj and ch->old through admission into the store. */
void change_finish_update(struct change *ch);
bool has_finalizers(const struct json *obj);
bool is_deleting(const struct json *obj);
bool bump_generation(struct json *obj);
/* Namespaces that are being deleted: empty them, then let them go. */
void namespaces_poke(struct apisrv *s);
void ttl_sweep(struct apisrv *s);

void serve_binding(struct apisrv_call *c);
void serve_apply(struct apisrv_call *c);
/* Who writes: fieldManager, or the name of the client's program. */
const char *call_manager(const struct apisrv_call *c);
void serve_delete_with(struct apisrv_call *c, const struct json *options, struct json *reply);

/* ---- version.c, scale.c ----------------------------------------------------------------------- */

/* Stored is one version of a kind; what clients send and see under a further version (call->alias)
 * differs in apiVersion alone. */
const char *call_api_version(const struct apisrv_call *c);
/* A stored object under the version of the call; a new reference; NULL when out of memory. */
struct json *version_as_asked(const struct apisrv_call *c, const struct json *obj);
/* The same for its text, appended. */
void version_add_text(const struct apisrv_call *c, const char *text, size_t n, struct sbuf *out);
/* The header Warning for a version that goes away. */
void version_warn(struct apisrv_call *c, const struct api_kind *asked);

/* ---- eventview.c ---- */

/* The address is of a version that has other fields than the stored one: events.k8s.io. */
bool call_is_view(const struct apisrv_call *c);
/* A stored object in that form; new; NULL when out of memory. */
struct json *view_of(const struct apisrv_call *c, const struct json *obj);
/* ch->obj in the stored form, ch->sent as it came, where the call is of such a version.  False: answered. */
bool view_take(struct change *ch);
void view_validate(struct change *ch);				       /* of strategy "events" */
MUST_CHECK enum rc view_fields(struct api_fields *f, struct err *err); /* selectors */

/* The call is about subresource "scale". */
bool call_is_scale(const struct apisrv_call *c);
/* GET, PUT and PATCH of subresource "scale": autoscaling/v1 Scale. */
void serve_scale(struct apisrv_call *c);
/* The Scale of an object; NULL when out of memory. */
struct json *scale_of(const struct json *obj);

/* ---- authz.c, discovery.c, hookcall.c --------------------------------------------------------- */

/* A question: may he?  All text is borrowed, and "" where it is absent.  With a path it is about that, and
 * group, plural, sub, ns and name do not count.  The verb "*" of a review is allowed by "*" only. */
struct authz_ask {
	const char *verb;	    /* "get" */
	const char *group, *plural; /* a resource, served here or not */
	const char *sub, *ns, *name;
	const char *path; /* NULL: it is about a resource */
};
/* why (may be NULL) says which binding allowed it, where one did. */
bool authz_allows(struct apisrv *s, const struct apisrv_user *u, const struct authz_ask *ask,
		  struct rbac_grant *why);
bool authorize(struct apisrv_call *c); /* false: answered 403, of subresources.kubevirt.io 401 */
/* The same for a further right that the request turns out to need: "create" of an apply. */
bool authorize_verb(struct apisrv_call *c, const char *verb);
/* Discovery, health, metrics. */
bool authorize_path(struct apisrv_call *c, const char *path);
/* The node that he is; NULL: none. */
const char *authz_node_of(const struct apisrv_user *u);
/* May everything: administrators and Ferry's controllers. */
bool authz_may_do_all(const struct apisrv_user *u);
/* The verbs of a node's rules on a resource; 0: he is no node, or has none. */
unsigned authz_node_verbs(const struct apisrv_user *u, const struct resource *res);
/* Reviews of rights and of oneself: false when the address is none. */
bool serve_review(struct apisrv_call *c);
/* Is the caller concerned by the object that he writes, and may he give the rights that it gives? */
bool authorize_change(struct change *ch);

/* `RBAC: allowed by RoleBinding "a/b" of ClusterRole "edit" to User "jane"`, the caller's; NULL: by no role, or
 * out of memory. */
char *rbac_reason(const struct rbac_grant *why);

/* ---- audit_event.c ----------------------------------------------------------------------------- */

MUST_CHECK enum rc audit_begin(struct apisrv_call *c, const struct apisrv_request *r);
/* What was decided about the call's right, and by which role (why may be NULL). */
void audit_judged(struct apisrv_call *c, bool is_allowed, const struct rbac_grant *why);
/* The object that the call makes is called so. */
void audit_named(struct apisrv_call *c, const char *name);
void audit_call(struct apisrv_call *c); /* it is over: a line in the log, and in the audit log */
void audit_end(struct apisrv_call *c);	/* frees what the call kept for that */

/* review.c: a user as JSON; the caller's; NULL: out of memory */
struct json *user_info(const struct apisrv_user *u);

/* ---- token.c, token_request.c, token_review.c, rootca.c ----------------------------------------- */

/* Who asks is the owner of the token in the header Authorization.  False: answered 401. */
bool token_login(struct apisrv_call *c, const char *header);
void serve_token(struct apisrv_call *c); /* serviceaccounts/NAME/token */
void token_review(struct apisrv_call *c);
#define OPENID_CONFIGURATION "/.well-known/openid-configuration"
#define OPENID_KEYS	     "/openid/v1/jwks"
bool serve_openid(struct apisrv_call *c, const char *path); /* false: it is none of the two */
void serve_node_certificate(struct apisrv_call *c);	    /* nodecert.c: nodes/NAME/certificate */
struct signer *signer_free(struct signer *s);
void rootca_event(struct apisrv *s, const struct store_event *ev);

/* user.c: a copy that is owned by whoever holds it. */
MUST_CHECK enum rc user_copy(struct apisrv_user *to, const struct apisrv_user *from);
void user_fini(struct apisrv_user *u);
/* Who asks is as from now on, if he may: kubectl --as.  False: answered. */
bool impersonate(struct apisrv_call *c, const struct apisrv_user *as);
void serve_discovery(struct apisrv_call *c,
		     const char *accept); /* everything that is not a resource */
void serve_openapi(struct apisrv_call *c, const char *what,
		   const char *accept); /* what: "v2", "v3/…" */
bool is_public_path(const char *path);
/* health.c: /healthz, /livez, /readyz and what is below them. */
void serve_health(struct apisrv_call *c);
const struct subres_hook *subres_find(struct apisrv_call *c, bool *other_method);
void serve_subres(struct apisrv_call *c);
void serve_eviction(struct apisrv_call *c);
void hook_call_dropped(struct apisrv_call *c); /* the client left, or the call ends */
void hook_borrow_fini(struct apisrv *s);
void inner_cancel_all(struct list *inner);

/* A request to ourselves; then runs once, from inside or later. */
typedef void (*inner_fn)(void *arg, int status, const struct json *obj);
MUST_CHECK enum rc apisrv_inner(struct apisrv *s, struct apisrv_call *owner,
				const struct apisrv_user *user, const char *method,
				const char *target, const char *content_type, struct json *body,
				inner_fn then, void *arg, struct err *err);
extern const struct apisrv_user apisrv_self; /* the server's own identity */

/* A body of type application/vnd.kubernetes.protobuf as JSON (proto.c).  RC_MEDIA: a kind or field that
 * is not known there. */
MUST_CHECK enum rc proto_decode(const char *body, size_t n, struct json **out, struct err *err);

/* util */
/* Puts '?' in place of what is not UTF-8: text that a stranger sent, or that was cut. */
void text_clean(char *text);
/* The value of a member of a compact JSON object as it stands in the text; false: absent.  For texts
 * that the store wrote. */
bool text_member(const char *text, size_t n, const char *key, const char **value, size_t *n_value);
/* Copies an object's text to to, which has room for n bytes, without kind and apiVersion; how many it took.  head
 * is what the store's texts of this kind begin with, `{"kind":"Pod","apiVersion":"v1",`: such a text is not looked
 * at any further. */
size_t text_add_item(char *to, const char *text, size_t n, const char *head, size_t n_head);
void json_drop_nulls(struct json *j);
void json_drop_type(struct json *obj); /* its kind and apiVersion; NULL is fine */
const char *json_name(const struct json *obj);
const char *json_ns(const struct json *obj); /* "" when absent */

#endif
