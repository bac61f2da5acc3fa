#include "ctl/daemon.h"

#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/prom.h"
#include "ev/ev.h"
#include "http/server.h"
#include "json/json.h"

enum { MAX_METRICS = 16, METRICS_BYTES = 16 * 1024 * 1024 };

struct daemon {
	const struct daemon_def *def;
	struct loop *loop;
	struct http_server *health;
	struct ev_src *signals[3];
	unsigned n_signals;
	void (*stop)(void *arg);
	void *stop_arg;
	void (*reload)(void *arg);
	void *reload_arg;
	struct {
		daemon_metrics_fn fn;
		void *arg;
	} metrics[MAX_METRICS];
	unsigned n_metrics;
	const char *unready;
	usec_t started;
	bool stopping;
};

/* Options */

struct common {
	const char *health;
	const char *log_level;
	bool log_json;
	bool help;
	bool version;
};

/* Copies the daemon's table and the common options into one, terminated. */
static size_t all_options(const struct daemon_def *def, struct common *c, struct daemon_option *all,
			  size_t max)
{
	const struct daemon_option common[] = {
		{"health", "WHERE",
		 "serve /healthz, /readyz and /metrics on ADDRESS:PORT, unix:PATH or none",
		 .text = &c->health},
		{"log-level", "LEVEL", "error, warn, info or debug (also FERRY_LOG)",
		 .text = &c->log_level},
		{"log-json", NULL, "one JSON object per log line", .flag = &c->log_json},
		{"version", NULL, "print the version and exit", .flag = &c->version},
		{"help", NULL, "print this text and exit", .flag = &c->help},
	};
	size_t n = 0;

	for (const struct daemon_option *o = def->options; o && o->name; o++) {
		assert(n + ARRAY_SIZE(common) < max);
		all[n++] = *o;
	}
	for (size_t i = 0; i < ARRAY_SIZE(common); i++)
		all[n++] = common[i];
	return n;
}

static void print_help(const struct daemon_def *def, const struct daemon_option *all, size_t n)
{
	printf("Usage: %s [OPTION]...\n\n%s %s.\n\n", def->name, def->name, def->about);
	for (size_t i = 0; i < n; i++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s%s%s", all[i].name, all[i].value_name ? " " : "",
			 all[i].value_name ? all[i].value_name : "");
		printf("  %-26s %s%s", left, all[i].help, all[i].is_required ? " (required)" : "");
		if (all[i].text && *all[i].text)
			printf(" [%s]", *all[i].text);
		putchar('\n');
	}
	if (def->more)
		printf("\n%s\n", def->more);
}

static int PRINTF_LIKE(2, 3) bad_usage(const struct daemon_def *def, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s: %s (try --help)\n", def->name, text);
	return 2;
}

static int parse_one(const struct daemon_def *def, const struct daemon_option *all, size_t n,
		     int argc, char **argv, int *at)
{
	const char *arg = argv[*at];
	const char *eq = strchr(arg, '=');
	struct str name = {arg + 2, eq ? (size_t)(eq - arg) - 2 : strlen(arg) - 2};

	for (size_t i = 0; i < n; i++) {
		const struct daemon_option *o = &all[i];

		if (!str_view_eq(name, o->name))
			continue;
		if (!o->value_name) {
			if (eq)
				return bad_usage(def, "--%s takes no value", o->name);
			*o->flag = true;
			return -1;
		}
		if (!eq && *at + 1 >= argc)
			return bad_usage(def, "--%s needs a value", o->name);
		*o->text = eq ? eq + 1 : argv[++*at];
		return -1;
	}
	return bad_usage(def, "unknown option '%s'", arg);
}

