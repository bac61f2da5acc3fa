/* src/cli/user.c - a kubeconfig for somebody with fewer rights: a certificate that names him.
 *
 * Needs the cluster's authority (ca.key), so it runs on the control plane's machine; no server has to be
 * up.  The name and the groups are what roles are bound to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/b64.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cli/cmd.h"
#include "json/json.h"
#include "pki/pki.h"
#include "yaml/yaml.h"

enum { MAX_GROUPS = 31, DEFAULT_DAYS = 365, MAX_DAYS = 3650 };

struct wish {
	const char *name, *ns, *server; /* ns, server: NULL when not given */
	const char *groups[MAX_GROUPS];
	size_t n_groups;
	int64_t days;
};

static bool has_authority(const char *dir)
{
	CLEANUP(mem_freep) char *path = dir ? mem_printf("%s/ca.key", dir) : NULL;

	return path && access(path, F_OK) == 0;
}

/* The folder of the authority; owned by the caller; NULL: none was found. */
static char *find_pki(const char *flag)
{
	const char *state = getenv("FERRY_STATE"), *config = getenv("KUBECONFIG");
	const char *slash = config ? strrchr(config, '/') : NULL;

	if (flag)
		return mem_strdup(flag);
	char *tries[] = {
		state ? mem_printf("%s/control/pki", state) : NULL,
		slash ? mem_strndup(config, (size_t)(slash - config)) : NULL,
		mem_strdup("/var/lib/ferry/control/pki"),
	};
	char *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		if (!found && has_authority(tries[i]))
			found = STEAL(tries[i]);
		mem_free(tries[i]);
	}
	return found;
}

/* The server's address, from the administrator's kubeconfig beside the authority. */
static enum rc find_server(const char *dir, char **out, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/admin.kubeconfig", dir);
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *docs = NULL;
	size_t n = 0;

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = file_read(path, LIMIT_FILE_BYTES, &text, &n, err);

	if (!rc)
		rc = yaml_parse(text, n, &docs, err);
	if (rc)
		return err_prepend(err, "address of the server (or give --server)");
	const char *server = js_str(
		js_at(js_item(js_get(js_item(docs, 0), "clusters"), 0), "cluster", "server", NULL));

	if (!server)
		return err_set(err, RC_NOT_FOUND, "'%s' names no server: give --server URL", path);
	*out = mem_strdup(server);
	return *out ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

/* NULL: out of memory. */
static struct json *base64(const char *text)
{
	char *out = b64_encode(text, strlen(text), false);
	struct json *j = out ? js_new_str(out) : NULL;

	if (out)
		pki_wipe(out, strlen(out));
	mem_free(out);
	return j;
}

static struct json *kubeconfig(const struct wish *w, const char *server, const struct pki_pair *ca,
			       const struct pki_pair *own)
{
	return js_pack("{s:s, s:s, s:[{s:s, s:{s:s, s:o}}], s:[{s:s, s:{s:o, s:o}}], "
		       "s:[{s:s, s:{s:s, s:s, s:s*}}], s:s}",
		       "apiVersion", "v1", "kind", "Config", "clusters", "name", "ferry", "cluster",
		       "server", server, "certificate-authority-data", base64(ca->cert), "users",
		       "name", w->name, "user", "client-certificate-data", base64(own->cert),
		       "client-key-data", base64(own->key), "contexts", "name", "ferry", "context",
		       "cluster", "ferry", "user", w->name, "namespace", w->ns, "current-context",
		       "ferry");
}

static enum rc print_for(const struct wish *w, const char *dir, struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0};
	CLEANUP(pki_pair_fini) struct pki_pair own = {0};
	CLEANUP(mem_freep) char *server = w->server ? mem_strdup(w->server) : NULL;
	CLEANUP(js_unrefp) struct json *config = NULL;
	const struct pki_request req = {.cn = w->name,
					.orgs = w->groups,
					.n_orgs = w->n_groups,
					.use = PKI_CLIENT,
					.validity = (usec_t)w->days * 86400 * USEC_PER_SEC};
	enum rc rc = w->server ? RC_OK : find_server(dir, &server, err);

	if (!rc) {
		rc = pki_load(&ca, dir, "ca", err);
		if (rc)
			err_prepend(err, "the cluster's authority");
	}
	if (!rc)
		rc = pki_issue(&own, &ca, &req, clock_realtime(), err);
	if (rc)
		return rc;
	config = kubeconfig(w, server, &ca, &own);
	if (!config)
		return err_set(err, RC_INVALID, "'%s' cannot stand in a kubeconfig", w->name);
	return cmd_print_value(config, "yaml", err);
}

