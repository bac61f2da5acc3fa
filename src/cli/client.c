#include "cli/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "yaml/yaml.h"
#include "ev/ev.h"
#include "http/client.h"
#include "json/json.h"

struct client {
	struct loop *loop;
	struct http_client *http;
	char *server;
	char *ns;
	bool is_quiet;
	int fds[3]; /* inline certificates live in memory files */
};

static int base64_value(char c)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(alphabet, c) : NULL;

	return at ? (int)(at - alphabet) : -1;
}

static enum rc base64_decode(const char *s, struct sbuf *out)
{
	uint32_t acc = 0;
	unsigned bits = 0;

	for (; *s && *s != '='; s++) {
		int v = base64_value(*s);

		if (v < 0)
			return RC_INVALID;
		acc = acc << 6 | (uint32_t)v;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			sbuf_addc(out, (char)(acc >> bits & 0xff));
		}
	}
	return sbuf_rc(out);
}

/* A path that libraries can open for inline data: a sealed-off memory file of this process. */
static enum rc data_file(const char *base64, int *fd, char path[64], struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_FILE_BYTES);

	if (base64_decode(base64, &b))
		return err_set(err, RC_INVALID, "inline certificate data is not base64");
	*fd = memfd_create("kubeconfig", MFD_CLOEXEC);
	if (*fd < 0)
		return err_set_sys(err, errno, "cannot keep inline certificate data");
	(void)snprintf(path, 64, "/proc/self/fd/%d", *fd);
	return file_write_all(*fd, b.p, b.n, err);
}

static struct json *named(const struct json *list, const char *name, const char *what)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "name"), name))
			return js_get(js_item(list, i), what);
	return NULL;
}

static enum rc find_kubeconfig(const char *flag, char **out, struct err *err)
{
	const char *state = getenv("FERRY_STATE");
	const char *home = getenv("HOME");
	const char *env = getenv("KUBECONFIG");
	char *tries[] = {
		state ? mem_printf("%s/control/pki/admin.kubeconfig", state) : NULL,
		mem_strdup("/var/lib/ferry/control/pki/admin.kubeconfig"),
		home ? mem_printf("%s/.kube/config", home) : NULL,
	};

	*out = NULL;
	if (!str_is_empty(flag) || !str_is_empty(env))
		*out = mem_strdup(!str_is_empty(flag) ? flag : env);
	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		if (!*out && tries[i] && access(tries[i], R_OK) == 0)
			*out = STEAL(tries[i]);
		mem_free(tries[i]);
	}
	if (*out)
		return RC_OK;
	return err_set(
		err, RC_NOT_FOUND,
		"no kubeconfig: give --kubeconfig FILE or set KUBECONFIG (looked also in $FERRY_STATE, "
		"/var/lib/ferry and ~/.kube/config; is a cluster up?)");
}

static enum rc load_config(const char *flag, struct json **out, char **dir, struct err *err)
{
	CLEANUP(mem_freep) char *path = NULL;
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *docs = NULL;
	size_t n = 0;
	enum rc rc = find_kubeconfig(flag, &path, err);

	if (!rc)
		rc = file_read(path, LIMIT_FILE_BYTES, &text, &n, err);
	if (!rc) {
		rc = yaml_parse(text, n, &docs, err);
		if (rc)
			err_prepend(err, "'%s'", path);
	}
	if (rc)
		return rc;
	if (js_len(docs) != 1 || !js_is_object(js_item(docs, 0)))
		return err_set(err, RC_INVALID, "'%s' is not a kubeconfig", path);
	char *slash = strrchr(path, '/');

	*dir = slash ? mem_strndup(path, (size_t)(slash - path)) : mem_strdup(".");
	*out = js_ref(js_item(docs, 0));
	return *dir ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

/* "<key>-data" inline, or "<key>" as a path relative to the kubeconfig. */
static enum rc pem_path(const struct json *from, const char *key, const char *dir, int *fd,
			char path[64], char **file, struct err *err)
{
	char data_key[64];

	(void)snprintf(data_key, sizeof(data_key), "%s-data", key);
	if (js_get_str(from, data_key)) {
		enum rc rc = data_file(js_get_str(from, data_key), fd, path, err);

		*file = rc ? NULL : mem_strdup(path);
		return rc;
	}
	const char *p = js_get_str(from, key);

	if (p)
		*file = p[0] == '/' ? mem_strdup(p) : mem_printf("%s/%s", dir, p);
	return RC_OK;
}

static enum rc client_setup(struct client *c, const struct client_flags *flags, struct err *err)
{
	CLEANUP(js_unrefp) struct json *config = NULL;
	CLEANUP(mem_freep) char *dir = NULL;
	CLEANUP(mem_freep) char *ca = NULL;
	CLEANUP(mem_freep) char *cert = NULL;
	CLEANUP(mem_freep) char *key = NULL;
	char paths[3][64];
	enum rc rc = load_config(flags->kubeconfig, &config, &dir, err);

