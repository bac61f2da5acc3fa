/* The target's agent: opens the way, hands the key out once, waits for the permission, takes over. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/failpoint.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "ctl/plan.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "net/ns.h"
#include "sched/snapshot.h"
#include "virt/names.h"
#include "virt/migration/mig_qemu.h"
#include "virt/node/host_files.h"
#include "virt/node/migration_target_int.h"
#include "virt/node/vmspec.h"

#define RESUME_MS 5000

/* One piece of blocking work; runs on the network's queue, so one after the other. */
struct dst_job {
	struct mig_target *t;
	enum rc (*work)(struct dst_job *j);
	void (*done)(struct mig_target *t, enum rc rc, const char *why);
	char *text; /* flows */
	char *netns_dir, ns_name[64], *pod_uid;
	enum rc rc;
	struct err err;
};

void mig_target_step(struct mig_target *t, enum dst_event e)
{
	enum dst_state next;

	if (!dst_next(t->state, e, &next)) {
		log_debug("move %s: %s is not expected in state %s", t->uid, dst_event_name(e),
			  dst_state_name(t->state));
		return;
	}
	if (next != t->state)
		log_info("move %s (target of '%s/%s'): %s -> %s on %s", t->uid,
			 t->vm ? t->vm->ns : "", t->vm ? t->vm->name : "", dst_state_name(t->state),
			 dst_state_name(next), dst_event_name(e));
	t->state = next;
}

/* --- memory and jobs --- */

static void target_destroy(struct mig_target *t)
{
	fd_close(t->net.ns_fd);
	vmnet_handover_free(t->net.handover);
	js_unref(t->final);
	js_unref(t->disks);
	mem_free(t->flows);
	mem_free(t->uid);
	mem_free(t->source_node);
	mem_free(t->failure);
	mem_free(t);
}

static void job_free(struct dst_job *j)
{
	mem_free(j->text);
	mem_free(j->netns_dir);
	mem_free(j->pod_uid);
	mem_free(j);
}

static void job_work(void *arg)
{
	struct dst_job *j = arg;

	j->rc = j->work(j);
}

static void job_after(void *arg)
{
	struct dst_job *j = arg;
	struct mig_target *t = j->t;

	t->jobs--;
	if (t->vm && j->done)
		j->done(t, j->rc, j->err.msg);
	else if (j->rc)
		log_warn("move %s: %s", t->uid, j->err.msg);
	if (!t->vm && !t->jobs)
		target_destroy(t);
	job_free(j);
}

static enum rc run(struct mig_target *t, enum rc (*work)(struct dst_job *),
		   void (*done)(struct mig_target *, enum rc, const char *), const char *text,
		   struct err *err)
{
	struct dst_job *j = mem_alloc(sizeof(*j));
	struct vm_pod_net pn = {0};

	if (!j)
		return err_set(err, RC_NOMEM, "out of memory");
	j->t = t;
	j->work = work;
	j->done = done;
	j->text = mem_strdup(text);
	j->netns_dir = mem_printf("%s/netns", t->host->cfg.run_dir);
	if (t->vm && t->vm->pod)
		t->host->cfg.pods->net(t->vm->pod, &pn);
	(void)snprintf(j->ns_name, sizeof(j->ns_name), "%s", pn.ns_name ? pn.ns_name : "");
	j->pod_uid = mem_strdup(t->vm && t->vm->pod ? t->host->cfg.pods->uid(t->vm->pod) : "none");
	enum rc rc = (text && !j->text) || !j->netns_dir || !j->pod_uid
			     ? err_set(err, RC_NOMEM, "out of memory")
			     : pool_run_ordered(t->host->cfg.loop, t->host->cfg.net_queue, job_work,
						job_after, j, err);

	if (rc) {
		job_free(j);
		return rc;
	}
	t->jobs++;
	return RC_OK;
}

static enum rc close_work(struct dst_job *j)
{
	struct mig_target *t = j->t;
	const struct vm_net_ops *net = &t->host->cfg.net;

	if (t->net.handover) {
		ignore_rc(vmnet_target_close(t->net.handover, &j->err)); /* frees it in any case */
		t->net.handover = NULL;
	}
	if (t->is_open)
		TRY(net->mig_close(t->net.pod, net->arg, &j->err));
	t->is_open = false;
	return RC_OK;
}

struct mig_target *mig_target_free(struct mig_target *t)
{
	struct err err;

