/* What a scrape tells of a node's VMs: only what was there before somebody asked, in Prometheus' format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "api/map.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "json/json.h"
#include "lib/promcheck.h"
#include "lib/torture.h"
#include "virt/node/vmmetrics.h"

#define STAT                                                                         \
	"4711 (qemu) system-x) S 1 1 1 0 -1 4194560 900 0 0 0 250 125 0 0 20 0 5 0 " \
	"12345 1000000 6000 184467\n"
#define NET                                                                                                                            \
	"Inter-|   Receive                                                |  Transmit\n"                                               \
	" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"                                         \
	"    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0\n" \
	"  vm-1:    5000      50    1    2    0     0          0         0     7000      70    3    4    0     0       0          0\n"

static void texts_of_proc_are_understood(void **state)
{
	struct vm_usage u = {0};

	(void)state;
	assert_true(vm_usage_take_stat(&u, STAT, 100));
	assert_int_equal(u.user, 2500 * USEC_PER_MSEC);
	assert_int_equal(u.system, 1250 * USEC_PER_MSEC);
	assert_true(vm_usage_take_statm(&u, "300 200 50 1 0 100 0\n", 4096));
	assert_int_equal(u.resident_bytes, 200 * 4096);
	/* What the node's end received, the guest sent. */
	assert_true(vm_usage_take_net(&u, NET, "vm-1"));
	assert_int_equal(u.sent[VM_COUNT_BYTES], 5000);
	assert_int_equal(u.sent[VM_COUNT_DROPPED], 2);
	assert_int_equal(u.received[VM_COUNT_BYTES], 7000);
	assert_int_equal(u.received[VM_COUNT_ERRORS], 3);
}

static void other_texts_are_refused(void **state)
{
	struct vm_usage u = {0};

	(void)state;
	assert_false(vm_usage_take_stat(&u, "", 100));
	assert_false(vm_usage_take_stat(&u, "4711 (qemu) S 1 1", 100));
	assert_false(vm_usage_take_stat(&u, STAT, 0));
	assert_false(vm_usage_take_statm(&u, "many", 4096));
	assert_false(vm_usage_take_net(&u, NET, "vm"));
	assert_false(vm_usage_take_net(&u, NET, "vm-2"));
	assert_false(vm_usage_take_net(&u, "  vm-1: 1 2 3\n", "vm-1"));
	assert_false(u.has_link);
}

static void threads_are_found_by_their_inner_number(void **state)
{
	struct vm_vcpu v = {0};

	(void)state;
	assert_int_equal(vm_usage_inner_tid("Name:\tCPU 0/TCG\nNSpid:\t4712\t99\t7\nVmRSS: 1\n"),
			 7);
	assert_int_equal(vm_usage_inner_tid("NSpid:\t4712\n"), 4712);
	assert_int_equal(vm_usage_inner_tid("NSpid:\t\n"), 0);
	assert_int_equal(vm_usage_inner_tid("NSpid:\t4712\t-3\n"), 0);
	assert_int_equal(vm_usage_inner_tid("NSpid:\t99999999999\n"), 0);
	assert_int_equal(vm_usage_inner_tid("Pid:\t4\n"), 0);
	assert_true(vm_usage_take_schedstat(&v, "1500000000 250000000 12\n"));
	assert_true(v.is_known);
	assert_int_equal(v.run_ns, 1500000000);
	assert_int_equal(v.waiting_ns, 250000000);
	/* A kernel that does not count says 0. */
	v.is_known = false;
	assert_false(vm_usage_take_schedstat(&v, "0 0 0\n"));
	assert_false(vm_usage_take_schedstat(&v, "1 2\n"));
	assert_false(vm_usage_take_schedstat(&v, ""));
	assert_false(v.is_known);
}

