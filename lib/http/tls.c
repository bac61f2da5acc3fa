#include "http/tls_int.h"

#include <string.h>

#include <gnutls/x509.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

/* One generation of key material.  GnuTLS borrows it during a handshake, so older generations are kept
 * for a while after a reload. */
struct tls_material {
	gnutls_pcert_st chain[TLS_CHAIN_MAX];
	unsigned n_chain;
	gnutls_privkey_t key;
	gnutls_x509_trust_list_t trust; /* NULL: no client CA */
	char *ca_pem;
};

struct tls_store {
	char *cert_file;
	char *key_file;
	char *ca_file;
	unsigned generation;
	struct tls_material *now;
	struct tls_material *retired[TLS_RETIRED_MAX];
	size_t next_retired;
};

static struct tls_material *material_free(struct tls_material *m)
{
	if (!m)
		return NULL;
	for (unsigned i = 0; i < m->n_chain; i++)
		gnutls_pcert_deinit(&m->chain[i]);
	if (m->key)
		gnutls_privkey_deinit(m->key);
	if (m->trust)
		gnutls_x509_trust_list_deinit(m->trust, 1);
	mem_free(m->ca_pem);
	return mem_free(m);
}
DEFINE_CLEANUP(struct tls_material *, material_free);

/* Wipes: the text may be a private key. */
static void wipe_free(char *text, size_t n)
{
	if (text)
		gnutls_memset(text, 0, n);
	mem_free(text);
}

static enum rc load_chain(struct tls_material *m, const char *path, struct err *err)
{
	CLEANUP(mem_freep) char *pem = NULL;
	size_t n = 0;
	enum rc rc = file_read(path, LIMIT_FILE_BYTES, &pem, &n, err);

	if (rc)
		return err_prepend(err, "certificate '%s'", path), rc;
	gnutls_datum_t d = {(unsigned char *)pem, (unsigned)n};
	unsigned max = TLS_CHAIN_MAX;
	int r = gnutls_pcert_list_import_x509_raw(m->chain, &max, &d, GNUTLS_X509_FMT_PEM, 0);

	if (r < 0)
		return err_set(err, RC_INVALID, "certificate '%s': %s", path, gnutls_strerror(r));
	m->n_chain = max;
	return RC_OK;
}

static enum rc load_key(struct tls_material *m, const char *path, struct err *err)
{
	char *pem = NULL;
	size_t n = 0;
	enum rc rc = file_read(path, LIMIT_FILE_BYTES, &pem, &n, err);

	if (rc)
		return err_prepend(err, "key '%s'", path), rc;
	gnutls_datum_t d = {(unsigned char *)pem, (unsigned)n};
	int r = gnutls_privkey_init(&m->key);

	if (r >= 0)
		r = gnutls_privkey_import_x509_raw(m->key, &d, GNUTLS_X509_FMT_PEM, NULL, 0);
	wipe_free(pem, n);
	if (r < 0)
		return err_set(err, RC_INVALID, "key '%s': %s", path, gnutls_strerror(r));
	return RC_OK;
}

static bool key_matches(struct tls_material *m)
{
	unsigned char a[64], b[64];
	size_t na = sizeof(a), nb = sizeof(b);
	gnutls_pubkey_t pub = NULL;
	bool same = false;

	if (gnutls_pubkey_init(&pub) < 0)
		return false;
	if (gnutls_pubkey_import_privkey(pub, m->key, 0, 0) >= 0 &&
	    gnutls_pubkey_get_key_id(pub, GNUTLS_KEYID_USE_SHA256, a, &na) >= 0 &&
	    gnutls_pubkey_get_key_id(m->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, b, &nb) >= 0)
		same = na == nb && memcmp(a, b, na) == 0;
	gnutls_pubkey_deinit(pub);
	return same;
}

static enum rc load_trust(struct tls_material *m, const char *path, struct err *err)
{
	size_t n = 0;
	enum rc rc = file_read(path, LIMIT_FILE_BYTES, &m->ca_pem, &n, err);

	if (rc)
		return err_prepend(err, "CA '%s'", path), rc;
	gnutls_datum_t d = {(unsigned char *)m->ca_pem, (unsigned)n};
	int r = gnutls_x509_trust_list_init(&m->trust, 0);

