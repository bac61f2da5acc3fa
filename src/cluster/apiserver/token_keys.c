/* The keys of tokens as files: <dir>/sa.{crt,key} signs; <dir>/sa-previous.crt is the public half of the one before.
 *
 * The certificates only give the keys a date.  A key signs as long as the longest token lives, and its
 * public half stays as long again: no token ends before it says so.
 */
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/apiserver/identity.h"
#include "cluster/apiserver/token.h"
#include "pki/jws.h"
#include "pki/pki.h"

#define TURN ((usec_t)TOKEN_MAX_SECONDS * USEC_PER_SEC)

/* RC_NOT_FOUND: it is not there. */
static enum rc read_previous(const char *dir, char **pem, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/sa-previous.crt", dir);
	size_t n;

	return path ? file_read(path, LIMIT_FILE_BYTES, pem, &n, err)
		    : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc write_previous(const char *dir, const char *pem, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/sa-previous.crt", dir);

	return path ? file_write_durable(path, pem, strlen(pem), 0644, err)
		    : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc make_key(const char *dir, usec_t now, struct pki_pair *out, struct err *err)
{
	enum rc rc = pki_ca_new(out, "ferry service accounts", now, 2 * TURN, err);

	if (!rc)
		rc = pki_save(out, dir, "sa", err);
	if (!rc)
		log_info("made a new key for tokens of service accounts");
	return rc;
}

static bool is_old(const char *cert, usec_t now)
{
	struct pki_info info;

	if (pki_inspect(&info, cert, NULL))
		return true;
	bool old = now >= info.not_before + TURN;

	pki_info_fini(&info);
	return old;
}

/* The pair that signs, made or turned over when need be. */
static enum rc current(const char *dir, usec_t now, struct pki_pair *out, struct err *err)
{
	enum rc rc = pki_load(out, dir, "sa", err);

	/* A pair that does not match is what a crash between its two files leaves: nothing was signed
	 * with it. */
	if (rc == RC_NOT_FOUND || rc == RC_INVALID) {
		err_clear(err);
		return make_key(dir, now, out, err);
	}
	if (rc || !is_old(out->cert, now))
		return rc;
	rc = write_previous(dir, out->cert, err);
	pki_pair_fini(out);
	return rc ? rc : make_key(dir, now, out, err);
}

enum rc identity_token_keys(const char *dir, usec_t now, struct tokens *tokens, struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair pair = {0};
	CLEANUP(mem_freep) char *previous = NULL;
	struct pki_jws_key *keys[TOKEN_KEYS] = {NULL};
	size_t n = 0;
	enum rc rc = current(dir, now, &pair, err);

	if (!rc)
		rc = pki_jws_key_new(&keys[n++], pair.cert, pair.key, err);
	if (!rc) {
		rc = read_previous(dir, &previous, err);
		if (rc == RC_NOT_FOUND) {
			err_clear(err);
			rc = RC_OK;
		}
	}
	if (!rc && previous)
		rc = pki_jws_key_new(&keys[n++], previous, NULL, err);
	if (!rc) {
		tokens_take_keys(tokens, keys, n);
		return RC_OK;
	}
	for (size_t i = 0; i < n; i++)
		pki_jws_key_free(keys[i]);
	return err_prepend(err, "keys of service accounts");
}