static struct vm_usage usage;
static struct json *told;
static const struct vm_vcpu vcpus[] = {
	{.inner = 7, .tid = 70, .is_known = true, .run_ns = 1500000000, .waiting_ns = 250000000},
	{.inner = 8, .tid = 80, .is_known = true, .run_ns = 2000000000},
	{.inner = 9}};
static struct api_map labels;
static struct json *report;

static struct vm_metrics_in running(void)
{
	usage = (struct vm_usage){.at = 1,
				  .user = 2500 * USEC_PER_MSEC,
				  .system = 500 * USEC_PER_MSEC,
				  .resident_bytes = 8192,
				  .has_link = true,
				  .received = {7000, 70, 3, 4},
				  .sent = {5000, 50, 1, 2}};
	return (struct vm_metrics_in){.ns = "default",
				      .name = "a",
				      .labels = &labels,
				      .network = "default",
				      .runs_here = true,
				      .memory_bytes = 134217728,
				      .usage = &usage,
				      .dirty_rate = 33554432,
				      .disks = told,
				      .n_vcpus = ARRAY_SIZE(vcpus),
				      .vcpus = vcpus};
}

static char *print(const struct vm_metrics_in *vms, size_t n)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);
	char *text = NULL;
	size_t len;

	vm_metrics_print("node-1", vms, n, &b);
	return sbuf_take(&b, &text, &len) ? NULL : text;
}

static void make_labels(void)
{
	labels = (struct api_map){0};
	assert_int_equal(api_map_set(&labels, "app.kubernetes.io/name", "say \"hi\"\\\n"), RC_OK);
	assert_int_equal(api_map_set(&labels, "app-kubernetes-io-name", "second"), RC_OK);
}

static void a_running_vm_has_its_figures_and_labels(void **state)
{
	struct vm_metrics_in v;

	(void)state;
	make_labels();
	v = running();
	char *text = print(&v, 1);

	/* The second label would have the first one's name. */
#define D                                                    \
	"{node=\"node-1\",namespace=\"default\",name=\"a\"," \
	"kubernetes_vmi_label_app_kubernetes_io_name=\"say \\\"hi\\\"\\\\\\n\"}"
	assert_non_null(strstr(text, "# TYPE kubevirt_vmi_cpu_usage_seconds_total counter\n"
				     "kubevirt_vmi_cpu_usage_seconds_total" D " 3\n"));
	assert_non_null(strstr(text, "kubevirt_vmi_cpu_user_usage_seconds_total" D " 2.500000\n"));
	assert_non_null(
		strstr(text, "kubevirt_vmi_cpu_system_usage_seconds_total" D " 0.500000\n"));
	assert_non_null(strstr(text, "kubevirt_vmi_memory_domain_bytes" D " 134217728\n"));
	assert_non_null(strstr(text, "kubevirt_vmi_memory_resident_bytes" D " 8192\n"));
	assert_non_null(strstr(text, "# TYPE kubevirt_vmi_dirty_rate_bytes_per_second gauge\n"
				     "kubevirt_vmi_dirty_rate_bytes_per_second" D " 33554432\n"));
	assert_non_null(strstr(text,
			       "kubevirt_vmi_network_receive_bytes_total{node=\"node-1\",namespace="
			       "\"default\",name=\"a\",interface=\"default\","));
	assert_non_null(strstr(text, "kubevirt_vmi_network_transmit_packets_dropped_total"));
	assert_null(strstr(text, "kubevirt_vmi_migration"));
	mem_free(text);
	api_map_fini(&labels);
}

#define DISK "{node=\"node-1\",namespace=\"default\",name=\"a\",drive=\"ro\\\"ot\","
#define VCPU "{node=\"node-1\",namespace=\"default\",name=\"a\",id="

