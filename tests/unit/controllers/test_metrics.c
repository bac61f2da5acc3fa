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
	assert_true(shows("kubevirt_vmi_info{" VMI ",phase=\"running\",evictable=\"true\",vmi_pod="
			  "\"virt-launcher-tiny-"));
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_running_vm_shows_its_phase_and_pod, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_move_is_counted_where_it_stands, setup, teardown),
		cmocka_unit_test_setup_teardown(what_cannot_move_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(the_state_of_a_vm_has_its_time, setup, teardown),
		cmocka_unit_test_setup_teardown(phases_are_timed_as_their_stamps_say, setup,
						teardown),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
