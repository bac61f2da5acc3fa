/* Subresource "certificate" of a node: the agent's way to a new certificate before its old one ends.
 *
 * GET answers the authorities to trust; POST signs the key of a request.  A node asks for itself alone, and gets the
 * names of the certificate that it has: nothing that it wishes for counts but the key.
 */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "ev/ev.h"
#include "pki/pki.h"

#define LIFE ((usec_t)365 * 86400 * USEC_PER_SEC)

enum { MAX_PEM = 16384 };

struct signer {
	struct pki_pair ca;
};

struct signer *signer_free(struct signer *s)
{
	if (!s)
		return NULL;
	pki_pair_fini(&s->ca);
	return mem_free(s);
}

enum rc apisrv_set_signer(struct apisrv *s, const char *cert_pem, const char *key_pem)
{
	struct signer *new_ = mem_alloc(sizeof(*new_));

	if (!new_)
		return RC_NOMEM;
	new_->ca = (struct pki_pair){.cert = mem_strdup(cert_pem), .key = mem_strdup(key_pem)};
	if (!new_->ca.cert || !new_->ca.key) {
		signer_free(new_);
		return RC_NOMEM;
	}
	signer_free(s->signer);
	s->signer = new_;
	return RC_OK;
}

/* The caller's old certificate; false: answered. */
static bool read_old(struct apisrv_call *c, struct pki_info *old)
{
	const char *pem = js_get_str(c->json, "certificate");
	struct err err = {0};

	if (str_is_empty(pem) || strlen(pem) > MAX_PEM) {
		call_bad_request(c, "certificate: the one that is to be replaced is missing");
		return false;
	}
	enum rc rc = pki_verify(pem, c->srv->ca, PKI_CLIENT, loop_realtime(c->srv->loop), &err);

	if (!rc)
		rc = pki_inspect(old, pem, &err);
	if (rc == RC_NOMEM) {
		call_nomem(c);
		return false;
	}
	if (!rc && str_eq(old->cn, c->user.name))
		return true;
	call_forbidden(c, c->res, c->name, rc ? err.msg : "the certificate is not that of the node",
		       NULL);
	return false;
}

static void sign(struct apisrv_call *c, const struct pki_info *old)
{
	static const char *const orgs[] = {GROUP_NODES};
	const char *csr = js_get_str(c->json, "request");
	CLEANUP(mem_freep) char *cert = NULL;
	struct err err = {0};
	const struct pki_request req = {.cn = c->user.name,
					.orgs = orgs,
					.n_orgs = ARRAY_SIZE(orgs),
					.sans = (const char *const *)old->sans,
					.n_sans = old->n_sans,
					.use = PKI_CLIENT | PKI_SERVER,
					.validity = LIFE};

	if (str_is_empty(csr) || strlen(csr) > MAX_PEM) {
		call_bad_request(c, "request: a request for a certificate (PKCS #10, PEM) is "
				    "missing");
		return;
	}
	enum rc rc = pki_issue_for(&cert, &c->srv->signer->ca, csr, &req,
				   loop_realtime(c->srv->loop), &err);

	if (rc == RC_NOMEM)
		call_nomem(c);
	else if (rc)
		call_bad_request(c, "request: %s", err.msg);
	else
		call_answer_json(c, 201,
				 js_pack("{s:s, s:s, s:s, s:s}", "kind", "NodeCertificate",
					 "apiVersion", "ferry.dev/v1", "certificate", cert, "ca",
					 c->srv->ca));
}

static void renew(struct apisrv_call *c)
{
	struct pki_info old = {0};

	if (!js_is_object(c->json))
		call_bad_request(c, "the body is not a JSON object");
	else if (read_old(c, &old))
		sign(c, &old);
	pki_info_fini(&old);
}

void serve_node_certificate(struct apisrv_call *c)
{
	CLEANUP(change_fini)
	struct change ch = {.c = c, .res = c->res, .op = HOOK_UPDATE, .ns = "", .name = c->name};
	const char *node = authz_node_of(&c->user);

	/* Not even administrators: they have the authority itself. */
	if (!node || !str_eq(node, c->name)) {
		call_forbidden(c, c->res, c->name,
			       "only the node itself has to do with its "
			       "certificate",
			       NULL);
		return;
	}
	if (!c->srv->ca || !c->srv->signer) {
		call_fail(c, 501, "NotImplemented", NULL,
			  "this server is not the authority of its certificates");
		return;
	}
	if (!change_load(&ch))
		return;
	if (c->verb == VERB_GET)
		call_answer_json(c, 200,
				 js_pack("{s:s, s:s, s:s}", "kind", "NodeCertificate", "apiVersion",
					 "ferry.dev/v1", "ca", c->srv->ca));
	else
		renew(c);
}