static void disks_are_told_as_qemu_counts_them(void **state)
{
	(void)state;
	make_labels();
	struct vm_metrics_in v = running();
	char *text = print(&v, 1);

	assert_non_null(strstr(text, "# TYPE kubevirt_vmi_storage_iops_read_total counter\n"
				     "kubevirt_vmi_storage_iops_read_total" DISK));
	assert_non_null(strstr(text, "kubevirt_vmi_storage_iops_read_total" DISK
				     "kubernetes_vmi_label_app_kubernetes_io_name=\"say "
				     "\\\"hi\\\"\\\\\\n\"} 11\n"));
	assert_non_null(strstr(text, "kubevirt_vmi_storage_write_traffic_bytes_total" DISK));
	assert_non_null(strstr(text, "kubevirt_vmi_storage_read_times_seconds_total" DISK
				     "kubernetes_vmi_label_app_kubernetes_io_name=\"say "
				     "\\\"hi\\\"\\\\\\n\"} 2.500000\n"));
	assert_non_null(strstr(text, "kubevirt_vmi_storage_flush_times_seconds_total" DISK));
	/* Of each only what QEMU tells. */
	assert_null(strstr(text, "kubevirt_vmi_storage_flush_requests_total" DISK));
	assert_non_null(strstr(text, "kubevirt_vmi_storage_flush_requests_total{node=\"node-1\","
				     "namespace=\"default\",name=\"a\",drive=\"data\","));
	mem_free(text);
	v.disks = NULL;
	text = print(&v, 1);
	assert_null(strstr(text, "storage"));
	mem_free(text);
	v = running();
	v.runs_here = false;
	text = print(&v, 1);
	assert_null(text ? strstr(text, "storage") : NULL);
	mem_free(text);
	api_map_fini(&labels);
}

static void vcpus_are_told_by_their_threads(void **state)
{
	static const struct vm_vcpu shared[] = {
		{.inner = 7, .tid = 70, .is_known = true, .run_ns = 1},
		{.inner = 7, .tid = 70, .is_known = true, .run_ns = 1}};

	(void)state;
	make_labels();
	struct vm_metrics_in v = running();
	char *text = print(&v, 1);

	assert_non_null(strstr(text, "kubevirt_vmi_vcpu_seconds_total" VCPU
				     "\"0\",state=\"running\",kubernetes_vmi_label"));
	assert_non_null(strstr(text, "\"} 1.500000\nkubevirt_vmi_vcpu_seconds_total" VCPU "\"1\""));
	assert_non_null(strstr(text, "kubevirt_vmi_vcpu_delay_seconds_total" VCPU
				     "\"0\",kubernetes_vmi_label"));
	assert_non_null(strstr(text, "\"} 0.250000\n"));
	assert_null(strstr(text, VCPU "\"2\"")); /* its thread was not found */
	mem_free(text);
	/* One thread that plays two vCPUs says of neither what it did. */
	v.vcpus = shared;
	v.n_vcpus = 2;
	text = print(&v, 1);
	assert_null(strstr(text, "vcpu"));
	mem_free(text);
	api_map_fini(&labels);
}

static void what_is_not_known_is_left_out(void **state)
{
	struct vm_metrics_in v;

	(void)state;
	make_labels();
	v = running();
	v.usage = NULL;
	v.dirty_rate = -1;
	char *text = print(&v, 1);

	assert_null(strstr(text, "kubevirt_vmi_dirty_rate"));
	assert_non_null(strstr(text, "kubevirt_vmi_memory_domain_bytes"));
	assert_null(strstr(text, "vmi_cpu_usage"));
	assert_null(strstr(text, "resident"));
	assert_null(strstr(text, "network"));
	mem_free(text);
	v = running();
	v.runs_here = false; /* the target of a move: its source tells */
	text = print(&v, 1);
	assert_null(text ? strstr(text, "kubevirt") : NULL);
	mem_free(text);
	api_map_fini(&labels);
}

