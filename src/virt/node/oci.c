#include "virt/node/oci.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "virt/node/imgref.h"

#define REF_NAME       "org.opencontainers.image.ref.name"
#define BLOB_BYTES_MAX ((int64_t)1 << 44)

static enum rc read_descriptor(const struct json *j, struct oci_descriptor *out, struct err *err)
{
	const char *digest = js_get_str(j, "digest");
	const char *type = js_get_str(j, "mediaType");
	int64_t size = js_get_int(j, "size", -1);

	if (!imgref_is_digest(digest))
		return err_set(err, RC_INVALID,
			       "the image has a descriptor without a sha256 digest");
	if (size < 0 || size > BLOB_BYTES_MAX)
		return err_set(err, RC_INVALID,
			       "the image has a descriptor without a sensible size");
	(void)snprintf(out->digest, sizeof(out->digest), "%s", digest);
	out->bytes = (uint64_t)size;
	out->is_index = type && (strstr(type, "image.index") || strstr(type, "manifest.list"));
	return RC_OK;
}

static bool is_platform(const struct json *j)
{
	const struct json *p = js_get(j, "platform");

	if (!p)
		return true;
	return str_eq(js_get_str(p, "os"), "linux") &&
	       str_eq(js_get_str(p, "architecture"), "amd64");
}

static bool is_match(const struct json *j, const char *tag, const char *digest)
{
	if (digest)
		return str_eq(js_get_str(j, "digest"), digest);
	if (tag)
		return str_eq(js_get_str(js_get(j, "annotations"), REF_NAME), tag);
	return is_platform(j);
}

static enum rc not_found(const struct json *list, const char *tag, const char *digest,
			 struct err *err)
{
	char names[200] = "";

	for (size_t i = 0; i < js_len(list); i++) {
		const char *name = js_get_str(js_get(js_item(list, i), "annotations"), REF_NAME);
		size_t n = strlen(names);

		if (name && n + strlen(name) + 4 < sizeof(names))
			(void)snprintf(names + n, sizeof(names) - n, "%s'%s'", n ? ", " : "", name);
	}
	if (tag || digest)
		return err_set(err, RC_NOT_FOUND, "the image layout has no '%s'%s%s",
			       digest ? digest : tag, *names ? ", it has " : "", names);
	return err_set(err, RC_NOT_FOUND, "the image layout has no image for linux/amd64");
}

enum rc oci_choose(const struct json *index, const char *tag, const char *digest,
		   struct oci_descriptor *out, struct err *err)
{
	const struct json *list = js_get(index, "manifests");
	const struct json *found = NULL;

	if (!js_is_array(list))
		return err_set(err, RC_INVALID, "the image layout has no list of manifests");
	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *j = js_item(list, i);

		if (!is_match(j, tag, digest))
			continue;
		if (found && !digest && !is_platform(j))
			continue;
		if (found && !tag && !digest)
			return err_set(err, RC_INVALID,
				       "the image layout has several images: name one with a tag");
		found = j;
	}
	return found ? read_descriptor(found, out, err) : not_found(list, tag, digest, err);
}

enum rc oci_manifest_read(const struct json *manifest, struct oci_manifest *out, struct err *err)
{
	const struct json *layers = js_get(manifest, "layers");

	if (!js_is_array(layers) || !js_len(layers))
		return err_set(err, RC_INVALID, "the image manifest has no layers");
	if (js_len(layers) > OCI_LAYERS_MAX)
		return err_set(err, RC_TOO_BIG, "the image has more than %d layers",
			       OCI_LAYERS_MAX);
	out->n_layers = js_len(layers);
	for (size_t i = 0; i < out->n_layers; i++) {
		enum rc rc = read_descriptor(js_item(layers, i), &out->layers[i], err);

		if (rc)
			return rc;
	}
	return RC_OK;
}

void oci_blob_path(const char *digest, char out[96])
{
	(void)snprintf(out, 96, "blobs/sha256/%s", digest + strlen("sha256:"));
}
