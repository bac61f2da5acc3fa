/* lib/pki/pki.h - certificates of Ferry's own CA, and one-time keys for QEMU.
 *
 * No state; the file functions block (start-up or pool).  GnuTLS underneath, hidden.  Keys are ECDSA
 * P-256.  Files with a key have mode 0600, certificates 0644; every write is durable and atomic.
 */
#ifndef PKI_PKI_H
#define PKI_PKI_H

#include "base/err.h"

/* A certificate with its private key, both PEM. Embedded by callers. */
struct pki_pair {
	char *cert;
	char *key;
};

void pki_pair_fini(struct pki_pair *p); /* wipes the key; fine on zeroed memory */

enum pki_use { PKI_SERVER = 1, PKI_CLIENT = 2 }; /* extended key usage; may be or-ed */

struct pki_request {
	const char *cn;
	const char *const *orgs; /* O values, in order (groups in Kubernetes' sense) */
	size_t n_orgs;
	const char *const *sans; /* DNS names and numeric IP addresses */
	size_t n_sans;
	unsigned use;	 /* enum pki_use */
	usec_t validity; /* from one minute before now */
};

/* Self-signed CA. */
MUST_CHECK enum rc pki_ca_new(struct pki_pair *out, const char *cn, usec_t now_realtime,
			      usec_t validity, struct err *err);
/* A fresh key, signed by the CA.  RC_INVALID for a bad name. */
MUST_CHECK enum rc pki_issue(struct pki_pair *out, const struct pki_pair *ca,
			     const struct pki_request *req, usec_t now_realtime, struct err *err);

/* A fresh key, and a request (PKCS #10) for a certificate with it, both PEM and the caller's. */
MUST_CHECK enum rc pki_csr_new(char **csr_pem, char **key_pem, const char *cn, struct err *err);
/* A certificate, the caller's, for the key of such a request; names and all else are as req says, whatever the
 * request wishes.  RC_INVALID: it is none, its key is of another kind, or it is not signed with it. */
MUST_CHECK enum rc pki_issue_for(char **cert_pem, const struct pki_pair *ca, const char *csr_pem,
				 const struct pki_request *req, usec_t now_realtime,
				 struct err *err);

/* <dir>/<name>.crt and <dir>/<name>.key; the directory is made (0700) when missing. */
MUST_CHECK enum rc pki_save(const struct pki_pair *p, const char *dir, const char *name,
			    struct err *err);
/* RC_NOT_FOUND when either is missing; RC_INVALID when they do not belong together. */
MUST_CHECK enum rc pki_load(struct pki_pair *out, const char *dir, const char *name,
			    struct err *err);

struct pki_info {
	char *cn;
	size_t n_orgs;
	char **orgs;
	size_t n_sans;
	char **sans;		      /* addresses as text */
	usec_t not_before, not_after; /* realtime */
	bool is_ca;
	char serial[65]; /* hex */
};

/* Of the first certificate in the text. RC_INVALID. */
MUST_CHECK enum rc pki_inspect(struct pki_info *out, const char *cert_pem, struct err *err);
void pki_info_fini(struct pki_info *i);
/* Did one of the CAs (certificates, PEM, one behind the other) sign it, is it in time, may it be used so?  RC_UNAUTHORIZED says why. */
MUST_CHECK enum rc pki_verify(const char *cert_pem, const char *ca_pem, unsigned use,
			      usec_t now_realtime, struct err *err);
/* True when it cannot be read, when less than a third of its life is left, or when it is not the first CA's, which is
 * the one that signs. */
bool pki_needs_rotation(const char *cert_pem, const char *ca_pem, usec_t now_realtime);

/* Keys for QEMU's tls-creds-psk: bytes of randomness as lower-case hex. */
enum { PKI_PSK_BYTES = 32, PKI_PSK_HEX = 2 * PKI_PSK_BYTES + 1 };
void pki_psk_new(char out[PKI_PSK_HEX]);
/* "<identity>:<hex>\n" as <dir>/keys.psk (mode 0600), which is where QEMU looks.  identity: letters,
 * digits, '-', '_', '.'; RC_INVALID otherwise. */
MUST_CHECK enum rc pki_psk_write(const char *dir, const char *identity, const char *hex,
				 struct err *err);

/* Overwrites memory in a way that the compiler keeps. */
void pki_wipe(void *p, size_t n);

#endif
