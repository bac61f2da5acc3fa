#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "pki/pki.h"

enum { NAMES_MAX = 256, CAS_MAX = 8 };

static void crt_deinitp(gnutls_x509_crt_t *crt)
{
	if (*crt)
		gnutls_x509_crt_deinit(*crt);
}

static enum rc read_crt(gnutls_x509_crt_t *out, const char *pem, struct err *err)
{
	gnutls_datum_t d = {(unsigned char *)pem, (unsigned)strlen(pem)};
	int r = gnutls_x509_crt_init(out);

	if (r >= 0)
		r = gnutls_x509_crt_import(*out, &d, GNUTLS_X509_FMT_PEM);
	return r < 0 ? err_set(err, RC_INVALID, "cannot read a certificate: %s", gnutls_strerror(r))
		     : RC_OK;
}

/* One more name at the end of a list; consumes nothing. */
static enum rc add(char ***list, size_t *n, const char *text)
{
	char **grown = *n < NAMES_MAX ? mem_realloc_array(*list, *n + 1, sizeof(**list)) : NULL;

	if (!grown)
		return RC_NOMEM;
	*list = grown;
	grown[*n] = mem_strdup(text);
	if (!grown[*n])
		return RC_NOMEM;
	(*n)++;
	return RC_OK;
}

static enum rc read_names(struct pki_info *i, gnutls_x509_crt_t crt)
{
	char buf[256];
	enum rc rc = RC_OK;

	for (unsigned k = 0; !rc; k++) {
		size_t n = sizeof(buf);

		if (gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_ORGANIZATION_NAME, k, 0, buf,
						  &n) < 0)
			break;
		rc = add(&i->orgs, &i->n_orgs, buf);
	}
	for (unsigned k = 0; !rc; k++) {
		char text[256];
		size_t n = sizeof(buf) - 1;
		int type = gnutls_x509_crt_get_subject_alt_name(crt, k, buf, &n, NULL);

		if (type < 0)
			break;
		buf[n] = '\0';
		if (type == GNUTLS_SAN_IPADDRESS)
			inet_ntop(n == 4 ? AF_INET : AF_INET6, buf, text, sizeof(text));
		else
			memcpy(text, buf, n + 1);
		rc = add(&i->sans, &i->n_sans, text);
	}
	return rc;
}

enum rc pki_inspect(struct pki_info *out, const char *cert_pem, struct err *err)
{
	CLEANUP(crt_deinitp) gnutls_x509_crt_t crt = NULL;
	CLEANUP(pki_info_fini) struct pki_info i = {0};
	unsigned char serial[32];
	size_t n = sizeof(serial);
	char cn[256];
	unsigned critical;
	enum rc rc = read_crt(&crt, cert_pem, err);

	if (rc)
		return rc;
	if (gnutls_x509_crt_get_serial(crt, serial, &n) < 0)
		return err_set(err, RC_INVALID, "the certificate has no serial number");
	str_hex(serial, n, i.serial);
	n = sizeof(cn);
	if (gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, cn, &n) >= 0) {
		i.cn = mem_strdup(cn);
		rc = i.cn ? RC_OK : RC_NOMEM;
	}
	if (!rc)
		rc = read_names(&i, crt);
	if (rc)
		return err_set(err, rc, "cannot allocate a certificate's names");
	i.not_before = (usec_t)gnutls_x509_crt_get_activation_time(crt) * USEC_PER_SEC;
	i.not_after = (usec_t)gnutls_x509_crt_get_expiration_time(crt) * USEC_PER_SEC;
	i.is_ca = gnutls_x509_crt_get_ca_status(crt, &critical) > 0;
	*out = i;
	memset(&i, 0, sizeof(i));
	return RC_OK;
}

void pki_info_fini(struct pki_info *i)
{
	for (size_t k = 0; k < i->n_orgs; k++)
		mem_free(i->orgs[k]);
	for (size_t k = 0; k < i->n_sans; k++)
		mem_free(i->sans[k]);
	mem_free(i->orgs);
	mem_free(i->sans);
	mem_free(i->cn);
	memset(i, 0, sizeof(*i));
}

