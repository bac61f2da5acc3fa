/* What a move made in the kernel does not outlive it: an agent may die after a move's end was written and before the
 * move's things were put away, at either side, and no later one takes up a move that is over.  So whoever takes up a
 * guest that is here, with no move of it going on, does it again; and so does who could not do it at first. */
#include <stdio.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/try.h"
#include "net/ns.h"
#include "virt/node/migration_int.h"

#define RETRY_MIN (1 * USEC_PER_SEC)
#define RETRY_MAX (60 * USEC_PER_SEC)

struct tidy {
	struct vm *vm; /* stays: it is freed after its jobs */
	struct vm_net_ops ops;
	struct mig_net net;
	char *netns_dir, ns_name[64];
	enum rc rc;
	struct err err;
};

static void tidy_free(struct tidy *j)
{
	fd_close(j->net.ns_fd);
	mem_free(j->netns_dir);
	mem_free(j);
}

/* Nothing of it harms where there is nothing to put away. */
static enum rc put_away(struct tidy *j, struct err *err)
{
	if (j->net.has_net) {
		TRY(net_ns_open(j->netns_dir, j->ns_name, &j->net.ns_fd, err));
		TRY(vmnet_settle(j->net.ns_fd, err));
		TRY(vmnet_reclaim(&j->net.cfg, err));
	}
	return net_ip4_is_none(j->net.pod) ? RC_OK : j->ops.mig_close(j->net.pod, j->ops.arg, err);
}

static void tidy_work(void *arg)
{
	struct tidy *j = arg;

	j->rc = put_away(j, &j->err);
}

static void on_retry(void *arg)
{
	struct vm *vm = arg;

	vm->tidy_timer = ev_src_free(vm->tidy_timer);
	vm_tidy(vm);
}

static void tidy_later(struct vm *vm, const char *why)
{
	struct err err = {0};

	vm->tidy_wait = MIN(MAX(2 * vm->tidy_wait, RETRY_MIN), RETRY_MAX);
	log_warn("VM '%s/%s': what a move left in the network is not put away, trying again: %s",
		 vm->ns, vm->name, why);
	if (ev_timer_after(vm->host->cfg.loop, &vm->tidy_timer, vm->tidy_wait, on_retry, vm, &err))
		vm_log_failed(vm, "what a move left in its network stays", err.msg);
}

static void tidy_after(void *arg)
{
	struct tidy *j = arg;
	struct vm *vm = j->vm;

	vm->is_tidying = false;
	if (vm_job_done(vm)) {
		vm->needs_tidy |=
			j->rc != RC_OK; /* or a move's own end has asked for it meanwhile */
		if (!j->rc)
			vm->tidy_wait = 0;
		if (j->rc)
			tidy_later(vm, j->err.msg);
		else
			vm_tidy(vm);
	}
	tidy_free(j);
}

bool vm_is_moving(const struct vm *vm)
{
	return mig_source_is_active(vm) || mig_target_is_active(vm);
}

/* The guest runs or stands here, and for this pod.  A copy that waits, or has gone, is tidied up at its pod's end. */
static bool is_due(const struct vm *vm)
{
	return vm->needs_tidy && !vm->is_tidying && !vm->tidy_timer && vm->pod &&
	       vm->has_answered && (vm->state == VM_RUNNING || vm->state == VM_PAUSED) &&
	       !vm->is_target && !vm->is_source_done && !vm_is_moving(vm) && vm_vmi(vm);
}

static enum rc start(struct vm *vm, struct err *err)
{
	const struct in_addr none = {0};
	struct tidy *j = mem_alloc(sizeof(*j));
	struct vm_pod_net pn;

	if (!j)
		return err_set(err, RC_NOMEM, "out of memory");
	j->vm = vm;
	j->ops = vm->host->cfg.net;
	j->netns_dir = mem_printf("%s/netns", vm->host->cfg.run_dir);
	vm->host->cfg.pods->net(vm->pod, &pn);
	(void)snprintf(j->ns_name, sizeof(j->ns_name), "%s", pn.ns_name);
	enum rc rc = mig_net_init(vm, none, none, &j->net, err);

	if (!rc && !j->netns_dir)
		rc = err_set(err, RC_NOMEM, "out of memory");
	if (!rc) /* after what the last move still has there, before what the next one opens */
		rc = pool_run_ordered(vm->host->cfg.loop, vm->host->cfg.net_queue, tidy_work,
				      tidy_after, j, err);
	if (rc) {
		tidy_free(j);
		return rc;
	}
	vm->jobs++;
	vm->is_tidying = true;
	return RC_OK;
}

void vm_tidy(struct vm *vm)
{
	struct err err = {0};

	if (!is_due(vm))
		return;
	vm->needs_tidy = false;
	if (start(vm, &err)) {
		vm->needs_tidy = true;
		tidy_later(vm, err.msg);
	}
}