	if (rc)
		return rc;
	const char *current = js_get_str(config, "current-context");
	const struct json *context = named(js_get(config, "contexts"), current, "context");
	const struct json *cluster =
		named(js_get(config, "clusters"), js_get_str(context, "cluster"), "cluster");
	const struct json *user =
		named(js_get(config, "users"), js_get_str(context, "user"), "user");

	if (!js_get_str(cluster, "server"))
		return err_set(err, RC_INVALID,
			       "the kubeconfig's current context names no cluster with a server");
	rc = pem_path(cluster, "certificate-authority", dir, &c->fds[0], paths[0], &ca, err);
	if (!rc)
		rc = pem_path(user, "client-certificate", dir, &c->fds[1], paths[1], &cert, err);
	if (!rc)
		rc = pem_path(user, "client-key", dir, &c->fds[2], paths[2], &key, err);
	if (rc)
		return rc;
	const char *ns = flags->ns ? flags->ns : js_get_str(context, "namespace");

	c->server = mem_strdup(js_get_str(cluster, "server"));
	c->ns = mem_strdup(str_is_empty(ns) ? "default" : ns);
	if (!c->server || !c->ns)
		return err_set(err, RC_NOMEM, "out of memory");
	rc = loop_new(&c->loop, LOOP_REAL, err);
	if (rc)
		return rc;
	const struct http_client_config hc = {
		.ca_file = ca,
		.cert_file = cert,
		.key_file = key,
		.token = js_get_str(user, "token"),
		.insecure = js_get_bool(cluster, "insecure-skip-tls-verify", false),
	};

	return http_client_new(&c->http, c->loop, &hc, err);
}

enum rc client_open(struct client **out, const struct client_flags *flags, struct err *err)
{
	CLEANUP(client_freep) struct client *c = mem_alloc(sizeof(*c));

	if (!c)
		return err_set(err, RC_NOMEM, "out of memory");
	for (size_t i = 0; i < ARRAY_SIZE(c->fds); i++)
		c->fds[i] = -1;
	enum rc rc = client_setup(c, flags, err);

	if (!rc)
		*out = STEAL(c);
	return rc;
}

struct client *client_free(struct client *c)
{
	if (!c)
		return NULL;
	http_client_free(c->http);
	loop_free(c->loop);
	for (size_t i = 0; i < ARRAY_SIZE(c->fds); i++)
		fd_close(c->fds[i]);
	mem_free(c->server);
	mem_free(c->ns);
	return mem_free(c);
}

void client_set_quiet(struct client *c, bool is_quiet)
{
	c->is_quiet = is_quiet;
}

const char *client_ns(const struct client *c)
{
	return c->ns;
}

const char *client_server(const struct client *c)
{
	return c->server;
}

struct loop *client_loop(struct client *c)
{
	return c->loop;
}

struct http_client *client_http(struct client *c)
{
	return c->http;
}

void answer_fini(struct answer *a)
{
	mem_free(a->text);
	js_unref(a->json);
	*a = (struct answer){0};
}

struct wait {
	bool done;
	bool is_quiet;
	enum rc rc;
	struct answer *answer;
	struct err *err;
	/* watch */
	struct http_lines lines;
	client_watch_fn fn;
	void *arg;
	bool stop;
};

/* "299 - \"text\"" per line, printed as kubectl does. */
static void print_warnings(const char *warning)
{
	struct str rest = str_of(warning);

	while (rest.p) {
		struct str line = str_split(&rest, '\n');
		const char *from = memchr(line.p, '"', line.n);

		if (!from)
			continue;
		size_t n = line.n - (size_t)(from + 1 - line.p);

		if (n && from[n] == '"')
			n--;
		fprintf(stderr, "Warning: %.*s\n", (int)n, from + 1);
	}
}

static void on_done(const struct http_result *r, void *arg)
{
	struct wait *w = arg;

	w->done = true;
	if (r->rc) {
		w->rc = r->err ? err_copy(w->err, r->err)
			       : err_set(w->err, r->rc, "the request failed");
		return;
	}
	if (r->warning && !w->is_quiet)
		print_warnings(r->warning);
	if (w->answer) {
		w->answer->status = r->status;
		w->answer->text = mem_strndup(r->body, r->n);
		if (js_parse(r->body, r->n, &w->answer->json, NULL))
			w->answer->json = NULL;
	}
	w->rc = rc_from_http(r->status, w->answer ? js_get_str(w->answer->json, "reason") : NULL);
	if (w->rc) {
		const char *message = w->answer ? js_get_str(w->answer->json, "message") : NULL;

		err_set(w->err, w->rc, "%s",
			message ? message
			: r->n	? r->body
				: "the server refused the request");
	}
}

enum rc client_status_err(const struct http_result *r, struct err *err)
{
	CLEANUP(js_unrefp) struct json *status = NULL;

