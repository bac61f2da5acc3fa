#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "lib/torture.h"

static const char vm_text[] =
	"{\"apiVersion\":\"kubevirt.io/v1\",\"kind\":\"VirtualMachine\","
	"\"metadata\":{\"name\":\"a\",\"namespace\":\"default\",\"labels\":{\"x\":\"y\"},"
	"\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"p\",\"uid\":\"u\"}]},"
	"\"spec\":{\"runStrategy\":\"Always\",\"template\":{\"metadata\":{\"labels\":{\"k\":\"v\"}},"
	"\"spec\":{\"domain\":{\"resources\":{\"requests\":{\"memory\":\"1Gi\"}},"
	"\"cpu\":{\"cores\":2},\"devices\":{\"disks\":[{\"name\":\"root\","
	"\"bootOrder\":1,\"disk\":{\"bus\":\"virtio\"}},{\"name\":\"seed\",\"cdrom\":{}}],"
	"\"interfaces\":[{\"name\":\"default\",\"masquerade\":{}}]}},"
	"\"terminationGracePeriodSeconds\":0,"
	"\"volumes\":[{\"name\":\"root\",\"persistentVolumeClaim\":{\"claimName\":\"c\"}}],"
	"\"networks\":[{\"name\":\"default\",\"pod\":{}}]}}},"
	"\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}";

static struct json *parse(const char *text)
{
	struct json *j = NULL;

	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	return j;
}

static void a_vm_comes_back_as_it_went_in(void **state)
{
	CLEANUP(js_unrefp) struct json *j = parse(vm_text);
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = NULL;
	struct err err = {0};

	assert_int_equal(VirtualMachine_decode(j, &vm, &err), RC_OK);
	assert_string_equal(vm->metadata.name, "a");
	assert_string_equal(vm->spec.template->spec.domain.devices.disks[1].name, "seed");
	assert_non_null(vm->spec.template->spec.networks[0].pod);
	assert_true(vm->spec.template->spec.has_terminationGracePeriodSeconds);

	CLEANUP(js_unrefp) struct json *back = VirtualMachine_encode(vm);
	CLEANUP(mem_freep) char *text = js_to_text(back);

	assert_string_equal(text, vm_text);
}

static void a_clone_is_equal_until_it_is_changed(void **state)
{
	CLEANUP(js_unrefp) struct json *j = parse(vm_text);
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = NULL;

	assert_int_equal(VirtualMachine_decode(j, &vm, NULL), RC_OK);
	CLEANUP(VirtualMachine_freep) VirtualMachine *copy = VirtualMachine_clone(vm);

	assert_true(VirtualMachine_equal(vm, copy));
	copy->spec.template->spec.domain.cpu->cores = 3;
	assert_false(VirtualMachine_equal(vm, copy));
}

static void a_wrong_type_is_refused_with_its_path(void **state)
{
	CLEANUP(js_unrefp)
	struct json *j = parse("{\"spec\":{\"template\":{\"spec\":{\"volumes\":[{\"name\":1}]}}}}");
	VirtualMachine *vm = NULL;
	struct err err = {0};

	assert_int_equal(VirtualMachine_decode(j, &vm, &err), RC_INVALID);
	assert_null(vm);
	assert_string_equal(err.msg,
			    "spec.template.spec.volumes[0].name must be a string, not integer");
}

static const struct json *parsed; /* jansson's parser itself is not safe when memory runs out */

static enum rc round_trip(void)
{
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = NULL, *copy = NULL;
	enum rc rc = VirtualMachine_decode(parsed, &vm, NULL);

	if (rc)
		return rc;
	copy = VirtualMachine_clone(vm);
	if (!copy)
		return RC_NOMEM;
	CLEANUP(js_unrefp) struct json *back = VirtualMachine_encode(copy);

	return back ? RC_OK : RC_NOMEM;
}

static void running_out_of_memory_anywhere_leaks_nothing(void **state)
{
	CLEANUP(js_unrefp) struct json *j = parse(vm_text);

	parsed = j;
	torture(round_trip);
}

