#include "cluster/podruntime/nodecert.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/uri.h"
#include "json/json.h"
#include "kube/kube.h"
#include "pki/pki.h"

/* A certificate has a third of a year left when it is due, and an authority is announced days before it signs. */
#define LOOK_EVERY  (3600 * USEC_PER_SEC)
#define RETRY_AFTER (60 * USEC_PER_SEC)
#define TIMEOUT	    (15 * USEC_PER_SEC)

#define NEXT	    "next" /* the new pair until it is whole */

struct nodecert {
	struct nodecert_config config;
	char *dir, *path, *user;
	char *key; /* of the request on its way */
	struct ev_src *timer;
	struct kube_call *call;
	bool failed; /* told already */
};

/* ---- files ----------------------------------------------------------------------------------------- */

static enum rc read_text(const char *dir, const char *name, char **out, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s", dir, name);
	size_t n;

	return path ? file_read(path, LIMIT_FILE_BYTES, out, &n, err)
		    : err_set(err, RC_NOMEM, "out of memory");
}

static void remove_next(const char *dir)
{
	static const char *const suffixes[] = {"crt", "key"};
	char path[4096];

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		(void)snprintf(path, sizeof(path), "%s/" NEXT ".%s", dir, suffixes[i]);
		(void)unlink(path); /* what stays is looked at again at the next start */
	}
}

/* Two files cannot change at once: the new pair is first whole under another name, where a crash between the two
 * finds it. */
static enum rc switch_to(const char *dir, const struct pki_pair *pair, struct err *err)
{
	enum rc rc = pki_save(pair, dir, NEXT, err);

	if (!rc)
		rc = pki_save(pair, dir, "tls", err);
	if (!rc)
		remove_next(dir);
	return rc;
}

enum rc nodecert_recover(const char *dir, struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair now = {0}, next = {0};

	if (pki_load(&now, dir, "tls", NULL) != RC_INVALID) {
		remove_next(dir);
		return RC_OK;
	}
	enum rc rc = pki_load(&next, dir, NEXT, err);

	if (rc)
		return err_prepend(err, "the certificate and its key do not belong together, and "
					"nothing else is there");
	log_warn("a renewal of the certificate was cut short: it is finished now");
	return switch_to(dir, &next, err);
}

/* ---- renewal --------------------------------------------------------------------------------------- */

static void rearm(struct nodecert *c, usec_t delay)
{
	ev_timer_rearm(c->timer, delay);
}

/* When it is due, if that is sooner than the next look. */
static usec_t until_due(const struct nodecert *c, const char *cert)
{
	usec_t now = loop_realtime(c->config.loop), due;
	struct pki_info info = {0};

	if (pki_inspect(&info, cert, NULL))
		return RETRY_AFTER;
	due = info.not_after - (info.not_after - info.not_before) / 3 + USEC_PER_SEC;
	pki_info_fini(&info);
	return due <= now ? RETRY_AFTER : MIN(due - now, LOOK_EVERY);
}

static void failed(struct nodecert *c, const char *what, const struct err *err)
{
	if (!c->failed)
		log_warn("%s, tried again every minute: %s", what, err->msg);
	c->failed = true;
	rearm(c, RETRY_AFTER);
}

static void forget_key(struct nodecert *c)
{
	pki_wipe(c->key, c->key ? strlen(c->key) : 0);
	c->key = mem_free(c->key);
}

/* False: nothing is different. */
static bool save_ca(struct nodecert *c, const char *ca, struct err *err, enum rc *rc)
{
	CLEANUP(mem_freep) char *have = NULL;
	CLEANUP(mem_freep) char *path = mem_printf("%s/ca.crt", c->dir);

	*rc = path ? read_text(c->dir, "ca.crt", &have, err)
		   : err_set(err, RC_NOMEM, "out of memory");
	if (*rc || str_eq(have, ca))
		return false;
	*rc = file_write_durable(path, ca, strlen(ca), 0644, err);
	return *rc == RC_OK;
}

static enum rc take_certificate(struct nodecert *c, const char *cert, const char *ca,
				struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair pair = {.cert = mem_strdup(cert)};
	struct pki_info info = {0};

	pair.key = STEAL(c->key);
	if (!pair.cert)
		return err_set(err, RC_NOMEM, "out of memory");
	/* Whatever was sent: what does not verify is no certificate of ours. */
	enum rc rc =
		pki_verify(cert, ca, PKI_CLIENT | PKI_SERVER, loop_realtime(c->config.loop), err);

	if (!rc)
		rc = pki_inspect(&info, cert, err);
	if (!rc && !str_eq(info.cn, c->user))
		rc = err_set(err, RC_INVALID, "the new certificate names '%s'",
			     info.cn ? info.cn : "");
	pki_info_fini(&info);
	return rc ? rc : switch_to(c->dir, &pair, err);
}

