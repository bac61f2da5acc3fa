#include "virt/launcher/agent_facts.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "virt/launcher/qga.h"

enum { TEXT_MAX = 256, COMMANDS_MAX = 256, ITEMS_MAX = 128, NICS_MAX = 16, ADDRESSES_MAX = 16 };

/* KubeVirt's list of what it cannot do without. */
static const char *const required[] = {"guest-ping",
				       "guest-get-time",
				       "guest-info",
				       "guest-shutdown",
				       "guest-network-get-interfaces",
				       "guest-get-fsinfo",
				       "guest-get-host-name",
				       "guest-get-users",
				       "guest-get-timezone",
				       "guest-get-osinfo"};

/* obj[key] = the guest's text; nothing for what is none, or empty. */
static enum rc put_text(struct json *obj, const char *key, const struct json *value)
{
	char text[TEXT_MAX];

	qga_printable(js_str(value), text, sizeof(text));
	return text[0] ? js_set(obj, key, js_new_str(text)) : RC_OK;
}

static enum rc put_copy(struct json *obj, const char *key, const struct json *from,
			const char *name)
{
	return put_text(obj, key, js_get(from, name));
}

bool agent_facts_has(const struct json *info, const char *command)
{
	const struct json *list = js_get(info, "supported_commands");

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "name"), command))
			return js_get_bool(js_item(list, i), "enabled", false);
	return false;
}

bool agent_facts_is_frozen(const struct json *values)
{
	return str_eq(js_str(js_get(values, "guest-fsfreeze-status")), "frozen");
}

static enum rc put_os(struct json *out, const struct json *values)
{
	static const struct {
		const char *theirs, *ours;
	} names[] = {
		{"name", "name"},
		{"kernel-release", "kernelRelease"},
		{"version", "version"},
		{"pretty-name", "prettyName"},
		{"version-id", "versionId"},
		{"kernel-version", "kernelVersion"},
		{"machine", "machine"},
		{"id", "id"},
	};
	const struct json *in = js_get(values, "guest-get-osinfo");
	struct json *os = js_ensure_object(out, "os");

	if (!os)
		return RC_NOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		TRY(put_copy(os, names[i].ours, in, names[i].theirs));
	return RC_OK;
}

/* --- interfaces --- */

static bool is_mac(const char *s)
{
	for (int i = 0; s && i < 17; i++)
		if (i % 3 == 2 ? s[i] != ':' : !strchr("0123456789abcdefABCDEF", s[i]) || !s[i])
			return false;
	return s && s[17] == '\0';
}

static bool is_address(const char *s)
{
	unsigned char bytes[16];

	return s && (inet_pton(AF_INET, s, bytes) == 1 || inet_pton(AF_INET6, s, bytes) == 1);
}

static enum rc put_addresses(struct json *nic, const struct json *in)
{
	const struct json *list = js_get(in, "ip-addresses");
	struct json *ips = js_new_array();
	enum rc rc = js_set(nic, "ips", ips);

	for (size_t i = 0; !rc && i < js_len(list) && js_len(ips) < ADDRESSES_MAX; i++) {
		const char *text = js_get_str(js_item(list, i), "ip-address");

		if (is_address(text))
			rc = js_append(ips, js_new_str(text));
	}
	return rc;
}

static enum rc put_nic(struct json *list, const struct json *in)
{
	const char *mac = js_get_str(in, "hardware-address");

	if (!js_get_str(in, "name") || str_eq(js_get_str(in, "name"), "lo"))
		return RC_OK;
	struct json *nic = js_new_object();

	TRY(js_append(list, nic));
	TRY(put_copy(nic, "name", in, "name"));
	if (is_mac(mac))
		TRY(js_set(nic, "mac", js_new_str(mac)));
	return put_addresses(nic, in);
}

static enum rc put_nics(struct json *out, const struct json *values)
{
	const struct json *in = js_get(values, "guest-network-get-interfaces");
	struct json *list = js_new_array();

	TRY(js_set(out, "interfaces", list));
	for (size_t i = 0; i < js_len(in) && js_len(list) < NICS_MAX; i++)
		TRY(put_nic(list, js_item(in, i)));
	return RC_OK;
}

static enum rc put_lacks(struct json *out, const struct json *info)
{
	struct json *list = js_new_array();

	TRY(js_set(out, "lacks", list));
	for (size_t i = 0; i < ARRAY_SIZE(required); i++)
		if (!agent_facts_has(info, required[i]))
			TRY(js_append(list, js_new_str(required[i])));
	return RC_OK;
}

static enum rc fill_status(struct json *out, const struct json *values)
{
	const struct json *info = js_get(values, "guest-info");

	TRY(js_set(out, "connected", js_new_bool(true)));
	TRY(put_copy(out, "version", info, "version"));
	TRY(js_set(out, "frozen", js_new_bool(agent_facts_is_frozen(values))));
	/* Then it has switched off nearly all that it can, and says so. */
	if (agent_facts_is_frozen(values))
		return RC_OK;
	TRY(put_lacks(out, info));
	TRY(put_os(out, values));
	return put_nics(out, values);
}

static struct json *made(enum rc (*fill)(struct json *out, const struct json *values),
			 const struct json *values)
{
	struct json *out = js_new_object();

	return out && fill(out, values) == RC_OK ? out : js_unref(out);
}

