#include "cli/resource.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "yaml/yaml.h"
#include "json/json.h"

static bool word_is(const struct api_kind *k, const char *word, size_t n)
{
	if (strlen(k->plural) == n && strncasecmp(k->plural, word, n) == 0)
		return true;
	if (strlen(k->singular) == n && strncasecmp(k->singular, word, n) == 0)
		return true;
	for (size_t i = 0; k->short_names[i]; i++)
		if (strlen(k->short_names[i]) == n && strncasecmp(k->short_names[i], word, n) == 0)
			return true;
	return false;
}

enum rc resource_find(const char *word, const struct api_kind **out, struct err *err)
{
	const char *dot = strchr(word, '.');
	const char *near = NULL;
	unsigned best = 3;

	for (size_t i = 0; api_kinds[i]; i++) {
		const struct api_kind *k = api_kinds[i];
		size_t n = dot ? (size_t)(dot - word) : strlen(word);

		if (word_is(k, word, n) && (!dot || str_has_prefix(dot + 1, k->group))) {
			*out = k;
			return RC_OK;
		}
		if (str_distance(k->plural, word) < best) {
			best = str_distance(k->plural, word);
			near = k->plural;
		}
	}
	return err_set(err, RC_NOT_FOUND, "the server doesn't have a resource type \"%s\"%s%s%s",
		       word, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

char *resource_path(const struct api_kind *k, const char *ns, const char *name)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_URL_BYTES);
	char *out = NULL;

	if (*k->group)
		sbuf_addf(&b, "/apis/%s/%s", k->group, k->version);
	else
		sbuf_addf(&b, "/api/%s", k->version);
	if (k->is_namespaced && ns)
		sbuf_addf(&b, "/namespaces/%s", ns);
	sbuf_addf(&b, "/%s", k->plural);
	if (name)
		sbuf_addf(&b, "/%s", name);
	return sbuf_take(&b, &out, NULL) ? NULL : out;
}

char *resource_title(const struct api_kind *k, const char *name)
{
	if (*k->group)
		return mem_printf("%s.%s/%s", k->singular, k->group, name);
	return mem_printf("%s/%s", k->singular, name);
}

/* A name goes into a path: nothing but what a name may hold. */
static enum rc check_name(const char *name, struct err *err)
{
	if (!*name || strlen(name) > LIMIT_NAME_BYTES || strchr(name, '/') || strchr(name, '%') ||
	    strchr(name, '?') || strchr(name, '#') || strchr(name, ' '))
		return err_set(err, RC_INVALID, "'%s' is not a name", name);
	return RC_OK;
}

enum rc resource_parse_args(struct resource_args *out, int n, char **argv, struct err *err)
{
	enum rc rc = RC_OK;

	*out = (struct resource_args){0};
	if (n < 1)
		return err_set(err, RC_INVALID,
			       "a resource type is needed, such as 'vm' or 'vmi/NAME'");
	for (int i = 0; i < n && !rc; i++) {
		char *slash = strchr(argv[i], '/');
		const char *name = slash ? slash + 1 : i ? argv[i] : NULL;

		if (slash || i == 0) {
			const struct api_kind *k = NULL;

			if (slash)
				*slash = '\0';
			rc = resource_find(argv[i], &k, err);
			if (!rc && out->kind && k != out->kind)
				rc = err_set(err, RC_INVALID, "one resource type at a time");
			if (rc)
				return rc;
			out->kind = k;
		}
		if (!name)
			continue;
		rc = check_name(name, err);
		if (!rc && out->n_names == ARRAY_SIZE(out->names))
			rc = err_set(err, RC_TOO_BIG, "more than %zu names",
				     ARRAY_SIZE(out->names));
		if (!rc)
			out->names[out->n_names++] = name;
	}
	return rc;
}

/* Manifests */

struct json *resource_with_type(const struct json *item, const char *api_version, const char *kind)
{
	if (!js_is_object(item) || js_get(item, "kind") || js_get(item, "apiVersion"))
		return js_ref(item);
	CLEANUP(js_unrefp)
	struct json *out = js_pack("{s:s, s:s}", "apiVersion", api_version, "kind", kind);

	JS_FOREACH(it, item)
		if (!out || js_set(out, it.key, js_ref(it.value)))
			return NULL;
	return STEAL(out);
}

