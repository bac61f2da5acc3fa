/* Whether a change is taken: what the schema says of it, the hooks, and the kind's own strategy. */
#include "cluster/apiserver/managed.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/quota.h"
#include "ev/ev.h"

static void drop_finding(struct field_err *e)
{
	mem_free(e->field);
	mem_free(e->message);
	mem_free(e->reason);
}

static void drop_unknown(struct field_errs *fe)
{
	size_t n = 0;

	for (size_t i = 0; i < fe->n; i++) {
		if (fe->items[i].type != FE_UNKNOWN)
			fe->items[n++] = fe->items[i];
		else
			drop_finding(&fe->items[i]);
	}
	fe->n = n;
}

/* The form that the client sent. */
static const struct api_kind *checked_as(const struct change *ch)
{
	return ch->sent ? ch->c->alias : ch->res->kind;
}

static bool had_finding(const struct field_errs *old, const struct field_err *e)
{
	for (size_t i = 0; i < old->n; i++)
		if (old->items[i].type == e->type && str_eq(old->items[i].field, e->field) &&
		    str_eq(old->items[i].message, e->message))
			return true;
	return false;
}

/* What the stored object was already guilty of (a default, an older server's leniency) does not hold up
 * an update that leaves it alone. */
static void forgive_old_faults(struct change *ch, unsigned flags)
{
	struct field_errs old = FIELD_ERRS_INIT;
	size_t n = 0;

	if (!ch->old || fe_is_ok(&ch->fe) || ch->fe.n_lost)
		return;
	CLEANUP(js_unrefp)
	struct json *was = ch->sent ? view_of(ch->c, ch->old) : js_ref(ch->old);

	if (was)
		api_check(checked_as(ch), was, flags, &old);
	else
		old.rc = RC_NOMEM;
	if (old.rc) /* some of its faults are not known: what is new cannot be told */
		ch->fe.rc = old.rc;
	for (size_t i = 0; i < ch->fe.n; i++) {
		if (!had_finding(&old, &ch->fe.items[i]))
			ch->fe.items[n++] = ch->fe.items[i];
		else
			drop_finding(&ch->fe.items[i]);
	}
	ch->fe.n = n;
	fe_fini(&old);
}

/* Keys that were there twice and fields that nobody knows are one thing to the client. */
static void fail_strict(struct change *ch)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(64 * KIB);
	const struct json *twice = ch->c->duplicates;

	for (size_t i = 0; i < js_len(twice); i++)
		sbuf_addf(&b, "%sduplicate field \"%s\"", i ? ", " : "", js_str(js_item(twice, i)));
	if (js_len(twice) && fe_has(&ch->fe, FE_UNKNOWN))
		sbuf_adds(&b, ", ");
	fe_unknown_summary(&ch->fe, &b);
	call_bad_request(
		ch->c, "%s in version \"%s\" cannot be handled as a %s: strict decoding error: %s",
		ch->res->kind->kind, ch->res->kind->version, ch->res->kind->kind, sbuf_str(&b));
}

static void warn_of(struct apisrv_call *c, const char *what, const char *path)
{
	char text[512];

	snprintf(text, sizeof(text), "%s field \"%s\"", what, path);
	text_clean(text);
	call_warn(c, text);
}

static bool check_unknown(struct change *ch)
{
	struct apisrv_call *c = ch->c;
	enum validation how = call_validation(c);

	if (!fe_has(&ch->fe, FE_UNKNOWN) && !c->duplicates)
		return true;
	if (how == VALIDATE_STRICT) {
		fail_strict(ch);
		return false;
	}
	for (size_t i = 0; how == VALIDATE_WARN && i < js_len(c->duplicates); i++)
		warn_of(c, "duplicate", js_str(js_item(c->duplicates, i)));
	for (size_t i = 0; how == VALIDATE_WARN && i < ch->fe.n; i++)
		if (ch->fe.items[i].type == FE_UNKNOWN)
			warn_of(c, "unknown", ch->fe.items[i].field);
	drop_unknown(&ch->fe);
	if (api_prune(ch->res->kind, ch->obj)) {
		call_nomem(c);
		return false;
	}
	return true;
}

