/* lib/api/kind.c - finding kinds. */
#include <string.h>

#include "api/type.h"
#include "base/str.h"
#include "json/json.h"

const struct api_kind *api_kind_find(const char *group, const char *version, const char *kind)
{
	for (size_t i = 0; api_served[i]; i++) {
		const struct api_kind *k = api_served[i];

		if (str_eq(k->kind, kind) && str_eq(k->group, group) && str_eq(k->version, version))
			return k;
	}
	return NULL;
}

const struct api_kind *api_kind_by_plural(const char *group, const char *version,
					  const char *plural)
{
	for (size_t i = 0; api_served[i]; i++) {
		const struct api_kind *k = api_served[i];

		if (str_eq(k->plural, plural) && str_eq(k->group, group) &&
		    str_eq(k->version, version))
			return k;
	}
	return NULL;
}

bool api_subresource_is_in(const struct api_subresource *s, const char *version)
{
	for (const char *const *v = s->versions; *v; v++)
		if (strcmp(*v, version) == 0)
			return true;
	return false;
}

const struct api_kind *api_kind_of(const char *api_version, const char *kind)
{
	for (size_t i = 0; api_served[i]; i++)
		if (str_eq(api_served[i]->kind, kind) &&
		    str_eq(api_served[i]->api_version, api_version))
			return api_served[i];
	return NULL;
}

const struct api_kind *api_kind_of_json(const struct json *obj)
{
	return api_kind_of(js_get_str(obj, "apiVersion"), js_get_str(obj, "kind"));
}
