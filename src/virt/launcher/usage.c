#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "virt/launcher/launcher_int.h"
#include "virt/launcher/move_int.h"

/* What QEMU counts of each disk: one `query-blockstats` for each call of `usage`, and no other command.  Not while the
 * guest moves: nothing stands in the way of what a move asks. */

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

/* The disk of a device, named by its path ("/machine/peripheral/disk3/virtio-backend") or its id; NULL: of none that
 * the specification has. */
static const char *disk_of(const struct launch_spec *s, const char *device)
{
	for (size_t i = 0; device && i < s->n_disks; i++) {
		char id[24];
		int n = snprintf(id, sizeof(id), "disk%zu", i);

		for (const char *p = device; *p;) {
			size_t len = strcspn(p, "/");

			if (len == (size_t)n && memcmp(p, id, len) == 0)
				return s->disks[i].name;
			p += len + (p[len] == '/');
		}
	}
	return NULL;
}

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
		const struct json *v = js_get(stats, counters[i][1]);

		if (v && js_set(j, counters[i][0], js_ref(v)))
			j = js_unref(j);
	}
	return j;
}

static void on_told(const struct qmp_reply *r, void *arg)
{
	struct usage *u = arg;
	struct launcher *l = u->l;
	struct json *disks = js_new_array();
	enum rc rc = disks ? r->rc : RC_NOMEM;

	u->slot = qmp_slot_free(u->slot);
	for (size_t i = 0; !rc && i < js_len(r->value); i++) {
		const struct json *b = js_item(r->value, i);
		const char *name = disk_of(l->spec, js_get_str(b, "qdev"));

		if (name)
			rc = js_append(disks, disk_json(name, js_get(b, "stats")));
	}
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

	for (size_t i = 0; threads && i < js_len(cpus); i++) {
		const struct json *tid = js_get(js_item(cpus, i), "thread-id");

		if (js_append(threads, js_new_int(js_int(tid, 0))))
			threads = js_unref(threads);
	}
	js_unref(l->vcpu_threads);
	l->vcpu_threads = threads; /* NULL: not told, then */
}