static enum rc add_object(struct json *to, const struct json *obj, const char *path,
			  struct err *err);

/* Of a list of one kind ("PodList") the items may be without kind and apiVersion, as the server sends them. */
static enum rc add_items(struct json *to, const struct json *list, const char *path,
			 struct err *err)
{
	const char *kind = js_get_str(list, "kind");
	size_t n = strlen(kind) - strlen("List");
	CLEANUP(mem_freep) char *of = mem_strndup(kind, n);

	for (size_t i = 0; i < js_len(js_get(list, "items")); i++) {
		const struct json *item = js_item(js_get(list, "items"), i);
		CLEANUP(js_unrefp)
		struct json *o = !of ? NULL
				 : n ? resource_with_type(item, js_get_str(list, "apiVersion"), of)
				     : js_ref(item);

		if (!o)
			return err_set(err, RC_NOMEM, "out of memory");
		enum rc rc = add_object(to, o, path, err);

		if (rc)
			return rc;
	}
	return RC_OK;
}

static enum rc add_object(struct json *to, const struct json *obj, const char *path,
			  struct err *err)
{
	const char *kind = js_get_str(obj, "kind");

	if (!js_is_object(obj) || !kind || !js_get_str(obj, "apiVersion"))
		return err_set(err, RC_INVALID,
			       "'%s': Object 'Kind' is missing or there is no apiVersion", path);
	if (js_get(obj, "items") && str_has_suffix(kind, "List")) {
		return add_items(to, obj, path, err);
	}
	if (!js_str(js_at(obj, "metadata", "name", NULL)) &&
	    !js_str(js_at(obj, "metadata", "generateName", NULL)))
		return err_set(err, RC_INVALID, "'%s': a %s has no metadata.name", path, kind);
	return js_append(to, js_ref(obj)) ? err_set(err, RC_NOMEM, "out of memory") : RC_OK;
}

static enum rc read_stdin(char **out, size_t *n, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_FILE_BYTES);
	char chunk[65536];
	ssize_t k;

	while ((k = read(STDIN_FILENO, chunk, sizeof(chunk))) > 0)
		sbuf_add(&b, chunk, (size_t)k);
	if (k < 0)
		return err_set_sys(err, errno, "cannot read standard input");
	return sbuf_take(&b, out, n) ? err_set(err, RC_TOO_BIG, "standard input is too large")
				     : RC_OK;
}

static enum rc load_file(struct json *to, const char *path, struct err *err)
{
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *docs = NULL;
	size_t n = 0;
	enum rc rc = str_eq(path, "-") ? read_stdin(&text, &n, err)
				       : file_read(path, LIMIT_FILE_BYTES, &text, &n, err);

	if (rc)
		return rc;
	rc = yaml_parse(text, n, &docs, err);
	if (rc)
		return err ? err_prepend(err, "'%s'", path) : rc;
	for (size_t i = 0; i < js_len(docs) && !rc; i++)
		rc = add_object(to, js_item(docs, i), path, err);
	return rc;
}

static int is_manifest(const struct dirent *e)
{
	return str_has_suffix(e->d_name, ".yaml") || str_has_suffix(e->d_name, ".yml") ||
	       str_has_suffix(e->d_name, ".json");
}

enum rc resource_load(const char *path, struct json **out, struct err *err)
{
	CLEANUP(js_unrefp) struct json *all = js_new_array();
	struct dirent **names = NULL;
	struct stat st;
	enum rc rc = RC_OK;

	if (!all)
		return err_set(err, RC_NOMEM, "out of memory");
	if (str_eq(path, "-") || stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
		rc = load_file(all, path, err);
	} else {
		int n = scandir(path, &names, is_manifest, alphasort);

		if (n < 0)
			return err_set_sys(err, errno, "cannot list '%s'", path);
		for (int i = 0; i < n; i++) {
			CLEANUP(mem_freep) char *file = mem_printf("%s/%s", path, names[i]->d_name);

			if (!rc)
				rc = file ? load_file(all, file, err)
					  : err_set(err, RC_NOMEM, "out of memory");
			free(names[i]);
		}
		free(names);
	}
	if (!rc && js_len(all) == 0)
		rc = err_set(err, RC_INVALID, "no objects passed to apply: '%s' is empty", path);
	if (!rc)
		*out = STEAL(all);
	return rc;
}