	if (!t)
		return NULL;
	if (t->answer)
		t->answer(RC_CLOSED, "the target of the move has gone", NULL, t->arg);
	if (t->recover_answer)
		t->recover_answer(RC_CLOSED, "the target of the move has gone", NULL,
				  t->recover_arg);
	t->answer = t->recover_answer = NULL;
	t->look_timer = ev_src_free(t->look_timer);
	t->proof = mig_proof_free(t->proof);
	t->vm = NULL;
	if ((t->net.handover || t->is_open) && !run(t, close_work, NULL, NULL, &err))
		return NULL;
	if (!t->jobs)
		target_destroy(t);
	return NULL;
}

void mig_target_make_way(struct vm *vm)
{
	struct mig_target *t = vm->target;
	struct err err;

	if (!t || (!t->jobs && !t->net.handover && !t->is_open)) /* a job may be about to open it */
		return;
	t->has_left = true; /* the struct stays, for a source that asks */
	if (run(t, close_work, NULL, NULL, &err))
		log_warn("move %s: %s", t->uid, err.msg);
}

/* --- failure --- */

static void answer(struct mig_target *t, enum rc rc, const char *message, struct json *body)
{
	mig_answer_fn fn = t->answer;

	t->answer = NULL;
	if (fn)
		fn(rc, message, body, t->arg);
	else
		js_unref(body);
}

void mig_target_failed(struct mig_target *t, const char *why)
{
	log_error("move %s: the target cannot take '%s/%s': %s", t->uid, t->vm->ns, t->vm->name,
		  why);
	ignore_rc(api_set_str(&t->failure, why));
	t->host->n_moves_failed++;
	mig_target_step(t, DSTEV_FAILED);
	answer(t, RC_CONFLICT, why, NULL);
	vm_sync(t->vm);
}

/* --- preparing --- */

static void listens(struct mig_target *t)
{
	struct vm *vm = t->vm;
	char ip[NET_IP4_TEXT];

	if (!t->is_prepared || t->state != DST_PREPARING || vm->asks_devices)
		return;
	mig_target_step(t, DSTEV_LISTENS);
	mig_event(vm, "Normal", "PreparingTarget",
		  "VirtualMachineInstance Migration Target Prepared.");
	mig_event(vm, "Normal", "PreparingTarget",
		  "Migration Target is listening at %s, on ports: %lld",
		  net_ip4_format(t->address, ip), (long long)t->port);
	mig_write_handover(vm, t->uid, HandoverState_Prepared, NULL, NULL);
	vm_sync(vm);
}

static void on_prepared(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	struct mig_target *t = vm->target;

	if (!t)
		return;
	if (r->rc) {
		mig_target_failed(t, r->message);
		return;
	}
	t->disks = js_ref(js_get(r->result, "disks"));
	t->is_prepared = true;
	listens(t);
}

static enum rc open_work(struct dst_job *j)
{
	struct mig_target *t = j->t;
	const struct vm_net_ops *net = &t->host->cfg.net;

	TRY(net_ns_open(j->netns_dir, j->ns_name, &t->net.ns_fd, &j->err));
	if (t->net.has_net)
		TRY(vmnet_target_open(&t->net.handover, &t->net.cfg, &j->err));
	TRY(net->mig_listen(t->net.pod, t->net.peer, t->net.ports, 2, net->arg, &j->err));
	t->is_open = true;
	return RC_OK;
}

static void opened(struct mig_target *t, enum rc rc, const char *why)
{
	struct vm *vm = t->vm;
	struct vm_pod_net pn;
	char ip[NET_IP4_TEXT];
	struct err err;

	if (rc) {
		mig_target_failed(t, why);
		return;
	}
	mig_devices_ask(vm);
	failpoint("target-agent.prepares");
	vm->host->cfg.pods->net(vm->pod, &pn);
	struct json *params =
		js_pack("{s:s, s:s, s:I, s:I, s:o}", "migrationUid", t->uid, "address",
			net_ip4_format(pn.mig_address, ip), "port", t->port, "nbdPort", t->nbd_port,
			"options", mig_options(vm_vmi(vm), -1));

	if (params && t->has_tls &&
	    js_set(params, "tls", js_pack("{s:s, s:s}", "user", MIG_USER, "key", t->key)))
		params = js_unref(params);
	if (!params ||
	    vm_call(vm, "prepareIncoming", params, MIG_CALL_DEADLINE, on_prepared, vm, &err))
		mig_target_failed(t, params ? err.msg : "out of memory");
}

/* A pair of ports of this node's underlay address that no other move uses. */
static bool port_is_used(const struct mig_target *self)
{
	LIST_FOREACH(it, &self->host->vms) {
		const struct mig_target *t = LIST_ENTRY(it, struct vm, link)->target;

		if (t && t != self && t->port == self->port && t->state != DST_DONE)
			return true;
	}
	return false;
}

