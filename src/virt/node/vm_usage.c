/* What the VMs of this node use: read from /proc every few seconds by a job, so that a scrape finds it in memory.
 * Disks only QEMU can count: as long as somebody scrapes, its launcher is asked at the same clock, never because of
 * one scrape.  The guest is not asked. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/node/vm_int.h"

#define LOOK_EVERY (5 * USEC_PER_SEC)
#define SHOW_FOR   (15 * USEC_PER_SEC)
/* Two scrapes that are a minute apart, and one that is missed. */
#define WANTED_FOR  (150 * USEC_PER_SEC)
#define ASK_TIMEOUT (12 * USEC_PER_SEC) /* QEMU has ten */
#define ASK_REST    (60 * USEC_PER_SEC) /* after a launcher that cannot, or a QEMU that hangs */
/* The launcher measures once a minute; one turn may be missed. */
#define SHOW_DIRTY_FOR (150 * USEC_PER_SEC)

enum { PROC_BYTES = 1024 * 1024 };

struct usage_item {
	char *pod_uid;
	pid_t pid;
	char link[32];
	struct vm_usage usage;
	bool ok;
	struct vm_vcpu *vcpus; /* a copy */
	size_t n_vcpus;
};

struct usage_job {
	struct vmhost *host;
	size_t n;
	struct usage_item *items;
};

static struct usage_job *job_free(struct usage_job *j)
{
	for (size_t i = 0; j && j->items && i < j->n; i++) {
		mem_free(j->items[i].pod_uid);
		mem_free(j->items[i].vcpus);
	}
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

/* Which of this machine's threads is which vCPU.  Once: QEMU keeps them. */
static enum rc find_vcpu(const char *name, void *arg, struct err *err)
{
	struct usage_item *it = arg;
	char path[64];
	int64_t tid = 0;

	if (str_to_i64(name, 1, INT_MAX, &tid, err))
		return RC_OK;
	(void)snprintf(path, sizeof(path), "task/%d/status", (int)tid);
	CLEANUP(mem_freep) char *text = read_proc(it->pid, path);
	pid_t inner = text ? vm_usage_inner_tid(text) : 0;

