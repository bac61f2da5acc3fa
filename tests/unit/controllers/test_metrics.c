/* What a scrape of the controllers tells, in the course of a VM's life and of a move. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "cast.h"
#include "json/json.h"
#include "lib/promcheck.h"
#include "virt/controller/metrics.h"
#include "virt/controller/transitions.h"

static struct world w;
static char *text;

static int setup(void **state)
{
	(void)state;
	cast_settled(&w);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	text = mem_free(text);
	world_fini(&w);
	return 0;
}

static bool shows(const char *line)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(MIB);
	const struct view v = {.cache = w.cache, .now = w.now};
	size_t n;

	virt_metrics_print(&v, true, &b);
	mem_free(text);
	if (sbuf_take(&b, &text, &n))
		fail_msg("the metrics do not fit");
	return strstr(text, line) != NULL;
}

#define VMI "node=\"node-1\",namespace=\"t\",name=\"tiny\""

static void a_running_vm_shows_its_phase_and_pod(void **state)
{
	(void)state;
	assert_true(shows("# TYPE kubevirt_vmi_info gauge\n"));
	assert_true(shows("kubevirt_vmi_info{" VMI ",phase=\"running\","));
	assert_true(shows(",evictable=\"true\",outdated=\"false\",vmi_pod=\"virt-launcher-tiny-"));
	assert_true(shows("status=\"running\",status_group=\"running\"} 1\n"));
	assert_true(shows(
		"kubevirt_vmi_launcher_memory_overhead_bytes{namespace=\"t\",name=\"tiny\"} "));
	assert_true(
		shows("kubevirt_vm_create_date_timestamp_seconds{name=\"tiny\",namespace=\"t\"} "));
	assert_true(shows("kubevirt_virt_controller_ready_status 1\n"));
}

static void a_move_is_counted_where_it_stands(void **state)
{
	(void)state;
	assert_true(shows("kubevirt_vmi_migrations_in_running_phase 0\n"));
	world_add(&w, KVMIM,
		  "{'metadata':{'name':'m1','namespace':'t'},'spec':{'vmiName':'tiny'}}");
	assert_true(shows("kubevirt_vmi_migrations_in_unset_phase 1\n"));
	world_settle(&w);
	assert_true(shows("kubevirt_vmi_migrations_in_scheduling_phase 1\n"));
	cast_pod_runs(&w, cast_target(&w)->metadata.name);
	world_settle(&w);
	cast_target_listens(&w);
	world_settle(&w);
	cast_source_starts(&w);
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_true(shows("kubevirt_vmi_migrations_in_running_phase 1\n"));
	assert_false(shows("kubevirt_vmi_migration_succeeded{"));
	cast_move_completes(&w);
	world_pass(&w, 5 * USEC_PER_SEC);
	assert_true(shows("kubevirt_vmi_migrations_in_running_phase 0\n"));
	assert_true(shows("kubevirt_vmi_migration_succeeded{vmi=\"tiny\",vmim=\"m1\","
			  "namespace=\"t\"} 1\n"));
	assert_true(shows("kubevirt_vmi_migration_end_time_seconds{node=\"node-1\",namespace=\"t\","
			  "name=\"tiny\",migration_name=\"m1\",status=\"Succeeded\"} "));
	assert_false(shows("kubevirt_vmi_migration_failed{"));
	/* Another one that ends badly: every family has a sample then. */
	world_add(&w, KVMIM,
		  "{'metadata':{'name':'m2','namespace':'t'},'spec':{'vmiName':'tiny'},'status':"
		  "{'phase':'Failed'}}");
	world_add(&w, &api_kind_KubeVirt,
		  "{'metadata':{'name':'kubevirt','namespace':'kubevirt'},'spec':{},'status':"
		  "{'observedKubeVirtVersion':'v1.9.0'}}");
	world_add(&w, &api_kind_PersistentVolumeClaim,
		  "{'metadata':{'name':'data','namespace':'t'},'spec':{'resources':{'requests':"
		  "{'storage':'2Gi'}}}}");
	world_add(
		&w, KVM,
		"{'metadata':{'name':'l','namespace':'t','labels':{'a':'1'}},'spec':{'runStrategy':"
		"'Halted','template':{'spec':{'domain':{'devices':{},'resources':{'limits':{'cpu':"
		"'1'}}},'volumes':[{'name':'disk','persistentVolumeClaim':{'claimName':'data'}}]}}}}");
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'interfaces':[{'name':'default','ipAddress':'10.128.0.7'}]}}");
	assert_true(shows("kubevirt_vmi_migration_failed{vmi=\"tiny\",vmim=\"m2\","));
	assert_true(shows("kubevirt_info{kubeversion=\"v1.9.0\"} 1\n"));
	prom_golden("controller", text);
}

