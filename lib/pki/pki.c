#include "pki/pki.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

/* Clocks of two machines may differ a little. */
static const usec_t SLACK = 60 * USEC_PER_SEC;

enum { SERIAL_BYTES = 16, KEY_ID_BYTES = 20 };

void pki_wipe(void *p, size_t n)
{
	if (p)
		gnutls_memset(p, 0, n);
}

void pki_pair_fini(struct pki_pair *p)
{
	pki_wipe(p->key, p->key ? strlen(p->key) : 0);
	p->key = mem_free(p->key);
	p->cert = mem_free(p->cert);
}

/* GnuTLS's results as ours. */
static enum rc tls_rc(int r, const char *what, struct err *err)
{
	if (r >= 0)
		return RC_OK;
	return err_set(err, r == GNUTLS_E_MEMORY_ERROR ? RC_NOMEM : RC_INVALID, "%s: %s", what,
		       gnutls_strerror(r));
}

/* A certificate in the making, with its key. */
struct draft {
	gnutls_x509_crt_t crt;
	gnutls_x509_privkey_t key;
};

static void draft_fini(struct draft *d)
{
	if (d->crt)
		gnutls_x509_crt_deinit(d->crt);
	if (d->key)
		gnutls_x509_privkey_deinit(d->key);
}

static enum rc export_pem(const struct draft *d, struct pki_pair *out, struct err *err)
{
	gnutls_datum_t cert = {0}, key = {0};
	int r = gnutls_x509_crt_export2(d->crt, GNUTLS_X509_FMT_PEM, &cert);

	if (r >= 0)
		r = gnutls_x509_privkey_export2_pkcs8(d->key, GNUTLS_X509_FMT_PEM, NULL,
						      GNUTLS_PKCS_PLAIN, &key);
	enum rc rc = tls_rc(r, "cannot write a certificate", err);

	if (!rc) {
		out->cert = mem_strndup((char *)cert.data, cert.size);
		out->key = mem_strndup((char *)key.data, key.size);
		if (!out->cert || !out->key) {
			pki_pair_fini(out);
			rc = err_set(err, RC_NOMEM, "cannot allocate a certificate");
		}
	}
	pki_wipe(key.data, key.size);
	gnutls_free(cert.data);
	gnutls_free(key.data);
	return rc;
}

/* The key alone: names and all else of a request are wishes. */
static int set_requested_key(gnutls_x509_crt_t crt, gnutls_x509_crq_t crq)
{
	gnutls_pubkey_t key = NULL;
	int r = gnutls_pubkey_init(&key);

	if (r < 0)
		return r;
	r = gnutls_pubkey_import_x509_crq(key, crq, 0);
	if (r >= 0)
		r = gnutls_x509_crt_set_pubkey(crt, key);
	gnutls_pubkey_deinit(key);
	return r;
}

