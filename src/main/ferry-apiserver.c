/* ferry-apiserver - composition root: store, API, hooks, HTTPS. */
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv.h"
#include "cluster/apiserver/audit.h"
#include "cluster/apiserver/front.h"
#include "cluster/apiserver/identity.h"
#include "cluster/apiserver/restore.h"
#include "cluster/apiserver/store.h"
#include "cluster/apiserver/token.h"
#include "ctl/daemon.h"
#include "ctl/prom.h"
#include "ev/ev.h"
#include "pki/pki.h"
#include "virt/admission/admission.h"
#include "virt/subresources/subresources.h"

#define DAY (86400 * USEC_PER_SEC)

enum { MAX_WORDS = 32 };

static const char *opt_state;
static const char *opt_listen = "127.0.0.1:6443";
static const char *opt_advertise = "";
static const char *opt_service_cidr = "10.96.0.0/16";
static const char *opt_node_ports = "30000-32767";
static const char *opt_requests = "400";
static const char *opt_watches = "1000";
static const char *opt_event_ttl = "1h";
static const char *opt_issuer;
static const char *opt_audit, *opt_audit_mib = "100", *opt_audit_keep = "10";

static usec_t realtime(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return (usec_t)tv.tv_sec * USEC_PER_SEC + (usec_t)tv.tv_usec;
}

/* ---- ferry-apiserver issue ---------------------------------------------------------------------------- */

static const char issue_help[] =
	"usage: ferry-apiserver issue --state DIR --cn CN [--org O]... [--san NAME|ADDRESS]...\n"
	"                             [--seconds N] --out DIR\n"
	"\n"
	"Writes ca.crt, tls.crt and tls.key into --out: a certificate of the cluster's own authority, for a\n"
	"node (--cn system:node:NAME --org system:nodes --san ADDRESS) or another client, good for a year or\n"
	"so many seconds.  Needs no running server.\n";

static int issue_usage(const char *why, const char *what)
{
	fprintf(stderr, "ferry-apiserver issue: %s%s\n%s", why, what, issue_help);
	return 2;
}

static int issue(int argc, char **argv)
{
	const char *orgs[MAX_WORDS], *sans[MAX_WORDS], *state = NULL;
	struct identity_issue what = {.orgs = orgs, .sans = sans, .now = realtime()};
	struct err err = {0};
	uint64_t seconds = 0;

	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			fputs(issue_help, stdout);
			return 0;
		}
		if (i + 1 >= argc)
			return issue_usage("missing value of ", argv[i]);
		const char *name = argv[i], *value = argv[++i];

		if (strcmp(name, "--state") == 0)
			state = value;
		else if (strcmp(name, "--cn") == 0)
			what.cn = value;
		else if (strcmp(name, "--out") == 0)
			what.out = value;
		else if (strcmp(name, "--seconds") == 0 &&
			 !str_to_u64(value, (uint64_t)3650 * 86400, &seconds, NULL) && seconds)
			what.validity = (usec_t)seconds * USEC_PER_SEC;
		else if (strcmp(name, "--org") == 0 && what.n_orgs < MAX_WORDS)
			orgs[what.n_orgs++] = value;
		else if (strcmp(name, "--san") == 0 && what.n_sans < MAX_WORDS)
			sans[what.n_sans++] = value;
		else
			return issue_usage("unknown (or too many of) option ", name);
	}
	if (!state || !what.cn || !what.out)
		return issue_usage("--state, --cn and --out are needed", "");
	log_setup("ferry-apiserver", LOG_LVL_INFO, false);
	CLEANUP(mem_freep) char *dir = mem_printf("%s/pki", state);

	what.dir = dir;
	if (!dir || identity_issue(&what, &err)) {
		fprintf(stderr, "ferry-apiserver issue: %s\n", dir ? err.msg : "out of memory");
		return 1;
	}
	return 0;
}

/* ---- ferry-apiserver restore ---------------------------------------------------------------------------- */

static const char restore_help[] =
	"usage: ferry-apiserver restore --state DIR FILE\n"
	"\n"
	"Puts a backup (`ferry backup`, or a copy of a stopped server's store.db) in the place of the store in\n"
	"DIR, which no server may have open.  The old store is kept.  Uids stay; the resourceVersion goes on\n"
	"behind everything that clients can have seen, and their watches begin again.\n";

static int restore_usage(const char *why)
{
	fprintf(stderr, "ferry-apiserver restore: %s\n%s", why, restore_help);
	return 2;
}