static void the_state_of_a_vm_has_its_time(void **state)
{
	(void)state;
	assert_true(shows("# TYPE kubevirt_vm_running_status_last_transition_timestamp_seconds "
			  "counter\nkubevirt_vm_running_status_last_transition_timestamp_seconds"
			  "{name=\"tiny\",namespace=\"t\"} 1"));
	assert_true(shows("kubevirt_vm_error_status_last_transition_timestamp_seconds"
			  "{name=\"tiny\",namespace=\"t\"} 0\n"));
}

static bool times_show(const struct virt_transitions *t, const char *line)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(MIB);

	virt_transitions_print(t, &b);
	prom_golden("transitions", sbuf_str(&b));
	return strstr(sbuf_str(&b), line) != NULL;
}

#define AT "T11:00:"

static void phases_are_timed_as_their_stamps_say(void **state)
{
	CLEANUP(virt_transitions_freep) struct virt_transitions *t = NULL;

	(void)state;
	assert_int_equal(virt_transitions_new(&t, w.cache, NULL), RC_OK);
	world_add(&w, KVMI,
		  "{'metadata':{'name':'v','namespace':'t','finalizers':['a.b/c'],"
		  "'creationTimestamp':'2026-01-01" AT
		  "00Z'},'spec':{'domain':{'devices':{}}},'status':{'phase':'Scheduled',"
		  "'phaseTransitionTimestamps':[{'phase':'Scheduled',"
		  "'phaseTransitionTimestamp':'2026-01-01" AT "04Z'}]}}");
	/* A change that is none of the phase counts nothing. */
	world_patch(&w, KVMI, NS, "v", "{'status':{'nodeName':'node-1'}}");
	world_patch(&w, KVMI, NS, "v",
		    "{'metadata':{'creationTimestamp':'2026-01-01" AT "00Z'},'status':{'phase':"
		    "'Running','phaseTransitionTimestamps':[{'phase':'Scheduled',"
		    "'phaseTransitionTimestamp':'2026-01-01" AT "04Z'},{'phase':'Running',"
		    "'phaseTransitionTimestamp':'2026-01-01" AT "07Z'}]}}");
	world_patch(&w, KVMI, NS, "v",
		    "{'metadata':{'deletionTimestamp':'2026-01-01" AT "20Z'},'status':{'phase':"
		    "'Failed','phaseTransitionTimestamps':[{'phase':'Running',"
		    "'phaseTransitionTimestamp':'2026-01-01" AT "07Z'},{'phase':'Failed',"
		    "'phaseTransitionTimestamp':'2026-01-01" AT "21Z'}]}}");
	world_add(&w, KVMIM,
		  "{'metadata':{'name':'m','namespace':'t','creationTimestamp':'2026-01-01" AT
		  "00Z'},'spec':{'vmiName':'v'}}");
	world_patch(&w, KVMIM, NS, "m",
		    "{'metadata':{'creationTimestamp':'2026-01-01" AT
		    "00Z'},'status':{'phase':'Pending','phaseTransitionTimestamps':[{'phase':"
		    "'Pending','phaseTransitionTimestamp':'2026-01-01" AT "01Z'}]}}");
	assert_true(times_show(t,
			       "kubevirt_vmi_phase_transition_time_seconds_sum{phase=\"Running\","
			       "last_phase=\"Scheduled\"} 3\n"));
	assert_true(times_show(t, "kubevirt_vmi_phase_transition_time_from_creation_seconds_sum"
				  "{phase=\"Running\"} 7\n"));
	assert_true(times_show(t, "kubevirt_vmi_phase_transition_time_from_deletion_seconds_sum"
				  "{phase=\"Failed\"} 1\n"));
	assert_true(times_show(t, "kubevirt_vmi_migration_phase_transition_time_from_creation_"
				  "seconds_count{phase=\"Pending\"} 1\n"));
	assert_false(times_show(t, "{phase=\"Scheduled\""));
}

