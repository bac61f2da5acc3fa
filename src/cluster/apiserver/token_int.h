/* src/cluster/apiserver/token_int.h - what the files about tokens share.
 *
 * Loop thread only.
 */
#ifndef APISERVER_TOKEN_INT_H
#define APISERVER_TOKEN_INT_H

#include "cluster/apiserver/apisrv_int.h"
#include "cluster/apiserver/token.h"

enum { TOKEN_CACHE = 256, TOKEN_HASH_BYTES = 32, TOKEN_EXTRAS = 5 };

/* A signature that was good: it stays so as long as the keys do. */
struct token_known {
	unsigned char hash[TOKEN_HASH_BYTES]; /* SHA-256 of the text */
	struct json *claims;		      /* NULL: free */
};

struct tokens {
	char *issuer;
	char *jwks_url;
	struct pki_jws_key *keys[TOKEN_KEYS];
	size_t n_keys;
	struct token_known known[TOKEN_CACHE];
};

/* Whose a token is; user borrows from the rest.  token_user_fini(). */
struct token_user {
	struct apisrv_user user;
	struct json *claims;
	char *name, *group, *credential;
	const char *groups[3];
	struct apisrv_extra extra[TOKEN_EXTRAS];
	const char *values[TOKEN_EXTRAS];
};
void token_user_fini(struct token_user *u);

/* Checks all that a token says, for somebody called like one of the audiences.  RC_UNAUTHORIZED: err says
 * what is wrong, and nothing of the token. */
MUST_CHECK enum rc token_check(struct apisrv *s, const char *text, const char *const *audiences,
			       size_t n_audiences, struct token_user *out, struct err *err);
bool token_is_for(const struct json *claims, const char *audience);

#endif
