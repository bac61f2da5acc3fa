/* /healthz, /livez, /readyz, each check by itself below them; in kube-apiserver's words. */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* "" when all is well, else why not. */
typedef const char *(*check_fn)(const struct apisrv *s);

static const char *check_ping(const struct apisrv *s)
{
	(void)s;
	return "";
}

static const char *check_store(const struct apisrv *s)
{
	return store_is_healthy(s->store) ? "" : "store failed";
}

/* A store whose log only grows still serves: that is "not ready", and a restart would not help. */
static const char *check_store_log(const struct apisrv *s)
{
	static char text[320];
	const char *why = store_checkpoint_error(s->store);

	if (!why)
		return "";
	snprintf(text, sizeof(text), "the store's log cannot be written back: %s", why);
	return text;
}

static const char *check_shutdown(const struct apisrv *s)
{
	return s->is_draining ? "process is shutting down" : "";
}

static const struct {
	const char *name;
	check_fn fn;
	bool is_ready_only;
} checks[] = {
	{"ping", check_ping, false},
	{"store", check_store, false},
	{"store-log", check_store_log, true},
	{"shutdown", check_shutdown, true},
};

static void answer_text(struct apisrv_call *c, int status, const char *text)
{
	call_answer(c, status, "text/plain; charset=utf-8", text, strlen(text));
}

/* exclude=<name>, as often as wanted. */
static bool is_excluded(const struct apisrv_call *c, const char *name)
{
	for (size_t i = 0; i < c->uri.n_params; i++)
		if (str_eq(c->uri.params[i].name, "exclude") &&
		    str_eq(c->uri.params[i].value, name))
			return true;
	return false;
}

static bool is_check_of(size_t i, bool ready)
{
	return ready || !checks[i].is_ready_only;
}

static void warn_of_unknown(const struct apisrv_call *c, bool ready, struct sbuf *out)
{
	size_t n = 0;

	for (size_t i = 0; i < c->uri.n_params; i++) {
		bool known = !str_eq(c->uri.params[i].name, "exclude");

		for (size_t k = 0; k < ARRAY_SIZE(checks); k++)
			known = known || (is_check_of(k, ready) &&
					  str_eq(c->uri.params[i].value, checks[k].name));
		if (!known)
			sbuf_addf(
				out, "%s\"%s\"",
				n++ ? ","
				    : "warn: some health checks cannot be excluded: no matches for ",
				c->uri.params[i].value);
	}
	if (n)
		sbuf_addc(out, '\n');
}

/* All checks together; what is the page's name. */
static void serve_all(struct apisrv_call *c, const char *what, bool ready)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(64 * KIB);
	bool failed = false;

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		if (!is_check_of(i, ready))
			continue;
		if (is_excluded(c, checks[i].name)) {
			sbuf_addf(&b, "[+]%s excluded: ok\n", checks[i].name);
			continue;
		}
		const char *why = checks[i].fn(c->srv);

		if (*why)
			sbuf_addf(&b, "[-]%s failed: %s\n", checks[i].name, why);
		else
			sbuf_addf(&b, "[+]%s ok\n", checks[i].name);
		failed = failed || *why;
	}
	warn_of_unknown(c, ready, &b);
	sbuf_addf(&b, "%s check %s\n", what, failed ? "failed" : "passed");
	if (sbuf_rc(&b))
		call_nomem(c);
	else if (failed)
		answer_text(c, 500, sbuf_str(&b));
	else
		/* "?verbose" without a value, too. */
		answer_text(c, 200, call_param(c, "verbose") ? sbuf_str(&b) : "ok");
}

static void serve_one(struct apisrv_call *c, const char *name, bool ready)
{
	char text[384];

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		if (!is_check_of(i, ready) || strcmp(checks[i].name, name) != 0)
			continue;
		const char *why = checks[i].fn(c->srv);

		snprintf(text, sizeof(text), "internal server error: %s\n", why);
		answer_text(c, *why ? 500 : 200, *why ? text : "ok");
		return;
	}
	answer_text(c, 404, "404 page not found\n");
}

void serve_health(struct apisrv_call *c)
{
	const char *what = c->uri.path + 1; /* "readyz", "livez/ping" */
	const char *slash = strchr(what, '/');
	bool ready = str_has_prefix(what, "readyz");
	char page[8];

	snprintf(page, sizeof(page), "%.*s", (int)strcspn(what, "/"), what);
	if (slash)
		serve_one(c, slash + 1, ready);
	else
		serve_all(c, page, ready);
}