static void what_cannot_move_is_told(void **state)
{
	(void)state;
	assert_true(shows("kubevirt_vmi_non_evictable{" VMI "} 0\n"));
	world_patch(&w, KVMI, NS, "tiny",
		    "{'spec':{'evictionStrategy':'LiveMigrate'},'status':{'conditions':[{'type':"
		    "'LiveMigratable','status':'False'}]}}");
	assert_true(shows("kubevirt_vmi_non_evictable{" VMI "} 1\n"));
}

#define VM  "{name=\"r\",namespace=\"t\","
#define REQ "kubevirt_vm_resource_requests" VM "resource="
#define LIM "kubevirt_vm_resource_limits" VM "resource="

/* What a VM "r" with this domain shows; lines end with NULL. */
static void shows_of(const char *domain, const char *const *lines, const char *const *not_these)
{
	CLEANUP(mem_freep)
	char *vm = mem_printf("{'metadata':{'name':'r','namespace':'t'},'spec':{'runStrategy':"
			      "'Halted','template':{'spec':{'domain':%s}}}}",
			      domain);

	world_add(&w, KVM, vm);
	for (; *lines; lines++)
		if (!shows(*lines))
			fail_msg("'%s' is missing in %s", *lines, text);
	for (; *not_these; not_these++)
		if (shows(*not_these))
			fail_msg("'%s' is there", *not_these);
}

static void a_topology_and_memory_of_the_guest_are_requests(void **state)
{
	(void)state;
	shows_of("{'devices':{},'cpu':{'cores':2,'threads':4},'memory':{'guest':'1Gi'}}",
		 (const char *const[]){
			 "# TYPE kubevirt_vm_resource_requests gauge\n",
			 REQ "\"cpu\",unit=\"cores\",source=\"domain\"} 2\n",
			 REQ "\"cpu\",unit=\"threads\",source=\"domain\"} 4\n",
			 REQ "\"cpu\",unit=\"cores\",source=\"guest_effective\"} 8\n",
			 REQ "\"memory\",unit=\"bytes\",source=\"guest\"} 1073741824\n",
			 REQ "\"memory\",unit=\"bytes\",source=\"guest_effective\"} 1073741824\n",
			 NULL},
		 (const char *const[]){REQ "\"cpu\",unit=\"sockets\"", "source=\"requests\"",
				       REQ "\"memory\",unit=\"bytes\",source=\"domain\"", LIM,
				       NULL});
}

static void requests_and_limits_are_told_as_they_are_written(void **state)
{
	(void)state;
	shows_of("{'devices':{},'resources':{'requests':{'cpu':'500m','memory':'64Mi'},'limits':"
		 "{'cpu':'1500m','memory':'128Mi'}}}",
		 (const char *const[]){REQ "\"cpu\",unit=\"cores\",source=\"requests\"} 0.500000\n",
				       REQ "\"cpu\",unit=\"cores\",source=\"guest_effective\"} 2\n",
				       REQ
				       "\"memory\",unit=\"bytes\",source=\"domain\"} 67108864\n",
				       LIM "\"cpu\",unit=\"cores\"} 1.500000\n",
				       LIM "\"memory\",unit=\"bytes\"} 134217728\n", NULL},
		 (const char *const[]){REQ "\"cpu\",unit=\"cores\",source=\"default\"",
				       REQ "\"memory\",unit=\"bytes\",source=\"guest\"}", NULL});
}

static void a_vm_that_says_nothing_gets_one_of_each(void **state)
{
	(void)state;
	shows_of("{'devices':{}}",
		 (const char *const[]){REQ "\"cpu\",unit=\"cores\",source=\"default\"} 1\n",
				       REQ "\"cpu\",unit=\"sockets\",source=\"default\"} 1\n",
				       REQ "\"cpu\",unit=\"threads\",source=\"default\"} 1\n",
				       REQ "\"cpu\",unit=\"cores\",source=\"guest_effective\"} 1\n",
				       NULL},
		 (const char *const[]){REQ "\"memory\"", "source=\"domain\",", NULL});
}