	if (r >= 0)
		r = gnutls_x509_trust_list_add_trust_mem(m->trust, &d, NULL, GNUTLS_X509_FMT_PEM, 0,
							 0);
	if (r < 1)
		return err_set(err, RC_INVALID, "CA '%s': %s", path,
			       r < 0 ? gnutls_strerror(r) : "no certificate in the file");
	return RC_OK;
}

static enum rc material_load(struct tls_material **out, const struct tls_store *t, struct err *err)
{
	CLEANUP(material_freep) struct tls_material *m = mem_alloc(sizeof(*m));
	enum rc rc;

	if (!m)
		return err_set(err, RC_NOMEM, "cannot allocate the TLS configuration");
	rc = load_chain(m, t->cert_file, err);
	if (!rc)
		rc = load_key(m, t->key_file, err);
	if (!rc && !key_matches(m))
		rc = err_set(err, RC_INVALID, "key '%s' does not belong to certificate '%s'",
			     t->key_file, t->cert_file);
	if (!rc && t->ca_file)
		rc = load_trust(m, t->ca_file, err);
	if (!rc)
		*out = STEAL(m);
	return rc;
}

enum rc tls_store_new(struct tls_store **out, const char *cert_file, const char *key_file,
		      const char *ca_file, struct err *err)
{
	struct tls_store *t = mem_alloc(sizeof(*t));
	enum rc rc;

	if (!t)
		return err_set(err, RC_NOMEM, "cannot allocate the TLS configuration");
	t->cert_file = mem_strdup(cert_file);
	t->key_file = mem_strdup(key_file);
	t->ca_file = mem_strdup(ca_file);
	if (!t->cert_file || !t->key_file || (ca_file && !t->ca_file))
		rc = err_set(err, RC_NOMEM, "cannot allocate the TLS configuration");
	else
		rc = material_load(&t->now, t, err);
	if (rc)
		tls_store_free(t);
	else
		*out = t;
	return rc;
}

enum rc tls_store_reload(struct tls_store *t, struct err *err)
{
	struct tls_material *m = NULL;
	enum rc rc = material_load(&m, t, err);

	if (rc)
		return rc;
	material_free(t->retired[t->next_retired]);
	t->retired[t->next_retired] = t->now;
	t->next_retired = (t->next_retired + 1) % TLS_RETIRED_MAX;
	t->now = m;
	t->generation++;
	return RC_OK;
}

struct tls_store *tls_store_free(struct tls_store *t)
{
	if (!t)
		return NULL;
	material_free(t->now);
	for (size_t i = 0; i < TLS_RETIRED_MAX; i++)
		material_free(t->retired[i]);
	mem_free(t->cert_file);
	mem_free(t->key_file);
	mem_free(t->ca_file);
	return mem_free(t);
}

const char *tls_store_ca_pem(const struct tls_store *t)
{
	return t->now->ca_pem;
}

void tls_store_current(struct tls_store *t, gnutls_pcert_st **chain, unsigned *n,
		       gnutls_privkey_t *key)
{
	*chain = t->now->chain;
	*n = t->now->n_chain;
	*key = t->now->key;
}

/* Peers */

void tls_peer_fini(struct tls_peer *p)
{
	mem_free(p->cn);
	for (size_t i = 0; i < p->n_orgs; i++)
		mem_free(p->orgs[i]);
	memset(p, 0, sizeof(*p));
}

/* One RDN as fresh text; *out NULL when there is no such one.  A value with a NUL in it is refused: what
 * is compared as a string must be the whole value. */
static enum rc dn_value(gnutls_x509_crt_t crt, const char *oid, unsigned index, char **out,
			struct err *err)
{
	char buf[256];
	size_t n = sizeof(buf);
	int r = gnutls_x509_crt_get_dn_by_oid(crt, oid, index, 0, buf, &n);