static unsigned check_flags(const struct change *ch)
{
	const struct api_kind *k = ch->res->kind;
	unsigned flags = ch->op == HOOK_UPDATE ? API_CHECK_UPDATE : 0;

	if (apisrv_user_is_component(&ch->c->user))
		flags |= API_CHECK_NO_SUPPORT;
	if (ch->status_only)
		flags |= API_CHECK_ONLY_STATUS;
	else if (k->subresources & API_SUB_STATUS)
		flags |= API_CHECK_SKIP_STATUS;
	return flags;
}

/* The name of the webhook that KubeVirt would have asked; NULL: none is named. */
static const char *denied_by(const struct change *ch)
{
	const struct admission_hook *h = ch->res->hook;

	if (!h)
		return NULL;
	if (ch->op == HOOK_UPDATE && h->denied_by_update)
		return h->denied_by_update;
	if (ch->op == HOOK_DELETE && h->denied_by_delete)
		return h->denied_by_delete;
	return h->denied_by;
}

static void hook_denied(struct change *ch, enum rc rc, const struct err *err)
{
	const char *by = denied_by(ch);

	if (rc == RC_NOMEM)
		call_nomem(ch->c);
	else if (by)
		call_fail(ch->c, rc_http(rc), rc_reason(rc), NULL,
			  "admission webhook \"%s\" denied the request: %s", by, err->msg);
	else
		call_fail(ch->c, rc_http(rc), rc_reason(rc), NULL, "%s", err->msg);
}

static struct hook_ctx begin_hook(struct change *ch)
{
	ch->c->srv->lookup_failed = false;
	return (struct hook_ctx){
		.env = (struct hook_env *)ch->c->srv,
		.user = &ch->c->user,
		.op = ch->op,
		.dry_run = call_is_dry_run(ch->c),
		.ns = ch->ns,
		.name = ch->name,
		.subresource = ch->status_only ? "status" : "",
		.obj = ch->obj,
		.old = ch->old,
		.warnings = ch->c,
	};
}

/* A hook that was shown less than there is may have judged wrongly, either way. */
static enum rc hook_result(const struct change *ch, enum rc rc)
{
	return ch->c->srv->lookup_failed ? RC_NOMEM : rc;
}

static bool run_mutate(struct change *ch)
{
	const struct admission_hook *h = ch->res->hook;
	struct err err = {0};

	if (!h || !h->mutate || ch->op == HOOK_DELETE)
		return true;
	struct hook_ctx ctx = begin_hook(ch);
	enum rc rc = hook_result(ch, h->mutate(&ctx, ch->obj, &err));

	if (rc)
		hook_denied(ch, rc, &err);
	return rc == RC_OK;
}

static bool run_validate(struct change *ch)
{
	const struct admission_hook *h = ch->res->hook;
	const struct api_type *t = ch->res->kind->type;
	void *obj = NULL, *old = NULL;
	struct err err = {0};

	if (!h || !h->validate)
		return true;
	enum rc rc = ch->obj ? api_decode(t, ch->obj, &obj, &err) : RC_OK;

	if (!rc && ch->old)
		rc = api_decode(t, ch->old, &old, &err);
	if (!rc) {
		struct hook_ctx ctx = begin_hook(ch);

		rc = hook_result(ch, h->validate(&ctx, obj, old, &ch->fe, &err));
	}
	api_free(t, obj);
	api_free(t, old);
	if (rc)
		hook_denied(ch, rc, &err);
	return rc == RC_OK;
}

static bool run_prepare(struct change *ch)
{
	const struct strategy *st = ch->res->strategy;
	struct err err = {0};
	enum rc rc = RC_OK;

	if (ch->res->kind->has_defaults)
		rc = api_set_defaults(ch->res->kind, ch->obj);
	if (!rc)
		rc = usage_amounts_to_text(ch->res->table, ch->obj);
	if (!rc)
		rc = limitrange_default(ch);
	if (!rc && ch->op == HOOK_CREATE && st->prepare_create)
		rc = st->prepare_create(ch, &err);
	if (!rc && ch->op == HOOK_UPDATE && st->prepare_update)
		rc = st->prepare_update(ch, &err);
	if (rc)
		call_fail_rc(ch->c, rc, &err);
	return rc == RC_OK;
}

