/* lib/api/pack.c - a typed object in one block, for those that are kept and never changed.
 *
 * A decoded object is a block for each string: of a VMI with its status some 450, most of them shorter than what the
 * allocator adds.  Here the structs and lists stand first, in the order of a walk, then each different text once.  The
 * walk is made twice: without a block, to know its size, and with it.  Texts that other objects have, too (labels, reasons,
 * uids of owners), are the pool's: a pointer out of the block.
 */
#include <string.h>

#include "api/api.h"
#include "api/api_int.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/textpool.h"
#include "json/json.h"

struct packed {
	size_t size; /* of what follows */
	char root[];
};

struct text {
	const char *s; /* NULL: free slot */
	const char *
		shared; /* the pool's, with a reference of the packer's; NULL: it stands in the block */
	size_t n;	/* with its NUL */
	size_t at;	/* in the part of the texts */
};

struct packer {
	char *block; /* the root; NULL: what is needed is counted */
	size_t at;   /* of the next struct or list */
	size_t structs;
	struct text *texts; /* open addressing; a power of two of slots */
	size_t n_texts, n_slots, text_bytes;
	enum rc rc;
};

static void pack_fields(struct packer *p, const struct api_type *t, void *dst, const void *src);

static struct text *slot_of(const struct packer *p, const char *s, size_t n)
{
	size_t i = str_hash(s, n) & (p->n_slots - 1);

	while (p->texts[i].s &&
	       (p->texts[i].n != n || (p->texts[i].s != s && memcmp(p->texts[i].s, s, n) != 0)))
		i = (i + 1) & (p->n_slots - 1);
	return &p->texts[i];
}

static bool make_room(struct packer *p)
{
	struct packer wider = {.n_slots = p->n_slots ? p->n_slots * 2 : 128};

	if (p->n_texts * 2 < p->n_slots)
		return true;
	wider.texts = mem_calloc(wider.n_slots, sizeof(*wider.texts));
	if (!wider.texts)
		return false;
	for (size_t i = 0; i < p->n_slots; i++)
		if (p->texts[i].s)
			*slot_of(&wider, p->texts[i].s, p->texts[i].n) = p->texts[i];
	mem_free(p->texts);
	p->texts = wider.texts;
	p->n_slots = wider.n_slots;
	return true;
}

static void pack_text(struct packer *p, char **dst, const char *s)
{
	size_t n = s ? strlen(s) + 1 : 0;
	struct text *t;

	if (!s || p->rc)
		return;
	if (dst) {
		t = slot_of(p, s, n);
		*dst = t->shared ? textpool_ref(t->shared) : p->block + p->structs + t->at;
		return;
	}
	if (!make_room(p)) {
		p->rc = RC_NOMEM;
		return;
	}
	t = slot_of(p, s, n);
	if (t->s)
		return;
	*t = (struct text){.s = s, .n = n, .at = p->text_bytes};
	p->n_texts++;
	p->rc = textpool_share(s, &t->shared);
	if (!t->shared)
		p->text_bytes += n;
}

/* A copy of these bytes, whose pointers are still the original's; NULL while it is counted. */
static void *place(struct packer *p, const void *src, size_t size)
{
	char *to = p->block ? p->block + p->at : NULL;

	p->at += (size + 7) & ~(size_t)7; /* as the strictest member of a generated struct */
	return to ? memcpy(to, src, size) : NULL;
}

static void pack_map(struct packer *p, struct api_map *dst, const struct api_map *src)
{
	struct api_map_item *items = src->n ? place(p, src->items, src->n * sizeof(*items)) : NULL;

	for (size_t i = 0; i < src->n; i++) {
		pack_text(p, items ? &items[i].key : NULL, src->items[i].key);
		pack_text(p, items ? &items[i].value : NULL, src->items[i].value);
	}
	if (dst)
		dst->items = items;
}

static void pack_list(struct packer *p, const struct api_field *f, void *dst, const void *src)
{
	size_t n = *api_count_const(src, f), size = api_item_size(f);
	const char *from = *(char *const *)api_at_const(src, f->offset);
	char *to = n ? place(p, from, n * size) : NULL;

	for (size_t i = 0; i < n; i++) {
		char *item = to ? to + i * size : NULL;

		if (f->base == API_STRUCT)
			pack_fields(p, f->type, item, from + i * size);
		else if (f->base == API_STRING)
			pack_text(p, (char **)(void *)item, ((char *const *)(const void *)from)[i]);
	}
	if (dst)
		*(char **)api_at(dst, f->offset) = to;
}

