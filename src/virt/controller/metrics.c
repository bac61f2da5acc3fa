#include "virt/controller/metrics.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/prom.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/table.h"
#include "virt/controller/vmi/launcher_pod.h"
#include "virt/controller/vmi/resources.h"

typedef VirtualMachineInstanceMigration Vmim; /* its full name does not fit into a line of code */

enum { WORD_MAX = 64 };

static const char *lower(const char *word, char out[WORD_MAX])
{
	(void)snprintf(out, WORD_MAX, "%s", word ? word : "");
	for (char *p = out; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	return out;
}

/* Seconds since 1970 of an API time; false: absent or malformed. */
static bool seconds_of(const char *stamp, double *out)
{
	usec_t at;

	if (!stamp || time_parse(stamp, &at, NULL))
		return false;
	at /= USEC_PER_SEC; /* whole seconds, as KubeVirt has them */
	*out = (double)at;
	return true;
}

static void add(struct sbuf *out, const char *name, const struct prom_label *labels, size_t n,
		double value)
{
	prom_sample(out, name, labels, n, NULL, value);
}

/* ---- virtual machines ---- */

/* Which of KubeVirt's five groups a printableStatus belongs to. */
static const char *status_group(const char *status)
{
	static const struct {
		const char *status, *group;
	} map[] = {
		{"Provisioning", "starting"},
		{"Starting", "starting"},
		{"WaitingForVolumeBinding", "starting"},
		{"Running", "running"},
		{"Migrating", "migrating"},
		{"Stopped", "non_running"},
		{"Paused", "non_running"},
		{"Stopping", "non_running"},
		{"Terminating", "non_running"},
		{"CrashLoopBackOff", "error"},
		{"Unknown", "error"},
		{"ErrorUnschedulable", "error"},
		{"ErrImagePull", "error"},
		{"ImagePullBackOff", "error"},
		{"ErrorPvcNotFound", "error"},
		{"DataVolumeError", "error"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(map); i++)
		if (str_eq(status, map[i].status))
			return map[i].group;
	return "<unknown>";
}

static const char *machine_of(const VirtualMachine *vm)
{
	const Machine *m = vm->spec.template ? vm->spec.template->spec.domain.machine : NULL;

	return m ? m->type : NULL;
}

static void print_vms(const struct view *v, struct sbuf *out)
{
	char status[WORD_MAX];
	struct kiter it;

	prom_head(out, "kubevirt_vm_info", "gauge",
		  "One sample a virtual machine, with its state.");
	view_list(v, &api_kind_VirtualMachine, NULL, &it);
	for (const VirtualMachine *vm; (vm = view_next(&it));) {
		const struct prom_label labels[] = {
			{"name", vm->metadata.name},
			{"namespace", vm->metadata.namespace},
			{"machine_type", machine_of(vm)},
			{"status", lower(vm->status.printableStatus, status)},
			{"status_group", status_group(vm->status.printableStatus)}};

		add(out, "kubevirt_vm_info", labels, ARRAY_SIZE(labels), 1);
	}
	prom_head(out, "kubevirt_vm_create_date_timestamp_seconds", "gauge",
		  "When the virtual machine was created.");
	view_list(v, &api_kind_VirtualMachine, NULL, &it);
	for (const VirtualMachine *vm; (vm = view_next(&it));) {
		const struct prom_label labels[] = {{"name", vm->metadata.name},
						    {"namespace", vm->metadata.namespace}};
		double at;

		if (seconds_of(vm->metadata.creationTimestamp, &at))
			add(out, "kubevirt_vm_create_date_timestamp_seconds", labels, 2, at);
	}
}

/* The newest change of any condition; 0: there is none. */
static double last_transition(const VirtualMachine *vm)
{
	double newest = 0, at;

	for (size_t i = 0; i < vm->status.n_conditions; i++)
		if (seconds_of(vm->status.conditions[i].lastTransitionTime, &at))
			newest = MAX(newest, at);
	return newest;
}

/* KubeVirt: of its five families the one of the VM's present state has the time, the others are 0. */
static void print_vm_transitions(const struct view *v, struct sbuf *out)
{
	static const char *const groups[] = {"starting", "running", "migrating", "non_running",
					     "error"};
	struct kiter it;
	char name[96];

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		(void)snprintf(name, sizeof(name),
			       "kubevirt_vm_%s_status_last_transition_timestamp_seconds",
			       groups[i]);
		prom_head(out, name, "counter", "When the virtual machine came into this state.");
		view_list(v, &api_kind_VirtualMachine, NULL, &it);
		for (const VirtualMachine *vm; (vm = view_next(&it));) {
			const struct prom_label labels[] = {{"name", vm->metadata.name},
							    {"namespace", vm->metadata.namespace}};
			bool is_in = str_eq(status_group(vm->status.printableStatus), groups[i]);

			add(out, name, labels, 2, is_in ? last_transition(vm) : 0);
		}
	}
}

/* ---- instances ---- */

static bool is_migratable(const VirtualMachineInstance *vmi)
{
	struct api_cond c;

	return API_COND_GET(&vmi->status, VirtualMachineInstanceCondition, "LiveMigratable", &c) &&
	       str_eq(c.status, "True");
}

/* The pod on the node that the VMI names: of a move's two pods the one that has the guest. */
static const Pod *pod_of(const struct view *v, const VirtualMachineInstance *vmi)
{
	struct kiter it;

	view_children(v, &api_kind_Pod, vmi->metadata.uid, &it);
	for (const Pod *p; (p = view_next(&it));)
		if (!kit_pod_is_final(p) && str_eq(p->spec.nodeName, vmi->status.nodeName) &&
		    api_map_has(&vmi->status.activePods, p->metadata.uid))
			return p;
	return NULL;
}

static void add_vmi_info(const struct view *v, const VirtualMachineInstance *vmi, struct sbuf *out)
{
	static const VirtualMachineInstanceGuestOSInfo silent;
	/* The guest's own words; the agent's channel has cut them. */
	const VirtualMachineInstanceGuestOSInfo *os = vmi->status.guestOSInfo ?: &silent;
	const Pod *pod = pod_of(v, vmi);
	char phase[WORD_MAX];
	const struct prom_label labels[] = {
		{"node", vmi->status.nodeName},
		{"namespace", vmi->metadata.namespace},
		{"name", vmi->metadata.name},
		{"phase", lower(vmi->status.phase, phase)},
		{"guest_os_kernel_release", os->kernelRelease},
		{"guest_os_machine", vmi->status.machine ? vmi->status.machine->type : NULL},
		{"guest_os_arch", os->machine},
		{"guest_os_name", os->name},
		{"guest_os_version_id", os->versionId},
		{"evictable", is_migratable(vmi) ? "true" : "false"},
		{"outdated", pod && launcher_pod_is_outdated(pod) ? "true" : "false"},
		{"vmi_pod", pod ? pod->metadata.name : NULL}};

	add(out, "kubevirt_vmi_info", labels, ARRAY_SIZE(labels), 1);
}

static void print_vmi_info(const struct view *v, struct sbuf *out)
{
	struct kiter it;

	prom_head(out, "kubevirt_vmi_info", "gauge",
		  "One sample an instance, with its phase; summed by phase it counts them.");
	view_list(v, &api_kind_VirtualMachineInstance, NULL, &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));)
		add_vmi_info(v, vmi, out);
}