/* Is the finding about path or about something in it? */
static bool is_about(const struct field_err *e, const char *path)
{
	size_t n = strlen(path);

	return strncmp(e->field, path, n) == 0 &&
	       (!e->field[n] || e->field[n] == '.' || e->field[n] == '[');
}

static bool is_overruled(const struct field_errs *fe, size_t i, size_t n_own)
{
	for (size_t k = n_own; fe->items[i].is_rejected && k < fe->n; k++)
		if (fe->items[k].type == FE_CAUSE && is_about(&fe->items[k], fe->items[i].field))
			return true;
	return false;
}

/* Where the webhook itself has words about a field, "not supported" comes after it has been satisfied, as
 * with KubeVirt in front.  Returns how many of the n_own findings before the webhook's are left. */
static size_t drop_overruled(struct field_errs *fe, size_t n_own)
{
	size_t n = 0, left = 0;

	for (size_t i = 0; i < fe->n; i++) {
		if (i < n_own && is_overruled(fe, i, n_own)) {
			drop_finding(&fe->items[i]);
			continue;
		}
		left += i < n_own;
		fe->items[n++] = fe->items[i];
	}
	fe->n = n;
	return left;
}

static bool finish_validation(struct change *ch, size_t own_faults)
{
	struct apisrv_call *c = ch->c;

	for (size_t i = 0; i < ch->fe.n_warnings; i++)
		call_warn(c, ch->fe.warnings[i]);
	if (ch->fe.rc)
		call_nomem(c);
	else if (ch->fe.n)
		call_invalid(c, ch->res, ch->name, &ch->fe, own_faults ? NULL : denied_by(ch));
	return fe_is_ok(&ch->fe);
}

bool change_find_faults(struct change *ch)
{
	api_check(checked_as(ch), ch->sent ? ch->sent : ch->obj,
		  check_flags(ch) | API_CHECK_NO_SUPPORT, &ch->fe);
	drop_unknown(&ch->fe);
	if (api_prune(ch->res->kind, ch->obj)) {
		call_nomem(ch->c);
		return false;
	}
	/* Hooks may rely on types. */
	return fe_has(&ch->fe, FE_TYPE_INVALID) || run_validate(ch);
}

bool change_admit(struct change *ch)
{
	struct apisrv_call *c = ch->c;

	if (ch->op == HOOK_DELETE)
		return run_validate(ch) && finish_validation(ch, 0);
	unsigned flags = check_flags(ch);

	api_check(checked_as(ch), ch->sent ? ch->sent : ch->obj, flags, &ch->fe);
	forgive_old_faults(ch, flags);
	if (!check_unknown(ch))
		return false;
	/* Hooks and strategies may rely on types. */
	if (fe_has(&ch->fe, FE_TYPE_INVALID)) {
		call_invalid(c, ch->res, ch->name, &ch->fe, NULL);
		return false;
	}
	if (!run_prepare(ch))
		return false;
	if (ch->op == HOOK_CREATE && managed_begin_create(ch)) {
		call_nomem(c);
		return false;
	}
	if (!run_mutate(ch))
		return false;
	if (ch->op == HOOK_UPDATE && !ch->status_only)
		api_check_update(ch->res->kind, ch->old, ch->obj, &ch->fe);
	if (ch->res->strategy->validate)
		ch->res->strategy->validate(ch);
	size_t own_faults = ch->fe.n;

	if (!run_validate(ch) || !finish_validation(ch, drop_overruled(&ch->fe, own_faults)))
		return false;
	/* As in Kubernetes: quotas last, so that nothing is charged that is refused anyway. */
	return limitrange_admit(ch) && quota_admit(ch);
}
