/* src/cli/token.c - a token of a service account, as `kubectl create token` prints one. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "http/uri.h"
#include "json/json.h"

enum { MAX_AUDIENCES = 32 };

struct wish {
	const char *account, *duration;
	const char *audiences[MAX_AUDIENCES];
	size_t n_audiences;
};

/* NULL: out of memory. */
static struct json *body_of(const struct wish *w, int64_t seconds)
{
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:s, s:s, s:{}}", "kind", "TokenRequest", "apiVersion",
				 "authentication.k8s.io/v1", "spec");
	struct json *spec = js_get(j, "spec");
	struct json *list = w->n_audiences ? js_new_array() : NULL;
	enum rc rc = j ? RC_OK : RC_NOMEM;

	for (size_t i = 0; list && i < w->n_audiences; i++)
		if (js_append(list, js_new_str(w->audiences[i])))
			list = js_unref(list);
	if (w->n_audiences)
		rc = rc ? (js_unref(list), rc) : js_set(spec, "audiences", list);
	if (!rc && w->duration)
		rc = js_set(spec, "expirationSeconds", js_new_int(seconds));
	return rc ? NULL : STEAL(j);
}

static enum rc print_token(const struct wish *w, const struct client_flags *flags, int64_t seconds,
			   struct err *err)
{
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(js_unrefp) struct json *body = body_of(w, seconds), *answer = NULL;
	CLEANUP(sbuf_fini) struct sbuf path = SBUF_INIT(4096);
	enum rc rc = body ? client_open(&client, flags, err)
			  : err_set(err, RC_INVALID, "an audience is text in UTF-8");

	if (rc)
		return rc;
	sbuf_adds(&path, "/api/v1/namespaces/");
	http_uri_escape(&path, client_ns(client));
	sbuf_adds(&path, "/serviceaccounts/");
	http_uri_escape(&path, w->account);
	sbuf_adds(&path, "/token");
	if (sbuf_rc(&path))
		return err_set(err, RC_INVALID, "the name is too long");
	rc = client_send(client, "POST", sbuf_str(&path), "application/json", body, &answer, err);
	const char *token = js_str(js_at(answer, "status", "token", NULL));

	if (!rc && !token)
		rc = err_set(err, RC_INVALID, "the server's answer has no token");
	if (!rc)
		puts(token);
	return rc;
}

/* --audience may be given several times; the others are parsed as everywhere.  False: told. */
static bool take_audiences(const struct cmd *c, int *argc, char **argv, struct wish *w)
{
	int kept = 0;

	for (int i = 0; i < *argc; i++) {
		const char *value = NULL;

		if (str_has_prefix(argv[i], "--audience="))
			value = argv[i] + strlen("--audience=");
		else if (str_eq(argv[i], "--audience") && i + 1 < *argc)
			value = argv[++i];
		if (!value) {
			argv[kept++] = argv[i];
			continue;
		}
		if (!*value || w->n_audiences == MAX_AUDIENCES) {
			cmd_usage(c, *value ? "at most %d audiences" : "an audience has a name",
				  MAX_AUDIENCES);
			return false;
		}
		w->audiences[w->n_audiences++] = value;
	}
	*argc = kept;
	return true;
}

static int token_run(const struct cmd *c, int argc, char **argv)
{
	struct wish w = {0};
	struct client_flags flags = {0};
	const struct opt opts[] = {
		{.name = "--audience", .value = &w.audiences[0]}, /* without a value */
		{.name = "--duration", .value = &w.duration},
		{.name = "--namespace", .letter = 'n', .value = &flags.ns},
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{0},
	};
	usec_t lasts = 0;
	struct err err = {0};
	bool help;
	int n;

	if (!take_audiences(c, &argc, argv, &w))
		return EXIT_USAGE;
	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 1 || !*argv[0])
		return cmd_usage(c, "expected the name of one service account");
	if (w.duration && cmd_duration(w.duration, UINT32_MAX * USEC_PER_SEC, &lasts, &err))
		return cmd_usage(c, "--duration: %s", err.msg);
	w.account = argv[0];
	return print_token(&w, &flags, (int64_t)(lasts / USEC_PER_SEC), &err) ? cmd_fail(&err)
									      : EXIT_OK;
}

const struct cmd cmd_token = {
	.name = "token",
	.args = "SERVICEACCOUNT [-n NS] [--duration TIME] [--audience NAME]...",
	.summary = "Print a token of a service account, which has the rights that are bound to it.",
	.help = "  -n, --namespace NS the namespace of the account\n"
		"  --duration TIME    how long it is good for: 3600, 30m, 24h (1h; at least 10m, at\n"
		"                     most a year)\n"
		"  --audience NAME    who is to accept it, instead of this cluster's server; may be\n"
		"                     given several times\n\n"
		"The token is a secret.  It ends by itself, and with its account:\n\n"
		"  kubectl create serviceaccount robot -n shop\n"
		"  kubectl create rolebinding robot -n shop --clusterrole=edit --serviceaccount=shop:robot\n"
		"  kubectl --token=\"$(ferry token robot -n shop)\" get vm -n shop\n",
	.run = token_run,
};
