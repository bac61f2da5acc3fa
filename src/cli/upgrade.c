#include "cli/upgrade.h"

#include <string.h>

#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"

enum { NAMES_SHOWN = 8, LEVEL_MAJOR = 100 };

static const struct json *ferry_of(const struct json *vmi)
{
	return js_at(vmi, "status", "ferry", NULL);
}

static int level_of(const char *version)
{
	const char *dot = version ? strchr(version, '.') : NULL;
	int64_t major = 0, minor = 0;

	if (!dot)
		return 0;
	for (const char *p = version; p < dot && *p >= '0' && *p <= '9' && major < 1000; p++)
		major = major * 10 + *p - '0';
	for (const char *p = dot + 1; *p >= '0' && *p <= '9' && minor < 1000; p++)
		minor = minor * 10 + *p - '0';
	return (int)(major * LEVEL_MAJOR + minor);
}

static void judge_machine(const struct json *vmi, const struct json *probe, struct sbuf *why)
{
	const char *type = js_str(js_at(vmi, "status", "machine", "type", NULL));
	const struct json *list = js_get(probe, "machines");

	for (size_t i = 0; type && i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "name"), type))
			return;
	if (type)
		sbuf_addf(why, "it has no machine type %s", type);
}

static void judge_version(const struct json *vmi, const struct json *probe, struct sbuf *why)
{
	const char *ours = js_get_str(ferry_of(vmi), "qemuVersion");
	const char *theirs = js_get_str(probe, "version");

	if (ours && theirs && level_of(theirs) < level_of(ours))
		sbuf_addf(why, "the guest has run under QEMU %s, which is newer", ours);
}

static void judge_features(const struct json *vmi, const struct json *probe, struct sbuf *why)
{
	const struct json *list = js_at(ferry_of(vmi), "cpu", "features", NULL);
	const struct json *host = js_get(probe, "host");
	size_t n = 0;

	for (size_t i = 0; i < js_len(list); i++) {
		const char *name = js_str(js_item(list, i));

		if (!name || js_get_bool(host, name, false))
			continue;
		if (n < NAMES_SHOWN)
			sbuf_addf(why, "%s%s", n ? ", " : "it lacks the CPU features ", name);
		n++;
	}
	if (n > NAMES_SHOWN)
		sbuf_addf(why, " and %zu more", n - NAMES_SHOWN);
}

static void judge_model(const struct json *vmi, const struct json *probe, struct sbuf *why)
{
	const struct json *list = js_get(probe, "definitions");
	struct str rest = str_of(js_get_str(ferry_of(vmi), "cpuModel"));
	struct str model = rest.p ? str_split(&rest, ',') : rest;

	for (size_t i = 0; model.p && i < js_len(list); i++) {
		const char *name = js_get_str(js_item(list, i), "name");

		if (name && strlen(name) == model.n && memcmp(name, model.p, model.n) == 0)
			return;
	}
	if (model.p)
		sbuf_addf(why, "it has no CPU model %.*s", (int)model.n, model.p);
}

void upgrade_judge(const struct json *vmi, const struct json *probe, struct sbuf *why)
{
	static void (*const rules[])(const struct json *vmi, const struct json *probe,
				     struct sbuf *why) = {judge_machine, judge_version, judge_model,
							  judge_features};
	size_t before = why->n;

	for (size_t i = 0; i < ARRAY_SIZE(rules) && why->n == before; i++)
		rules[i](vmi, probe, why);
}