static int restore(int argc, char **argv)
{
	const char *state = NULL, *file = NULL;
	struct store_restore_info info;
	struct err err = {0};

	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			fputs(restore_help, stdout);
			return 0;
		}
		if (strcmp(argv[i], "--state") == 0 && i + 1 < argc)
			state = argv[++i];
		else if (!file && argv[i][0] != '-')
			file = argv[i];
		else
			return restore_usage("one FILE and --state DIR are needed");
	}
	if (!state || !file)
		return restore_usage("one FILE and --state DIR are needed");
	log_setup("ferry-apiserver", LOG_LVL_INFO, false);
	CLEANUP(mem_freep) char *path = mem_printf("%s/store.db", state);
	enum rc rc =
		path ? file_mkdir_p(state, 0700, &err) : err_set(&err, RC_NOMEM, "out of memory");

	if (!rc)
		rc = store_restore(file, path, realtime(), &info, &err);
	if (rc) {
		fprintf(stderr, "ferry-apiserver restore: %s\n", err.msg);
		return 1;
	}
	printf("restored %zu objects of revision %lld; the server goes on at %lld\n", info.objects,
	       (long long)info.backup_rev, (long long)info.rev);
	if (*info.kept)
		printf("the old store is kept as %s\n", info.kept);
	return 0;
}

/* ---- ferry-apiserver rotate-ca -------------------------------------------------------------------------- */

static const char rotate_help[] =
	"usage: ferry-apiserver rotate-ca --state DIR prepare|switch|finish\n"
	"\n"
	"Gives the cluster another authority while everything runs: 'prepare' announces it, 'switch' lets it\n"
	"sign, 'finish' takes the old one away.  Send the server SIGHUP after each step, and wait two hours\n"
	"before the next: nodes look once an hour.\n";

static int rotate_ca(int argc, char **argv)
{
	const char *state = NULL, *step = NULL;
	struct err err = {0};
	bool bad = false;

	for (int i = 2; i < argc && !bad; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			fputs(rotate_help, stdout);
			return 0;
		}
		if (strcmp(argv[i], "--state") == 0 && i + 1 < argc)
			state = argv[++i];
		else if (!step && argv[i][0] != '-')
			step = argv[i];
		else
			bad = true;
	}
	if (bad || !state || !step) {
		fprintf(stderr, "ferry-apiserver rotate-ca: --state DIR and a step are needed\n%s",
			rotate_help);
		return 2;
	}
	log_setup("ferry-apiserver", LOG_LVL_INFO, false);
	CLEANUP(mem_freep) char *dir = mem_printf("%s/pki", state);

	if (!dir || identity_rotate_ca(dir, step, realtime(), &err)) {
		fprintf(stderr, "ferry-apiserver rotate-ca: %s\n", dir ? err.msg : "out of memory");
		return 1;
	}
	return 0;
}

/* ---- the daemon ------------------------------------------------------------------------------------------ */

struct server {
	struct daemon *daemon;
	struct store *store;
	struct apisrv *srv;
	struct tokens *tokens;
	struct audit *audit; /* NULL: not asked for */
	struct front *front;
	struct virt_subres *subres;
	struct apisrv_hooks hooks;
	struct ev_src *daily;
	char host[64];
	uint16_t port;
	char *pki, *url;
};

/* "ADDRESS:PORT", "[V6]:PORT" */
static enum rc parse_listen(struct server *s, const char *text, struct err *err)
{
	const char *colon = strrchr(text, ':');
	uint64_t port = 0;

	if (!colon || str_to_u64(colon + 1, 65535, &port, NULL))
		return err_set(err, RC_INVALID, "--listen '%s' is not of the form ADDRESS:PORT",
			       text);
	size_t n = (size_t)(colon - text);

	if (n >= 2 && text[0] == '[' && colon[-1] == ']') {
		text++;
		n -= 2;
	}
	if (!n || n >= sizeof(s->host))
		return err_set(err, RC_INVALID, "--listen needs a numeric address before the port");
	memcpy(s->host, text, n);
	s->port = (uint16_t)port;
	return RC_OK;
}

