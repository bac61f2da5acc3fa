/* What a guest's drivers have taken of its devices, against what another QEMU offers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "json/json.h"
#include "virt/node/migration_int.h"

static struct json *device(const char *path, const char *offered, const char *negotiated)
{
	return js_pack("{s:s, s:s, s:[s, s], s:[s, s]}", "name", "virtio-net", "path", path,
		       "offered", "V1", offered, "negotiated", "V1", negotiated);
}

static void what_the_target_does_not_offer_is_named(void **state)
{
	struct json *theirs =
		js_pack("[o, o]", device("/a", "USO", "USO"), device("/b", "TSO", "TSO"));
	struct json *ours = js_pack("[o, o]", device("/b", "TSO", "V1"), device("/a", "TSO", "V1"));
	struct json *same = js_pack("[o, o]", device("/b", "TSO", "V1"), device("/a", "USO", "V1"));
	char why[400];

	(void)state;
	assert_true(mig_devices_lack(ours, theirs, "node-2", why, sizeof(why)));
	assert_string_equal(why, "QEMU on node node-2 does not offer USO, which the guest uses of "
				 "its virtio-net (/a)");
	assert_false(mig_devices_lack(same, theirs, "node-2", why, sizeof(why)));
	js_unref(theirs);
	js_unref(ours);
	js_unref(same);
}

static void a_device_that_is_not_there_offers_nothing(void **state)
{
	struct json *theirs = js_pack("[o]", device("/a", "USO", "USO"));
	struct json *none = js_new_array();
	char why[400];

	(void)state;
	assert_true(mig_devices_lack(none, theirs, "node-2", why, sizeof(why)));
	assert_non_null(strstr(why, "V1, USO"));
	js_unref(theirs);
	js_unref(none);
}

static void what_is_not_known_is_no_objection(void **state)
{
	struct json *theirs = js_pack("[o]", device("/a", "USO", "USO"));
	char why[400];

	(void)state;
	assert_false(mig_devices_lack(NULL, theirs, "node-2", why, sizeof(why)));
	assert_false(mig_devices_lack(theirs, NULL, "node-2", why, sizeof(why)));
	js_unref(theirs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_target_does_not_offer_is_named),
		cmocka_unit_test(a_device_that_is_not_there_offers_nothing),
		cmocka_unit_test(what_is_not_known_is_no_objection),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
