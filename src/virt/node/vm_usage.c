/* What the VMs of this node use: read from /proc every few seconds by a job, so that a scrape finds it in
 * memory.  QEMU and the guest are not asked. */
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/node/vm_int.h"

#define LOOK_EVERY (5 * USEC_PER_SEC)
#define SHOW_FOR   (15 * USEC_PER_SEC)
/* The launcher measures once a minute; one turn may be missed. */
#define SHOW_DIRTY_FOR (150 * USEC_PER_SEC)

enum { PROC_BYTES = 1024 * 1024 };

struct usage_item {
	char *pod_uid;
	pid_t pid;
	char link[32];
	struct vm_usage usage;
	bool ok;
};

struct usage_job {
	struct vmhost *host;
	size_t n;
	struct usage_item *items;
};

static struct usage_job *job_free(struct usage_job *j)
{
	for (size_t i = 0; j && j->items && i < j->n; i++)
		mem_free(j->items[i].pod_uid);
	if (j)
		mem_free(j->items);
	return mem_free(j);
}

/* --- in the pool --- */

static char *read_proc(pid_t pid, const char *name)
{
	char path[64];
	char *text = NULL;
	size_t n = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return file_read(path, PROC_BYTES, &text, &n, NULL) ? NULL : text;
}

static void look(struct usage_item *it, const char *links)
{
	CLEANUP(mem_freep) char *stat = read_proc(it->pid, "stat");
	CLEANUP(mem_freep) char *statm = read_proc(it->pid, "statm");

	it->ok = stat && statm && vm_usage_take_stat(&it->usage, stat, sysconf(_SC_CLK_TCK)) &&
		 vm_usage_take_statm(&it->usage, statm, sysconf(_SC_PAGESIZE));
	if (links && *it->link)
		(void)vm_usage_take_net(&it->usage, links, it->link);
}

static void look_work(void *arg)
{
	struct usage_job *j = arg;
	CLEANUP(mem_freep) char *links = NULL;
	size_t n = 0;

	/* The thread's own: links of the node's network namespace. */
	if (file_read("/proc/thread-self/net/dev", PROC_BYTES, &links, &n, NULL))
		links = NULL;
	for (size_t i = 0; i < j->n; i++)
		look(&j->items[i], links);
}

/* --- in the loop --- */

static bool is_looked_at(const struct vm *vm)
{
	return vm->pod && vm->qemu_pid > 0 && vm->state != VM_NONE && vm->state != VM_GONE;
}

static void take(struct vmhost *h, const struct usage_item *item)
{
	LIST_FOREACH(it, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (!is_looked_at(vm) || vm->qemu_pid != item->pid ||
		    !str_eq(h->cfg.pods->uid(vm->pod), item->pod_uid))
			continue;
		vm->usage = item->usage;
		vm->usage.at = loop_now(h->cfg.loop);
	}
}

static void look_after(void *arg)
{
	struct usage_job *j = arg;

	j->host->is_looking = false;
	for (size_t i = 0; i < j->n; i++)
		if (j->items[i].ok)
			take(j->host, &j->items[i]);
	job_free(j);
}

static bool add_item(struct usage_job *j, const struct vm *vm)
{
	struct usage_item *item = &j->items[j->n];
	struct vm_pod_net net = {0};

	vm->host->cfg.pods->net(vm->pod, &net);
	item->pid = vm->qemu_pid;
	(void)snprintf(item->link, sizeof(item->link), "%s", net.host_if ? net.host_if : "");
	item->pod_uid = mem_strdup(vm->host->cfg.pods->uid(vm->pod));
	j->n++;
	return item->pod_uid != NULL;
}

static enum rc start_job(struct vmhost *h, struct err *err)
{
	struct usage_job *j = mem_alloc(sizeof(*j));
	size_t cap = 0;
	enum rc rc = RC_OK;

	LIST_FOREACH(it, &h->vms)
		cap += is_looked_at(LIST_ENTRY(it, struct vm, link));
	if (j)
		j->items = mem_calloc(cap + 1, sizeof(*j->items));
	if (!j || !j->items)
		rc = err_set(err, RC_NOMEM, "out of memory");
	LIST_FOREACH(it, &h->vms) {
		const struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (!rc && is_looked_at(vm) && !add_item(j, vm))
			rc = err_set(err, RC_NOMEM, "out of memory");
	}
	if (!rc)
		j->host = h;
	if (!rc && j->n) {
		rc = pool_run(h->cfg.loop, look_work, look_after, j, err);
		if (!rc) {
			h->is_looking = true;
			return RC_OK;
		}
	}
	job_free(j);
	return rc;
}

static void on_time(void *arg)
{
	struct vmhost *h = arg;
	struct err err;

	if (!h->is_looking && start_job(h, &err))
		log_warn("cannot look at what the VMs use, trying again: %s", err.msg);
	ev_timer_rearm(h->usage_timer, LOOK_EVERY);
}

enum rc vm_usage_start(struct vmhost *h, struct err *err)
{
	return ev_timer_after(h->cfg.loop, &h->usage_timer, LOOK_EVERY, on_time, h, err);
}

const struct vm_usage *vm_usage_of(const struct vm *vm)
{
	usec_t now = loop_now(vm->host->cfg.loop);

	return vm->usage.at && now - vm->usage.at < SHOW_FOR ? &vm->usage : NULL;
}

void vm_dirty_take(struct vm *vm, const struct json *data)
{
	int64_t rate = js_get_int(data, "bytesPerSecond", -1);

	if (rate < 0)
		return;
	vm->dirty_rate = rate;
	vm->dirty_at = loop_now(vm->host->cfg.loop);
}

int64_t vm_dirty_rate_of(const struct vm *vm)
{
	usec_t now = loop_now(vm->host->cfg.loop);

	return vm->dirty_at && now - vm->dirty_at < SHOW_DIRTY_FOR ? vm->dirty_rate : -1;
}
