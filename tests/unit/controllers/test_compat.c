/* Which nodes can take over what a running guest has, in which words, and what the VMI says of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "lib/jsontext.h"
#include "virt/migration/arrivals.h"
#include "virt/migration/compat.h"
#include "virt/migration/migratable.h"

#define GUEST                                                                                  \
	"{'apiVersion':'kubevirt.io/v1','kind':'VirtualMachineInstance','metadata':{'name':"   \
	"'a','namespace':'t'},'spec':{'domain':{'devices':{}}},'status':{'nodeName':'node-1'," \
	"'machine':{'type':'pc-q35-10.0'},'ferry':{'qemuVersion':'10.0.2','cpuModel':"         \
	"'Nehalem,+avx2','cpu':{'model':'Nehalem','features':['avx2','sse4.2']}}}}"

static VirtualMachineInstance *guest(const char *text)
{
	struct json *j = json_of(text);
	VirtualMachineInstance *vmi = NULL;

	assert_int_equal(VirtualMachineInstance_decode(j, &vmi, NULL), RC_OK);
	js_unref(j);
	return vmi;
}

static const char *const all_labels[] = {
	"machine-type.node.kubevirt.io/pc-q35-10.0", "cpu-feature.node.kubevirt.io/avx2",
	"cpu-feature.node.kubevirt.io/sse4.2", "cpu-model-migration.node.kubevirt.io/Nehalem"};

/* A node that has all of it, but for one label (NULL: nothing is missing). */
static Node *node(const char *name, const char *version, const char *without)
{
	Node *n = Node_new();

	assert_int_equal(api_set_str(&n->metadata.name, name), RC_OK);
	for (size_t i = 0; i < ARRAY_SIZE(all_labels); i++)
		if (!str_eq(all_labels[i], without))
			assert_int_equal(api_map_set(&n->metadata.labels, all_labels[i], "true"),
					 RC_OK);
	if (version)
		assert_int_equal(
			api_map_set(&n->metadata.labels, "ferry.dev/qemu-version", version), RC_OK);
	return n;
}

static void check(const char *version, const char *without, const char *reason, const char *message)
{
	VirtualMachineInstance *vmi = guest(GUEST);
	Node *n = node("node-2", version, without);
	struct compat c;

	compat_check(vmi, n, &c);
	if (!reason) {
		assert_null(c.reason);
	} else {
		assert_non_null(c.reason);
		assert_string_equal(c.reason, reason);
		assert_string_equal(c.message, message);
	}
	Node_free(n);
	VirtualMachineInstance_free(vmi);
}

static void each_rule_refuses_in_its_own_words(void **state)
{
	(void)state;
	check("10.0.2", NULL, NULL, NULL);
	check("10.0.0", NULL, NULL, NULL); /* the same level */
	check("10.1.0", NULL, NULL, NULL);
	check("9.2.1", NULL, COMPAT_QEMU, "has QEMU 9.2.1, older than the guest's 10.0.2");
	check(NULL, NULL, COMPAT_QEMU, "does not tell which QEMU it has; the guest's is 10.0.2");
	check("10.0.2", all_labels[0], COMPAT_MACHINE,
	      "has a QEMU without the machine type pc-q35-10.0");
	check("10.0.2", all_labels[1], COMPAT_FEATURES,
	      "lacks the CPU feature avx2, which the guest has");
	check("10.0.2", all_labels[3], COMPAT_MODEL, "cannot give the CPU model Nehalem");
}

static void a_guest_that_has_everything_needs_no_named_model(void **state)
{
	VirtualMachineInstance *vmi = guest(GUEST);
	Node *n = node("node-2", "10.0.2", all_labels[3]);
	struct compat c;

	(void)state;
	assert_int_equal(api_set_str(&vmi->status.ferry->cpuModel, "max,-aes"), RC_OK);
	compat_check(vmi, n, &c);
	assert_null(c.reason);
	assert_int_equal(api_set_str(&vmi->status.ferry->cpuModel, "max9"), RC_OK);
	compat_check(vmi, n, &c);
	assert_string_equal(c.reason, COMPAT_MODEL);
	Node_free(n);
	VirtualMachineInstance_free(vmi);
}