/* -1: go on; else the exit code. */
static int parse(const struct daemon_def *def, struct common *c, int argc, char **argv)
{
	struct daemon_option all[64];
	size_t n = all_options(def, c, all, ARRAY_SIZE(all));

	for (int i = 1; i < argc; i++) {
		int code;

		if (strncmp(argv[i], "--", 2) != 0 || !argv[i][2])
			return bad_usage(def, "unexpected argument '%s'", argv[i]);
		code = parse_one(def, all, n, argc, argv, &i);
		if (code >= 0)
			return code;
	}
	if (c->help) {
		print_help(def, all, n);
		return 0;
	}
	if (c->version) {
		printf("%s %s\n", def->name, FERRY_VERSION);
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		if (all[i].is_required && str_is_empty(*all[i].text))
			return bad_usage(def, "--%s is required", all[i].name);
	return -1;
}

/* Health */

void daemon_print_process(const struct daemon *d, struct sbuf *out)
{
	prom_process(out, d->started);
	sbuf_addf(out,
		  "# HELP ferry_build_info The version that runs.\n"
		  "# TYPE ferry_build_info gauge\n"
		  "ferry_build_info{version=\"%s\",component=\"%s\"} 1\n",
		  FERRY_VERSION, d->def->name);
}

void daemon_print_metrics(struct daemon *d, struct sbuf *out)
{
	daemon_print_process(d, out);
	for (unsigned i = 0; i < d->n_metrics; i++)
		d->metrics[i].fn(out, d->metrics[i].arg);
}

static void answer_metrics(struct daemon *d, struct http_req *req)
{
	struct sbuf b = SBUF_INIT(METRICS_BYTES);

	daemon_print_metrics(d, &b);
	if (sbuf_rc(&b))
		http_respond(req, 500, "text/plain", "the metrics do not fit\n", 23, NULL, 0);
	else
		http_respond(req, 200, "text/plain; version=0.0.4", sbuf_str(&b), b.n, NULL, 0);
	sbuf_fini(&b);
}

static void on_health(struct http_req *req, void *arg)
{
	struct daemon *d = arg;
	const char *path = http_req_path(req);
	const char *text = "ok\n";
	int status = 200;

	if (!str_eq(http_req_method(req), "GET") && !str_eq(http_req_method(req), "HEAD")) {
		status = 405;
		text = "only GET\n";
	} else if (str_eq(path, "/metrics")) {
		answer_metrics(d, req);
		return;
	} else if (str_eq(path, "/readyz") && d->unready) {
		status = 503;
		text = d->unready;
	} else if (!str_eq(path, "/healthz") && !str_eq(path, "/readyz") &&
		   !str_eq(path, "/livez")) {
		status = 404;
		text = "there is /healthz, /readyz and /metrics\n";
	}
	http_respond(req, status, "text/plain", text, strlen(text), NULL, 0);
}

static enum rc health_listen(struct daemon *d, const char *where, struct err *err)
{
	struct http_server_config cfg = {.handler = on_health, .arg = d, .connections_max = 64};
	CLEANUP(mem_freep) char *address = NULL;
	const char *colon;
	uint64_t port = 0;
	enum rc rc;

	if (str_is_empty(where) || str_eq(where, "none"))
		return RC_OK;
	if (str_has_prefix(where, "unix:")) {
		cfg.unix_path = where + 5;
		return http_server_new(&d->health, d->loop, &cfg, err);
	}
	colon = strrchr(where, ':');
	if (!colon || str_to_u64(colon + 1, 65535, &port, NULL))
		return err_set(err, RC_INVALID,
			       "--health '%s' is not ADDRESS:PORT, unix:PATH or none", where);
	if (where[0] == '[' && colon > where && colon[-1] == ']')
		address = mem_strndup(where + 1, (size_t)(colon - where) - 2);
	else
		address = mem_strndup(where, (size_t)(colon - where));
	if (!address)
		return err_set(err, RC_NOMEM, "cannot allocate an address");
	cfg.address = address;
	cfg.port = (uint16_t)port;
	rc = http_server_new(&d->health, d->loop, &cfg, err);
	return rc ? (err_prepend(err, "--health %s", where), rc) : RC_OK;
}

/* Life */

static void on_signal(int signo, void *arg)
{
	struct daemon *d = arg;

	if (signo == SIGHUP) {
		log_info("SIGHUP: %s", d->reload ? "reading the configuration again"
						 : "nothing to reload, ignoring");
		if (d->reload)
			d->reload(d->reload_arg);
		return;
	}
	if (d->stopping) {
		log_warn("second signal %d: leaving at once", signo);
		loop_quit(d->loop, 130);
		return;
	}
	d->stopping = true;
	log_info("stopping on signal %d", signo);
	if (d->stop)
		d->stop(d->stop_arg);
	else
		loop_quit(d->loop, 0);
}

static enum rc daemon_start(struct daemon *d, const struct common *c, struct err *err)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
	enum rc rc = loop_new(&d->loop, LOOP_REAL, err);

	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; !rc && i < ARRAY_SIZE(signals); i++) {
		rc = ev_signal(d->loop, &d->signals[i], signals[i], on_signal, d, err);
		d->n_signals += !rc;
	}
	if (rc)
		return rc;
	d->started = loop_realtime(d->loop);
	return health_listen(d, c->health, err);
}

