/* src/virt/node/seed.h - cloud-init's NoCloud seed of a VM.
 *
 * Pure.  Precedence as KubeVirt's: a secret's keys, then base64, then plain text.
 */
#ifndef NODE_SEED_H
#define NODE_SEED_H

#include "base/err.h"
#include "base/sbuf.h"

struct seed_source {
	const char *instance_id; /* firmware uuid */
	const char *hostname;
	const char *user_data; /* plain; NULL: none */
	const char *user_data_base64;
	const char *network_data;
	const char *network_data_base64;
	/* Values of Secrets as the API has them (base64); NULL: no secret, or the key is not in it. */
	const char *secret_user_data;
	const char *secret_network_data;
};

/* The ISO image, volume id "cidata", appended.  RC_INVALID names the field that is not base64. */
MUST_CHECK enum rc seed_build(const struct seed_source *s, struct sbuf *iso, struct err *err);

/* Standard alphabet, padding required, line breaks skipped. Owned by the caller. */
MUST_CHECK enum rc seed_base64(const char *text, char **out, size_t *n, struct err *err);

#endif