	for (size_t i = 0; inner && i < it->n_vcpus; i++)
		if (it->vcpus[i].inner == inner)
			it->vcpus[i].tid = (pid_t)tid;
	return RC_OK;
}

static void look_at_vcpus(struct usage_item *it)
{
	bool all = true;
	char path[64];

	for (size_t i = 0; i < it->n_vcpus; i++)
		all &= it->vcpus[i].tid > 0;
	(void)snprintf(path, sizeof(path), "/proc/%d/task", (int)it->pid);
	if (!all)
		ignore_rc(file_each(path, find_vcpu, it, NULL)); /* it may just have ended */
	for (size_t i = 0; i < it->n_vcpus; i++) {
		struct vm_vcpu *v = &it->vcpus[i];

		(void)snprintf(path, sizeof(path), "task/%d/schedstat", (int)v->tid);
		CLEANUP(mem_freep) char *text = v->tid > 0 ? read_proc(it->pid, path) : NULL;

		v->is_known = false;
		if (!text || !vm_usage_take_schedstat(v, text))
			v->tid = 0;
	}
}

static void look(struct usage_item *it, const char *links)
{
	CLEANUP(mem_freep) char *stat = read_proc(it->pid, "stat");
	CLEANUP(mem_freep) char *statm = read_proc(it->pid, "statm");

	it->ok = stat && statm && vm_usage_take_stat(&it->usage, stat, sysconf(_SC_CLK_TCK)) &&
		 vm_usage_take_statm(&it->usage, statm, sysconf(_SC_PAGESIZE));
	if (links && *it->link)
		(void)vm_usage_take_net(&it->usage, links, it->link);
	look_at_vcpus(it);
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

static void take(struct vmhost *h, struct usage_item *item)
{
	LIST_FOREACH(it, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (!is_looked_at(vm) || vm->qemu_pid != item->pid ||
		    !str_eq(h->cfg.pods->uid(vm->pod), item->pod_uid))
			continue;
		vm->usage = item->usage;
		vm->usage.at = loop_now(h->cfg.loop);
		if (item->n_vcpus && item->n_vcpus == vm->n_vcpus) {
			mem_free(vm->vcpus);
			vm->vcpus = STEAL(item->vcpus);
			item->n_vcpus = 0;
			vm->vcpus_at = vm->usage.at;
		}
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

static bool is_wanted(const struct vmhost *h)
{
	return h->scraped_at && loop_now(h->cfg.loop) - h->scraped_at < WANTED_FOR;
}

static bool add_item(struct usage_job *j, const struct vm *vm)
{
	struct usage_item *item = &j->items[j->n];
	struct vm_pod_net net = {0};

	vm->host->cfg.pods->net(vm->pod, &net);
	item->pid = vm->qemu_pid;
	(void)snprintf(item->link, sizeof(item->link), "%s", net.host_if ? net.host_if : "");
	item->pod_uid = mem_strdup(vm->host->cfg.pods->uid(vm->pod));
	if (is_wanted(vm->host) && vm->n_vcpus) {
		item->vcpus = mem_calloc(vm->n_vcpus, sizeof(*item->vcpus));
		if (item->vcpus)
			memcpy(item->vcpus, vm->vcpus, vm->n_vcpus * sizeof(*item->vcpus));
		item->n_vcpus = item->vcpus ? vm->n_vcpus : 0;
	}
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

/* --- what only QEMU knows --- */

/* They stay the same as long as the VM is here. */
static void take_threads(struct vm *vm, const struct json *threads)
{
	size_t n = MIN(js_len(threads), (size_t)VM_VCPUS_MAX);

	if (vm->n_vcpus || !n)
		return;
	vm->vcpus = mem_calloc(n, sizeof(*vm->vcpus));
	if (!vm->vcpus)
		return; /* the next answer brings them again */
	for (size_t i = 0; i < n; i++)
		vm->vcpus[i].inner = (pid_t)js_int(js_item(threads, i), 0);
	vm->n_vcpus = n;
}

static void on_usage(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	usec_t now = loop_now(vm->host->cfg.loop);

	vm->disks_after = 0;
	if (r->rc == RC_BUSY || r->rc == RC_CONFLICT || r->rc == RC_CLOSED)
		return; /* it moves, or is not there yet, or its launcher is being replaced */
	if (r->rc) {
		log_debug("VM '%s/%s': what its disks do is not known: %s", vm->ns, vm->name,
			  r->message);
		vm->disks_after = now + ASK_REST;
		return;
	}
	js_unref(vm->disks);
	vm->disks = js_ref(r->result);
	vm->disks_at = now;
	take_threads(vm, js_get(r->result, "vcpuThreads"));
}

static void ask_launchers(struct vmhost *h)
{
	usec_t now = loop_now(h->cfg.loop);
	struct err err = {0};

	LIST_FOREACH(it, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (!is_looked_at(vm) || !vm->ipc || !vm->has_answered || now < vm->disks_after ||
		    (vm->state != VM_RUNNING && vm->state != VM_PAUSED))
			continue;
		/* One at a time; a connection that is lost meanwhile takes its answer with it. */
		vm->disks_after = now + ASK_TIMEOUT;
		if (vm_call(vm, "usage", NULL, ASK_TIMEOUT, on_usage, vm, &err))
			log_debug("VM '%s/%s': its launcher is not asked: %s", vm->ns, vm->name,
				  err.msg);
	}
}

void vm_usage_wanted(struct vmhost *h)
{
	h->scraped_at = loop_now(h->cfg.loop);
}

static void on_time(void *arg)
{
	struct vmhost *h = arg;
	struct err err;

	if (is_wanted(h))
		ask_launchers(h);

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

void vm_usage_fill(const struct vm *vm, struct vm_metrics_in *in)
{
	usec_t now = loop_now(vm->host->cfg.loop);

	in->disks = vm->disks_at && now - vm->disks_at < SHOW_FOR ? vm->disks : NULL;
	/* Read only while somebody scrapes, so they may be older than the rest of vm->usage. */
	in->vcpus = vm->vcpus;
	in->n_vcpus = vm->usage.at && now - vm->usage.at < SHOW_FOR && vm->vcpus_at == vm->usage.at
			      ? vm->n_vcpus
			      : 0;
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
