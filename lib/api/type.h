/* lib/api/type.h - the descriptor tables that drive every API type.
 *
 * All tables are generated (tools/apigen, from api/schema) and constant: any thread may read them.
 * C shapes, by schema type:
 *   string, Quantity, Time, Duration, enum   char *x            NULL: absent
 *   bool                                     bool has_x, x
 *   integers                                 bool has_x; int64_t x
 *   float64                                  bool has_x; double x
 *   T                                        T *x (NULL: absent), or T x when marked inline
 *   []T, []string, []int                     uint32_t n_x; T *x / char **x / int64_t *x
 *   map[string]string                        struct api_map x
 *   other maps, IntOrString, any             struct json *x     NULL: absent; shared, never changed
 * A struct's members stand by size: counts and flags come last.
 */
#ifndef API_TYPE_H
#define API_TYPE_H

#include "base/err.h"

struct json;
struct api_kind;
struct api_type;

enum api_base { API_STRING, API_BOOL, API_INT, API_REAL, API_STRUCT, API_MAP, API_JSON };

/* What text (or a JSON value) must look like beyond its type. */
enum api_format {
	API_FMT_NONE,
	API_FMT_QUANTITY,
	API_FMT_TIME,	       /* RFC 3339, with or without a fraction */
	API_FMT_DURATION,      /* Go's: "5m0s" */
	API_FMT_INT_OR_STRING, /* API_JSON */
	API_FMT_OBJECT,	       /* API_JSON: any object */
	API_FMT_ANY,	       /* API_JSON */
	API_FMT_DNS_LABEL,
	API_FMT_DNS_SUBDOMAIN,
	API_FMT_DNS1035_LABEL,
	API_FMT_QUALIFIED, /* prefix/name, as label keys */
	API_FMT_LABEL_VALUE,
	API_FMT_BASE64,
	API_FMT_UUID,
	API_FMT_MAC,
	API_FMT_IP,
	API_FMT_CIDR,
	API_FMT_PATH_SEGMENT, /* any text that can stand between two slashes of a URL: names of roles */
	API_FMT__MAX
};

/* What Ferry does with a field that a user sets. */
enum api_support {
	API_WORKS,
	API_REJECTED, /* refused with the field's path */
	API_NOOP,     /* accepted with a warning that says why it has no effect here */
};

enum api_list { API_LIST_ATOMIC, API_LIST_SET, API_LIST_MAP };
enum api_merge { API_MERGE_DEFAULT, API_MERGE_MERGE, API_MERGE_REPLACE, API_MERGE_RETAIN_KEYS };

struct api_rule {
	const char *why; /* API_NOOP: the reason in the warning; API_REJECTED: NULL is "not yet" */
	const char *const *values;    /* enum, NULL-terminated; NULL: any */
	const char *default_;	      /* text of the default, JSON; NULL: none */
	const char *merge_key;	      /* strategic merge: key of a list of objects */
	const char *const *list_keys; /* API_LIST_MAP, NULL-terminated */
	int64_t min, max;	      /* API_INT; for quantities: of the value */
	uint32_t max_items, max_len;  /* 0: no limit of its own */
	uint32_t min_items, min_len;
	uint8_t support; /* enum api_support */
	uint8_t format;	 /* enum api_format; of map values too */
	uint8_t list;	 /* enum api_list */
	uint8_t merge;	 /* enum api_merge */
	bool has_min, has_max;
	bool is_soft;	   /* values are documented only: an admission rule words the refusal */
	bool is_immutable; /* may not change once set */
	bool is_integral;  /* quantity must be a whole number */
	bool is_resources; /* map of a ResourceList: keys are checked, memory-like values are whole */
};

struct api_field {
	const char *name;	     /* JSON key */
	const struct api_type *type; /* API_STRUCT; API_JSON maps of structs: of the values */
	const struct api_rule *rule; /* never NULL */
	uint32_t offset;	     /* of x */
	uint32_t aux;		     /* of has_x or n_x */
	uint8_t base;		     /* enum api_base */
	uint8_t value_base;	     /* maps kept as JSON: enum api_base of the values */
	bool is_list;
	bool is_inline; /* API_STRUCT by value */
	bool is_required;
	bool is_json_map; /* API_JSON: map[string]<value_base> */
};