static void on_certificate(const struct kube_reply *r, void *arg)
{
	struct nodecert *c = arg;
	const char *cert = js_get_str(r->body, "certificate"), *ca = js_get_str(r->body, "ca");
	struct err err = r->err;
	enum rc rc = r->rc;

	if (!rc && (!cert || !ca))
		rc = err_set(&err, RC_INVALID, "the answer has no certificate");
	if (!rc)
		rc = take_certificate(c, cert, ca, &err);
	if (!rc)
		(void)save_ca(c, ca, &err, &rc);
	c->call = kube_call_free(c->call);
	forget_key(c);
	if (rc) {
		failed(c, "the certificate of this node is not renewed", &err);
		return;
	}
	c->failed = false;
	log_info("the certificate of this node was renewed");
	c->config.changed(c->config.arg);
	rearm(c, LOOK_EVERY);
}

static enum rc ask(struct nodecert *c, const char *old, struct err *err)
{
	CLEANUP(mem_freep) char *csr = NULL;
	CLEANUP(mem_freep) char *body = NULL;
	enum rc rc = pki_csr_new(&csr, &c->key, c->user, err);

	if (rc)
		return rc;
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:s, s:s}", "request", csr, "certificate", old);

	body = j ? js_to_text(j) : NULL;
	return body ? kube_raw(c->config.kube, &c->call, "POST", c->path, "application/json", body,
			       strlen(body), TIMEOUT, on_certificate, c, err)
		    : err_set(err, RC_NOMEM, "out of memory");
}

/* ca: what the API server says. */
static void look(struct nodecert *c, const char *ca)
{
	CLEANUP(mem_freep) char *cert = NULL;
	struct err err = {0};
	enum rc rc = RC_OK;
	bool is_new = save_ca(c, ca, &err, &rc);

	if (is_new) {
		log_info("the authorities of the cluster have changed");
		c->config.changed(c->config.arg);
	}
	if (!rc)
		rc = read_text(c->dir, "tls.crt", &cert, &err);
	if (!rc && pki_needs_rotation(cert, ca, loop_realtime(c->config.loop)))
		rc = ask(c, cert, &err);
	if (rc) {
		forget_key(c);
		failed(c, "the certificate of this node is not looked after", &err);
	} else if (!c->call) {
		c->failed = false;
		rearm(c, until_due(c, cert));
	}
}

static void on_ca(const struct kube_reply *r, void *arg)
{
	struct nodecert *c = arg;
	const char *ca = js_get_str(r->body, "ca");

	if (r->rc || !ca) {
		struct err err = r->err;

		if (!r->rc)
			err_set(&err, RC_INVALID, "the answer names no authority");
		c->call = kube_call_free(c->call);
		failed(c, "the cluster's authorities are not known", &err);
		return;
	}
	CLEANUP(mem_freep) char *copy = mem_strdup(ca);

	c->call = kube_call_free(c->call);
	if (copy)
		look(c, copy);
	else
		rearm(c, RETRY_AFTER);
}

static void on_timer(void *arg)
{
	struct nodecert *c = arg;
	struct err err = {0};

	if (c->call)
		return;
	if (kube_raw(c->config.kube, &c->call, "GET", c->path, NULL, NULL, 0, TIMEOUT, on_ca, c,
		     &err))
		failed(c, "the cluster's authorities are not known", &err);
}

/* ---- for others ------------------------------------------------------------------------------------ */

static char *path_of(const char *name)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);
	char *out = NULL;
	size_t n;

	sbuf_adds(&b, "/api/v1/nodes/");
	http_uri_escape(&b, name);
	sbuf_adds(&b, "/certificate");
	return sbuf_take(&b, &out, &n) ? NULL : out;
}

enum rc nodecert_new(struct nodecert **out, const struct nodecert_config *config, struct err *err)
{
	CLEANUP(nodecert_freep) struct nodecert *c = mem_alloc(sizeof(*c));

	if (!c)
		return err_set(err, RC_NOMEM, "out of memory");
	c->config = *config;
	c->dir = mem_strdup(config->dir);
	c->user = mem_printf("system:node:%s", config->name);
	c->path = path_of(config->name);
	if (!c->dir || !c->user || !c->path)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = ev_timer_after(config->loop, &c->timer, 0, on_timer, c, err);

	if (rc)
		return rc;
	*out = STEAL(c);
	return RC_OK;
}

struct nodecert *nodecert_free(struct nodecert *c)
{
	if (!c)
		return NULL;
	kube_call_free(c->call);
	ev_src_free(c->timer);
	forget_key(c);
	mem_free(c->dir);
	mem_free(c->user);
	mem_free(c->path);
	return mem_free(c);
}
