#include "virt/node/seed.h"

#include <string.h>

#include "base/mem.h"
#include "json/json.h"
#include "virt/node/iso.h"

enum { SEED_TEXT_MAX = 2 * 1024 * 1024 };

static int base64_digit(char c)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *p = c ? strchr(alphabet, c) : NULL;

	return p ? (int)(p - alphabet) : -1;
}

enum rc seed_base64(const char *text, char **out, size_t *n, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(SEED_TEXT_MAX);
	uint32_t acc = 0;
	int have = 0, pad = 0;

	for (; *text; text++) {
		if (*text == '\n' || *text == '\r')
			continue;
		int v = base64_digit(*text);

		if (*text == '=' && have + pad >= 2 && pad < 2 && have + pad < 4) {
			pad++;
			continue;
		}
		if (v < 0 || pad)
			return err_set(err, RC_INVALID, "the text is not base64");
		acc = acc << 6 | (uint32_t)v;
		if (++have == 4) {
			char c[3] = {(char)(acc >> 16), (char)(acc >> 8), (char)acc};

			sbuf_add(&b, c, 3);
			acc = 0;
			have = 0;
		}
	}
	if ((have && have + pad != 4) || (!have && pad))
		return err_set(err, RC_INVALID, "the base64 text is cut short");
	if (have == 3) {
		char c[2] = {(char)(acc >> 10), (char)(acc >> 2)};

		sbuf_add(&b, c, 2);
	} else if (have == 2) {
		sbuf_addc(&b, (char)(acc >> 4));
	}
	enum rc rc = sbuf_take(&b, out, n);

	return rc ? err_set(err, rc, "the decoded text is too large") : RC_OK;
}

/* The first that is there: secret, base64, plain.  *out stays NULL when none is. */
static enum rc choose(const char *what, const char *secret, const char *base64, const char *plain,
		      char **out, size_t *n, struct err *err)
{
	enum rc rc = RC_OK;

	if (secret || base64)
		rc = seed_base64(secret ? secret : base64, out, n, err);
	else if (plain) {
		*n = strlen(plain);
		*out = mem_strdup(plain);
		if (!*out)
			rc = err_set(err, RC_NOMEM, "out of memory");
	}
	if (rc && err)
		return err_prepend(err, "cloudInitNoCloud %s", what);
	return rc;
}

enum rc seed_build(const struct seed_source *s, struct sbuf *iso, struct err *err)
{
	CLEANUP(mem_freep) char *user = NULL;
	CLEANUP(mem_freep) char *network = NULL;
	CLEANUP(mem_freep) char *meta = NULL;
	CLEANUP(js_unrefp)
	struct json *j =
		js_pack("{s:s, s:s}", "instance-id", s->instance_id, "local-hostname", s->hostname);
	size_t n_user = 0, n_network = 0;
	enum rc rc = choose("userData", s->secret_user_data, s->user_data_base64, s->user_data,
			    &user, &n_user, err);

	if (!rc)
		rc = choose("networkData", s->secret_network_data, s->network_data_base64,
			    s->network_data, &network, &n_network, err);
	if (rc)
		return rc;
	meta = js_to_text(j); /* JSON is YAML */
	if (!meta)
		return err_set(err, RC_NOMEM, "out of memory");
	struct iso_file files[3] = {
		{.name = "meta-data", .bytes = meta, .n = strlen(meta)},
		{.name = "user-data", .bytes = user, .n = n_user},
		{.name = "network-config", .bytes = network, .n = n_network},
	};

	return iso_write("cidata", files, network ? 3 : 2, iso, err);
}