/* Something in every field, down to a depth, until there is a lot. */
static void fill(const struct api_type *t, char *obj, unsigned depth, unsigned *n)
{
	if (*n > 300)
		depth = 0;
	for (uint32_t i = 0; i < t->n_fields; i++) {
		const struct api_field *f = &t->fields[i];
		void *at = obj + f->offset;
		uint32_t *count = (void *)(obj + f->aux);
		bool *has = (void *)(obj + f->aux);

		if (f->base == API_JSON) {
			*(struct json **)at = js_pack("{s:i}", "n", (int)(*n)++);
		} else if (f->base == API_MAP) {
			assert_int_equal(api_map_setf(at, "key", "value %u", (*n)++ % 7), RC_OK);
			assert_int_equal(api_map_set(at, "other", ""), RC_OK);
		} else if (f->is_list && f->base == API_STRING) {
			assert_int_equal(api_append_str(at, count, "one"), RC_OK);
			assert_int_equal(api_append_str(at, count, "two"), RC_OK);
		} else if (f->is_list && f->base == API_STRUCT && depth) {
			for (int k = 0; k < 2; k++)
				fill(f->type, api_append(at, count, f->type->size), depth - 1, n);
		} else if (f->is_list && f->base == API_INT) {
			*(int64_t *)api_append(at, count, sizeof(int64_t)) = (*n)++;
		} else if (f->is_list) {
			continue;
		} else if (f->base == API_STRING) {
			assert_int_equal(api_set_strf(at, "text %u", (*n)++ % 50), RC_OK);
		} else if (f->base == API_STRUCT && f->is_inline) {
			fill(f->type, at, depth, n);
		} else if (f->base == API_STRUCT && depth) {
			fill(f->type, api_ensure(f->type, at), depth - 1, n);
		} else if (f->base == API_INT) {
			*has = true;
			*(int64_t *)at = (*n)++;
		} else if (f->base == API_BOOL) {
			*has = *(bool *)at = true;
		} else if (f->base == API_REAL) {
			*has = true;
			*(double *)at = 0.5;
		}
	}
}

static void a_packed_object_is_the_same(void **state)
{
	for (size_t i = 0; api_kinds[i]; i++) {
		const struct api_type *t = api_kinds[i]->type;
		size_t before = mem_live_blocks();
		void *obj = api_new(t);
		unsigned n = 0;

		fill(t, obj, 6, &n);
		CLEANUP(js_unrefp) struct json *want = api_encode(t, obj);
		CLEANUP(mem_freep) char *want_text = js_to_text(want);
		const void *packed = api_pack(t, obj);

		assert_true(api_equal(t, obj, packed));
		api_free(t, obj); /* nothing of it is needed */

		CLEANUP(js_unrefp) struct json *got = api_encode(t, packed);
		CLEANUP(mem_freep) char *got_text = js_to_text(got);

		assert_string_equal(got_text, want_text);
		void *clone = api_clone(t, packed);

		assert_true(api_equal(t, clone, packed));
		assert_null(api_pack_free(t, packed));
		api_free(t, clone);
		got = js_unref(got);
		want = js_unref(want);
		want_text = mem_free(want_text);
		got_text = mem_free(got_text);
		assert_int_equal(mem_live_blocks(), before);
	}
	assert_null(api_pack_free(api_kinds[0]->type, NULL));
}

static void equal_texts_are_kept_once(void **state)
{
	CLEANUP(js_unrefp) struct json *j = parse(vm_text);
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = NULL;

	assert_int_equal(VirtualMachine_decode(j, &vm, NULL), RC_OK);
	const VirtualMachine *p = api_pack(&api_type_VirtualMachine, vm);
	const VirtualMachineInstanceSpec *spec = &p->spec.template->spec;

	assert_ptr_equal(spec->networks[0].name, spec->domain.devices.interfaces[0].name);
	assert_ptr_equal(spec->volumes[0].name, spec->domain.devices.disks[0].name);
	assert_ptr_not_equal(spec->volumes[0].name, spec->networks[0].name);
	api_pack_free(&api_type_VirtualMachine, p);
}

