#include "base/b64.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char alphabet_url[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

char *b64_encode(const void *p, size_t n, bool url)
{
	const unsigned char *in = p;
	const char *abc = url ? alphabet_url : alphabet;
	char *out = mem_alloc((n + 2) / 3 * 4 + 1), *o = out;

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)in[i] << 16;
		size_t left = n - i;

		if (left > 1)
			v |= (uint32_t)in[i + 1] << 8;
		if (left > 2)
			v |= in[i + 2];
		*o++ = abc[v >> 18];
		*o++ = abc[v >> 12 & 63];
		if (left > 1)
			*o++ = abc[v >> 6 & 63];
		else if (!url)
			*o++ = '=';
		if (left > 2)
			*o++ = abc[v & 63];
		else if (!url)
			*o++ = '=';
	}
	return out;
}

enum rc b64_decode(const char *s, bool url, char **out, size_t *n)
{
	const char *abc = url ? alphabet_url : alphabet;
	size_t len = strlen(s), k = 0;
	uint32_t acc = 0;
	unsigned bits = 0;
	char *buf = mem_alloc(len + 1);

	if (!buf)
		return RC_NOMEM;
	while (len && s[len - 1] == '=')
		len--;
	for (size_t i = 0; i < len; i++) {
		const char *at = memchr(abc, s[i], 64);

		if (!at) {
			mem_free(buf);
			return RC_INVALID;
		}
		acc = acc << 6 | (uint32_t)(at - abc);
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			buf[k++] = (char)(acc >> bits);
		}
	}
	*out = buf;
	*n = k;
	return RC_OK;
}
