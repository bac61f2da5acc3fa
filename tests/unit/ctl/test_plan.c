#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "ctl/plan.h"
#include "json/json.h"
#include "lib/torture.h"

static VirtualMachineInstance *vmi_of(const char *json)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	void *out = NULL;

	if (js_parse(json, strlen(json), &j, NULL))
		return NULL;
	if (api_decode(&api_type_VirtualMachineInstance, j, &out, NULL))
		return NULL;
	return out;
}

#define VMI_TEXT                                                                                 \
	"{\"metadata\":{\"name\":\"v\",\"namespace\":\"ns\",\"uid\":\"u1\",\"resourceVersion\":" \
	"\"7\","                                                                                 \
	"\"labels\":{\"a\":\"1\",\"b\":\"2\"}},\"spec\":{\"domain\":{\"devices\":{}}},"          \
	"\"status\":{\"phase\":\"Running\",\"nodeName\":\"n1\"}}"

static void expect(const struct plan *p, const char *text)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);

	plan_print(p, &b);
	assert_string_equal(sbuf_str(&b), text);
}

static void an_update_is_the_difference_with_preconditions(void **state)
{
	VirtualMachineInstance *old = vmi_of(VMI_TEXT), *new = vmi_of(VMI_TEXT);
	CLEANUP(plan_fini) struct plan p;

	(void)state;
	plan_init(&p);
	api_map_del(&new->metadata.labels, "a");
	assert_int_equal(api_map_set(&new->metadata.labels, "b", "3"), RC_OK);
	assert_int_equal(plan_update(&p, &api_kind_VirtualMachineInstance, old, new, NULL), RC_OK);
	expect(&p, "patch VirtualMachineInstance ns/v "
		   "{\"metadata\":{\"labels\":{\"a\":null,\"b\":\"3\"},"
		   "\"uid\":\"u1\",\"resourceVersion\":\"7\"}}\n");
	VirtualMachineInstance_free(old);
}

static void no_difference_is_no_operation(void **state)
{
	VirtualMachineInstance *old = vmi_of(VMI_TEXT);
	CLEANUP(plan_fini) struct plan p;

	(void)state;
	plan_init(&p);
	assert_int_equal(
		plan_update(&p, &api_kind_VirtualMachineInstance, old, vmi_of(VMI_TEXT), NULL),
		RC_OK);
	assert_int_equal(
		plan_update(&p, &api_kind_VirtualMachineInstance, old, vmi_of(VMI_TEXT), "status"),
		RC_OK);
	assert_true(plan_is_empty(&p));
	VirtualMachineInstance_free(old);
}

/* VirtualMachine has a status subresource: the two halves are written apart. */
static void status_and_the_rest_are_written_apart(void **state)
{
	static const char text[] =
		"{\"metadata\":{\"name\":\"v\",\"namespace\":\"ns\",\"resourceVersion\":\"7\"}}";
	CLEANUP(js_unrefp) struct json *j = NULL;
	void *old = NULL, *a = NULL, *b = NULL;
	CLEANUP(plan_fini) struct plan p;

	(void)state;
	plan_init(&p);
	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	assert_int_equal(api_decode(&api_type_VirtualMachine, j, &old, NULL), RC_OK);
	assert_true(api_kind_VirtualMachine.subresources & API_SUB_STATUS);
	a = api_clone(&api_type_VirtualMachine, old);
	assert_int_equal(api_set_str(&((VirtualMachine *)a)->status.printableStatus, "Running"),
			 RC_OK);
	assert_int_equal(api_map_set(&((VirtualMachine *)a)->metadata.labels, "x", "y"), RC_OK);
	b = api_clone(&api_type_VirtualMachine, a);
	assert_int_equal(plan_update(&p, &api_kind_VirtualMachine, old, a, "status"), RC_OK);
	assert_int_equal(plan_update(&p, &api_kind_VirtualMachine, old, b, NULL), RC_OK);
	expect(&p,
	       "patch VirtualMachine ns/v (status) {\"status\":{\"printableStatus\":\"Running\"},"
	       "\"metadata\":{\"resourceVersion\":\"7\"}}\n"
	       "patch VirtualMachine ns/v "
	       "{\"metadata\":{\"labels\":{\"x\":\"y\"},\"resourceVersion\":\"7\"}}\n");
	api_free(&api_type_VirtualMachine, old);
}

