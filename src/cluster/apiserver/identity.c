#include "cluster/apiserver/identity.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/b64.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "pki/pki.h"

#define DAYS(n)	  ((usec_t)(n)*86400 * USEC_PER_SEC)
#define CA_LIFE	  DAYS(3650)
#define CERT_LIFE DAYS(365)

enum { MAX_NAMES = 64 };

static enum rc load_ca(const char *dir, usec_t now, struct pki_pair *ca, struct err *err)
{
	enum rc rc = file_mkdir_p(dir, 0700, err);

	if (rc)
		return rc;
	rc = pki_load(ca, dir, "ca", err);
	if (rc != RC_NOT_FOUND)
		return rc;
	err_clear(err);
	rc = pki_ca_new(ca, "ferry", now, CA_LIFE, err);
	if (!rc)
		rc = pki_save(ca, dir, "ca", err);
	if (!rc)
		log_info("made the cluster's certificate authority in '%s'", dir);
	return rc;
}

/* Does the certificate carry exactly these alternative names? */
static bool has_names(const char *cert, const struct pki_request *req)
{
	struct pki_info info = {0};
	size_t found = 0;

	if (pki_inspect(&info, cert, NULL))
		return false;
	for (size_t i = 0; i < req->n_sans; i++) {
		for (size_t k = 0; k < info.n_sans; k++) {
			if (strcmp(info.sans[k], req->sans[i]) == 0) {
				found++;
				break;
			}
		}
	}
	pki_info_fini(&info);
	return found == req->n_sans;
}

/* The pair named so in dir, made anew when need be. */
static enum rc ensure_pair(const char *dir, const char *name, const struct pki_pair *ca,
			   const struct pki_request *req, usec_t now, bool *is_new, struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair p = {0};
	enum rc rc = pki_load(&p, dir, name, err);

	if (!rc && !pki_needs_rotation(p.cert, ca->cert, now) && has_names(p.cert, req))
		return RC_OK;
	err_clear(err);
	pki_pair_fini(&p);
	rc = pki_issue(&p, ca, req, now, err);
	if (!rc)
		rc = pki_save(&p, dir, name, err);
	if (!rc)
		*is_new = true;
	return rc ? err_prepend(err, "certificate '%s'", name) : RC_OK;
}

static enum rc write_kubeconfig(const struct identity_config *config, const struct pki_pair *ca,
				struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair p = {0};
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(256 * KIB);
	enum rc rc = pki_load(&p, config->dir, "admin", err);

	if (rc)
		return rc;
	CLEANUP(mem_freep) char *ca64 = b64_encode(ca->cert, strlen(ca->cert), false);
	CLEANUP(mem_freep) char *cert64 = b64_encode(p.cert, strlen(p.cert), false);
	CLEANUP(mem_freep) char *key64 = b64_encode(p.key, strlen(p.key), false);
	CLEANUP(mem_freep) char *path = mem_printf("%s/admin.kubeconfig", config->dir);

	if (!ca64 || !cert64 || !key64 || !path)
		return err_set(err, RC_NOMEM, "out of memory");
	sbuf_addf(&b,
		  "apiVersion: v1\n"
		  "kind: Config\n"
		  "clusters:\n"
		  "- name: ferry\n"
		  "  cluster:\n"
		  "    server: %s\n"
		  "    certificate-authority-data: %s\n"
		  "users:\n"
		  "- name: admin\n"
		  "  user:\n"
		  "    client-certificate-data: %s\n"
		  "    client-key-data: %s\n"
		  "contexts:\n"
		  "- name: ferry\n"
		  "  context:\n"
		  "    cluster: ferry\n"
		  "    user: admin\n"
		  "current-context: ferry\n",
		  config->server, ca64, cert64, key64);
	pki_wipe(key64, strlen(key64));
	rc = sbuf_rc(&b);
	if (rc)
		return err_set(err, rc, "cannot write the kubeconfig");
	rc = file_write_durable(path, b.p, b.n, 0600, err);
	pki_wipe(b.p, b.n);
	return rc;
}