struct json *agent_facts_status(const struct json *values)
{
	return made(fill_status, values);
}

/* --- users and file systems --- */

static enum rc put_user(struct json *list, const struct json *in)
{
	const struct json *since = js_get(in, "login-time");
	struct json *user;

	if (!js_get_str(in, "user"))
		return RC_OK;
	user = js_new_object();
	TRY(js_append(list, user));
	TRY(js_set(user, "userName", js_new_str("")));
	TRY(put_copy(user, "userName", in, "user"));
	TRY(put_copy(user, "domain", in, "domain"));
	return js_type(since) == JS_REAL || js_type(since) == JS_INT
		       ? js_set(user, "loginTime", js_new_real(js_real(since, 0)))
		       : RC_OK;
}

static enum rc put_disk(struct json *list, const struct json *in)
{
	struct json *disk = js_new_object();

	TRY(js_append(list, disk));
	TRY(put_copy(disk, "serial", in, "serial"));
	TRY(js_set(disk, "busType", js_new_str("")));
	return put_copy(disk, "busType", in, "bus-type");
}

static enum rc put_filesystem(struct json *list, const struct json *in)
{
	static const char *const texts[][2] = {
		{"diskName", "name"}, {"mountPoint", "mountpoint"}, {"fileSystemType", "type"}};
	const struct json *disks = js_get(in, "disk");
	struct json *fs, *out;

	if (!js_get_str(in, "name"))
		return RC_OK;
	fs = js_new_object();
	TRY(js_append(list, fs));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		TRY(js_set(fs, texts[i][0], js_new_str("")));
		TRY(put_copy(fs, texts[i][0], in, texts[i][1]));
	}
	TRY(js_set(fs, "usedBytes", js_new_int(js_get_int(in, "used-bytes", 0))));
	TRY(js_set(fs, "totalBytes", js_new_int(js_get_int(in, "total-bytes", 0))));
	if (!js_len(disks))
		return RC_OK;
	out = js_new_array();
	TRY(js_set(fs, "disk", out));
	for (size_t i = 0; i < js_len(disks) && i < NICS_MAX; i++)
		TRY(put_disk(out, js_item(disks, i)));
	return RC_OK;
}

static enum rc put_list(struct json *out, const char *key, const struct json *in,
			enum rc (*put)(struct json *list, const struct json *in))
{
	struct json *list = js_new_array();

	TRY(js_set(out, key, list));
	for (size_t i = 0; i < js_len(in) && js_len(list) < ITEMS_MAX; i++)
		TRY(put(list, js_item(in, i)));
	return RC_OK;
}

static enum rc fill_users(struct json *out, const struct json *values)
{
	return put_list(out, "items", js_get(values, "guest-get-users"), put_user);
}

struct json *agent_facts_users(const struct json *values)
{
	return made(fill_users, values);
}

static enum rc fill_filesystems(struct json *out, const struct json *values)
{
	return put_list(out, "items", js_get(values, "guest-get-fsinfo"), put_filesystem);
}

struct json *agent_facts_filesystems(const struct json *values)
{
	return made(fill_filesystems, values);
}

/* --- everything --- */

static enum rc put_commands(struct json *out, const struct json *info)
{
	const struct json *in = js_get(info, "supported_commands");
	struct json *list = js_new_array();

	TRY(js_set(out, "supportedCommands", list));
	for (size_t i = 0; i < js_len(in) && js_len(list) < COMMANDS_MAX; i++) {
		struct json *c;

		if (!js_get_str(js_item(in, i), "name"))
			continue;
		c = js_new_object();
		TRY(js_append(list, c));
		TRY(js_set(c, "name", js_new_str("")));
		TRY(put_copy(c, "name", js_item(in, i), "name"));
		if (js_get_bool(js_item(in, i), "enabled", false))
			TRY(js_set(c, "enabled", js_new_bool(true)));
	}
	return RC_OK;
}

static enum rc put_timezone(struct json *out, const struct json *zone)
{
	char name[TEXT_MAX], text[TEXT_MAX + 32];

	if (js_type(js_get(zone, "offset")) != JS_INT)
		return RC_OK;
	qga_printable(js_get_str(zone, "zone"), name, sizeof(name));
	(void)snprintf(text, sizeof(text), "%s, %" PRId64, name, js_get_int(zone, "offset", 0));
	return js_set(out, "timezone", js_new_str(text));
}

static enum rc fill_info(struct json *out, const struct json *values)
{
	const struct json *info = js_get(values, "guest-info");
	struct json *fs = js_new_object();

	TRY(js_set(out, "fsInfo", fs));
	TRY(put_copy(out, "guestAgentVersion", info, "version"));
	TRY(put_commands(out, info));
	TRY(put_copy(out, "hostname", js_get(values, "guest-get-host-name"), "host-name"));
	TRY(put_os(out, values));
	TRY(put_timezone(out, js_get(values, "guest-get-timezone")));
	TRY(put_list(out, "userList", js_get(values, "guest-get-users"), put_user));
	TRY(put_list(fs, "disks", js_get(values, "guest-get-fsinfo"), put_filesystem));
	return agent_facts_is_frozen(values) ? js_set(out, "fsFreezeStatus", js_new_str("frozen"))
					     : RC_OK;
}

struct json *agent_facts_info(const struct json *values)
{
	return made(fill_info, values);
}