static int new_key(gnutls_x509_privkey_t *key)
{
	int r = gnutls_x509_privkey_init(key);

	return r < 0 ? r
		     : gnutls_x509_privkey_generate(
			       *key, GNUTLS_PK_ECDSA,
			       GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
}

/* Version, serial, key, times and the subject's key id.  crq: whose key it is; NULL: a fresh one. */
static enum rc draft_begin(struct draft *d, gnutls_x509_crq_t crq, usec_t now, usec_t validity,
			   struct err *err)
{
	unsigned char serial[SERIAL_BYTES], id[KEY_ID_BYTES];
	size_t n_id = sizeof(id);
	int r = gnutls_x509_crt_init(&d->crt);

	rand_bytes(serial, sizeof(serial));
	serial[0] &= 0x7f; /* a positive number */
	if (r >= 0 && !crq)
		r = new_key(&d->key);
	if (r >= 0)
		r = gnutls_x509_crt_set_version(d->crt, 3);
	if (r >= 0)
		r = gnutls_x509_crt_set_serial(d->crt, serial, sizeof(serial));
	if (r >= 0)
		r = crq ? set_requested_key(d->crt, crq) : gnutls_x509_crt_set_key(d->crt, d->key);
	if (r >= 0)
		r = gnutls_x509_crt_set_activation_time(d->crt,
							(time_t)((now - SLACK) / USEC_PER_SEC));
	if (r >= 0)
		r = gnutls_x509_crt_set_expiration_time(d->crt,
							(time_t)((now + validity) / USEC_PER_SEC));
	if (r >= 0)
		r = gnutls_x509_crt_get_key_id(d->crt, GNUTLS_KEYID_USE_SHA1, id, &n_id);
	if (r >= 0)
		r = gnutls_x509_crt_set_subject_key_id(d->crt, id, n_id);
	return tls_rc(r, "cannot make a certificate", err);
}

static enum rc add_name(struct draft *d, const char *oid, const char *value, struct err *err)
{
	if (str_is_empty(value) || strlen(value) > 200)
		return err_set(err, RC_INVALID, "'%s' cannot be a certificate's name",
			       value ? value : "");
	return tls_rc(gnutls_x509_crt_set_dn_by_oid(d->crt, oid, 0, value, (unsigned)strlen(value)),
		      value, err);
}

enum rc pki_ca_new(struct pki_pair *out, const char *cn, usec_t now, usec_t validity,
		   struct err *err)
{
	CLEANUP(draft_fini)
	struct draft d = {0};
	enum rc rc = draft_begin(&d, NULL, now, validity, err);

	if (!rc)
		rc = add_name(&d, GNUTLS_OID_X520_COMMON_NAME, cn, err);
	if (!rc)
		rc = tls_rc(gnutls_x509_crt_set_basic_constraints(d.crt, 1, 0), "CA", err);
	if (!rc)
		rc = tls_rc(gnutls_x509_crt_set_key_usage(d.crt, GNUTLS_KEY_KEY_CERT_SIGN |
									 GNUTLS_KEY_CRL_SIGN),
			    "CA", err);
	if (!rc)
		rc = tls_rc(gnutls_x509_crt_sign2(d.crt, d.crt, d.key, GNUTLS_DIG_SHA256, 0),
			    "cannot sign", err);
	return rc ? rc : export_pem(&d, out, err);
}

static bool is_dns_name(const char *s)
{
	if (s[0] == '*' && s[1] == '.')
		s += 2;
	return str_is_dns_subdomain(s);
}

static enum rc add_san(struct draft *d, const char *san, struct err *err)
{
	unsigned char ip[16];
	int r;

	if (inet_pton(AF_INET, san, ip) == 1)
		r = gnutls_x509_crt_set_subject_alt_name(d->crt, GNUTLS_SAN_IPADDRESS, ip, 4,
							 GNUTLS_FSAN_APPEND);
	else if (inet_pton(AF_INET6, san, ip) == 1)
		r = gnutls_x509_crt_set_subject_alt_name(d->crt, GNUTLS_SAN_IPADDRESS, ip, 16,
							 GNUTLS_FSAN_APPEND);
	else if (is_dns_name(san))
		r = gnutls_x509_crt_set_subject_alt_name(d->crt, GNUTLS_SAN_DNSNAME, san,
							 (unsigned)strlen(san), GNUTLS_FSAN_APPEND);
	else
		return err_set(err, RC_INVALID, "'%s' is neither a DNS name nor an address", san);
	return tls_rc(r, san, err);
}

static enum rc add_extensions(struct draft *d, const struct pki_request *req, struct err *err)
{
	int r = gnutls_x509_crt_set_basic_constraints(d->crt, 0, -1);

	if (r >= 0)
		r = gnutls_x509_crt_set_key_usage(d->crt, GNUTLS_KEY_DIGITAL_SIGNATURE);
	if (r >= 0 && (req->use & PKI_SERVER))
		r = gnutls_x509_crt_set_key_purpose_oid(d->crt, GNUTLS_KP_TLS_WWW_SERVER, 0);
	if (r >= 0 && (req->use & PKI_CLIENT))
		r = gnutls_x509_crt_set_key_purpose_oid(d->crt, GNUTLS_KP_TLS_WWW_CLIENT, 0);
	return tls_rc(r, "cannot make a certificate", err);
}

static enum rc import_ca(struct draft *ca, const struct pki_pair *pair, struct err *err)
{
	gnutls_datum_t cert = {(unsigned char *)pair->cert, (unsigned)strlen(pair->cert)};
	gnutls_datum_t key = {(unsigned char *)pair->key, (unsigned)strlen(pair->key)};
	int r = gnutls_x509_crt_init(&ca->crt);

	if (r >= 0)
		r = gnutls_x509_privkey_init(&ca->key);
	if (r >= 0)
		r = gnutls_x509_crt_import(ca->crt, &cert, GNUTLS_X509_FMT_PEM);
	if (r >= 0)
		r = gnutls_x509_privkey_import2(ca->key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
	return tls_rc(r, "cannot read the CA", err);
}

static enum rc sign(struct draft *d, const struct draft *ca, struct err *err)
{
	unsigned char id[64];
	size_t n_id = sizeof(id);
	unsigned critical;
	int r = gnutls_x509_crt_get_subject_key_id(ca->crt, id, &n_id, &critical);

	if (r >= 0)
		r = gnutls_x509_crt_set_authority_key_id(d->crt, id, n_id);
	if (r >= 0 || r == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
		r = gnutls_x509_crt_sign2(d->crt, ca->crt, ca->key, GNUTLS_DIG_SHA256, 0);
	return tls_rc(r, "cannot sign", err);
}

static enum rc issue(struct draft *d, const struct pki_pair *ca, gnutls_x509_crq_t crq,
		     const struct pki_request *req, usec_t now, struct err *err)
{
	CLEANUP(draft_fini)
	struct draft signer = {0};
	enum rc rc = import_ca(&signer, ca, err);

	if (!rc)
		rc = draft_begin(d, crq, now, req->validity, err);
	for (size_t i = 0; !rc && i < req->n_orgs; i++)
		rc = add_name(d, GNUTLS_OID_X520_ORGANIZATION_NAME, req->orgs[i], err);
	if (!rc)
		rc = add_name(d, GNUTLS_OID_X520_COMMON_NAME, req->cn, err);
	for (size_t i = 0; !rc && i < req->n_sans; i++)
		rc = add_san(d, req->sans[i], err);
	if (!rc)
		rc = add_extensions(d, req, err);
	return rc ? rc : sign(d, &signer, err);
}

enum rc pki_issue(struct pki_pair *out, const struct pki_pair *ca, const struct pki_request *req,
		  usec_t now, struct err *err)
{
	CLEANUP(draft_fini)
	struct draft d = {0};
	enum rc rc = issue(&d, ca, NULL, req, now, err);

	return rc ? rc : export_pem(&d, out, err);
}

/* Requests */

static void crq_deinitp(gnutls_x509_crq_t *crq)
{
	if (*crq)
		gnutls_x509_crq_deinit(*crq);
}

/* GnuTLS's text as the caller's. */
static enum rc take_text(gnutls_datum_t *d, char **out, struct err *err)
{
	*out = mem_strndup((char *)d->data, d->size);
	pki_wipe(d->data, d->size);
	gnutls_free(d->data);
	return *out ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

enum rc pki_csr_new(char **csr_pem, char **key_pem, const char *cn, struct err *err)
{
	CLEANUP(crq_deinitp) gnutls_x509_crq_t crq = NULL;
	CLEANUP(draft_fini) struct draft d = {0};
	gnutls_datum_t csr = {0}, key = {0};
	int r = gnutls_x509_crq_init(&crq);

	if (r >= 0)
		r = new_key(&d.key);
	if (r >= 0)
		r = gnutls_x509_crq_set_version(crq, 1);
	if (r >= 0)
		r = gnutls_x509_crq_set_dn_by_oid(crq, GNUTLS_OID_X520_COMMON_NAME, 0, cn,
						  (unsigned)strlen(cn));
	if (r >= 0)
		r = gnutls_x509_crq_set_key(crq, d.key);
	if (r >= 0)
		r = gnutls_x509_crq_sign2(crq, d.key, GNUTLS_DIG_SHA256, 0);
	if (r >= 0)
		r = gnutls_x509_crq_export2(crq, GNUTLS_X509_FMT_PEM, &csr);
	if (r >= 0)
		r = gnutls_x509_privkey_export2_pkcs8(d.key, GNUTLS_X509_FMT_PEM, NULL,
						      GNUTLS_PKCS_PLAIN, &key);
	if (r < 0) {
		gnutls_free(csr.data);
		return tls_rc(r, "cannot make a request for a certificate", err);
	}
	CLEANUP(mem_freep) char *text = NULL;
	enum rc rc = take_text(&csr, &text, err), rc2 = take_text(&key, key_pem, err);

	if (rc || rc2) {
		if (!rc2) {
			pki_wipe(*key_pem, strlen(*key_pem));
			*key_pem = mem_free(*key_pem);
		}
		return rc ? rc : rc2;
	}
	*csr_pem = STEAL(text);
	return RC_OK;
}

static enum rc read_csr(gnutls_x509_crq_t *crq, const char *pem, struct err *err)
{
	gnutls_datum_t text = {(unsigned char *)(uintptr_t)pem, (unsigned)strlen(pem)};
	unsigned bits = 0;
	int r = gnutls_x509_crq_init(crq);

	if (r >= 0)
		r = gnutls_x509_crq_import(*crq, &text, GNUTLS_X509_FMT_PEM);
	if (r < 0)
		return tls_rc(r, "cannot read the request for a certificate", err);
	if (gnutls_x509_crq_get_pk_algorithm(*crq, &bits) != GNUTLS_PK_ECDSA || bits != 256)
		return err_set(err, RC_INVALID,
			       "the request for a certificate has no key of curve P-256");
	if (gnutls_x509_crq_verify(*crq, 0) < 0)
		return err_set(err, RC_INVALID,
			       "the request for a certificate is not signed with its own key");
	return RC_OK;
}

enum rc pki_issue_for(char **cert_pem, const struct pki_pair *ca, const char *csr_pem,
		      const struct pki_request *req, usec_t now, struct err *err)
{
	CLEANUP(crq_deinitp) gnutls_x509_crq_t crq = NULL;
	CLEANUP(draft_fini) struct draft d = {0};
	gnutls_datum_t cert = {0};
	enum rc rc = read_csr(&crq, csr_pem, err);

	if (!rc)
		rc = issue(&d, ca, crq, req, now, err);
	if (!rc)
		rc = tls_rc(gnutls_x509_crt_export2(d.crt, GNUTLS_X509_FMT_PEM, &cert),
			    "cannot write a certificate", err);
	return rc ? rc : take_text(&cert, cert_pem, err);
}

/* Files */

static enum rc join(char **out, const char *dir, const char *name, const char *suffix,
		    struct err *err)
{
	*out = mem_printf("%s/%s%s", dir, name, suffix);
	return *out ? RC_OK : err_set(err, RC_NOMEM, "cannot allocate a path");
}

enum rc pki_save(const struct pki_pair *p, const char *dir, const char *name, struct err *err)
{
	CLEANUP(mem_freep)
	char *crt = NULL, *key = NULL;
	enum rc rc = join(&crt, dir, name, ".crt", err);

	if (!rc)
		rc = join(&key, dir, name, ".key", err);
	if (!rc)
		rc = file_mkdir_p(dir, 0700, err);
	/* A crash in between leaves a pair that does not match: pki_load() says so. */
	if (!rc)
		rc = file_write_durable(key, p->key, strlen(p->key), 0600, err);
	if (!rc)
		rc = file_write_durable(crt, p->cert, strlen(p->cert), 0644, err);
	return rc;
}

static enum rc check_pair(const struct pki_pair *p, const char *name, struct err *err)
{
	CLEANUP(draft_fini)
	struct draft d = {0};
	unsigned char a[64], b[64];
	size_t na = sizeof(a), nb = sizeof(b);
	enum rc rc = import_ca(&d, p, err);

	if (rc)
		return err_prepend(err, "'%s'", name), rc;
	if (gnutls_x509_crt_get_key_id(d.crt, GNUTLS_KEYID_USE_SHA256, a, &na) < 0 ||
	    gnutls_x509_privkey_get_key_id(d.key, GNUTLS_KEYID_USE_SHA256, b, &nb) < 0 ||
	    na != nb || memcmp(a, b, na) != 0)
		return err_set(err, RC_INVALID,
			       "the key of '%s' does not belong to its certificate", name);
	return RC_OK;
}

enum rc pki_load(struct pki_pair *out, const char *dir, const char *name, struct err *err)
{
	CLEANUP(mem_freep)
	char *crt = NULL, *key = NULL;
	CLEANUP(pki_pair_fini)
	struct pki_pair p = {0};
	size_t n;
	enum rc rc = join(&crt, dir, name, ".crt", err);

	if (!rc)
		rc = join(&key, dir, name, ".key", err);
	if (!rc)
		rc = file_read(crt, LIMIT_FILE_BYTES, &p.cert, &n, err);
	if (!rc)
		rc = file_read(key, LIMIT_FILE_BYTES, &p.key, &n, err);
	if (!rc)
		rc = check_pair(&p, name, err);
	if (!rc) {
		out->cert = STEAL(p.cert);
		out->key = STEAL(p.key);
	}
	return rc;
}

/* One-time keys */

void pki_psk_new(char out[PKI_PSK_HEX])
{
	unsigned char key[PKI_PSK_BYTES];

	rand_bytes(key, sizeof(key));
	str_hex(key, sizeof(key), out);
	pki_wipe(key, sizeof(key));
}

enum rc pki_psk_write(const char *dir, const char *identity, const char *hex, struct err *err)
{
	static const char ok[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	CLEANUP(mem_freep)
	char *path = NULL;
	char line[512];
	enum rc rc;

	if (str_is_empty(identity) || strlen(identity) > 128 ||
	    strspn(identity, ok) != strlen(identity))
		return err_set(err, RC_INVALID, "'%s' cannot be a key's identity",
			       identity ? identity : "");
	if (strlen(hex) < 32 || strlen(hex) > 256 || strspn(hex, "0123456789abcdef") != strlen(hex))
		return err_set(err, RC_INVALID, "a key must be hexadecimal, 16 to 128 bytes");
	rc = join(&path, dir, "keys", ".psk", err);
	if (rc)
		return rc;
	int n = snprintf(line, sizeof(line), "%s:%s\n", identity, hex);

	rc = file_write_durable(path, line, (size_t)n, 0600, err);
	pki_wipe(line, sizeof(line));
	return rc;
}
