/* lib/api/labels.h - label selectors and field selectors.
 *
 * A parsed selector is immutable; owner's thread only.
 */
#ifndef API_LABELS_H
#define API_LABELS_H

#include "api/gen/api_types.h"
#include "api/map.h"
#include "base/err.h"
#include "base/sbuf.h"

struct api_selector;

/* "a=b,c!=d,e in (x,y),f notin (z),g,!h,i>3,j<4"; NULL or "" selects everything. */
MUST_CHECK enum rc api_selector_parse(const char *text, struct api_selector **out, struct err *err);
/* matchLabels and matchExpressions; NULL selects nothing, empty selects everything. */
MUST_CHECK enum rc api_selector_from(const LabelSelector *s, struct api_selector **out,
				     struct err *err);
/* Equality only (Service.spec.selector, nodeSelector); an empty map selects everything. */
MUST_CHECK enum rc api_selector_from_map(const struct api_map *m, struct api_selector **out);
/* Node selector terms have Gt and Lt too; fields are not looked at here. */
MUST_CHECK enum rc api_selector_from_node_exprs(const NodeSelectorRequirement *reqs, size_t n,
						struct api_selector **out, struct err *err);
struct api_selector *api_selector_free(struct api_selector *s); /* NULL is fine; returns NULL */
DEFINE_CLEANUP(struct api_selector *, api_selector_free);

bool api_selector_matches(const struct api_selector *s, const struct api_map *labels);
/* labels: a JSON object of strings, or NULL. */
bool api_selector_matches_json(const struct api_selector *s, const struct json *labels);
bool api_selector_is_everything(const struct api_selector *s);
/* Canonical text (what "-l" would take), appended. */
void api_selector_print(const struct api_selector *s, struct sbuf *out);
/* The value that key must equal; NULL when the selector does not fix it.  For indexes. */
const char *api_selector_required(const struct api_selector *s, const char *key);

/* Field selectors: "metadata.name=a,spec.nodeName!=b" over scalar JSON paths. */
struct api_fields;

MUST_CHECK enum rc api_fields_parse(const char *text, struct api_fields **out, struct err *err);
struct api_fields *api_fields_free(struct api_fields *f); /* NULL is fine; returns NULL */
DEFINE_CLEANUP(struct api_fields *, api_fields_free);
/* RC_BAD_REQUEST for a path that k does not select on ("field label not supported: x").  Every kind
 * has metadata.name and metadata.namespace; Pods, Events, Nodes and Secrets have Kubernetes' own;
 * other kinds take none. */
MUST_CHECK enum rc api_fields_check(const struct api_fields *f, const struct api_kind *k,
				    struct err *err);
/* Gives each path the name that stands beside it in map, which ends with {NULL}; RC_BAD_REQUEST, in the same
 * words, for one that is not there. */
MUST_CHECK enum rc api_fields_map(struct api_fields *f, const char *const map[][2],
				  struct err *err);
bool api_fields_matches(const struct api_fields *f, const struct json *obj);
const char *api_fields_required(const struct api_fields *f, const char *path);

#endif
