/* What an audit line says of a request: an Event of audit.k8s.io/v1, level Metadata. */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/audit.h"
#include "ev/ev.h"

/* A read that takes longer than this is told in the log. */
#define SLOW (USEC_PER_SEC)

enum { MAX_LINE = 64 * 1024 };

/* ---- what a call keeps for its line ------------------------------------------------------------------ */

enum rc audit_begin(struct apisrv_call *c, const struct apisrv_request *r)
{
	if (!c->srv->audit)
		return RC_OK;
	c->audit_target = mem_strndup(r->target, LIMIT_URL_BYTES);
	c->audit_agent = r->user_agent ? mem_strndup(r->user_agent, 256) : NULL;
	c->audit_source = r->source ? mem_strndup(r->source, 64) : NULL;
	if (!c->audit_target || (r->user_agent && !c->audit_agent) ||
	    (r->source && !c->audit_source))
		return RC_NOMEM;
	text_clean(c->audit_target);
	if (c->audit_agent)
		text_clean(c->audit_agent);
	return RC_OK;
}

void audit_end(struct apisrv_call *c)
{
	mem_free(c->audit_target);
	mem_free(c->audit_agent);
	mem_free(c->audit_source);
	mem_free(c->audit_reason);
	mem_free(c->audit_name);
}

void audit_judged(struct apisrv_call *c, bool is_allowed, const struct rbac_grant *why)
{
	c->audit_decision = is_allowed ? "allow" : "forbid";
	if (!c->srv->audit || !is_allowed)
		return;
	mem_free(c->audit_reason);
	c->audit_reason = rbac_reason(why); /* out of memory: a line without a reason */
}

void audit_named(struct apisrv_call *c, const char *name)
{
	if (*c->name || (!c->srv->audit && !c->http))
		return;
	mem_free(c->audit_name);
	c->audit_name = mem_strdup(name); /* out of memory: a line without a name */
}

static const char *name_of(const struct apisrv_call *c)
{
	return *c->name ? c->name : c->audit_name ? c->audit_name : "";
}

/* ---- the line ------------------------------------------------------------------------------------------ */

static bool is_own_part(const struct apisrv_call *c)
{
	return apisrv_user_is_component(&c->user) || str_eq(c->user.name, apisrv_self.name);
}

static bool is_chatter(const struct apisrv_call *c)
{
	return c->res && (strcmp(c->res->table, "leases.coordination.k8s.io") == 0 ||
			  strcmp(c->res->table, "events") == 0);
}

static bool is_read(const struct apisrv_call *c)
{
	return c->verb == VERB_GET || c->verb == VERB_LIST || c->verb == VERB_WATCH;
}

/* What Ferry's own parts look at, their heartbeats and events, and what anybody may see, would drown the
 * rest; a refusal is always told. */
static bool is_worth_it(const struct apisrv_call *c)
{
	if (c->status == 401 || c->status == 403)
		return true;
	if (!*c->plural && (is_public_path(c->audit_target) || is_own_part(c)))
		return false;
	return !is_own_part(c) || (!is_read(c) && !is_chatter(c));
}

static const char *some(const char *s)
{
	return str_is_empty(s) ? NULL : s;
}

static struct json *object_ref(const struct apisrv_call *c)
{
	return *c->plural ? js_pack("{s:s, s:s*, s:s*, s:s*, s:s*, s:s*}", "resource", c->plural,
				    "namespace", some(c->ns), "name", some(name_of(c)), "apiGroup",
				    some(c->group), "apiVersion", some(c->version), "subresource",
				    some(c->sub))
			  : NULL;
}

static struct json *notes(const struct apisrv_call *c, usec_t took)
{
	char latency[32];

	snprintf(latency, sizeof(latency), "%llu.%03llums", (unsigned long long)took / 1000,
		 (unsigned long long)took % 1000);
	return js_pack("{s:s*, s:s*, s:s}", "authorization.k8s.io/decision", c->audit_decision,
		       "authorization.k8s.io/reason",
		       c->audit_decision ? (c->audit_reason ? c->audit_reason : "") : NULL,
		       "ferry.dev/latency", latency);
}