static void what_is_not_known_is_not_asked_for(void **state)
{
	VirtualMachineInstance *vmi = guest("{'apiVersion':'kubevirt.io/v1','kind':"
					    "'VirtualMachineInstance','metadata':{'name':'a'},"
					    "'spec':{'domain':{'devices':{}}}}");
	Node *n = Node_new();
	struct compat c;

	(void)state;
	assert_int_equal(api_set_str(&n->metadata.name, "node-2"), RC_OK);
	compat_check(vmi, n, &c);
	assert_null(c.reason);
	Node_free(n);
	VirtualMachineInstance_free(vmi);
}

static void of_many_missing_features_the_first_are_named(void **state)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(1024);

	(void)state;
	compat_print_names(names, ARRAY_SIZE(names), &b);
	assert_string_equal(sbuf_str(&b), "a, b, c, d, e, f, g, h and 2 more");
}

static void levels_are_compared_not_texts(void **state)
{
	(void)state;
	assert_int_equal(compat_qemu_level("10.0.2"), 1000);
	assert_true(compat_qemu_level("10.0.2") > compat_qemu_level("9.2.1"));
	assert_int_equal(compat_qemu_level(NULL), 0);
	assert_int_equal(compat_qemu_level("ten"), 0);
	assert_int_equal(compat_qemu_level("-1.5"), 0);
	assert_int_equal(compat_qemu_level("10.100"), 0);
}

/* --- conditions --- */

static VirtualMachineInstance *judged(const struct compat_summary *s)
{
	VirtualMachineInstance *vmi = guest(GUEST);
	const struct migratable_in in = {
		.vmi = vmi, .node_name = "node-1", .has_host_model = true, .nodes = s};

	assert_int_equal(migratable_apply(&in, vmi, USEC_PER_SEC), RC_OK);
	return vmi;
}

static void assert_cond(const VirtualMachineInstance *vmi, const char *type, const char *status,
			const char *reason, const char *message)
{
	struct api_cond c;

	assert_true(API_COND_GET(&vmi->status, VirtualMachineInstanceCondition, type, &c));
	assert_string_equal(c.status, status);
	assert_true(str_eq(c.reason, reason));
	assert_true(str_eq(c.message, message));
}

static const struct compat_move nothing;

static struct compat_summary summary_of(Node *const *nodes, size_t n)
{
	VirtualMachineInstance *vmi = guest(GUEST);
	struct compat_summary s = {0};

	for (size_t i = 1; i < n; i++) /* the first is the guest's own */
		compat_add(&s, &nothing, vmi, nodes[i]);
	VirtualMachineInstance_free(vmi);
	return s;
}

static void the_vmi_sums_up_where_it_could_go(void **state)
{
	Node *nodes[] = {node("node-1", "10.0.2", NULL), node("node-2", "9.2.1", NULL),
			 node("node-3", "10.0.2", all_labels[1])};
	struct compat_summary s = summary_of(nodes, 1);
	VirtualMachineInstance *vmi = judged(&s);

	(void)state;
	/* Alone, it counts as migratable, as in KubeVirt. */
	assert_cond(vmi, "LiveMigratable", "True", NULL, NULL);
	assert_cond(vmi, "MigrationTargets", "False", "OnlyOneNode", "there is no other node");
	VirtualMachineInstance_free(vmi);
	s = summary_of(nodes, 3);
	vmi = judged(&s);
#define BOTH                                                                          \
	"node-2 has QEMU 9.2.1, older than the guest's 10.0.2; node-3 lacks the CPU " \
	"feature avx2, which the guest has"
	assert_cond(vmi, "LiveMigratable", "False", "NodesNotLiveMigratable",
		    "no other node can take the guest: " BOTH);
	assert_cond(vmi, "MigrationTargets", "False", "NoNodeFits",
		    "0 of 2 other nodes can take the guest: " BOTH);
	VirtualMachineInstance_free(vmi);
	assert_int_equal(
		api_map_set(&nodes[1]->metadata.labels, "ferry.dev/qemu-version", "10.1.0"), RC_OK);
	s = summary_of(nodes, 3);
	vmi = judged(&s);
	assert_cond(vmi, "LiveMigratable", "True", NULL, NULL);
	assert_cond(vmi, "MigrationTargets", "True", "NodesFit",
		    "1 of 2 other nodes can take the guest: node-3 lacks the CPU feature avx2, "
		    "which the guest has");
	VirtualMachineInstance_free(vmi);
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		Node_free(nodes[i]);
}