static void labels_are_chosen_by_the_installations_map(void **state)
{
	static const char all[] = "kubevirt_vm_labels{name=\"l\",namespace=\"t\",label_a_b_c=\"1\","
				  "label_tier=\"say \\\"hi\\\"\"} 1\n";

	(void)state;
	/* The second key becomes the first one's name. */
	world_add(&w, KVM,
		  "{'metadata':{'name':'l','namespace':'t','labels':{'a.b/c':'1','a-b-c':'2',"
		  "'tier':'say \\'hi\\''}},'spec':{'runStrategy':'Halted'}}");
	assert_true(shows(all));
	assert_false(shows("kubevirt_vm_labels{name=\"tiny\"")); /* it has none */
	world_add(&w, &api_kind_ConfigMap,
		  "{'metadata':{'name':'kubevirt-vm-labels-config','namespace':'kubevirt'},"
		  "'data':{'allowlist':' a.b/c , tier','ignorelist':'tier'}}");
	assert_true(shows("kubevirt_vm_labels{name=\"l\",namespace=\"t\",label_a_b_c=\"1\"} 1\n"));
	world_patch(&w, &api_kind_ConfigMap, "kubevirt", "kubevirt-vm-labels-config",
		    "{'data':{'allowlist':'','ignorelist':''}}");
	assert_false(shows("kubevirt_vm_labels{name=\"l\""));
	world_patch(&w, &api_kind_ConfigMap, "kubevirt", "kubevirt-vm-labels-config",
		    "{'data':{'allowlist':'x,*','ignorelist':'tie'}}");
	assert_true(shows(all));
}

static void nobodys_labels_make_the_answer_as_large_as_they_like(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(MIB);
	size_t n = 0;

	(void)state;
	sbuf_adds(&b, "{'metadata':{'name':'l','namespace':'t','labels':{");
	for (int i = 0; i < 5000; i++)
		sbuf_addf(&b, "%s'key-%d':'v'", i ? "," : "", i);
	sbuf_adds(&b, "}},'spec':{'runStrategy':'Halted'}}");
	world_add(&w, KVM, sbuf_str(&b));
	assert_true(shows("label_key_63=\"v\""));
	for (const char *p = text; (p = strstr(p, "label_key_")); p++)
		n++;
	assert_int_equal(n, 64);
	/* Nor long ones: what does not fit any more is left out, what comes after it may fit. */
	sbuf_reset(&b);
	sbuf_adds(&b, "{'metadata':{'name':'m','namespace':'t','labels':{");
	for (int i = 0; i < 40; i++)
		sbuf_addf(&b, "'%0200d/long-%d':'v',", 0, i);
	sbuf_adds(&b, "'short':'v'}},'spec':{'runStrategy':'Halted'}}");
	world_add(&w, KVM, sbuf_str(&b));
	assert_true(shows("label_short=\"v\"} 1\n"));
	assert_non_null(strstr(text, "long_17=\"v\""));
	assert_null(strstr(text, "long_20=\"v\""));
}

static void a_disk_has_the_size_of_its_claim(void **state)
{
	(void)state;
	world_add(&w, &api_kind_PersistentVolumeClaim,
		  "{'metadata':{'name':'data','namespace':'t'},'spec':{'volumeMode':'Filesystem',"
		  "'resources':{'requests':{'storage':'2Gi'}}}}");
	world_add(&w, KVM,
		  "{'metadata':{'name':'d','namespace':'t'},'spec':{'runStrategy':'Halted',"
		  "'template':{'spec':{'domain':{'devices':{}},'volumes':[{'name':'disk',"
		  "'persistentVolumeClaim':{'claimName':'data'}},{'name':'gone',"
		  "'persistentVolumeClaim':{'claimName':'missing'}}]}}}}");
	assert_true(
		shows("kubevirt_vm_disk_allocated_size_bytes{name=\"d\",namespace=\"t\","
		      "persistentvolumeclaim=\"data\",volume_mode=\"Filesystem\",device=\"disk\"}"
		      " 2147483648\n"));
	assert_false(shows("missing"));
}