static enum rc find_addresses(struct mig_target *t, const VirtualMachineInstanceMigrationState *s,
			      struct err *err)
{
	struct in_addr peer, data;
	uint16_t agent_port;

	TRY(mig_node_address(t->host, s->sourceNode, &peer, &agent_port, err));
	TRY(mig_data_address(t->host, s, s->sourceNode, &data, err));
	TRY(mig_data_address(t->host, s, t->host->cfg.node_name, &t->address, err));
	return mig_net_init(t->vm, peer, data, &t->net, err);
}

static enum rc begin(struct mig_target *t, const VirtualMachineInstanceMigrationState *s,
		     struct err *err)
{
	uint8_t raw[32];

	TRY(find_addresses(t, s, err));
	for (t->port = MIG_PORT; port_is_used(t); t->port += 2)
		if (t->port > MIG_PORT + 2000)
			return err_set(err, RC_BUSY, "too many moves to this node at once");
	t->nbd_port = t->port + 1;
	t->net.ports[0] = (uint16_t)t->port;
	t->net.ports[1] = (uint16_t)t->nbd_port;
	t->has_tls = !(s->migrationConfiguration &&
		       API_GET(s->migrationConfiguration, disableTLS, false));
	rand_bytes(raw, sizeof(raw));
	str_hex(raw, sizeof(raw), t->key);
	/* The VM may have left this node a moment ago: what still sends its frames on would meet it here.
	 * The queue keeps the order: that ends first. */
	LIST_FOREACH(it, &t->host->vms) {
		struct vm *other = LIST_ENTRY(it, struct vm, link);

		if (other == t->vm || !str_eq(other->vmi_uid, t->vm->vmi_uid))
			continue;
		mig_source_make_way(other);
		mig_target_make_way(other);
	}
	return run(t, open_work, opened, NULL, err);
}

static struct mig_target *target_new(struct vm *vm, const VirtualMachineInstanceMigrationState *s)
{
	struct mig_target *t = mem_alloc(sizeof(*t));

	if (!t)
		return NULL;
	t->vm = vm;
	t->host = vm->host;
	t->net.ns_fd = -1;
	t->uid = mem_strdup(s->migrationUid);
	t->source_node = mem_strdup(s->sourceNode);
	if (!t->uid || !t->source_node) {
		target_destroy(t);
		return NULL;
	}
	return t;
}

bool mig_target_is_active(const struct vm *vm)
{
	return vm->target && vm->target->state < DST_DONE;
}

static bool is_due(const struct vm *vm, const VirtualMachineInstanceMigrationState *s)
{
	return s && vm->is_target && vm->has_answered && vm->state == VM_INCOMING &&
	       str_eq(s->migrationUid, vm->migration_uid) &&
	       str_eq(s->targetNode, vm->host->cfg.node_name) && !API_GET(s, failed, false) &&
	       !API_GET(s, completed, false);
}

static void on_abandoned(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	struct mig_target *t = vm->target;

	if (!t)
		return;
	t->is_alone = r->rc == RC_OK; /* a launcher that has been told to run the guest refuses */
	if (t->is_alone)
		mig_target_failed(t, "the guest ended at its source before it was handed over");
}

/* The source's machine was down in the middle of the move: its pod is over, its agent knows nothing of a move
 * any more, and this half of the guest would wait for ever.  Without the permission it never runs. */
static void abandon_if_alone(struct mig_target *t)
{
	const VirtualMachineInstanceMigrationState *s = mig_state(t->vm);
	struct err err = {0};

	if (!s || !s->startTimestamp || !str_eq(s->migrationUid, t->uid) || t->is_alone ||
	    (t->state != DST_LISTENING && t->state != DST_KEYED) || !mig_is_alone(t->vm))
		return;
	struct json *params = js_pack("{s:s, s:s}", "migrationUid", t->uid, "reason",
				      "the guest ended at its source");

	t->is_alone = true;
	if (vm_call(t->vm, "abortIncoming", params, MIG_CALL_DEADLINE, on_abandoned, t->vm, &err)) {
		t->is_alone = false; /* the next look asks again */
		log_warn("move %s: cannot be given up: %s", t->uid, err.msg);
	}
}

void mig_target_kick(struct vm *vm)
{
	const VirtualMachineInstanceMigrationState *s = mig_state(vm);
	struct err err = {0};

	if (vm->target) {
		listens(vm->target);
		abandon_if_alone(vm->target);
		mig_target_end_half(vm->target);
	}
	if (vm->target || !is_due(vm, s))
		return;
	vm->target = target_new(vm, s);
	if (!vm->target) {
		log_error("VM '%s/%s': out of memory", vm->ns, vm->name);
		return;
	}
	mig_target_step(vm->target, DSTEV_BEGIN);
	if (begin(vm->target, s, &err))
		mig_target_failed(vm->target, err.msg);
}