struct api_type {
	const char *name;		/* C name: "PodVolume" */
	const char *openapi;		/* definition name: "io.k8s.api.core.v1.Volume" */
	const struct api_field *fields; /* in the order of encoding */
	const uint16_t *by_name;	/* indices into fields, sorted by name */
	const struct api_kind *kind;	/* NULL unless a top-level kind */
	uint32_t n_fields;
	uint32_t size;
};

enum { API_SUB_STATUS = 1, API_SUB_SCALE = 2 };

struct api_column {
	const char *name;   /* "Age" */
	const char *type;   /* "string", "integer", "date", "boolean" */
	const char *format; /* "name" for the name column, else "" */
	const char *path;   /* JSON path; NULL when fn is set */
	const char *fn;	    /* name of a computed column (lib/api/table.h); NULL when path is set */
	const char *doc;
	int priority; /* 0: always, 1: wide only */
};

struct api_kind {
	const char *group; /* "" for core */
	const char *version;
	const char *kind;
	const char *api_version; /* "kubevirt.io/v1", "v1" */
	const char *plural;
	const char *singular;
	const char *list_kind;
	const char *const *short_names; /* NULL-terminated, never NULL */
	const char *const *categories;	/* NULL-terminated, never NULL */
	const struct api_type *type;
	const struct api_column *columns; /* without Name */
	size_t n_columns;
	const char *doc;
	/* The kind under its own version; NULL: this is it.  With another type: the same objects with other
	 * names of fields (events.k8s.io). */
	const struct api_kind *alias_of;
	const char *refused;  /* why none can be made; NULL: they can */
	uint8_t subresources; /* API_SUB_* */
	uint8_t name_format;  /* enum api_format of metadata.name */
	bool is_namespaced;
	bool keeps_generation;	  /* metadata.generation counts changes of spec */
	bool has_strategic_patch; /* false: like a custom resource, strategic merge is 415 */
	bool has_defaults;	  /* schema defaults are written into stored objects */
	bool is_deprecated;	  /* this version of it goes away */
	bool is_create_only;	  /* the body of a request: nothing of it is stored */
};

enum api_scope { API_SCOPE_OBJECT, API_SCOPE_NAMESPACE, API_SCOPE_CLUSTER };

/* A call on an object, in a namespace or on the cluster that is neither an object nor its status or scale, as the
 * schema tells it: what routes it, discovery and OpenAPI all have it from there. */
struct api_subresource {
	const char *group;	     /* of the address; "" for core */
	const char *const *versions; /* of the address; NULL-terminated */
	enum api_scope scope;
	const char *resource; /* "virtualmachines"; "" unless API_SCOPE_OBJECT */
	const char *path;     /* "start", "evacuate/cancel", "expand-vm-spec" */
	const char *method;   /* "PUT", "GET", "POST" */
	/* The kind that it takes and gives, as Kubernetes' own do; "": discovery tells none. */
	const char *kind, *kind_group, *kind_version;
	bool takes_rest; /* more may follow: "portforward/22/tcp" */
	bool is_hidden;	 /* discovery leaves it out, as KubeVirt's does */
	bool is_public;	 /* needs no right */
};

/* All of the schema, in its order; each is api_sub_<method>_<resource>_<path> besides.  NULL-terminated. */
extern const struct api_subresource *const api_subresources[];

/* All kinds, sorted by group (core first), version, kind; NULL-terminated. */
extern const struct api_kind *const api_kinds[];
/* The same, and each again for every further version that it is served under (alias_of), in the order
 * of discovery: by group, the newest version first, then by kind. */
extern const struct api_kind *const api_served[];

/* NULL when unknown.  What is found under a further version has alias_of set. */
const struct api_kind *api_kind_find(const char *group, const char *version, const char *kind);
const struct api_kind *api_kind_by_plural(const char *group, const char *version,
					  const char *plural);
/* Whether it is at addresses of this version, too. */
bool api_subresource_is_in(const struct api_subresource *s, const char *version);
/* api_version: "v1" or "group/version". */
const struct api_kind *api_kind_of(const char *api_version, const char *kind);
const struct api_kind *api_kind_of_json(const struct json *obj);
const struct api_field *api_field_find(const struct api_type *t, const char *name);
/* The field at a dotted path ("spec.domain.cpu"), through lists and pointers; NULL when unknown. */
const struct api_field *api_field_at(const struct api_type *t, const char *path);

#endif