/* The soft limit of 1024 is for select(); watches, consoles and VMs need more. */
static void raise_fd_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	rlim_t want = MIN(r.rlim_max, (rlim_t)65536);

	if (r.rlim_cur >= want)
		return;
	r.rlim_cur = want;
	if (setrlimit(RLIMIT_NOFILE, &r))
		log_warn("cannot raise the limit of open files, going on with %llu",
			 (unsigned long long)r.rlim_cur);
}

/* Large answers go back to the system when they are sent, instead of staying in the heap.  The pool's threads
 * get no arenas of their own: what each of them has freed stays in its own, and one thread's work is never
 * so long that another one waits for the lock. */
static void keep_heap_small(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, 256 * 1024);
	(void)mallopt(M_TRIM_THRESHOLD, 512 * 1024);
	(void)mallopt(M_ARENA_MAX, 1);
}

int daemon_new(struct daemon **out, const struct daemon_def *def, int argc, char **argv)
{
	struct common c = {.health = def->health};
	enum log_level level = LOG_LVL_INFO;
	struct err err = {0};
	struct daemon *d;
	int code;

	keep_heap_small();
	js_use_mem();
	code = parse(def, &c, argc, argv);
	if (code >= 0)
		return code;
	if (c.log_level && !log_level_parse(c.log_level, &level))
		return bad_usage(def, "unknown --log-level '%s'", c.log_level);
	log_setup(def->name, level, c.log_json);
	if (c.log_level)
		log_set_level(level); /* the option is nearer than the environment */
	raise_fd_limit();
	d = mem_alloc(sizeof(*d));
	if (!d) {
		err_set(&err, RC_NOMEM, "out of memory at the start");
		return daemon_fail(&err);
	}
	d->def = def;
	if (daemon_start(d, &c, &err)) {
		daemon_free(d);
		return daemon_fail(&err);
	}
	*out = d;
	return 0;
}

struct daemon *daemon_free(struct daemon *d)
{
	if (!d)
		return NULL;
	http_server_free(d->health);
	for (unsigned i = 0; i < d->n_signals; i++)
		ev_src_free(d->signals[i]);
	loop_free(d->loop);
	return mem_free(d);
}

struct loop *daemon_loop(const struct daemon *d)
{
	return d->loop;
}

void daemon_on_stop(struct daemon *d, void (*fn)(void *arg), void *arg)
{
	d->stop = fn;
	d->stop_arg = arg;
}

void daemon_on_reload(struct daemon *d, void (*fn)(void *arg), void *arg)
{
	d->reload = fn;
	d->reload_arg = arg;
}

void daemon_on_metrics(struct daemon *d, daemon_metrics_fn fn, void *arg)
{
	assert(d->n_metrics < MAX_METRICS);
	d->metrics[d->n_metrics].fn = fn;
	d->metrics[d->n_metrics++].arg = arg;
}

void daemon_set_unready(struct daemon *d, const char *why)
{
	d->unready = why;
}

void daemon_quit(struct daemon *d, int code)
{
	loop_quit(d->loop, code);
}

int daemon_run(struct daemon *d)
{
	struct err err = {0};
	int code = 1;

	if (loop_run(d->loop, &code, &err))
		return daemon_fail(&err);
	return code;
}

int daemon_fail(const struct err *err)
{
	log_error("%s", err->msg);
	return 1;
}