/* --group may be given several times; the others are parsed as everywhere.  False: told. */
static bool take_groups(const struct cmd *c, int *argc, char **argv, struct wish *w)
{
	int kept = 0;

	for (int i = 0; i < *argc; i++) {
		const char *value = NULL;

		if (str_has_prefix(argv[i], "--group="))
			value = argv[i] + strlen("--group=");
		else if (str_eq(argv[i], "--group") && i + 1 < *argc)
			value = argv[++i];
		if (!value) {
			argv[kept++] = argv[i];
			continue;
		}
		if (!*value) {
			cmd_usage(c, "a group has a name");
			return false;
		}
		if (w->n_groups == MAX_GROUPS) {
			cmd_usage(c, "at most %d groups", MAX_GROUPS);
			return false;
		}
		w->groups[w->n_groups++] = value;
	}
	*argc = kept;
	return true;
}

static int user_run(const struct cmd *c, int argc, char **argv)
{
	const char *pki = NULL, *days = NULL;
	struct wish w = {.days = DEFAULT_DAYS};
	const struct opt opts[] = {
		{.name = "--group", .value = &w.groups[0]}, /* without a value */
		{.name = "--pki", .value = &pki},
		{.name = "--server", .value = &w.server},
		{.name = "--days", .value = &days},
		{.name = "--namespace", .letter = 'n', .value = &w.ns},
		{0},
	};
	struct err err = {0};
	bool help;
	int n;

	if (!take_groups(c, &argc, argv, &w))
		return EXIT_USAGE;
	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 1 || !*argv[0])
		return cmd_usage(c, "expected the name of one user");
	if (days && str_to_i64(days, 1, MAX_DAYS, &w.days, &err))
		return cmd_usage(c, "--days: %s", err.msg);
	w.name = argv[0];
	if (str_has_prefix(w.name, "system:"))
		return cmd_usage(c, "names that begin with 'system:' are the cluster's own");
	CLEANUP(mem_freep) char *dir = find_pki(pki);

	if (!dir) {
		err_set(&err, RC_NOT_FOUND,
			"no authority: give --pki DIR (looked for ca.key in $FERRY_STATE/control/pki, "
			"beside $KUBECONFIG, and in /var/lib/ferry/control/pki)");
		return cmd_fail(&err);
	}
	return print_for(&w, dir, &err) ? cmd_fail(&err) : EXIT_OK;
}

const struct cmd cmd_user = {
	.name = "user",
	.args = "NAME [--group GROUP]... [--days N] [--namespace NS] [--server URL] [--pki DIR]",
	.summary = "Print a kubeconfig for a user, who has the rights that are bound to him.",
	.help = "  --group GROUP      also a member of this group; may be given several times\n"
		"  --days N           how long its certificate is good for (365)\n"
		"  -n, --namespace NS the namespace that it works in when none is said\n"
		"  --server URL       where the server is; otherwise as the administrator's\n"
		"  --pki DIR          folder of the cluster's authority (ca.crt, ca.key)\n\n"
		"It runs where the authority is, on the control plane's machine.  The file holds a\n"
		"secret key.  A certificate cannot be called back: take the role bindings away, or\n"
		"give it few days.  Rights come from roles:\n\n"
		"  ferry user jane --group team-a -n shop > jane.kubeconfig\n"
		"  kubectl create rolebinding jane -n shop --clusterrole=edit --user=jane\n",
	.run = user_run,
};