#define NIC(kind) "kubevirt_" kind "_vnic_info{name=\"tiny\",namespace=\"t\",vnic_name=\"default\","
#define ADDRESS	  "kubevirt_vmi_status_addresses{" VMI ","

static void interfaces_and_addresses_are_told(void **state)
{
	static const char twice[] =
		ADDRESS "vnic_name=\"\",interface_name=\"docker0\",address=\"\","
			"type=\"SystemInterface\"} 1\n";

	(void)state;
	assert_true(shows(NIC("vm") "binding_type=\"core\",network=\"pod networking\","
				    "binding_name=\"masquerade\",model=\"<none>\"} 1\n"));
	assert_true(shows(NIC("vmi") "binding_type=\"core\",network=\"pod networking\","
				     "binding_name=\"masquerade\""));
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'interfaces':[{'name':'default','interfaceName':'eth0',"
		    "'ipAddress':'10.128.0.7'},{'interfaceName':'docker0'},{'interfaceName':"
		    "'docker0','mac':'02:00:00:00:00:09'},{'mac':'02:00:00:00:00:08'}]}}");
	assert_true(shows(ADDRESS "vnic_name=\"default\",interface_name=\"eth0\",address="
				  "\"10.128.0.7\",type=\"ExternalInterface\"} 1\n"));
	assert_true(shows(twice));
	assert_null(strstr(strstr(text, twice) + strlen(twice), "SystemInterface"));
}

static void an_instance_of_another_versions_launcher_is_counted(void **state)
{
	(void)state;
	assert_true(shows("# TYPE kubevirt_vmi_number_of_outdated gauge\n"
			  "kubevirt_vmi_number_of_outdated 0\n"));
	world_patch(
		&w, KPOD, NS, cast_source(&w)->metadata.name,
		"{'spec':{'containers':[{'name':'compute','image':'ferry.dev/launcher:0.0.9'}]}}");
	assert_true(shows("kubevirt_vmi_number_of_outdated 1\n"));
	assert_true(shows(",outdated=\"true\",vmi_pod=\"virt-launcher-tiny-"));
	/* One that ends counts no more. */
	world_patch(&w, KVMI, NS, "tiny", "{'status':{'phase':'Succeeded'}}");
	assert_true(shows("kubevirt_vmi_number_of_outdated 0\n"));
}

static void the_guests_system_is_told_when_its_agent_says_it(void **state)
{
	(void)state;
	assert_true(shows("guest_os_name=\"\""));
	world_patch(
		&w, KVMI, NS, "tiny",
		"{'status':{'guestOSInfo':{'name':'A \\'B\\'','kernelRelease':'6.1.0','machine':"
		"'x86_64','versionId':'12'},'machine':{'type':'pc-q35-10.0'}}}");
	assert_true(shows("guest_os_kernel_release=\"6.1.0\",guest_os_machine=\"pc-q35-10.0\","
			  "guest_os_arch=\"x86_64\",guest_os_name=\"A \\\"B\\\"\","
			  "guest_os_version_id=\"12\",evictable=\"true\""));
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_running_vm_shows_its_phase_and_pod, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_move_is_counted_where_it_stands, setup, teardown),
		cmocka_unit_test_setup_teardown(what_cannot_move_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(the_state_of_a_vm_has_its_time, setup, teardown),
		cmocka_unit_test_setup_teardown(phases_are_timed_as_their_stamps_say, setup,
						teardown),
		WITH(a_topology_and_memory_of_the_guest_are_requests),
		WITH(requests_and_limits_are_told_as_they_are_written),
		WITH(a_vm_that_says_nothing_gets_one_of_each),
		WITH(labels_are_chosen_by_the_installations_map),
		WITH(nobodys_labels_make_the_answer_as_large_as_they_like),
		WITH(a_disk_has_the_size_of_its_claim),
		WITH(interfaces_and_addresses_are_told),
		WITH(an_instance_of_another_versions_launcher_is_counted),
		WITH(the_guests_system_is_told_when_its_agent_says_it),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