	if (js_parse(r->body, r->n, &status, NULL))
		status = NULL;
	const char *message = js_get_str(status, "message");

	return err_set(err, rc_from_http(r->status, js_get_str(status, "reason")), "%s",
		       message ? message
		       : r->n  ? r->body
			       : "the server refused the request");
}

static enum rc wait_for(struct client *c, struct wait *w, struct err *err)
{
	while (!w->done && !w->stop) {
		enum rc rc = loop_step(c->loop, USEC_INFINITY, NULL, err);

		if (rc)
			return rc;
	}
	return w->stop ? RC_OK : w->rc;
}

enum rc client_call(struct client *c, const char *method, const char *path, const char *accept,
		    const char *content_type, const char *body, usec_t timeout, struct answer *out,
		    struct err *err)
{
	CLEANUP(mem_freep) char *url = mem_printf("%s%s", c->server, path);
	CLEANUP(http_slot_freep) struct http_slot *slot = NULL;
	struct wait w = {.answer = out, .err = err, .is_quiet = c->is_quiet};
	const struct http_call call = {
		.method = method,
		.url = url,
		.accept = accept,
		.content_type = content_type,
		.body = body,
		.n_body = body ? strlen(body) : 0,
		.timeout = timeout,
		.done = on_done,
		.arg = &w,
	};

	*out = (struct answer){0};
	if (!url)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = http_call(c->http, &slot, &call, err);

	return rc ? rc : wait_for(c, &w, err);
}

enum rc client_send(struct client *c, const char *method, const char *path,
		    const char *content_type, const struct json *body, struct json **out,
		    struct err *err)
{
	CLEANUP(answer_fini) struct answer a = {0};
	CLEANUP(mem_freep) char *text = body ? js_to_text(body) : NULL;

	if (body && !text)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = client_call(c, method, path, "application/json",
				 content_type ? content_type
				 : body	      ? "application/json"
					      : NULL,
				 text, 0, &a, err);

	if (!rc && out)
		*out = STEAL(a.json);
	return rc;
}

enum rc client_get(struct client *c, const char *path, struct json **out, struct err *err)
{
	return client_send(c, "GET", path, NULL, NULL, out, err);
}

static bool on_line(const char *line, size_t n, void *arg)
{
	struct wait *w = arg;
	CLEANUP(js_unrefp) struct json *event = NULL;
	const char *type;

	if (js_parse(line, n, &event, NULL))
		return true;
	type = js_get_str(event, "type");
	if (type && !str_eq(type, "BOOKMARK") && !w->fn(type, js_get(event, "object"), w->arg))
		w->stop = true;
	return !w->stop;
}

static void on_bytes(const void *bytes, size_t n, void *arg)
{
	struct wait *w = arg;

	/* A stop is seen by wait_for(); a line that is too long ends the watch with the call's error. */
	if (!w->stop)
		ignore_rc(http_lines_feed(&w->lines, bytes, n, on_line, w));
}

enum rc client_watch(struct client *c, const char *path, usec_t timeout, client_watch_fn fn,
		     void *arg, struct err *err)
{
	CLEANUP(mem_freep) char *url = mem_printf("%s%s", c->server, path);
	CLEANUP(http_slot_freep) struct http_slot *slot = NULL;
	CLEANUP(answer_fini) struct answer a = {0};
	struct wait w = {.answer = &a, .err = err, .fn = fn, .arg = arg};
	const struct http_call call = {
		.url = url,
		.accept = "application/json",
		.timeout = timeout,
		.on_data = on_bytes,
		.done = on_done,
		.arg = &w,
	};

	if (!url)
		return err_set(err, RC_NOMEM, "out of memory");
	http_lines_init(&w.lines, LIMIT_OBJECT_BYTES * 2);
	enum rc rc = http_call(c->http, &slot, &call, err);

	if (!rc)
		rc = wait_for(c, &w, err);
	slot = http_slot_free(slot);
	http_lines_fini(&w.lines);
	return rc;
}