static void pack_struct(struct packer *p, const struct api_field *f, void *at, const void *from)
{
	const void *src = *(void *const *)from;
	void *to = src ? place(p, src, f->type->size) : NULL;

	if (src)
		pack_fields(p, f->type, to, src);
	if (at)
		*(void **)at = to;
}

/* dst has src's bytes already, or is NULL. */
static void pack_fields(struct packer *p, const struct api_type *t, void *dst, const void *src)
{
	for (uint32_t i = 0; i < t->n_fields && !p->rc; i++) {
		const struct api_field *f = &t->fields[i];
		void *at = dst ? api_at(dst, f->offset) : NULL;
		const void *from = api_at_const(src, f->offset);

		if (f->base == API_JSON) {
			if (at)
				js_ref(*(struct json **)at);
			continue;
		}
		if (f->base == API_MAP)
			pack_map(p, at, from);
		else if (f->is_list)
			pack_list(p, f, dst, src);
		else if (f->base == API_STRING)
			pack_text(p, at, *(char *const *)from);
		else if (f->base == API_STRUCT && f->is_inline)
			pack_fields(p, f->type, at, from);
		else if (f->base == API_STRUCT)
			pack_struct(p, f, at, from);
	}
}

/* The second walk, into p->block. */
static void fill(struct packer *p, const struct api_type *t, const void *obj)
{
	p->at = 0;
	pack_fields(p, t, place(p, obj, t->size), obj);
	for (size_t i = 0; i < p->n_slots; i++) {
		const struct text *x = &p->texts[i];

		if (x->s && !x->shared)
			memcpy(p->block + p->structs + x->at, x->s, x->n);
	}
}

const void *api_pack(const struct api_type *t, const void *obj)
{
	struct packer p = {0};
	struct packed *out;

	place(&p, obj, t->size);
	pack_fields(&p, t, NULL, obj);
	p.structs = p.at;
	out = p.rc ? NULL : mem_alloc(sizeof(*out) + p.structs + p.text_bytes);
	if (out) {
		out->size = p.structs + p.text_bytes;
		p.block = out->root;
		fill(&p, t, obj);
	}
	for (size_t i = 0; i < p.n_slots; i++)
		if (p.texts[i].shared)
			textpool_unref(p.texts[i].shared);
	mem_free(p.texts);
	return p.block;
}

static const struct packed *packed_of(const void *root)
{
	return (const struct packed *)(const void *)((const char *)root -
						     offsetof(struct packed, root));
}

static void drop_text(const struct packed *p, const char *s)
{
	if (s && (s < p->root || s >= p->root + p->size))
		textpool_unref(s);
}

static void drop_map(const struct packed *p, const struct api_map *m)
{
	for (size_t i = 0; i < m->n; i++) {
		drop_text(p, m->items[i].key);
		drop_text(p, m->items[i].value);
	}
}

/* Only what stands outside of the block has references to give back. */
static void drop_fields(const struct packed *p, const struct api_type *t, const void *obj)
{
	for (uint32_t i = 0; i < t->n_fields; i++) {
		const struct api_field *f = &t->fields[i];
		const void *at = api_at_const(obj, f->offset);
		const char *items;
		size_t n;

		if (f->base == API_JSON) {
			js_unref(*(struct json *const *)at);
			continue;
		}
		if (f->base == API_MAP) {
			drop_map(p, at);
			continue;
		}
		if (f->base == API_STRUCT && f->is_inline && !f->is_list) {
			drop_fields(p, f->type, at);
			continue;
		}
		if (f->base != API_STRING && f->base != API_STRUCT)
			continue;
		items = *(const char *const *)at;
		n = f->is_list ? *api_count_const(obj, f) : items != NULL;
		if (f->base == API_STRING && !f->is_list)
			drop_text(p, items);
		for (size_t k = 0; k < n && f->base == API_STRUCT; k++)
			drop_fields(p, f->type, items + k * f->type->size);
		for (size_t k = 0; k < n && f->base == API_STRING && f->is_list; k++)
			drop_text(p, ((char *const *)(const void *)items)[k]);
	}
}

void *api_pack_free(const struct api_type *t, const void *packed)
{
	if (!packed)
		return NULL;
	drop_fields(packed_of(packed), t, packed);
	return mem_free((void *)packed_of(packed));
}
