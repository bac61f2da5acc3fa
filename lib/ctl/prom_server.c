#include "ctl/prom_server.h"

#include <string.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "http/server.h"

enum { METRICS_BYTES = 16 * 1024 * 1024, CONNECTIONS_MAX = 64 };

struct prom_server {
	struct http_server *http;
	void (*print)(struct sbuf *out, void *arg);
	void *arg;
};

static bool is_master(const struct http_peer *p)
{
	for (size_t i = 0; p->has_cert && i < p->n_orgs; i++)
		if (str_eq(p->orgs[i], "system:masters"))
			return true;
	return false;
}

static void refuse(struct http_req *req, int status, const char *text)
{
	http_respond(req, status, "text/plain", text, strlen(text), NULL, 0);
}

static void on_request(struct http_req *req, void *arg)
{
	struct prom_server *s = arg;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(METRICS_BYTES);

	if (!http_req_peer(req)->has_cert) {
		refuse(req, 401, "a client certificate of this cluster is needed\n");
	} else if (!is_master(http_req_peer(req))) {
		refuse(req, 403, "only administrators may read this\n");
	} else if (!str_eq(http_req_method(req), "GET")) {
		refuse(req, 405, "only GET\n");
	} else if (!str_eq(http_req_path(req), "/metrics")) {
		refuse(req, 404, "there is /metrics\n");
	} else {
		s->print(&b, s->arg);
		if (sbuf_rc(&b))
			refuse(req, 500, "the metrics do not fit\n");
		else
			http_respond(req, 200, "text/plain; version=0.0.4", sbuf_str(&b), b.n, NULL,
				     0);
	}
}

enum rc prom_server_new(struct prom_server **out, struct loop *loop,
			const struct prom_server_config *config, struct err *err)
{
	CLEANUP(prom_server_freep) struct prom_server *s = mem_alloc(sizeof(*s));
	const char *colon = strrchr(config->listen, ':');
	CLEANUP(mem_freep)
	char *address =
		colon ? mem_strndup(config->listen, (size_t)(colon - config->listen)) : NULL;
	struct http_server_config hc = {.address = address,
					.cert_file = config->cert_file,
					.key_file = config->key_file,
					.ca_file = config->ca_file,
					.connections_max = CONNECTIONS_MAX,
					.handler = on_request};
	uint64_t port = 0;

	if (!colon || str_to_u64(colon + 1, 65535, &port, NULL))
		return err_set(err, RC_INVALID, "'%s' is not ADDRESS:PORT", config->listen);
	if (!s || !address)
		return err_set(err, RC_NOMEM, "out of memory");
	s->print = config->print;
	s->arg = config->arg;
	hc.port = (uint16_t)port;
	hc.arg = s;
	enum rc rc = http_server_new(&s->http, loop, &hc, err);

	if (rc)
		return rc;
	*out = STEAL(s);
	return RC_OK;
}

struct prom_server *prom_server_free(struct prom_server *s)
{
	if (!s)
		return NULL;
	http_server_free(s->http);
	return mem_free(s);
}

enum rc prom_server_reload_tls(struct prom_server *s, struct err *err)
{
	return http_server_reload_tls(s->http, err);
}
