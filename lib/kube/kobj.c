#include "kube/kobj.h"

#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

/* Builds with a sanitizer keep a copy of the content and compare it when the last reference goes. */
#if defined(__SANITIZE_ADDRESS__)
#define KOBJ_GUARD 1
#else
#define KOBJ_GUARD 0
#endif

struct kobj {
	const struct api_kind *kind;
	const void *obj; /* packed: it is kept for long, and never changed */
	unsigned refs;
	uint64_t rv;
	void *guard; /* NULL: not guarded */
};

enum rc kobj_new(struct kobj **out, const struct api_kind *kind, void *obj)
{
	struct kobj *o = obj ? mem_alloc(sizeof(*o)) : NULL;
	const void *packed = o ? api_pack(kind->type, obj) : NULL;
	const ObjectMeta *m = packed; /* the first member of every kind */

	api_free(kind->type, obj);
	if (!packed) {
		mem_free(o);
		return RC_NOMEM;
	}
	o->kind = kind;
	o->obj = packed;
	o->refs = 1;
	if (m->resourceVersion && str_to_u64(m->resourceVersion, UINT64_MAX, &o->rv, NULL))
		o->rv = 0;
	if (KOBJ_GUARD) {
		o->guard = api_clone(kind->type, packed);
		if (!o->guard) {
			kobj_unref(o);
			return RC_NOMEM;
		}
	}
	*out = o;
	return RC_OK;
}

enum rc kobj_decode(struct kobj **out, const struct api_kind *kind, const struct json *j,
		    struct err *err)
{
	void *obj = NULL;
	enum rc rc = api_decode(kind->type, j, &obj, err);

	if (rc)
		return rc;
	/* The server's own book-keeping, larger than many an object; nobody here asks for it, and an update
	 * that leaves it out keeps it. */
	ObjectMeta *m = obj; /* the first member of every kind */

	m->managedFields = js_unref(m->managedFields);
	rc = kobj_new(out, kind, obj);
	return rc ? err_set(err, rc, "cannot allocate a %s", kind->kind) : RC_OK;
}

struct kobj *kobj_ref(const struct kobj *o)
{
	struct kobj *w = (struct kobj *)o;

	if (w)
		w->refs++;
	return w;
}

struct kobj *kobj_unref(const struct kobj *o)
{
	struct kobj *w = (struct kobj *)o;

	if (!w || --w->refs)
		return NULL;
	if (w->guard) {
		assert(api_equal(w->kind->type, w->guard,
				 w->obj)); /* else: written to while shared */
		api_free(w->kind->type, w->guard);
	}
	api_pack_free(w->kind->type, w->obj);
	return mem_free(w);
}

const struct api_kind *kobj_kind(const struct kobj *o)
{
	return o->kind;
}

const void *kobj_typed(const struct kobj *o)
{
	return o ? o->obj : NULL;
}

const struct ObjectMeta *kobj_meta(const struct kobj *o)
{
	return o ? o->obj : NULL;
}

static const char *text(const char *s)
{
	return s ? s : "";
}

const char *kobj_ns(const struct kobj *o)
{
	return text(kobj_meta(o)->namespace);
}

const char *kobj_name(const struct kobj *o)
{
	return text(kobj_meta(o)->name);
}

const char *kobj_uid(const struct kobj *o)
{
	return text(kobj_meta(o)->uid);
}

uint64_t kobj_rv(const struct kobj *o)
{
	return o->rv;
}

bool kobj_is_going(const struct kobj *o)
{
	return kobj_meta(o)->deletionTimestamp != NULL;
}
