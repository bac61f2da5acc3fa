/* lib/api/format.c - what text must look like, in Kubernetes' words; names and labels of objects. */
#include <arpa/inet.h>
#include <string.h>

#include "api/check_int.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

enum { ANNOTATIONS_MAX_BYTES = 256 * 1024, LABEL_MAX = 63 };

static const char msg_label[] = "a lowercase RFC 1123 label must consist of lower case "
				"alphanumeric characters or '-', and must "
				"start and end with an alphanumeric character (e.g. 'my-name',  or "
				"'123-abc', regex used for "
				"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
static const char msg_subdomain[] =
	"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
	"'.', "
	"and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
	"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
static const char msg_1035[] =
	"a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
	"alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
	"'abc-123', "
	"regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
static const char msg_qualified[] =
	"name part must consist of alphanumeric characters, '-', '_' or '.', and must start and "
	"end with "
	"an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
	"validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
static const char msg_value[] =
	"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
	"'.', "
	"and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
	"or "
	"'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* pattern: 'x' stands for a hexadecimal digit, everything else for itself. */
static bool looks_like(const char *s, const char *pattern)
{
	for (; *pattern; pattern++, s++)
		if (*pattern == 'x' ? !is_hex(*s) : *s != *pattern)
			return false;
	return !*s;
}

static bool is_mac(const char *s)
{
	return looks_like(s, "xx:xx:xx:xx:xx:xx") || looks_like(s, "xx-xx-xx-xx-xx-xx");
}

static bool is_ip(const char *s)
{
	unsigned char bin[16];

	return inet_pton(AF_INET, s, bin) == 1 || inet_pton(AF_INET6, s, bin) == 1;
}

static bool is_cidr(const char *s)
{
	const char *slash = strchr(s, '/');
	char address[INET6_ADDRSTRLEN];
	int64_t bits;

	if (!slash || (size_t)(slash - s) >= sizeof(address))
		return false;
	memcpy(address, s, (size_t)(slash - s));
	address[slash - s] = '\0';
	return is_ip(address) &&
	       !str_to_i64(slash + 1, 0, strchr(address, ':') ? 128 : 32, &bits, NULL);
}

/* Go's: [-+]? then (digits with an optional fraction, unit)+, or plain 0. */
static bool is_duration(const char *s)
{
	static const char *const units[] = {"ns", "us", "\u00b5s", "ms", "s", "m", "h"};

	s += *s == '-' || *s == '+';
	if (str_eq(s, "0"))
		return true;
	if (!*s)
		return false;
	while (*s) {
		size_t digits = strspn(s, "0123456789"), unit = 0, longest = 0;

		s += digits;
		if (*s == '.') {
			size_t more = strspn(++s, "0123456789");

			digits += more;
			s += more;
		}
		for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
			unit = strlen(units[i]);
			if (unit > longest && strncmp(s, units[i], unit) == 0)
				longest = unit;
		}
		if (!digits || !longest)
			return false;
		s += longest;
	}
	return true;
}

static bool is_base64(const char *s)
{
	size_t n = strlen(s),
	       body = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				"0123456789+/");

	return n % 4 == 0 && n - body <= 2 && strspn(s + body, "=") == n - body;
}

static bool is_time(const char *s)
{
	usec_t t;

	return time_parse(s, &t, NULL) == RC_OK;
}

static const char *check_dns(enum api_format fmt, const char *text)
{
	size_t n = strlen(text);

	if (fmt == API_FMT_DNS_SUBDOMAIN) {
		if (n > LIMIT_NAME_BYTES)
			return "must be no more than 253 bytes";
		return str_is_dns_subdomain(text) ? NULL : msg_subdomain;
	}
	if (n > LABEL_MAX)
		return "must be no more than 63 bytes";
	if (fmt == API_FMT_DNS1035_LABEL)
		return str_is_dns_label(text) && !is_digit(*text) ? NULL : msg_1035;
	return str_is_dns_label(text) ? NULL : msg_label;
}

/* Kubernetes' rule for names of roles and their bindings, with a bound of its own. */
static const char *check_path_segment(const char *text)
{
	if (strcmp(text, ".") == 0)
		return "may not be '.'";
	if (strcmp(text, "..") == 0)
		return "may not be '..'";
	if (strchr(text, '/'))
		return "may not contain '/'";
	if (strchr(text, '%'))
		return "may not contain '%'";
	return strlen(text) > LIMIT_NAME_BYTES ? "must be no more than 253 bytes" : NULL;
}

