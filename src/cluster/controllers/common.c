#include "base/file.h"
#include "base/str.h"
#include "cluster/controllers/controllers.h"

void cc_suffix(const char *text, char out[6])
{
	static const char alphabet[] = "bcdfghjklmnpqrstvwxz2456789";
	uint64_t h = str_hash(text ? text : "", text ? strlen(text) : 0);

	for (int i = 0; i < 5; i++, h /= sizeof(alphabet) - 1)
		out[i] = alphabet[h % (sizeof(alphabet) - 1)];
	out[5] = '\0';
}

usec_t cc_age(usec_t now, const char *stamp)
{
	usec_t t;

	if (!stamp || time_parse(stamp, &t, NULL))
		return USEC_INFINITY;
	return t < now ? now - t : 0;
}