/* As KubeVirt counts: of those that run and stay. */
static void print_outdated(const struct view *v, struct sbuf *out)
{
	struct kiter it;
	size_t n = 0;

	view_list(v, &api_kind_VirtualMachineInstance, NULL, &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));) {
		const Pod *pod =
			str_eq(vmi->status.phase, "Running") && !vmi->metadata.deletionTimestamp
				? pod_of(v, vmi)
				: NULL;

		n += pod && launcher_pod_is_outdated(pod);
	}
	prom_head(out, "kubevirt_vmi_number_of_outdated", "gauge",
		  "Running instances whose pod was made for another version's launcher.");
	add(out, "kubevirt_vmi_number_of_outdated", NULL, 0, (double)n);
}

static void print_vmi_rest(const struct view *v, struct sbuf *out)
{
	struct kiter it;

	prom_head(out, "kubevirt_vmi_non_evictable", "gauge",
		  "1 for an instance that shall move when it is evicted and cannot.");
	view_list(v, &api_kind_VirtualMachineInstance, NULL, &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));) {
		const struct prom_label labels[] = {{"node", vmi->status.nodeName},
						    {"namespace", vmi->metadata.namespace},
						    {"name", vmi->metadata.name}};
		bool shall_move = str_eq(vmi->spec.evictionStrategy, "LiveMigrate");

		if (str_eq(vmi->status.phase, "Running"))
			add(out, "kubevirt_vmi_non_evictable", labels, 3,
			    shall_move && !is_migratable(vmi));
	}
	prom_head(out, "kubevirt_vmi_launcher_memory_overhead_bytes", "gauge",
		  "Memory that is set aside for QEMU and the launcher beyond the guest's.");
	view_list(v, &api_kind_VirtualMachineInstance, NULL, &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));) {
		const struct prom_label labels[] = {{"namespace", vmi->metadata.namespace},
						    {"name", vmi->metadata.name}};

		add(out, "kubevirt_vmi_launcher_memory_overhead_bytes", labels, 2,
		    (double)vmi_memory_overhead(&vmi->spec, kit_config(v)));
	}
}

