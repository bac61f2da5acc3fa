/* src/cli/resource.h - from what people type ("vmi", "pods/x", a manifest) to kinds and paths.
 *
 * No state.
 */
#ifndef CLI_RESOURCE_H
#define CLI_RESOURCE_H

#include "api/api.h"
#include "base/sbuf.h"
#include "cli/client.h"

/* By plural, singular, short name or kind, any letter case, also "plural.group".
 * RC_NOT_FOUND in kubectl's words, with near names. */
MUST_CHECK enum rc resource_find(const char *word, const struct api_kind **out, struct err *err);
/* "/apis/group/version/namespaces/ns/plural/name"; ns is left out for cluster-scoped kinds; NULL ns of a
 * namespaced kind: all namespaces.  NULL when out of memory; owned by the caller. */
char *resource_path(const struct api_kind *k, const char *ns, const char *name);
/* "virtualmachine.kubevirt.io/x", as kubectl -o name prints. */
char *resource_title(const struct api_kind *k, const char *name);

/* Arguments "TYPE NAME...", "TYPE/NAME..." or "TYPE": one type. Names are borrowed from argv. */
struct resource_args {
	const struct api_kind *kind;
	const char *names[64];
	size_t n_names;
};
MUST_CHECK enum rc resource_parse_args(struct resource_args *out, int n, char **argv,
				       struct err *err);

/* Items of lists of Kubernetes' kinds come without kind and apiVersion: the item with both, or as it is where it has
 * them.  A new reference; NULL: out of memory. */
struct json *resource_with_type(const struct json *item, const char *api_version, const char *kind);

/* All objects of files (a list is taken apart, "-" is standard input, a folder gives its *.yaml, *.yml
 * and *.json).  A JSON array of objects with apiVersion, kind and metadata.name. */
MUST_CHECK enum rc resource_load(const char *path, struct json **out, struct err *err);

#endif