/* Before the activation: an event about some other VM must not undo what that does. */
static void tell_place(const struct mig_target *t)
{
	const struct vm_net_ops *net = &t->host->cfg.net;
	struct err err = {0};

	if (t->net.has_net &&
	    net->place(t->net.cfg.mac, t->host->cfg.underlay, t->epoch, net->arg, &err))
		log_warn("move %s: the place is not remembered: %s", t->uid, err.msg);
}

/* The rules of the firewall are still in the kernel; only what lives in this process is made again. */
static enum rc reopen_work(struct dst_job *j)
{
	struct mig_target *t = j->t;

	TRY(net_ns_open(j->netns_dir, j->ns_name, &t->net.ns_fd, &j->err));
	if (!t->net.has_net)
		return RC_OK;
	TRY(vmnet_target_open(&t->net.handover, &t->net.cfg, &j->err));
	/* This agent has started with a PortBinding that still named the source, and forwarded to it: back here. */
	return t->is_found_running ? vmnet_target_activate(t->net.handover, &j->err) : RC_OK;
}

static void reopened(struct mig_target *t, enum rc rc, const char *why)
{
	if (rc)
		log_warn("move %s: its network is not as it was: %s", t->uid, why);
	vm_kick(t->vm);
}

/* As published: a link of post-copy that is lost is made again on them. */
static void find_ports(struct mig_target *t, const VirtualMachineInstanceMigrationState *s)
{
	JS_FOREACH(it, s->targetDirectMigrationNodePorts)
		if (js_int(it.value, 0) == MIG_PORT)
			ignore_rc(str_to_i64(it.key, 1, 65534, &t->port, NULL)); /* 0: not known */
	t->nbd_port = t->port + 1;
}

static enum rc settle_work(struct dst_job *j)
{
	struct mig_target *t = j->t;

	if (t->net.has_net)
		TRY(vmnet_settle(t->net.ns_fd, &j->err));
	return close_work(j);
}

static void settled(struct mig_target *t, enum rc rc, const char *why)
{
	if (rc)
		log_warn("move %s: its network is not tidy: %s", t->uid, why);
	t->vm->needs_tidy |= rc != RC_OK;
	vm_tidy(t->vm);
	/* The answer to a repeated permission stays possible: the struct goes with the VM or its next move. */
}

/* The guest runs here, and the VMI says so: what is left to put away is vm_tidy()'s.  The source may not have heard the
 * answer yet. */
static void found_done(struct vm *vm, const VirtualMachineInstanceMigrationState *s)
{
	struct mig_target *t = target_new(vm, s);

	if (!t)
		return;
	vm->target = t;
	vm->is_target = false;
	t->is_whole = true;
	for (enum dst_event e = DSTEV_BEGIN; e <= DSTEV_WRITTEN; e++)
		mig_target_step(t, e);
}

/* An agent that restarted in the middle: the key is gone, but the permission can still come, or has been
 * used already. */
static void take_up_again(struct vm *vm, const struct json *data)
{
	const VirtualMachineInstanceMigrationState *s = mig_state(vm);
	const char *phase = js_get_str(data, "phase");
	const Handover *h;
	struct mig_target *t;
	struct err err;

	if (!s || !str_eq(s->migrationUid, vm->migration_uid) ||
	    !str_eq(js_get_str(data, "migrationUid"), s->migrationUid) ||
	    !str_eq(s->targetNode, vm->host->cfg.node_name) || API_GET(s, failed, false))
		return;
	if (API_GET(s, completed, false)) {
		if (str_eq(phase, "resumed"))
			found_done(vm, s);
		return;
	}
	if (!vm->is_target)
		return;
	t = target_new(vm, s);
	if (!t)
		return;
	if (find_addresses(t, s, NULL)) {
		target_destroy(t);
		return;
	}
	vm->target = t;
	h = mig_handover(vm, t->uid);
	t->epoch = js_get_int(data, "epoch", -1) > 0 ? js_get_int(data, "epoch", -1)
		   : h				     ? API_GET(&h->spec, epoch, 0)
						     : 0;
	t->is_open = true;
	find_ports(t, s);
	log_info("move %s: found again in phase %s", t->uid, phase ? phase : "");
	mig_target_step(t, DSTEV_BEGIN);
	mig_target_step(t, DSTEV_LISTENS);
	mig_target_step(t, DSTEV_KEY);
	t->is_split = js_get_bool(data, "postCopy", false);
	t->is_whole = str_eq(phase, "resumed");
	if (t->is_whole || str_eq(phase, "postcopy") || str_eq(phase, "postcopy-paused")) {
		t->is_broken = str_eq(phase, "postcopy-paused");
		t->resume_at = (usec_t)js_get_int(data, "resumeAt", 0);
		t->is_found_running = true;
		tell_place(t);
		vm->is_target = false;
		vm->epoch = t->epoch;
		mig_target_step(t, DSTEV_PERMISSION);
		mig_target_step(t, DSTEV_RESUMED);
	}
	if (run(t, reopen_work, reopened, NULL, &err))
		log_warn("move %s: %s", t->uid, err.msg);
}