/* kubevirt/kubevirt#5565: held at its node by name, a VM has no other; the move is refused in the same words. */
static void a_selector_that_only_its_own_node_meets_makes_it_immovable(void **state)
{
	Node *nodes[] = {node("node-1", "10.0.2", NULL), node("node-2", "10.0.2", NULL)};
	VirtualMachineInstance *vmi = guest(GUEST);
	struct compat_summary s = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		assert_int_equal(api_map_set(&nodes[i]->metadata.labels, "kubernetes.io/hostname",
					     nodes[i]->metadata.name),
				 RC_OK);
	assert_int_equal(api_map_set(&vmi->spec.nodeSelector, "kubernetes.io/hostname", "node-1"),
			 RC_OK);
	compat_add(&s, &nothing, vmi, nodes[1]);
	VirtualMachineInstance *told = judged(&s);

	assert_cond(told, "LiveMigratable", "False", "NodesNotLiveMigratable",
		    "no other node can take the guest: node-2 needs label "
		    "kubernetes.io/hostname=node-1, the node has 'node-2'");
	VirtualMachineInstance_free(told);
	/* One that others meet as well holds nothing. */
	s = (struct compat_summary){0};
	assert_int_equal(api_map_set(&nodes[1]->metadata.labels, "disk", "ssd"), RC_OK);
	assert_int_equal(api_map_set(&vmi->spec.nodeSelector, "disk", "ssd"), RC_OK);
	(void)api_map_del(&vmi->spec.nodeSelector, "kubernetes.io/hostname");
	compat_add(&s, &nothing, vmi, nodes[1]);
	told = judged(&s);
	assert_cond(told, "LiveMigratable", "True", NULL, NULL);
	VirtualMachineInstance_free(told);
	VirtualMachineInstance_free(vmi);
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		Node_free(nodes[i]);
}

/* ---- what a move needs ---- */

#define UID    "11111111-0000-4000-8000-000000000001"
#define ANSWER "arrivals.ferry.dev/" UID
#define LOOKS  "arrivals.ferry.dev/looks"

static void set_ready(Node *n, const char *status)
{
	assert_int_equal(API_COND_SET(&n->status, NodeCondition, USEC_PER_SEC, .type = "Ready",
				      .status = status),
			 RC_OK);
}

static void a_node_says_what_its_place_for_the_disks_is(void **state)
{
	static const struct {
		const char *answer; /* NULL: none */
		bool may_pass;
		const char *message; /* NULL: it can take them */
	} t[] = {
		{"yes", false, NULL},
		{"no: it is full", false, "has no place for the disks that go along: it is full"},
		{"later: wait", true, "has no place yet for the disks that go along: wait"},
		{NULL, true, "has not told yet whether it has a place for the disks that go along"},
		{"nobody knows what this is", false,
		 NULL}, /* a newer agent's word: its own look decides */
	};
	VirtualMachineInstance *vmi = guest(GUEST);
	Node *n = node("node-2", "10.0.2", NULL);
	struct compat_move move = compat_move_of(NULL, NULL, true);
	struct compat c;

	(void)state;
	assert_int_equal(api_set_str(&vmi->metadata.uid, UID), RC_OK);
	/* one that does not look says nothing, and nothing is expected of it */
	set_ready(n, "True");
	compat_check_move(&move, vmi, n, &c);
	assert_null(c.reason);
	assert_int_equal(arrivals_note_looks(&n->metadata.annotations), RC_OK);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		(void)api_map_del(&n->metadata.annotations, ANSWER);
		if (t[i].answer)
			assert_int_equal(api_map_set(&n->metadata.annotations, ANSWER, t[i].answer),
					 RC_OK);
		compat_check_move(&move, vmi, n, &c);
		assert_true(str_eq(c.reason, t[i].message ? COMPAT_DISKS : NULL));
		if (!t[i].message)
			continue;
		assert_string_equal(c.message, t[i].message);
		assert_int_equal(c.may_pass, t[i].may_pass);
	}
	/* what it said before it went silent is not known to hold */
	set_ready(n, "Unknown");
	compat_check_move(&move, vmi, n, &c);
	assert_true(c.may_pass);
	assert_string_equal(c.message,
			    "is not ready, so that it is not known whether it has a place "
			    "for the disks that go along");
	/* of a VM whose disks stay, or are seen everywhere, nothing is asked */
	move.brings_disks = false;
	compat_check_move(&move, vmi, n, &c);
	assert_null(c.reason);
	Node_free(n);
	VirtualMachineInstance_free(vmi);
}