static void every_operation_prints_as_one_line(void **state)
{
	VirtualMachineInstance *v = vmi_of(VMI_TEXT);
	CLEANUP(plan_fini) struct plan p;
	Pod *pod = Pod_new();

	(void)state;
	plan_init(&p);
	assert_int_equal(api_set_str(&pod->metadata.name, "p"), RC_OK);
	assert_int_equal(api_set_str(&pod->metadata.namespace, "ns"), RC_OK);
	plan_create(&p, &api_kind_Pod, pod);
	plan_delete(&p, &api_kind_Pod, "ns", "q", "uq", 0, "Background");
	plan_bind(&p, "ns", "r", "ur", "n1");
	plan_event(&p, &api_kind_VirtualMachineInstance, v, "Warning", "Odd", "%d odd things", 3);
	plan_requeue_after(&p, 5 * USEC_PER_SEC);
	plan_requeue_after(&p, 2 * USEC_PER_SEC);
	plan_requeue_after(&p, 9 * USEC_PER_SEC);
	expect(&p,
	       "create Pod ns/p "
	       "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\",\"namespace\":"
	       "\"ns\"},\"spec\":{}}\n"
	       "delete Pod ns/q grace=0 propagation=Background\n"
	       "bind Pod ns/r node=n1\n"
	       "event VirtualMachineInstance ns/v Warning Odd: 3 odd things\n"
	       "requeue after 2000 ms\n");
	VirtualMachineInstance_free(v);
}

static void the_callers_bugs_are_refused(void **state)
{
	CLEANUP(plan_fini) struct plan p;

	(void)state;
	plan_init(&p);
	assert_int_equal(plan_create(&p, &api_kind_Pod, Pod_new()), RC_INVALID);
	assert_int_equal(plan_requeue_after(&p, 1), RC_INVALID); /* sticky */
	assert_int_equal(plan_create(&p, &api_kind_Pod, NULL), RC_INVALID);
	plan_reset(&p);
	assert_int_equal(plan_create(&p, &api_kind_Pod, NULL), RC_NOMEM);
	plan_reset(&p);
	assert_int_equal(plan_delete(&p, &api_kind_Pod, "ns", "", NULL, -1, NULL), RC_INVALID);
	plan_reset(&p);
	assert_int_equal(plan_bind(&p, "ns", "p", NULL, ""), RC_INVALID);
}

static enum rc plan_once(void)
{
	VirtualMachineInstance *old = vmi_of(VMI_TEXT), *new = NULL;
	CLEANUP(plan_fini) struct plan p;
	enum rc rc = RC_NOMEM;

	plan_init(&p);
	if (old)
		new = VirtualMachineInstance_clone(old);
	if (new && !api_set_str(&new->status.phase, "Succeeded")) {
		Pod *pod = Pod_new();

		rc = plan_update(&p, &api_kind_VirtualMachineInstance, old, STEAL(new), NULL);
		if (pod && (api_set_str(&pod->metadata.name, "p") ||
			    api_set_str(&pod->metadata.namespace, "n")))
			pod = Pod_free(pod);
		plan_create(&p, &api_kind_Pod, pod);
		plan_delete(&p, &api_kind_Pod, "ns", "q", "uq", 0, "Background");
		plan_bind(&p, "ns", "r", "ur", "n1");
		rc = plan_event(&p, &api_kind_VirtualMachineInstance, old, "Normal", "R", "m");
	}
	VirtualMachineInstance_free(new);
	VirtualMachineInstance_free(old);
	return rc;
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	torture(plan_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_update_is_the_difference_with_preconditions),
		cmocka_unit_test(no_difference_is_no_operation),
		cmocka_unit_test(status_and_the_rest_are_written_apart),
		cmocka_unit_test(every_operation_prints_as_one_line),
		cmocka_unit_test(the_callers_bugs_are_refused),
		cmocka_unit_test(every_allocation_may_fail),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