/* The guest is on its way here for good. */
static void runs_here(struct mig_target *t, const struct json *told, bool lacks_pages)
{
	struct vm *vm = t->vm;

	failpoint("target-agent.runs");
	t->is_split |= lacks_pages;
	t->is_whole = !lacks_pages;

	t->resume_at = (usec_t)js_get_int(told, "resumeAt", 0);
	t->waited_us = (usec_t)js_get_int(told, "waitedUs", 0);
	vm->is_target = false;
	vm->epoch = t->epoch;
	t->host->n_moves_in++;
	mig_target_step(t, DSTEV_RESUMED);
	answer(t, RC_OK, NULL, js_pack("{s:I}", "resumeAt", (int64_t)t->resume_at));
	vm_kick(vm);
}

void mig_target_event(struct vm *vm, const char *name, const struct json *data)
{
	struct mig_target *t = vm->target;
	const char *phase = js_get_str(data, "phase");

	if (strcmp(name, "migration") != 0 || !str_eq(js_get_str(data, "role"), "target"))
		return;
	if (!t)
		take_up_again(vm, data);
	t = vm->target;
	if (!t || !str_eq(js_get_str(data, "migrationUid"), t->uid))
		return;
	/* The answer to the call took longer than the call: nobody waits for it any more. */
	bool lacks_pages = str_eq(phase, "postcopy");

	if ((str_eq(phase, "resumed") || lacks_pages) && t->state == DST_PERMITTED && !t->answer)
		runs_here(t, data, lacks_pages);
	mig_target_phase_split(t, phase);
	if (str_eq(phase, "failed") && t->state < DST_PERMITTED) {
		const char *why = js_get_str(js_get(data, "failure"), "message");

		mig_target_failed(t, why ? why : "the guest's state could not be loaded");
	}
}

/* --- requests of the source --- */

static enum rc flows_work(struct dst_job *j)
{
	return j->text && *j->text ? vmnet_flows_load(j->t->net.ns_fd, j->text, &j->err) : RC_OK;
}

static void give_key(struct mig_target *t)
{
	struct json *out;
	struct err err;

	mig_target_step(t, DSTEV_KEY);
	if (t->flows && t->net.has_ports_filter && run(t, flows_work, NULL, t->flows, &err))
		log_warn("move %s: flows are not copied: %s", t->uid, err.msg);
	out = js_pack("{s:I, s:I, s:b, s:O*}", "port", t->port, "nbdPort", t->nbd_port, "tls",
		      (int)t->has_tls, "disks", t->disks);
	if (out && t->has_tls &&
	    (js_set(out, "user", js_new_str(MIG_USER)) || js_set(out, "key", js_new_str(t->key))))
		out = js_unref(out);
	memset(t->key, 0, sizeof(t->key)); /* once */
	answer(t, out ? RC_OK : RC_NOMEM, out ? NULL : "out of memory", out);
}

static void on_proof(void *arg, enum rc rc, const char *why)
{
	struct mig_target *t = arg;

	if (rc)
		mig_target_failed(t, why);
	else if (t->state == DST_LISTENING)
		give_key(t);
	else
		answer(t, RC_CONFLICT, "the move has ended", NULL);
}

/* Claims that nobody copies have to be the same here as at the source. */
static void check_proof(struct mig_target *t, const struct json *theirs)
{
	CLEANUP(js_unrefp) struct json *claims = NULL;
	struct err err = {0};

	if (mig_proof_claims(t->vm, false, &claims, &err)) {
		mig_target_failed(t, err.msg);
		return;
	}
	const struct mig_proof_told told = {
		.source = t->source_node, .claims = claims, .theirs = theirs};

	if (!js_len(claims))
		give_key(t);
	else if (mig_proof_check(&t->proof, t->vm, t->uid, &told, on_proof, t, &err))
		mig_target_failed(t, err.msg);
}