	*out = NULL;
	if (r == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
		return RC_OK;
	if (r < 0)
		return err_set(err, RC_UNAUTHORIZED, "client certificate: %s", gnutls_strerror(r));
	if (strlen(buf) != n)
		return err_set(err, RC_UNAUTHORIZED, "client certificate: a name with a NUL in it");
	/* What GnuTLS cannot show as text, a NUL among it, it shows as "#" and hexadecimal bytes. */
	if (buf[0] == '#')
		return err_set(err, RC_UNAUTHORIZED, "client certificate: a name that is no text");
	*out = mem_strdup(buf);
	return *out ? RC_OK : err_set(err, RC_NOMEM, "cannot allocate the client's name");
}

static enum rc peer_names(struct tls_peer *p, gnutls_x509_crt_t crt, struct err *err)
{
	enum rc rc = dn_value(crt, GNUTLS_OID_X520_COMMON_NAME, 0, &p->cn, err);

	if (!rc && !p->cn)
		rc = err_set(err, RC_UNAUTHORIZED, "client certificate: no common name");
	while (!rc) {
		char *org = NULL;

		rc = dn_value(crt, GNUTLS_OID_X520_ORGANIZATION_NAME, (unsigned)p->n_orgs, &org,
			      err);
		if (rc || !org)
			break;
		if (p->n_orgs == TLS_ORGS_MAX) {
			mem_free(org);
			return err_set(err, RC_UNAUTHORIZED,
				       "client certificate: more than %d organizations",
				       TLS_ORGS_MAX);
		}
		p->orgs[p->n_orgs++] = org;
	}
	return rc;
}

static enum rc verify_chain(struct tls_store *t, gnutls_x509_crt_t *chain, unsigned n,
			    struct err *err)
{
	gnutls_typed_vdata_st use = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
				     .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
	unsigned status = 0;
	gnutls_datum_t text = {0};

	if (!t->now->trust)
		return err_set(err, RC_UNAUTHORIZED, "client certificates are not accepted here");
	int r = gnutls_x509_trust_list_verify_crt2(t->now->trust, chain, n, &use, 1, 0, &status,
						   NULL);

	if (r < 0)
		return err_set(err, RC_UNAUTHORIZED, "client certificate: %s", gnutls_strerror(r));
	if (!status)
		return RC_OK;
	if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) < 0)
		return err_set(err, RC_UNAUTHORIZED, "client certificate is not valid");
	enum rc rc =
		err_set(err, RC_UNAUTHORIZED, "client certificate: %s", (const char *)text.data);

	gnutls_free(text.data);
	return rc;
}

static enum rc peer_identify(struct tls_peer *p, struct tls_store *t, gnutls_session_t session,
			     struct err *err)
{
	gnutls_x509_crt_t chain[TLS_CHAIN_MAX];
	unsigned n_raw = 0, n = 0;
	const gnutls_datum_t *raw = gnutls_certificate_get_peers(session, &n_raw);
	enum rc rc = RC_OK;

	if (!raw || n_raw == 0)
		return RC_OK; /* anonymous */
	if (n_raw > TLS_CHAIN_MAX)
		return err_set(err, RC_UNAUTHORIZED, "client certificate: the chain is too long");
	while (n < n_raw && !rc) {
		if (gnutls_x509_crt_init(&chain[n]) < 0) {
			rc = err_set(err, RC_NOMEM, "cannot allocate a certificate");
			break;
		}
		if (gnutls_x509_crt_import(chain[n], &raw[n], GNUTLS_X509_FMT_DER) < 0)
			rc = err_set(err, RC_UNAUTHORIZED, "client certificate: not readable");
		n++;
	}
	if (!rc)
		rc = verify_chain(t, chain, n, err);
	if (!rc)
		rc = peer_names(p, chain[0], err);
	if (!rc)
		p->not_after = (usec_t)gnutls_x509_crt_get_expiration_time(chain[0]) * USEC_PER_SEC;
	for (unsigned i = 0; i < n; i++)
		gnutls_x509_crt_deinit(chain[i]);
	return rc;
}

enum rc tls_peer_check(struct tls_peer *p, struct tls_store *t, gnutls_session_t session,
		       usec_t now_realtime, struct err *err)
{
	if (p->is_known && p->generation == t->generation &&
	    (!p->cn || now_realtime < p->not_after))
		return RC_OK;
	tls_peer_fini(p);
	enum rc rc = peer_identify(p, t, session, err);

	if (rc) {
		tls_peer_fini(p);
		return rc;
	}
	p->is_known = true;
	p->generation = t->generation;
	return RC_OK;
}