static void a_move_shows_the_last_report(void **state)
{
	struct vm_metrics_in v;

	(void)state;
	make_labels();
	v = running();
	report = js_pack("{s:{s:{s:i, s:i, s:i, s:i, s:i}, s:[{s:s, s:i, s:i}]}}", "stats",
			 "memory", "total", 1000, "transferred", 700, "remaining", 300,
			 "dirtyBytesPerSecond", 20, "bytesPerSecond", 90, "disks", "name", "root",
			 "total", 500, "done", 400);
	v.move = report;
	char *text = print(&v, 1);

#define M "{node=\"node-1\",namespace=\"default\",name=\"a\"}"
	assert_non_null(strstr(text, "kubevirt_vmi_migration_data_bytes_total" M " 1500\n"));
	assert_non_null(strstr(text, "kubevirt_vmi_migration_data_remaining_bytes" M " 400\n"));
	assert_non_null(strstr(text, "kubevirt_vmi_migration_data_processed_bytes" M " 1100\n"));
	assert_non_null(strstr(text, "kubevirt_vmi_migration_dirty_memory_rate_bytes" M " 20\n"));
	assert_non_null(
		strstr(text, "kubevirt_vmi_migration_memory_transfer_rate_bytes" M " 90\n"));
	prom_golden("node", text);
	mem_free(text);
	js_unref(report);
	api_map_fini(&labels);
}

static void a_family_has_one_head_and_stands_together(void **state)
{
	struct vm_metrics_in v[2];

	(void)state;
	make_labels();
	v[0] = running();
	v[1] = running();
	v[1].name = "b";
	char *text = print(v, 2);
	const char *head = strstr(text, "# TYPE kubevirt_vmi_memory_domain_bytes");
	const char *a = strstr(head, "name=\"a\""), *b = strstr(head, "name=\"b\"");

	assert_null(strstr(head + 1, "# TYPE kubevirt_vmi_memory_domain_bytes"));
	assert_true(a < b && b < strstr(head + 1, "# HELP"));
	mem_free(text);
	api_map_fini(&labels);
}

static void deprecated_machines_are_named(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);
	struct json *probe = js_pack("{s:[{s:s}, {s:s, s:b}]}", "machines", "name", "pc-q35-10.0",
				     "name", "pc-q35-2.6", "deprecated", 1);

	(void)state;
	vm_metrics_print_node("node-1", probe, &b);
	assert_non_null(strstr(sbuf_str(&b), "kubevirt_node_deprecated_machine_types{machine_type="
					     "\"pc-q35-2.6\",node=\"node-1\"} 1\n"));
	assert_null(strstr(sbuf_str(&b), "pc-q35-10.0"));
	js_unref(probe);
}

static enum rc print_once(void)
{
	struct vm_metrics_in v = running();
	char *text = print(&v, 1);

	if (!text)
		return RC_NOMEM;
	mem_free(text);
	return RC_OK;
}

static void a_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
	(void)state;
	make_labels();
	torture(print_once);
	api_map_fini(&labels);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_of_proc_are_understood),
		cmocka_unit_test(other_texts_are_refused),
		cmocka_unit_test(threads_are_found_by_their_inner_number),
		cmocka_unit_test(disks_are_told_as_qemu_counts_them),
		cmocka_unit_test(vcpus_are_told_by_their_threads),
		cmocka_unit_test(a_running_vm_has_its_figures_and_labels),
		cmocka_unit_test(what_is_not_known_is_left_out),
		cmocka_unit_test(a_move_shows_the_last_report),
		cmocka_unit_test(a_family_has_one_head_and_stands_together),
		cmocka_unit_test(deprecated_machines_are_named),
		cmocka_unit_test(a_failed_allocation_is_an_error_and_leaks_nothing),
	};

	js_use_mem();
	told = js_pack("{s:[{s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I}, {s:s, s:i}]}", "disks",
		       "name", "ro\"ot", "readOps", 11, "writeOps", 12, "readBytes", 4096,
		       "writeBytes", 8192, "readNs", (int64_t)2500000000, "writeNs", (int64_t)1000,
		       "flushNs", (int64_t)0, "name", "data", "flushOps", 3);
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	js_unref(told);
	return rc;
}