static void take_key_request(struct mig_target *t, const struct json *body, mig_answer_fn fn,
			     void *arg)
{
	char why[400];

	if (t->state != DST_LISTENING || t->answer) {
		fn(RC_CONFLICT, "the key of this move was handed out already, or is not made yet",
		   NULL, arg);
		return;
	}
	if (mig_cpu_lacks(t->vm, why, sizeof(why)) ||
	    mig_devices_lack(t->vm->devices, js_get(body, "devices"), t->host->cfg.node_name, why,
			     sizeof(why))) {
		fn(RC_UNSUPPORTED, why, NULL, arg);
		mig_target_failed(t, why);
		return;
	}
	ignore_rc(
		api_set_str(&t->flows, js_get_str(body, "flows"))); /* without them it is slower */
	t->answer = fn;
	t->arg = arg;
	check_proof(t, js_get(body, "claims"));
}

static void on_resumed(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	struct mig_target *t = vm->target;

	if (!t)
		return;
	if (r->rc == RC_TIMEOUT || r->rc == RC_CLOSED || r->rc == RC_BUSY) {
		answer(t, r->rc, r->message, NULL); /* the source asks again */
		return;
	}
	if (r->rc) {
		mig_target_failed(t, r->message);
		return;
	}
	runs_here(t, r->result, js_get_bool(r->result, "postCopy", false));
}

/* Whatever is to be said to a permission before it is used.  RC_OK: it may be. */
static enum rc judge_permission(const struct mig_target *t, int64_t epoch, const char **why)
{
	const Handover *h = mig_handover(t->vm, t->uid);

	*why = NULL;
	if (t->state == DST_FAILED) { /* the one clear no */
		*why = t->failure ? t->failure : "the target has failed";
		return RC_CONFLICT;
	}
	if (t->answer || t->has_left || (t->state != DST_KEYED && t->state != DST_PERMITTED) ||
	    (t->net.has_net && !t->net.handover)) {
		*why = "the target is not ready for the guest yet";
		return RC_BUSY;
	}
	if (epoch <= 0 || (h && API_GET(&h->spec, epoch, 0) != epoch)) {
		*why = "the permission is of another epoch";
		return RC_CONFLICT;
	}
	return RC_OK;
}

static void resume(struct mig_target *t)
{
	struct err err = {0};
	struct json *params = js_pack("{s:s, s:I, s:i, s:b}", "migrationUid", t->uid, "epoch",
				      t->epoch, "timeoutMs", RESUME_MS, "paused",
				      (int)js_get_bool(t->final, "guestPaused", false));

	if (vm_call(t->vm, "resumeIncoming", params, MIG_CALL_DEADLINE, on_resumed, t->vm, &err))
		answer(t, err.rc, err.msg, NULL);
}

/* The volumes that came along are this node's before the guest writes to them: whatever ends here from now on, they
 * stay. */
static enum rc keep_work(struct dst_job *j)
{
	const struct mig_target *t = j->t;

	TRY(volume_keep_incoming(t->host->local_dir, j->pod_uid, &j->err));
	return host_files_keep(t->host->local_dir, j->pod_uid, &j->err);
}

static void kept(struct mig_target *t, enum rc rc, const char *why)
{
	failpoint("target-agent.keeps");
	if (rc)
		mig_target_failed(t, why);
	else
		resume(t);
}

static bool brings_disks(const struct mig_target *t)
{
	const struct vm_pod_ops *pods = t->host->cfg.pods;

	return pods->annotation(t->vm->pod, SCHED_BRINGS_CLAIMS) ||
	       pods->annotation(t->vm->pod, ANN_BRINGS_HOST_DISKS);
}

static void take_permission(struct mig_target *t, const struct json *body, mig_answer_fn fn,
			    void *arg)
{
	int64_t epoch = js_get_int(body, "epoch", 0);
	const char *why;
	struct err err = {0};

	if (t->state == DST_RUNNING || t->state == DST_FETCHING ||
	    t->state == DST_DONE) { /* its answer was lost */
		fn(RC_OK, NULL, js_pack("{s:I}", "resumeAt", (int64_t)t->resume_at), arg);
		return;
	}
	enum rc rc = judge_permission(t, epoch, &why);

	if (rc) {
		fn(rc, why, NULL, arg);
		return;
	}
	failpoint("target-agent.permitted");
	mig_target_step(t, DSTEV_PERMISSION);
	t->epoch = epoch;
	t->answer = fn;
	t->arg = arg;
	t->stop_at = (usec_t)js_get_int(body, "stopAt", 0);
	js_unref(t->final);
	t->final = js_ref(js_get(body, "migration"));
	tell_place(t);
	if (t->net.handover && vmnet_target_activate(t->net.handover, &err))
		log_warn("move %s: the network does not lead here yet: %s", t->uid, err.msg);
	if (!brings_disks(t)) {
		resume(t);
	} else if (run(t, keep_work, kept, NULL, &err)) {
		answer(t, RC_BUSY, err.msg, NULL); /* the source asks again */
		return;
	}
	if (js_get_str(body, "flows") && t->net.has_ports_filter &&
	    run(t, flows_work, NULL, js_get_str(body, "flows"), &err))
		log_warn("move %s: flows are not copied: %s", t->uid, err.msg);
}