static const char *verb_told(const struct apisrv_call *c, char method[sizeof(c->method)])
{
	if (*c->plural)
		return verb_name(c->verb);
	for (size_t i = 0; i < sizeof(c->method); i++)
		method[i] = c->method[i] >= 'A' && c->method[i] <= 'Z'
				    ? (char)(c->method[i] - 'A' + 'a')
				    : c->method[i];
	return method;
}

/* NULL: out of memory. */
static struct json *event_of(struct apisrv_call *c, usec_t took)
{
	usec_t now = loop_realtime(c->srv->loop);
	char id[37], received[40], done[40], method[sizeof(c->method)];
	const struct apisrv_user *who = c->by.name ? &c->by : &c->user;

	rand_uuid(id);
	time_rfc3339_micro(now - MIN(took, now), received);
	time_rfc3339_micro(now, done);
	CLEANUP(js_unrefp)
	struct json *ev =
		js_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:s*, s:o*, s:s, s:s, s:o}",
			"kind", "Event", "apiVersion", "audit.k8s.io/v1", "level", "Metadata",
			"auditID", id, "stage", "ResponseComplete", "requestURI", c->audit_target,
			"verb", verb_told(c, method), "user", user_info(who), "userAgent",
			c->audit_agent, "objectRef", object_ref(c), "requestReceivedTimestamp",
			received, "stageTimestamp", done, "annotations", notes(c, took));

	if (ev && c->by.name && js_set(ev, "impersonatedUser", user_info(&c->user)))
		return NULL;
	if (ev && c->audit_source && js_set(ev, "sourceIPs", js_pack("[s]", c->audit_source)))
		return NULL;
	if (ev && c->status &&
	    js_set(ev, "responseStatus", js_pack("{s:{}, s:i}", "metadata", "code", c->status)))
		return NULL;
	return ev ? STEAL(ev) : NULL;
}

static void write_line(struct apisrv_call *c, usec_t took)
{
	CLEANUP(js_unrefp) struct json *ev = event_of(c, took);
	CLEANUP(sbuf_fini) struct sbuf line = SBUF_INIT(MAX_LINE);

	if (ev)
		js_print(ev, &line, false);
	if (!ev || sbuf_rc(&line))
		audit_lose(c->srv->audit);
	else
		audit_line(c->srv->audit, line.p, line.n);
}

/* ---- the log ---------------------------------------------------------------------------------------------- */

/* A review is a question, although it is POSTed. */
static bool is_review(const struct apisrv_call *c)
{
	return *c->plural && !c->res && !c->subres;
}

static void log_call(const struct apisrv_call *c, usec_t took)
{
	bool told = is_read(c) ? c->verb != VERB_WATCH && took >= SLOW
			       : !is_chatter(c) && !is_review(c);

	told = told && c->http; /* our own requests follow from others */

	if (!told && !log_is_on(LOG_LVL_DEBUG))
		return;
	log_line(told ? LOG_LVL_INFO : LOG_LVL_DEBUG,
		 "request verb=%s resource=%s%s%s%s%s namespace='%s' name='%s' user='%s'%s%s%s "
		 "agent='%s' status=%d latency_ms=%llu.%03llu",
		 verb_name(c->verb), *c->plural || !c->uri.path ? c->plural : c->uri.path,
		 *c->group ? "." : "", c->group, *c->sub ? "/" : "", c->sub, c->ns, name_of(c),
		 c->user.name, c->by.name ? " by='" : "", c->by.name ? c->by.name : "",
		 c->by.name ? "'" : "", c->agent, c->status, (unsigned long long)took / 1000,
		 (unsigned long long)took % 1000);
}

void audit_call(struct apisrv_call *c)
{
	usec_t took = loop_now(c->srv->loop) - c->started;

	log_call(c, took);
	if (c->srv->audit && c->audit_target && is_worth_it(c))
		write_line(c, took);
}