static void answers_are_written_as_they_are_read(void **state)
{
	Node *a = node("node-2", NULL, NULL), *b = node("node-2", NULL, NULL);
	struct api_map *facts = &a->metadata.annotations;

	(void)state;
	assert_int_equal(arrivals_note(facts, "u1", ARRIVAL_YES, ""), RC_OK);
	assert_int_equal(arrivals_note(facts, "u2", ARRIVAL_NO, "it is full"), RC_OK);
	assert_int_equal(arrivals_note(facts, "u3", ARRIVAL_LATER, "wait"), RC_OK);
	assert_string_equal(api_map_get(facts, "arrivals.ferry.dev/u1"), "yes");
	assert_string_equal(api_map_get(facts, "arrivals.ferry.dev/u2"), "no: it is full");
	assert_string_equal(api_map_get(facts, "arrivals.ferry.dev/u3"), "later: wait");
	assert_false(arrivals_equal(a, b) || arrivals_equal(b, a));
	assert_int_equal(api_map_copy(&b->metadata.annotations, facts), RC_OK);
	assert_int_equal(api_map_set(&b->metadata.annotations, "kubevirt.io/heartbeat", "now"),
			 RC_OK);
	assert_true(arrivals_equal(a, b) && arrivals_equal(b, a));
	assert_int_equal(arrivals_note(facts, "u1", ARRIVAL_NO, "it is full"), RC_OK);
	assert_false(arrivals_equal(a, b));
	Node_free(a);
	Node_free(b);
}

/* Unlike CPU or QEMU, an administrator can change it while the guest runs: the VM stays movable. */
static void a_missing_address_or_place_leaves_the_vm_migratable(void **state)
{
	Node *nodes[] = {node("node-1", "10.0.2", NULL), node("node-2", "10.0.2", NULL),
			 node("node-3", "10.0.2", NULL)};
	const char *label = "migration-network.ferry.dev/fast";
	VirtualMachineInstance *vmi = guest(GUEST);
	struct compat_summary s = {0};

	(void)state;
	assert_int_equal(api_set_str(&vmi->metadata.uid, UID), RC_OK);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(api_map_set(&nodes[i]->metadata.labels, label, "10.9.0.1"), RC_OK);
	set_ready(nodes[1], "True");
	assert_int_equal(arrivals_note_looks(&nodes[1]->metadata.annotations), RC_OK);
	assert_int_equal(api_map_set(&nodes[1]->metadata.annotations, ANSWER, "no: it is full"),
			 RC_OK);
	struct compat_move move = compat_move_of(label, nodes[0], true);

	for (size_t i = 1; i < ARRAY_SIZE(nodes); i++)
		compat_add(&s, &move, vmi, nodes[i]);
	VirtualMachineInstance *told = judged(&s);

	assert_cond(told, "LiveMigratable", "True", NULL, NULL);
	assert_cond(told, "MigrationTargets", "False", "NoNodeFits",
		    "0 of 2 other nodes can take the guest: node-2 has no place for the disks that "
		    "go along: it is full; node-3 has no address in the migration network 'fast'");
	VirtualMachineInstance_free(told);
	s = (struct compat_summary){0};
	move = compat_move_of(label, nodes[2], false);
	compat_add(&s, &move, vmi, nodes[1]);
	assert_string_equal(s.text,
			    "node-2 cannot be reached: the node that the guest runs on has no "
			    "address in the migration network 'fast'");
	VirtualMachineInstance_free(vmi);
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		Node_free(nodes[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_rule_refuses_in_its_own_words),
		cmocka_unit_test(a_guest_that_has_everything_needs_no_named_model),
		cmocka_unit_test(what_is_not_known_is_not_asked_for),
		cmocka_unit_test(of_many_missing_features_the_first_are_named),
		cmocka_unit_test(levels_are_compared_not_texts),
		cmocka_unit_test(the_vmi_sums_up_where_it_could_go),
		cmocka_unit_test(a_selector_that_only_its_own_node_meets_makes_it_immovable),
		cmocka_unit_test(a_node_says_what_its_place_for_the_disks_is),
		cmocka_unit_test(answers_are_written_as_they_are_read),
		cmocka_unit_test(a_missing_address_or_place_leaves_the_vm_migratable),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