/* ---- migrations ---- */

enum { IN_PENDING, IN_SCHEDULING, IN_RUNNING, IN_UNSET, IN__MAX };

static void count_phases(const struct view *v, size_t n[IN__MAX])
{
	struct kiter it;

	view_list(v, &api_kind_VirtualMachineInstanceMigration, NULL, &it);
	for (const Vmim *m; (m = view_next(&it));) {
		enum mig_state s = mig_state_of(m->status.phase);

		if (s == MIG_NEW)
			n[IN_UNSET]++;
		else if (s == MIG_PENDING)
			n[IN_PENDING]++;
		else if (s == MIG_SCHEDULING)
			n[IN_SCHEDULING]++;
		else if (s >= MIG_SCHEDULED && s <= MIG_RUNNING)
			n[IN_RUNNING]++;
	}
}

static void print_phases(const struct view *v, struct sbuf *out)
{
	static const struct {
		const char *name, *help;
	} families[IN__MAX] = {
		{"kubevirt_vmi_migrations_in_pending_phase",
		 "Migrations that wait for their turn."},
		{"kubevirt_vmi_migrations_in_scheduling_phase",
		 "Migrations whose target pod waits for a node or starts."},
		{"kubevirt_vmi_migrations_in_running_phase",
		 "Migrations whose target pod is there: they prepare, or copy."},
		{"kubevirt_vmi_migrations_in_unset_phase",
		 "Migrations that no controller has looked at."},
	};
	size_t n[IN__MAX] = {0};

	count_phases(v, n);
	for (size_t i = 0; i < IN__MAX; i++) {
		prom_head(out, families[i].name, "gauge", families[i].help);
		add(out, families[i].name, NULL, 0, (double)n[i]);
	}
}

static void print_ends(const struct view *v, enum mig_state which, const char *name,
		       const char *help, struct sbuf *out)
{
	struct kiter it;

	prom_head(out, name, "gauge", help);
	view_list(v, &api_kind_VirtualMachineInstanceMigration, NULL, &it);
	for (const Vmim *m; (m = view_next(&it));) {
		const struct prom_label labels[] = {{"vmi", m->spec.vmiName},
						    {"vmim", m->metadata.name},
						    {"namespace", m->metadata.namespace}};

		if (mig_state_of(m->status.phase) == which)
			add(out, name, labels, 3, 1);
	}
}