void mig_target_request(struct vmhost *h, const char *vmi_uid, const char *what, const char *from,
			const struct json *body, mig_answer_fn fn, void *arg)
{
	struct vm *vm = vmhost_find_target(h, vmi_uid);
	struct mig_target *t = vm ? vm->target : NULL;

	if (!t || !str_eq(js_get_str(body, "migrationUid"), t->uid))
		fn(RC_NOT_FOUND, "this node is not the target of such a move", NULL, arg);
	else if (strcmp(from, t->source_node) != 0)
		fn(RC_FORBIDDEN, "only the source of the move may ask this", NULL, arg);
	else if (strcmp(what, "key") == 0)
		take_key_request(t, body, fn, arg);
	else if (strcmp(what, "permission") == 0)
		take_permission(t, body, fn, arg);
	else if (strcmp(what, "recover") == 0)
		mig_target_recover(t, fn, arg);
	else
		fn(RC_NOT_FOUND, "the node has no such path", NULL, arg);
}

/* --- what the VMI says --- */

static enum rc publish(const struct mig_target *t, VirtualMachineInstanceMigrationState *s)
{
	char ip[NET_IP4_TEXT], port[8], nbd[8];

	if (s->targetNodeAddress)
		return RC_OK;
	(void)snprintf(port, sizeof(port), "%lld", (long long)t->port);
	(void)snprintf(nbd, sizeof(nbd), "%lld", (long long)t->nbd_port);
	struct json *ports = js_pack("{s:i}", port, MIG_PORT);

	if (!ports || (js_len(t->disks) && js_set(ports, nbd, js_new_int(MIG_PORT + 1)))) {
		js_unref(ports);
		return RC_NOMEM;
	}
	js_unref(s->targetDirectMigrationNodePorts);
	s->targetDirectMigrationNodePorts = ports;
	bool is_own =
		s->migrationConfiguration && !str_is_empty(s->migrationConfiguration->network);

	TRY(api_set_str(&s->targetNodeAddress, net_ip4_format(t->address, ip)));
	return api_set_str(&s->migrationNetworkType,
			   is_own ? MigrationNetworkType_Migration : MigrationNetworkType_Pod);
}

static enum rc publish_failure(const struct mig_target *t, VirtualMachineInstanceMigrationState *s,
			       usec_t now)
{
	if (API_GET(s, failed, false) || API_GET(s, completed, false) ||
	    (s->startTimestamp && !t->is_alone && !t->is_lost))
		return RC_OK; /* once it has begun, the source says how it ended */
	API_SET(s, failed, true);
	TRY(api_set_str(&s->failureReason, t->failure));
	return mig_set_time(&s->endTimestamp, now);
}