/* Of the same object again and again: the first has a block of its own, the second shows what comes more than once, the
 * third and fourth share it. */
static void objects_share_their_texts(void **state)
{
	size_t before = mem_live_blocks();
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = VirtualMachine_new();
	const VirtualMachine *p[4];

	assert_int_equal(api_set_str(&vm->metadata.name, "shared-texts-1"), RC_OK);
	assert_int_equal(api_map_set(&vm->metadata.labels, "shared-texts-2", "shared-texts-3"),
			 RC_OK);
	assert_int_equal(api_append_str(&vm->metadata.finalizers, &vm->metadata.n_finalizers,
					"shared-texts-4"),
			 RC_OK);
	size_t between = mem_live_blocks();

	for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = api_pack(&api_type_VirtualMachine, vm);
		assert_true(api_equal(&api_type_VirtualMachine, vm, p[i]));
		if (i == 0)
			assert_int_equal(mem_live_blocks(), between + 1);
	}
	assert_ptr_not_equal(p[0]->metadata.name, p[1]->metadata.name);
	for (size_t i = 2; i < ARRAY_SIZE(p); i++) {
		assert_ptr_equal(p[i]->metadata.name, p[1]->metadata.name);
		assert_ptr_equal(p[i]->metadata.labels.items[0].key,
				 p[1]->metadata.labels.items[0].key);
		assert_ptr_equal(p[i]->metadata.labels.items[0].value,
				 p[1]->metadata.labels.items[0].value);
		assert_ptr_equal(p[i]->metadata.finalizers[0], p[1]->metadata.finalizers[0]);
	}
	api_pack_free(&api_type_VirtualMachine, p[1]); /* the others' stay */
	assert_string_equal(p[2]->metadata.finalizers[0], "shared-texts-4");
	api_pack_free(&api_type_VirtualMachine, p[0]);
	api_pack_free(&api_type_VirtualMachine, p[3]);
	assert_true(api_equal(&api_type_VirtualMachine, vm, p[2]));
	api_pack_free(&api_type_VirtualMachine, p[2]);
	vm = VirtualMachine_free(vm);
	assert_int_equal(mem_live_blocks(), before);
}

static enum rc pack_parsed(void)
{
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = NULL;
	enum rc rc = VirtualMachine_decode(parsed, &vm, NULL);
	const void *packed = rc ? NULL : api_pack(&api_type_VirtualMachine, vm);

	if (!rc && !packed)
		rc = RC_NOMEM;
	api_pack_free(&api_type_VirtualMachine, packed);
	return rc;
}

static void packing_without_memory_leaks_nothing(void **state)
{
	CLEANUP(js_unrefp) struct json *j = parse(vm_text);

	parsed = j;
	torture(pack_parsed);
}

static void the_tables_are_consistent(void **state)
{
	for (size_t i = 0; api_kinds[i]; i++) {
		const struct api_kind *k = api_kinds[i];

		assert_ptr_equal(api_kind_find(k->group, k->version, k->kind), k);
		assert_ptr_equal(api_kind_by_plural(k->group, k->version, k->plural), k);
		assert_ptr_equal(k->type->kind, k);
		assert_string_equal(k->type->fields[0].name, "metadata");
		assert_int_equal(k->type->fields[0].offset, 0);
		for (uint32_t f = 0; f < k->type->n_fields; f++)
			assert_ptr_equal(api_field_find(k->type, k->type->fields[f].name),
					 &k->type->fields[f]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_vm_comes_back_as_it_went_in),
		cmocka_unit_test(a_clone_is_equal_until_it_is_changed),
		cmocka_unit_test(a_wrong_type_is_refused_with_its_path),
		cmocka_unit_test(running_out_of_memory_anywhere_leaks_nothing),
		cmocka_unit_test(a_packed_object_is_the_same),
		cmocka_unit_test(equal_texts_are_kept_once),
		cmocka_unit_test(objects_share_their_texts),
		cmocka_unit_test(packing_without_memory_leaks_nothing),
		cmocka_unit_test(the_tables_are_consistent),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("api_codec", tests, NULL, NULL);
}
