/* Another authority for the cluster, in three steps that overlap: see identity.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/identity.h"
#include "pki/pki.h"

#define CA_LIFE ((usec_t)3650 * 86400 * USEC_PER_SEC)

static enum rc write_ca(const char *dir, const char *pem, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/ca.crt", dir);

	return path ? file_write_durable(path, pem, strlen(pem), 0644, err)
		    : err_set(err, RC_NOMEM, "out of memory");
}

static void remove_next(const char *dir)
{
	static const char *const suffixes[] = {"key", "crt"};
	char path[4096];

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		(void)snprintf(path, sizeof(path), "%s/ca-next.%s", dir, suffixes[i]);
		(void)unlink(path); /* a copy of what ca.crt and ca.key are by now */
	}
}

/* The next one is trusted, and signs nothing yet. */
static enum rc prepare(const char *dir, const struct pki_pair *ca, usec_t now, struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair next = {0};
	enum rc rc = pki_load(&next, dir, "ca-next", err);

	if (rc == RC_NOT_FOUND) {
		err_clear(err);
		/* The same name: clients that choose their certificate by it need no restart. */
		rc = pki_ca_new(&next, "ferry", now, CA_LIFE, err);
		if (!rc)
			rc = pki_save(&next, dir, "ca-next", err);
	}
	if (rc || strstr(ca->cert, next.cert))
		return rc;
	CLEANUP(mem_freep) char *both = mem_printf("%s%s", ca->cert, next.cert);

	return both ? write_ca(dir, both, err) : err_set(err, RC_NOMEM, "out of memory");
}

/* The next one signs, the old one is still trusted. */
static enum rc switch_over(const char *dir, const struct pki_pair *ca, struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair next = {0}, both = {0};
	enum rc rc = pki_load(&next, dir, "ca-next", err);

	if (rc == RC_NOT_FOUND)
		return err_set(err, rc, "there is no next authority: begin with 'prepare'");
	if (rc)
		return rc;
	const char *at = strstr(ca->cert, next.cert);

	if (!at || at == ca->cert)
		return err_set(err, RC_CONFLICT,
			       at ? "the next authority signs already"
				  : "the next authority is not announced: begin with 'prepare'");
	both.cert = mem_printf("%s%.*s%s", next.cert, (int)(at - ca->cert), ca->cert,
			       at + strlen(next.cert));
	both.key = STEAL(next.key);
	rc = both.cert ? pki_save(&both, dir, "ca", err) : err_set(err, RC_NOMEM, "out of memory");
	if (!rc)
		remove_next(dir);
	return rc;
}

/* Only the one that signs is trusted. */
static enum rc finish(const char *dir, const struct pki_pair *ca, struct err *err)
{
	static const char end[] = "-----END CERTIFICATE-----\n";
	CLEANUP(pki_pair_fini) struct pki_pair next = {0};
	const char *at = strstr(ca->cert, end);

	if (pki_load(&next, dir, "ca-next", NULL) == RC_OK)
		return err_set(err, RC_CONFLICT,
			       "the next authority does not sign yet: 'switch' "
			       "comes first");
	if (!at)
		return err_set(err, RC_INVALID, "ca.crt has no certificate");
	CLEANUP(mem_freep)
	char *first = mem_strndup(ca->cert, (size_t)(at - ca->cert) + sizeof(end) - 1);

	return first ? write_ca(dir, first, err) : err_set(err, RC_NOMEM, "out of memory");
}

enum rc identity_rotate_ca(const char *dir, const char *step, usec_t now, struct err *err)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0}, next = {0};
	enum rc rc = pki_load(&ca, dir, "ca", err);

	/* A crash in the middle of the switch: the key is the next one's, the text not yet. */
	if (rc == RC_INVALID && pki_load(&next, dir, "ca-next", NULL) == RC_OK) {
		CLEANUP(mem_freep) char *path = mem_printf("%s/ca.crt", dir);
		size_t n;

		err_clear(err);
		rc = path ? file_read(path, LIMIT_FILE_BYTES, &ca.cert, &n, err)
			  : err_set(err, RC_NOMEM, "out of memory");
		return rc ? rc : switch_over(dir, &ca, err);
	}
	if (rc)
		return rc;
	if (str_eq(step, "prepare"))
		return prepare(dir, &ca, now, err);
	if (str_eq(step, "switch"))
		return switch_over(dir, &ca, err);
	if (str_eq(step, "finish"))
		return finish(dir, &ca, err);
	return err_set(err, RC_INVALID, "the steps are prepare, switch and finish");
}