static bool is_wildcard(const char *host)
{
	return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static enum rc prepare_identity(struct server *s, struct err *err)
{
	CLEANUP(mem_freep) char *list = mem_strdup(opt_advertise);
	const char *names[MAX_WORDS];
	size_t n = 0;
	char *save = NULL;

	if (!list)
		return err_set(err, RC_NOMEM, "out of memory");
	for (char *w = strtok_r(list, ", ", &save); w && n < MAX_WORDS - 1;
	     w = strtok_r(NULL, ", ", &save))
		names[n++] = w;
	const char *first = n ? names[0] : is_wildcard(s->host) ? "127.0.0.1" : s->host;

	mem_free(s->url);
	s->url = strchr(first, ':') ? mem_printf("https://[%s]:%u", first, s->port)
				    : mem_printf("https://%s:%u", first, s->port);
	if (!is_wildcard(s->host))
		names[n++] = s->host;
	if (!s->url)
		return err_set(err, RC_NOMEM, "out of memory");
	const struct identity_config ic = {
		.dir = s->pki, .server = s->url, .names = names, .n_names = n, .now = realtime()};

	return identity_prepare(&ic, err);
}

static enum rc listen_https(struct server *s, struct err *err)
{
	CLEANUP(mem_freep) char *cert = mem_printf("%s/server.crt", s->pki);
	CLEANUP(mem_freep) char *key = mem_printf("%s/server.key", s->pki);
	CLEANUP(mem_freep) char *ca = mem_printf("%s/ca.crt", s->pki);
	const struct front_config fc = {.address = s->host,
					.port = s->port,
					.cert_file = cert,
					.key_file = key,
					.ca_file = ca};

	if (!cert || !key || !ca)
		return err_set(err, RC_NOMEM, "out of memory");
	return front_new(&s->front, daemon_loop(s->daemon), s->srv, &fc, err);
}

static enum rc prepare_tokens(struct server *s, struct err *err)
{
	CLEANUP(mem_freep) char *jwks = mem_printf("%s/openid/v1/jwks", s->url);
	enum rc rc = jwks ? tokens_new(&s->tokens, opt_issuer, jwks) : RC_NOMEM;

	if (rc)
		return err_set(err, rc, "out of memory");
	return identity_token_keys(s->pki, realtime(), s->tokens, err);
}

static enum rc open_audit(struct server *s, struct err *err)
{
	uint64_t mib = 0, keep = 0;

	if (!opt_audit)
		return RC_OK;
	if (str_to_u64(opt_audit_mib, 1 << 20, &mib, NULL) || !mib)
		return err_set(err, RC_INVALID, "--audit-log-size is a number of MiB, from 1 on");
	if (str_to_u64(opt_audit_keep, 1000, &keep, NULL))
		return err_set(err, RC_INVALID, "--audit-log-keep is a number from 0 to 1000");
	const struct audit_config config = {
		.path = opt_audit, .max_bytes = mib << 20, .keep = (unsigned)keep};
	enum rc rc = audit_new(&s->audit, daemon_loop(s->daemon), &config, err);

	return rc ? err_prepend(err, "--audit-log") : RC_OK;
}

/* For whoever has to trust the server: ConfigMap kube-root-ca.crt; and for nodes, whose certificates it renews. */
static enum rc publish_ca(struct server *s, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/ca.crt", s->pki);
	CLEANUP(mem_freep) char *pem = NULL;
	size_t n;
	enum rc rc = path ? file_read(path, LIMIT_FILE_BYTES, &pem, &n, err)
			  : err_set(err, RC_NOMEM, "out of memory");

	CLEANUP(pki_pair_fini) struct pki_pair ca = {0};

	if (!rc)
		rc = pki_load(&ca, s->pki, "ca", err);
	if (!rc && (apisrv_set_ca(s->srv, pem) || apisrv_set_signer(s->srv, ca.cert, ca.key)))
		rc = err_set(err, RC_NOMEM, "out of memory");
	return rc;
}

static void on_stopped(void *arg)
{
	struct server *s = arg;

	daemon_quit(s->daemon, 0);
}

static void on_stop(void *arg)
{
	struct server *s = arg;

	front_stop(s->front, 5 * USEC_PER_SEC, on_stopped, s);
}

static void on_reload(void *arg)
{
	struct server *s = arg;
	struct err err = {0};
	enum rc rc = prepare_identity(s, &err);

	if (!rc)
		rc = front_reload(s->front, &err);
	if (!rc)
		rc = identity_token_keys(s->pki, realtime(), s->tokens, &err);
	if (!rc)
		rc = publish_ca(s, &err);
	if (rc)
		log_error("cannot reload the certificates, the old ones stay in use: %s", err.msg);
	else
		log_info("certificates reloaded");
}

/* A store whose file is in doubt is only good again after it was read anew: end, and be started again. */
static void on_broken(void *arg)
{
	struct server *s = arg;

	log_error("the store failed: ending, so that it is read anew from its file");
	daemon_quit(s->daemon, 1);
}

/* Certificates that grow old are renewed without a restart. */
static void on_day(void *arg)
{
	struct server *s = arg;

	on_reload(s);
	ev_timer_rearm(s->daily, DAY);
}

static enum rc open_store(struct server *s, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/store.db", opt_state);
	struct store_opts so = {.path = path, .on_broken = on_broken, .arg = s};

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	return store_open(&s->store, daemon_loop(s->daemon), &so, err);
}

static void on_metrics(struct sbuf *out, void *arg)
{
	struct server *s = arg;

	apisrv_metrics(s->srv, out);
	virt_subres_metrics(s->subres, out);
}

/* Over HTTPS the process' own figures come first; on --health the daemon has them. */
static void on_scrape(struct sbuf *out, void *arg)
{
	struct server *s = arg;

	daemon_print_process(s->daemon, out);
	prom_one(out, "kubevirt_virt_api_ready_status", "gauge",
		 "1 when the API with its subresources is served.", store_is_healthy(s->store));
	virt_subres_metrics(s->subres, out);
}

/* What src/virt adds to the API: admission, and subresources that talk to the nodes. */
static enum rc set_hooks(struct server *s, struct err *err)
{
	CLEANUP(mem_freep) char *cert = mem_printf("%s/server.crt", s->pki);
	CLEANUP(mem_freep) char *key = mem_printf("%s/server.key", s->pki);
	CLEANUP(mem_freep) char *ca = mem_printf("%s/ca.crt", s->pki);

	if (!cert || !key || !ca)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = virt_subres_new(&s->subres, daemon_loop(s->daemon), ca, cert, key, err);

	s->hooks = (struct apisrv_hooks){
		.n_admission = n_virt_admission,
		.admission = virt_admission,
		.n_subres = n_virt_subres,
		.subres = virt_subres,
		.arg = s->subres,
	};
	return rc;
}

/* Made once: a client that lists in pages goes on over a restart. */
static enum rc continue_key(unsigned char key[APISRV_KEY_BYTES], struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/continue.key", opt_state);
	CLEANUP(mem_freep) char *have = NULL;
	struct err why = {0};
	size_t n = 0;

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = file_read(path, APISRV_KEY_BYTES, &have, &n, &why);

	if (!rc && n == APISRV_KEY_BYTES) {
		memcpy(key, have, n);
		return RC_OK;
	}
	if (rc && rc != RC_NOT_FOUND && rc != RC_TOO_BIG)
		return err_set(err, rc, "%s", why.msg);
	rand_bytes(key, APISRV_KEY_BYTES); /* none, or not one of ours */
	return file_write_durable(path, key, APISRV_KEY_BYTES, 0600, err);
}

static enum rc parse_limit(const char *option, const char *text, unsigned max, unsigned *out,
			   struct err *err)
{
	uint64_t n = 0;

	if (str_to_u64(text, max, &n, NULL) || n == 0)
		return err_set(err, RC_INVALID, "--%s '%s' is not a number from 1 to %u", option,
			       text, max);
	*out = (unsigned)n;
	return RC_OK;
}

static enum rc parse_event_ttl(usec_t *out, struct err *err)
{
	enum rc rc = str_to_duration(opt_event_ttl, INT64_MAX / 2, out, err);

	if (!rc && !*out)
		rc = err_set(err, RC_INVALID, "it has to be more than 0");
	return rc ? err_prepend(err, "--event-ttl") : RC_OK;
}

static enum rc start(struct server *s, struct err *err)
{
	unsigned char key[APISRV_KEY_BYTES];
	unsigned requests = 0, watches = 0;
	usec_t event_ttl = 0;
	struct loop *loop = daemon_loop(s->daemon);
	enum rc rc = parse_listen(s, opt_listen, err);

	if (!rc)
		rc = parse_limit("max-requests-inflight", opt_requests, 100000, &requests, err);
	if (!rc)
		rc = parse_limit("max-watches-per-user", opt_watches, LIMIT_WATCHERS, &watches,
				 err);
	if (!rc)
		rc = parse_event_ttl(&event_ttl, err);
	s->pki = mem_printf("%s/pki", opt_state);
	if (!rc && !s->pki)
		rc = err_set(err, RC_NOMEM, "out of memory");
	if (!rc)
		rc = file_mkdir_p(opt_state, 0700, err);
	if (!rc)
		rc = prepare_identity(s, err);
	if (!rc)
		rc = open_store(s, err);
	if (!rc)
		rc = set_hooks(s, err);
	if (!rc)
		rc = continue_key(key, err);
	if (!rc)
		rc = prepare_tokens(s, err);
	if (!rc)
		rc = open_audit(s, err);
	if (!rc) {
		const struct apisrv_config config = {.store = s->store,
						     .continue_key = key,
						     .requests_max = requests,
						     .watches_max = watches,
						     .event_ttl = event_ttl,
						     .more_metrics = on_scrape,
						     .metrics_arg = s,
						     .service_cidr = opt_service_cidr,
						     .node_port_range = opt_node_ports,
						     .hooks = &s->hooks,
						     .tokens = s->tokens,
						     .audit = s->audit,
						     .with_roles = true};

		rc = apisrv_new(&s->srv, loop, &config, err);
	}
	if (!rc)
		rc = publish_ca(s, err);
	if (!rc)
		rc = listen_https(s, err);
	if (!rc)
		rc = ev_timer_after(loop, &s->daily, DAY, on_day, s, err);
	if (rc)
		return rc;
	daemon_on_stop(s->daemon, on_stop, s);
	daemon_on_reload(s->daemon, on_reload, s);
	daemon_on_metrics(s->daemon, on_metrics, s);
	log_info("listening on %s:%u, revision %lld", s->host, front_port(s->front),
		 (long long)store_rev(s->store));
	return RC_OK;
}

int main(int argc, char **argv)
{
	static const struct daemon_option options[] = {
		{"state", "DIR", "folder of the store and of the certificates", .text = &opt_state,
		 .is_required = true},
		{"listen", "ADDRESS:PORT", "where to serve HTTPS (default 127.0.0.1:6443)",
		 .text = &opt_listen},
		{"advertise", "NAME[,NAME…]",
		 "further names and addresses of the server in its certificate; the first one goes into the "
		 "kubeconfig",
		 .text = &opt_advertise},
		{"service-cidr", "CIDR", "addresses of Services (default 10.96.0.0/16)",
		 .text = &opt_service_cidr},
		{"node-ports", "FROM-TO",
		 "ports for Services of type NodePort (default 30000-32767)",
		 .text = &opt_node_ports},
		{"max-requests-inflight", "N",
		 "requests that run or wait for the disk at a time, of others than nodes and controllers (default "
		 "400)",
		 .text = &opt_requests},
		{"max-watches-per-user", "N",
		 "watches that one user may have open, nodes and controllers apart (default 1000)",
		 .text = &opt_watches},
		{"event-ttl", "DURATION", "how long Events are kept (default 1h)",
		 .text = &opt_event_ttl},
		{"audit-log", "FILE",
		 "write down who did what, a line of JSON each (default: nothing is written down)",
		 .text = &opt_audit},
		{"audit-log-size", "MIB", "put the file aside when it is larger (default 100)",
		 .text = &opt_audit_mib},
		{"audit-log-keep", "N", "how many files put aside stay (default 10)",
		 .text = &opt_audit_keep},
		{"service-account-issuer", "URL",
		 "who tokens of service accounts say they are from, and for (default " TOKEN_ISSUER
		 ")",
		 .text = &opt_issuer},
		{NULL},
	};
	static const struct daemon_def def = {
		"ferry-apiserver", "serves the Kubernetes and KubeVirt API from a SQLite store",
		options,
		.more = "ferry-apiserver issue --help tells how to make certificates for nodes, and\n"
			"ferry-apiserver restore --help how to go back to a backup, rotate-ca --help how to change\n"
			"the authority.\n"};
	struct server s = {0};
	struct err err = {0};

	if (argc > 1 && strcmp(argv[1], "issue") == 0)
		return issue(argc, argv);
	if (argc > 1 && strcmp(argv[1], "restore") == 0)
		return restore(argc, argv);
	if (argc > 1 && strcmp(argv[1], "rotate-ca") == 0)
		return rotate_ca(argc, argv);
	int code = daemon_new(&s.daemon, &def, argc, argv);

	if (!s.daemon)
		return code;
	code = start(&s, &err) ? daemon_fail(&err) : daemon_run(s.daemon);
	ev_src_free(s.daily);
	front_free(s.front);
	apisrv_free(s.srv);
	tokens_free(s.tokens);
	audit_free(s.audit);
	virt_subres_free(s.subres);
	store_close(s.store);
	mem_free(s.pki);
	mem_free(s.url);
	daemon_free(s.daemon);
	return code;
}
