#include "virt/node/imgref.h"

#include <ctype.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

enum { REF_MAX = 1024, TAG_MAX = 128 };

bool imgref_is_digest(const char *s)
{
	if (!str_has_prefix(s, "sha256:"))
		return false;
	size_t n = strspn(s + 7, "0123456789abcdef");

	return n == 64 && s[7 + n] == '\0';
}

void imgref_fini(struct imgref *r)
{
	r->place = mem_free(r->place);
	r->host = mem_free(r->host);
	r->tag = mem_free(r->tag);
	r->digest = mem_free(r->digest);
}

static bool is_tag(const char *s)
{
	size_t n = strlen(s);

	if (!n || n > TAG_MAX || *s == '.' || *s == '-')
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
			return false;
	return true;
}

static bool is_name(const char *s)
{
	if (!*s)
		return false;
	for (const char *p = s; *p; p++) {
		if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) &&
		    !strchr("._-/", *p))
			return false;
		if ((p == s || p[-1] == '/') && !isalnum((unsigned char)*p))
			return false;
	}
	return s[strlen(s) - 1] != '/';
}

static bool is_host(const char *s)
{
	if (!*s || *s == '-' || *s == '.')
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr(".-:[]", *s))
			return false;
	return true;
}

/* Cuts "@sha256:…" off text. */
static enum rc take_digest(char *text, char **digest, struct err *err)
{
	char *at = strchr(text, '@');

	if (!at)
		return RC_OK;
	if (!imgref_is_digest(at + 1))
		return err_set(err, RC_INVALID, "'%s' is not a sha256 digest", at + 1);
	*digest = mem_strdup(at + 1);
	*at = '\0';
	return *digest ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

/* Cuts ":tag" off text; a colon before the last slash belongs to a port. */
static enum rc take_tag(char *text, char **tag, struct err *err)
{
	char *slash = strrchr(text, '/');
	char *colon = strrchr(text, ':');

	if (!colon || (slash && colon < slash))
		return RC_OK;
	if (!is_tag(colon + 1))
		return err_set(err, RC_INVALID, "'%s' is not an image tag", colon + 1);
	*tag = mem_strdup(colon + 1);
	*colon = '\0';
	return *tag ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc parse_registry(struct imgref *r, char *text, struct err *err)
{
	char *slash = strchr(text, '/');
	bool has_host = slash && (memchr(text, '.', (size_t)(slash - text)) ||
				  memchr(text, ':', (size_t)(slash - text)) ||
				  str_has_prefix(text, "localhost/"));
	const char *name = has_host ? slash + 1 : text;
	const char *library = !has_host && !slash ? "library/" : "";

	if (!is_name(name))
		return err_set(err, RC_INVALID, "'%s' is not an image name", name);
	r->host = has_host ? mem_strndup(text, (size_t)(slash - text)) : mem_strdup("docker.io");
	if (!r->host)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!is_host(r->host))
		return err_set(err, RC_INVALID, "'%s' is not a registry host", r->host);
	r->place = mem_printf("%s/%s%s", r->host, library, name);
	if (!r->tag && !r->digest)
		r->tag = mem_strdup("latest");
	if (!r->place || (!r->tag && !r->digest))
		return err_set(err, RC_NOMEM, "out of memory");
	return RC_OK;
}

static enum rc parse_into(struct imgref *r, char *text, struct err *err)
{
	enum rc rc = take_digest(text, &r->digest, err);

	if (rc)
		return rc;
	if (str_has_prefix(text, "oci:")) {
		r->kind = IMGREF_FOLDER;
		rc = take_tag(text + 4, &r->tag, err);
		if (rc)
			return rc;
		if (!text[4])
			return err_set(err, RC_INVALID, "'oci:' needs a folder");
		if (strpbrk(text + 4, ":@"))
			return err_set(err, RC_INVALID,
				       "the folder of an 'oci:' image may not contain ':' or '@'");
		r->place = mem_strdup(text + 4);
		return r->place ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
	}
	r->kind = IMGREF_REGISTRY;
	if (str_has_prefix(text, "docker://"))
		text += strlen("docker://");
	else if (strstr(text, "://"))
		return err_set(err, RC_INVALID, "only 'docker://' and 'oci:' images are supported");
	rc = take_tag(text, &r->tag, err);
	return rc ? rc : parse_registry(r, text, err);
}

enum rc imgref_parse(const char *text, struct imgref *out, struct err *err)
{
	struct imgref r = {0};

	if (str_is_empty(text))
		return err_set(err, RC_INVALID, "the image name is empty");
	if (strlen(text) > REF_MAX)
		return err_set(err, RC_INVALID, "the image name is longer than %d bytes", REF_MAX);
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return err_set(err, RC_INVALID,
				       "the image name has blanks or control characters");
	CLEANUP(mem_freep) char *copy = mem_strdup(text);

	if (!copy)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = parse_into(&r, copy, err);

	if (rc) {
		imgref_fini(&r);
		return rc;
	}
	*out = r;
	return RC_OK;
}

char *imgref_pinned(const struct imgref *r, const char *digest)
{
	return mem_printf("%s%s@%s", r->kind == IMGREF_FOLDER ? "oci:" : "", r->place, digest);
}

char *imgref_skopeo_source(const struct imgref *r)
{
	if (r->digest)
		return mem_printf("docker://%s@%s", r->place, r->digest);
	return mem_printf("docker://%s:%s", r->place, r->tag);
}