const char *check_format(enum api_format fmt, const char *text)
{
	switch (fmt) {
	case API_FMT_DNS_LABEL:
	case API_FMT_DNS_SUBDOMAIN:
	case API_FMT_DNS1035_LABEL:
		return check_dns(fmt, text);
	case API_FMT_QUALIFIED:
		return api_is_qualified_name(text) ? NULL : msg_qualified;
	case API_FMT_LABEL_VALUE:
		if (strlen(text) > LABEL_MAX)
			return "must be no more than 63 bytes";
		return api_is_label_value(text) ? NULL : msg_value;
	case API_FMT_TIME:
		return is_time(text) ? NULL : "must be a time as RFC 3339 writes it";
	case API_FMT_DURATION:
		return is_duration(text) ? NULL : "must be a duration like '5m30s'";
	case API_FMT_BASE64:
		return is_base64(text) ? NULL : "must be base64";
	case API_FMT_UUID:
		return looks_like(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") ? NULL
										: "must be a UUID";
	case API_FMT_MAC:
		return is_mac(text) ? NULL : "must be a MAC address";
	case API_FMT_IP:
		return is_ip(text)
			       ? NULL
			       : "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
	case API_FMT_CIDR:
		return is_cidr(text)
			       ? NULL
			       : "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
	case API_FMT_PATH_SEGMENT:
		return check_path_segment(text);
	default:
		return NULL;
	}
}

/* ---- metadata ---- */

static void check_name(struct check *c, const struct json *meta)
{
	const char *name = js_get_str(meta, "name"), *prefix = js_get_str(meta, "generateName");

	if (!str_is_empty(name)) {
		const char *why = check_format(c->kind->name_format, name);

		if (why)
			fe_invalid(c->fe, "metadata.name", name, "%s", why);
		return;
	}
	if (c->flags & API_CHECK_UPDATE) {
		fe_required(c->fe, "metadata.name", NULL);
		return;
	}
	if (str_is_empty(prefix)) {
		fe_required(c->fe, "metadata.name", "name or generateName is required");
		return;
	}
	/* the suffix that will follow makes a trailing '-' or '.' legal */
	CLEANUP(mem_freep) char *sample = mem_printf("%sa", prefix);
	const char *why = sample ? check_format(c->kind->name_format, sample) : NULL;

	if (!sample)
		c->fe->rc = RC_NOMEM;
	if (why && strlen(prefix) < 60)
		fe_invalid(c->fe, "metadata.generateName", prefix, "%s", why);
}

static void check_labels(struct check *c, const struct json *labels)
{
	JS_FOREACH(it, labels) {
		const char *why = check_format(API_FMT_QUALIFIED, it.key);

		if (why)
			fe_invalid(c->fe, "metadata.labels", it.key, "%s", why);
		why = js_is_string(it.value) ? check_format(API_FMT_LABEL_VALUE, js_str(it.value))
					     : NULL;
		if (why)
			fe_invalid(c->fe, "metadata.labels", js_str(it.value), "%s", why);
	}
}

static void check_annotations(struct check *c, const struct json *annotations)
{
	size_t bytes = 0;

	JS_FOREACH(it, annotations) {
		const char *why = check_format(API_FMT_QUALIFIED, it.key);

		if (why)
			fe_invalid(c->fe, "metadata.annotations", it.key, "%s", why);
		bytes += strlen(it.key) + (js_is_string(it.value) ? strlen(js_str(it.value)) : 0);
	}
	if (bytes > ANNOTATIONS_MAX_BYTES)
		fe_add(c->fe, FE_TOO_LONG, "metadata.annotations",
		       "Too long: may not be more than %d bytes", ANNOTATIONS_MAX_BYTES);
}

void check_meta(struct check *c, const struct json *meta)
{
	const struct json *finalizers = js_get(meta, "finalizers");
	const char *ns = js_get_str(meta, "namespace");
	const char *why = str_is_empty(ns) ? NULL : check_format(API_FMT_DNS_LABEL, ns);

	check_name(c, meta);
	if (why)
		fe_invalid(c->fe, "metadata.namespace", ns, "%s", why);
	check_labels(c, js_get(meta, "labels"));
	check_annotations(c, js_get(meta, "annotations"));
	for (size_t i = 0; i < js_len(finalizers); i++) {
		const char *name = js_str(js_item(finalizers, i));

		why = name ? check_format(API_FMT_QUALIFIED, name) : NULL;
		if (why)
			fe_invalid(c->fe, "metadata.finalizers", name, "%s", why);
	}
}