static bool has_purpose(gnutls_x509_crt_t crt, const char *oid)
{
	return gnutls_x509_crt_check_key_purpose(crt, oid, 0) != 0;
}

/* At least one. */
static enum rc read_cas(gnutls_x509_crt_t out[CAS_MAX], unsigned *n, const char *pem,
			struct err *err)
{
	gnutls_datum_t d = {(unsigned char *)(uintptr_t)pem, (unsigned)strlen(pem)};
	unsigned max = CAS_MAX;
	int r = gnutls_x509_crt_list_import(out, &max, &d, GNUTLS_X509_FMT_PEM,
					    GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);

	if (r <= 0)
		return err_set(err, RC_INVALID, "cannot read a certificate: %s",
			       r ? gnutls_strerror(r) : "there is none");
	*n = (unsigned)r;
	return RC_OK;
}

/* Times are compared with the caller's clock. */
static bool is_signed(gnutls_x509_crt_t crt, const gnutls_x509_crt_t *cas, unsigned n)
{
	unsigned status = 0;

	return gnutls_x509_crt_list_verify(&crt, 1, cas, (int)n, NULL, 0,
					   GNUTLS_VERIFY_DISABLE_TIME_CHECKS, &status) >= 0 &&
	       !status;
}

static enum rc check_signed(gnutls_x509_crt_t crt, const char *ca_pem, bool by_first,
			    struct err *err)
{
	gnutls_x509_crt_t cas[CAS_MAX];
	unsigned n = 0;
	enum rc rc = read_cas(cas, &n, ca_pem, err);

	if (rc)
		return rc;
	if (!is_signed(crt, cas, by_first ? 1 : n))
		rc = err_set(err, RC_UNAUTHORIZED, "the certificate is not signed by this CA");
	for (unsigned i = 0; i < n; i++)
		gnutls_x509_crt_deinit(cas[i]);
	return rc;
}

static enum rc verify(const char *cert_pem, const char *ca_pem, bool by_first, unsigned use,
		      usec_t now, struct err *err)
{
	CLEANUP(crt_deinitp) gnutls_x509_crt_t crt = NULL;
	enum rc rc = read_crt(&crt, cert_pem, err);

	if (!rc)
		rc = check_signed(crt, ca_pem, by_first, err);
	if (rc)
		return rc;
	if (now < (usec_t)gnutls_x509_crt_get_activation_time(crt) * USEC_PER_SEC)
		return err_set(err, RC_UNAUTHORIZED, "the certificate is not valid yet");
	if (now >= (usec_t)gnutls_x509_crt_get_expiration_time(crt) * USEC_PER_SEC)
		return err_set(err, RC_UNAUTHORIZED, "the certificate has expired");
	if ((use & PKI_SERVER) && !has_purpose(crt, GNUTLS_KP_TLS_WWW_SERVER))
		return err_set(err, RC_UNAUTHORIZED, "the certificate is not for servers");
	if ((use & PKI_CLIENT) && !has_purpose(crt, GNUTLS_KP_TLS_WWW_CLIENT))
		return err_set(err, RC_UNAUTHORIZED, "the certificate is not for clients");
	return RC_OK;
}

enum rc pki_verify(const char *cert_pem, const char *ca_pem, unsigned use, usec_t now,
		   struct err *err)
{
	return verify(cert_pem, ca_pem, false, use, now, err);
}

bool pki_needs_rotation(const char *cert_pem, const char *ca_pem, usec_t now)
{
	struct pki_info i = {0};
	usec_t life, left;

	if (verify(cert_pem, ca_pem, true, 0, now, NULL) || pki_inspect(&i, cert_pem, NULL))
		return true;
	life = i.not_after - i.not_before;
	left = i.not_after - now;
	pki_info_fini(&i);
	return left < life / 3;
}