static enum rc publish_taken(const struct mig_target *t, VirtualMachineInstance *vmi, usec_t now)
{
	VirtualMachineInstanceStatus *st = &vmi->status;
	VirtualMachineInstanceMigrationState *s = st->migrationState;
	const char *me = t->host->cfg.node_name;
	FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &st->ferry);
	FerryMigrationStatus *fm =
		fs ? api_ensure(&api_type_FerryMigrationStatus, &fs->migration) : NULL;

	if (!fm)
		return RC_NOMEM;
	TRY(api_set_str(&st->nodeName, me));
	TRY(api_map_set(&vmi->metadata.labels, LABEL_NODE_NAME, me));
	API_SET(fs, epoch, t->epoch);
	if (t->stop_at && t->resume_at >= t->stop_at)
		API_SET(fm, pauseMs, (int64_t)((t->resume_at - t->stop_at + 500) / 1000));
	int64_t waited = js_get_int(t->final, "waitedUs", 0); /* at the source */
	if (waited && t->waited_us)
		API_SET(fm, permissionUs, waited + (int64_t)t->waited_us);
	API_SET(s, targetNodeDomainDetected, true);
	TRY(mig_set_time(&s->targetNodeDomainReadyTimestamp, t->resume_at));
	if (t->is_split)
		TRY(api_set_str(&s->mode, MigrationMode_PostCopy));
	/* Both pods hold a part of it still, and the move is under way. */
	if (!t->is_whole)
		return api_map_set(&st->activePods, t->host->cfg.pods->uid(t->vm->pod), me);
	/* the source's pod holds nothing any more: said here, it is not a write of its own */
	api_map_fini(&st->activePods);
	TRY(api_map_set(&st->activePods, t->host->cfg.pods->uid(t->vm->pod), me));
	(void)api_map_del(&vmi->metadata.annotations, ANN_EVICTION_SOURCE);
	TRY(api_set_str(&st->evacuationNodeName, NULL));
	TRY(api_set_str(&st->launcherContainerImageVersion, NULL));
	API_SET(s, completed, true);
	TRY(mig_set_time(&s->endTimestamp, t->is_split ? now : t->resume_at));
	if (!t->is_split) {
		/* the source may have had no time to say that it was finished with a pause */
		TRY(api_set_str(&s->mode, mig_is_finishing(t->final) ? MigrationMode_Paused
								     : MigrationMode_PreCopy));
		TRY(mig_fill_stats(fm, t->final, vmspec_memory(vmi), 0));
	}
	if (fm->memory)
		API_SET(fm->memory, remainingBytes, 0);
	TRY(api_set_str(&fm->stage, "completed"));
	API_SET(fm, percent, 100);
	return RC_OK;
}

enum rc mig_target_fill(struct vm *vm, VirtualMachineInstance *vmi, usec_t now)
{
	const struct mig_target *t = vm->target;
	VirtualMachineInstanceMigrationState *s = vmi->status.migrationState;

	if (!t || !s || !str_eq(s->migrationUid, t->uid))
		return RC_OK;
	switch (t->state) {
	case DST_LISTENING:
	case DST_KEYED:
		return publish(t, s);
	case DST_FAILED:
		return publish_failure(t, s, now);
	case DST_RUNNING:
		return publish_taken(t, vmi, now);
	default:
		return RC_OK;
	}
}

enum rc mig_target_plan(struct vm *vm, struct plan *plan)
{
	struct mig_target *t = vm->target;
	const PortBinding *b;
	PortBinding *next;

	if (!t || t->state != DST_RUNNING)
		return RC_OK;
	t->has_binding = !t->net.has_net;
	TRY(mig_disks_take(vm, t->source_node, vm->host->cfg.node_name, t->uid, false, plan));
	b = kobj_typed(kcache_get(vm->host->cfg.cache, &api_kind_PortBinding, vm->ns, vm->name));
	if (!b) /* not heard of yet: a VM that was made a moment ago */
		return RC_OK;
	t->has_binding = true;
	if (API_GET(&b->spec, epoch, 0) >= t->epoch)
		return RC_OK;
	next = PortBinding_clone(b);
	if (!next)
		return RC_NOMEM;
	API_SET(&next->spec, epoch, t->epoch);
	if (api_set_str(&next->spec.nodeName, vm->host->cfg.node_name) ||
	    api_set_str(&next->spec.podName, vm->host->cfg.pods->name(vm->pod))) {
		PortBinding_free(next);
		return RC_NOMEM;
	}
	return plan_update(plan, &api_kind_PortBinding, b, next, NULL);
}

/* --- after it --- */

bool mig_target_awaits_binding(const struct vm *vm)
{
	return vm->target && vm->target->state == DST_RUNNING && !vm->target->has_binding;
}

void mig_target_written(struct vm *vm)
{
	struct mig_target *t = vm->target;
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	struct err err;

	if (!t || t->state != DST_RUNNING || !t->has_binding || !vmi ||
	    !str_eq(vmi->status.nodeName, vm->host->cfg.node_name))
		return;
	if (!t->is_whole) {
		mig_target_step(t, DSTEV_NAMED);
		mig_event(vm, "Normal", "Migrating",
			  "The guest runs on node %s, the rest of its memory follows.",
			  vm->host->cfg.node_name);
		mig_write_handover(vm, t->uid, HandoverState_Taken, "takenTime", NULL);
		return;
	}
	failpoint("target-agent.written");
	mig_target_step(t, DSTEV_WRITTEN);
	mig_event(vm, "Normal", "Migrated", "The VirtualMachineInstance migrated to node %s.",
		  vm->host->cfg.node_name);
	mig_write_handover(vm, t->uid, HandoverState_Taken, "takenTime", NULL);
	if (run(t, settle_work, settled, NULL, &err))
		log_warn("move %s: %s", t->uid, err.msg);
}