/* Written again only when its content would change: a new certificate, another address or authority. */
static bool kubeconfig_is_current(const struct identity_config *config, const struct pki_pair *ca)
{
	CLEANUP(mem_freep) char *ca64 = b64_encode(ca->cert, strlen(ca->cert), false);
	CLEANUP(mem_freep) char *path = mem_printf("%s/admin.kubeconfig", config->dir);
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(mem_freep) char *line = mem_printf("    server: %s\n", config->server);
	size_t n;

	return path && line && ca64 &&
	       file_read(path, LIMIT_FILE_BYTES, &text, &n, NULL) == RC_OK && strstr(text, line) &&
	       strstr(text, ca64);
}

/* Whatever stands on this machine answers under these names: the server, and the controllers' metrics. */
struct names {
	const char *v[MAX_NAMES];
	size_t n;
	char host[256];
};

static void find_names(const struct identity_config *config, struct names *out)
{
	static const char *const always[] = {"localhost",
					     "127.0.0.1",
					     "kubernetes",
					     "kubernetes.default",
					     "kubernetes.default.svc",
					     "kubernetes.default.svc.cluster.local",
					     "10.96.0.1"};

	*out = (struct names){.n = 0};
	for (size_t i = 0; i < ARRAY_SIZE(always); i++)
		out->v[out->n++] = always[i];
	if (gethostname(out->host, sizeof(out->host) - 1) == 0 && str_is_dns_subdomain(out->host))
		out->v[out->n++] = out->host;
	for (size_t i = 0; i < config->n_names && out->n < MAX_NAMES; i++)
		out->v[out->n++] = config->names[i];
}

static enum rc prepare_server(const struct identity_config *config, const struct names *names,
			      const struct pki_pair *ca, struct err *err)
{
	static const char *const orgs[] = {GROUP_MASTERS};
	bool is_new = false;
	const struct pki_request req = {
		.cn = "kube-apiserver",
		.orgs = orgs,
		.n_orgs = ARRAY_SIZE(orgs),
		.sans = names->v,
		.n_sans = names->n,
		.use = PKI_SERVER | PKI_CLIENT,
		.validity = CERT_LIFE,
	};

	return ensure_pair(config->dir, "server", ca, &req, config->now, &is_new, err);
}

enum rc identity_prepare(const struct identity_config *config, struct err *err)
{
	static const char *const masters[] = {GROUP_MASTERS}, *const controllers[] = {
								      GROUP_CONTROLLERS};
	static const struct pki_request admin = {.cn = "kubernetes-admin",
						 .orgs = masters,
						 .n_orgs = 1,
						 .use = PKI_CLIENT,
						 .validity = CERT_LIFE};
	struct names names;

	find_names(config, &names);
	const struct pki_request controller = {.cn = "system:ferry-controller",
					       .orgs = controllers,
					       .n_orgs = 1,
					       .sans = names.v,
					       .n_sans = names.n,
					       .use = PKI_CLIENT | PKI_SERVER,
					       .validity = CERT_LIFE};
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0};
	bool new_admin = false, new_controller = false;
	enum rc rc = load_ca(config->dir, config->now, &ca, err);

	if (!rc)
		rc = prepare_server(config, &names, &ca, err);
	if (!rc)
		rc = ensure_pair(config->dir, "tls", &ca, &controller, config->now, &new_controller,
				 err);
	if (!rc)
		rc = ensure_pair(config->dir, "admin", &ca, &admin, config->now, &new_admin, err);
	if (!rc && (new_admin || !kubeconfig_is_current(config, &ca)))
		rc = write_kubeconfig(config, &ca, err);
	return rc;
}

enum rc identity_issue(const struct identity_issue *what, struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0};
	CLEANUP(pki_pair_fini) struct pki_pair p = {0};
	CLEANUP(mem_freep) char *path = mem_printf("%s/ca.crt", what->out);
	const struct pki_request req = {
		.cn = what->cn,
		.orgs = what->orgs,
		.n_orgs = what->n_orgs,
		.sans = what->sans,
		.n_sans = what->n_sans,
		.use = PKI_CLIENT | PKI_SERVER,
		.validity = what->validity ? what->validity : CERT_LIFE,
	};
	enum rc rc = path ? load_ca(what->dir, what->now, &ca, err)
			  : err_set(err, RC_NOMEM, "out of memory");

	if (!rc)
		rc = pki_issue(&p, &ca, &req, what->now, err);
	if (!rc)
		rc = pki_save(&p, what->out, "tls", err);
	if (!rc)
		rc = file_write_durable(path, ca.cert, strlen(ca.cert), 0644, err);
	return rc;
}
