#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/launcher/launcher_int.h"
#include "virt/launcher/move_int.h"

/* What QEMU counts of each disk: one `query-blockstats` for each call of `usage`, and no other command.  Not while the
 * guest moves: nothing stands in the way of what a move asks. */

enum { THREADS_MAX = 512 }; /* more vCPUs than a VM can have */

struct usage {
	struct launcher *l;
	struct ipc_call *call;
	struct qmp_slot *slot;
};

struct usage *usage_free(struct usage *u)
{
	if (!u)
		return NULL;
	if (u->call)
		ipc_call_fail(u->call, RC_CLOSED, "QEMU can no longer be asked");
	u->slot = qmp_slot_free(u->slot);
	return mem_free(u);
}

/* Is it the i-th disk's?  A device is named by its path ("/machine/peripheral/disk3/virtio-backend") or its id. */
static bool is_of_disk(const char *device, size_t i)
{
	char id[24];
	int n = snprintf(id, sizeof(id), "disk%zu", i);

	for (const char *p = device ?: ""; *p;) {
		size_t len = strcspn(p, "/");

		if (len == (size_t)n && memcmp(p, id, len) == 0)
			return true;
		p += len + (p[len] == '/');
	}
	return false;
}

static const struct json *stats_of(const struct json *told, size_t disk)
{
	for (size_t i = 0; i < js_len(told); i++)
		if (is_of_disk(js_get_str(js_item(told, i), "qdev"), disk))
			return js_get(js_item(told, i), "stats");
	return NULL;
}

/* QEMU's word: whole numbers only, and what it does not tell is left out. */
static struct json *disk_json(const char *name, const struct json *stats)
{
	static const char *const counters[][2] = {
		{"readOps", "rd_operations"},	  {"writeOps", "wr_operations"},
		{"readBytes", "rd_bytes"},	  {"writeBytes", "wr_bytes"},
		{"readNs", "rd_total_time_ns"},	  {"writeNs", "wr_total_time_ns"},
		{"flushOps", "flush_operations"}, {"flushNs", "flush_total_time_ns"},
	};
	struct json *j = js_pack("{s:s}", "name", name);

	for (size_t i = 0; j && i < ARRAY_SIZE(counters); i++) {
		int64_t v = js_get_int(stats, counters[i][1], -1);

		if (v >= 0 && js_set(j, counters[i][0], js_new_int(v)))
			j = js_unref(j);
	}
	return j;
}

/* Each disk of the specification once, whatever else QEMU has. */
static enum rc add_disks(const struct launch_spec *s, const struct json *told, struct json *out)
{
	for (size_t i = 0; i < s->n_disks; i++) {
		const struct json *stats = stats_of(told, i);

		if (stats)
			TRY(js_append(out, disk_json(s->disks[i].name, stats)));
	}
	return RC_OK;
}

static void on_told(const struct qmp_reply *r, void *arg)
{
	struct usage *u = arg;
	struct launcher *l = u->l;
	struct json *disks = js_new_array();
	enum rc rc = disks ? r->rc : RC_NOMEM;

	u->slot = qmp_slot_free(u->slot);
	if (!rc)
		rc = add_disks(l->spec, r->value, disks);
	if (rc)
		ipc_call_fail(STEAL(u->call), rc, "%s", r->rc ? r->desc : "out of memory");
	else
		ipc_call_done(
			STEAL(u->call),
			js_pack("{s:O, s:O*}", "disks", disks, "vcpuThreads", l->vcpu_threads),
			NULL, 0);
	js_unref(disks);
	l->asking_usage = usage_free(u);
}

static bool may_ask(const struct launcher *l)
{
	return !l->asking_usage && qmp_is_ready(l->qmp) &&
	       (l->state == VM_RUNNING || l->state == VM_PAUSED) &&
	       (!l->move || move_is_over(l->move));
}

void usage_ask(struct launcher *l, struct ipc_call *call)
{
	struct err err = {0};
	struct usage *u;

	if (!may_ask(l)) {
		ipc_call_fail(call, RC_BUSY, "QEMU cannot be asked right now");
		return;
	}
	u = mem_alloc(sizeof(*u));
	if (!u) {
		ipc_call_fail(call, RC_NOMEM, "out of memory");
		return;
	}
	u->l = l;
	u->call = call;
	l->asking_usage = u;
	struct qmp_call c = {
		.command = "query-blockstats", .timeout = QMP_TIMEOUT, .fn = on_told, .arg = u};

	l->usage_commands++;
	if (qmp_invoke(l->qmp, &u->slot, &c, &err)) {
		ipc_call_fail(STEAL(u->call), err.rc, "%s", err.msg);
		l->asking_usage = usage_free(u);
	}
}

void usage_take_vcpus(struct launcher *l, const struct json *cpus)
{
	struct json *threads = js_new_array();
	size_t n = MIN(js_len(cpus), (size_t)THREADS_MAX);

	for (size_t i = 0; threads && i < n; i++) {
		const struct json *tid = js_get(js_item(cpus, i), "thread-id");

		if (js_append(threads, js_new_int(js_int(tid, 0))))
			threads = js_unref(threads);
	}
	js_unref(l->vcpu_threads);
	l->vcpu_threads = threads; /* NULL: not told, then */
}