static void print_times(const struct view *v, bool is_end, struct sbuf *out)
{
	const char *name = is_end ? "kubevirt_vmi_migration_end_time_seconds"
				  : "kubevirt_vmi_migration_start_time_seconds";
	struct kiter it;

	prom_head(out, name, "gauge",
		  is_end ? "When the migration ended." : "When the migration began to copy.");
	view_list(v, &api_kind_VirtualMachineInstanceMigration, NULL, &it);
	for (const Vmim *m; (m = view_next(&it));) {
		const VirtualMachineInstanceMigrationState *s = m->status.migrationState;
		const struct prom_label labels[] = {{"node", s ? s->sourceNode : NULL},
						    {"namespace", m->metadata.namespace},
						    {"name", m->spec.vmiName},
						    {"migration_name", m->metadata.name},
						    {"status", m->status.phase}};
		double at;

		if (s && seconds_of(is_end ? s->endTimestamp : s->startTimestamp, &at))
			add(out, name, labels, is_end ? 5 : 4, at);
	}
}

/* KubeVirt has no name for it: how long clients had to do without the guest. */
static void print_pauses(const struct view *v, struct sbuf *out)
{
	struct kiter it;

	prom_head(out, "ferry_vmi_migration_pause_seconds", "gauge",
		  "How long the guest stood at the end of the migration, as measured.");
	view_list(v, &api_kind_VirtualMachineInstanceMigration, NULL, &it);
	for (const Vmim *m; (m = view_next(&it));) {
		const struct prom_label labels[] = {{"vmi", m->spec.vmiName},
						    {"vmim", m->metadata.name},
						    {"namespace", m->metadata.namespace}};

		if (m->status.ferry && m->status.ferry->has_pauseMs)
			add(out, "ferry_vmi_migration_pause_seconds", labels, 3,
			    (double)m->status.ferry->pauseMs / 1000);
	}
}

static void print_installation(const struct view *v, struct sbuf *out)
{
	const KubeVirtConfiguration *cfg = kit_config(v);
	const DeveloperConfiguration *dc = cfg ? cfg->developerConfiguration : NULL;

	const KubeVirt *kv = kit_kubevirt(v);
	const char *version = kv ? kv->status.observedKubeVirtVersion : NULL;

	prom_head(out, "kubevirt_info", "gauge", "The version of KubeVirt's API that is served.");
	if (version)
		add(out, "kubevirt_info", &(struct prom_label){"kubeversion", version}, 1, 1);
	prom_head(out, "kubevirt_configuration_emulation_enabled", "gauge",
		  "1 when guests may run without KVM by the configuration.");
	add(out, "kubevirt_configuration_emulation_enabled", NULL, 0,
	    dc && API_GET(dc, useEmulation, false));
}

void virt_metrics_print(const struct view *v, bool is_ready, struct sbuf *out)
{
	prom_head(out, "kubevirt_virt_controller_ready_status", "gauge",
		  "1 when the controllers have their copies of all objects and work.");
	add(out, "kubevirt_virt_controller_ready_status", NULL, 0, is_ready);
	prom_head(out, "kubevirt_virt_controller_leading_status", "gauge",
		  "1 when these controllers are the ones that act; there is only one of them.");
	add(out, "kubevirt_virt_controller_leading_status", NULL, 0, is_ready);
	prom_head(out, "leader_election_master_status", "gauge",
		  "The same under Kubernetes' name.");
	add(out, "leader_election_master_status", &(struct prom_label){"name", "ferry-controller"},
	    1, is_ready);
	print_installation(v, out);
	print_vms(v, out);
	print_vm_transitions(v, out);
	virt_vm_metrics_print(v, out);
	print_vmi_info(v, out);
	print_outdated(v, out);
	print_vmi_rest(v, out);
	print_phases(v, out);
	print_ends(v, MIG_SUCCEEDED, "kubevirt_vmi_migration_succeeded",
		   "1 for each recorded migration that succeeded.", out);
	print_ends(v, MIG_FAILED, "kubevirt_vmi_migration_failed",
		   "1 for each recorded migration that failed.", out);
	print_times(v, false, out);
	print_times(v, true, out);
	print_pauses(v, out);
}
