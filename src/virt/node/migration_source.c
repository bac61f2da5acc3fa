/* The source's agent: fetches the key, starts the move, sends the guest's frames on while it stands, and
 * gives the permission once the guest is released. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/failpoint.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "net/ns.h"
#include "virt/node/migration_source_int.h"
#include "virt/node/vmspec.h"

#define PERMISSION_RETRY     (50 * USEC_PER_MSEC)
#define PERMISSION_RETRY_MAX (2 * USEC_PER_SEC)
#define FORWARD_FOR \
	(5 * USEC_PER_SEC) /* frames are sent on until every node must know the new place */
#define UNKNOWN_FOR   (30 * USEC_PER_SEC)
#define PREPARE_LIMIT (30 * USEC_PER_SEC) /* all of SRC_PREPARING; each step of it takes some ms */

struct src_job {
	struct mig_source *m;
	enum rc (*work)(struct src_job *j);
	void (*done)(struct mig_source *m, enum rc rc, const char *why);
	char *netns_dir, ns_name[64];
	struct sbuf out;
	enum rc rc;
	struct err err;
};

static void give_permission(struct mig_source *m);
static void ended(struct mig_source *m, const char *why);

bool mig_source_step(struct mig_source *m, enum src_event e)
{
	enum src_state next;

	if (!src_next(m->state, e, &next)) {
		log_debug("move %s: %s is not expected in state %s", m->uid, src_event_name(e),
			  src_state_name(m->state));
		return false;
	}
	if (next != m->state)
		log_info("move %s (source of '%s/%s'): %s -> %s on %s", m->uid,
			 m->vm ? m->vm->ns : "", m->vm ? m->vm->name : "", src_state_name(m->state),
			 src_state_name(next), src_event_name(e));
	m->state = next;
	return true;
}

/* --- memory and jobs --- */

static void source_destroy(struct mig_source *m)
{
	fd_close(m->net.ns_fd);
	vmnet_handover_free(m->net.handover);
	js_unref(m->last);
	js_unref(m->disks);
	js_unref(m->claims);
	mem_free(m->uid);
	mem_free(m->target_node);
	mem_free(m->failure);
	mem_free(m->reason);
	mem_free(m->detail);
	mem_free(m->user);
	if (m->key)
		explicit_bzero(m->key, strlen(m->key));
	mem_free(m->key);
	mem_free(m->flows);
	mem_free(m);
}

static void job_work(void *arg)
{
	struct src_job *j = arg;

	j->rc = j->work(j);
}

static void job_after(void *arg)
{
	struct src_job *j = arg;
	struct mig_source *m = j->m;

	m->jobs--;
	if (!j->rc && j->out.n && m->vm)
		ignore_rc(api_set_str(&m->flows, sbuf_str(&j->out)));
	if (m->vm && j->done)
		j->done(m, j->rc, j->err.msg);
	else if (j->rc)
		log_warn("move %s: %s", m->uid, j->err.msg);
	if (!m->vm && !m->jobs)
		source_destroy(m);
	sbuf_fini(&j->out);
	mem_free(j->netns_dir);
	mem_free(j);
}

static enum rc run(struct mig_source *m, enum rc (*work)(struct src_job *),
		   void (*done)(struct mig_source *, enum rc, const char *), struct err *err)
{
	struct src_job *j = mem_alloc(sizeof(*j));
	struct vm_pod_net pn = {0};

	if (!j)
		return err_set(err, RC_NOMEM, "out of memory");
	j->m = m;
	j->work = work;
	j->done = done;
	sbuf_init(&j->out, MIG_FLOWS_MAX);
	j->netns_dir = mem_printf("%s/netns", m->host->cfg.run_dir);
	if (m->vm && m->vm->pod)
		m->host->cfg.pods->net(m->vm->pod, &pn);
	(void)snprintf(j->ns_name, sizeof(j->ns_name), "%s", pn.ns_name ? pn.ns_name : "");
	enum rc rc = j->netns_dir ? pool_run_ordered(m->host->cfg.loop, m->host->cfg.net_queue,
						     job_work, job_after, j, err)
				  : err_set(err, RC_NOMEM, "out of memory");

	if (rc) {
		mem_free(j->netns_dir);
		mem_free(j);
		return rc;
	}
	m->jobs++;
	return RC_OK;
}

static enum rc close_work(struct src_job *j)
{
	struct mig_source *m = j->m;
	const struct vm_net_ops *net = &m->host->cfg.net;

	if (m->net.handover) {
		ignore_rc(vmnet_source_close(m->net.handover, &j->err)); /* frees it in any case */
		m->net.handover = NULL;
	}
	if (m->is_open)
		TRY(net->mig_close(m->net.pod, net->arg, &j->err));
	m->is_open = false;
	return RC_OK;
}

struct mig_source *mig_source_free(struct mig_source *m)
{
	struct err err;

	if (!m)
		return NULL;
	m->http = http_slot_free(m->http);
	m->proof = mig_proof_free(m->proof);
	m->timer = ev_src_free(m->timer);
	m->watch = ev_src_free(m->watch);
	m->end_timer = ev_src_free(m->end_timer);
	m->vm = NULL;
	if ((m->net.handover || m->is_open) && !run(m, close_work, NULL, &err))
		return NULL;
	if (!m->jobs)
		source_destroy(m);
	return NULL;
}

/* --- asking the target's agent --- */

enum rc mig_source_post(struct mig_source *m, const char *what, struct json *body, usec_t timeout,
			http_done_fn done, struct err *err)
{
	CLEANUP(mem_freep)
	char *url = mem_printf("%s/v1/moves/%s/%s", m->agent_url, m->vm->vmi_uid, what);
	CLEANUP(mem_freep) char *text = js_to_text(body);

	js_unref(body);
	if (!url || !text)
		return err_set(err, RC_NOMEM, "out of memory");
	struct http_call c = {.method = "POST",
			      .url = url,
			      .content_type = "application/json",
			      .body = text,
			      .n_body = strlen(text),
			      .timeout = timeout,
			      .done = done,
			      .arg = m};

	m->http = http_slot_free(m->http);
	return http_call(m->host->cfg.http, &m->http, &c, err);
}

/* What a Status answer says. */
void mig_source_answer_text(const struct http_result *r, char *out, size_t n)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	const char *text = r->err ? r->err->msg : NULL;

	if (!text && !js_parse(r->body, r->n, &j, NULL))
		text = js_get_str(j, "message");
	(void)snprintf(out, n, "%s", text ? text : "the target's agent answered without a reason");
}

/* --- preparing: key, network, and the start in the VMI --- */

static void on_accepted(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	struct mig_source *m = vm->source;

	if (!m)
		return;
	if (r->rc) {
		ended(m, r->message);
		return;
	}
	mig_source_step(m, SRCEV_ACCEPTED);
}

static enum rc start_outgoing(struct mig_source *m, struct err *err)
{
	struct json *params =
		js_pack("{s:s, s:s, s:I, s:I, s:o}", "migrationUid", m->uid, "address",
			m->target_ip, "port", m->port, "nbdPort", m->nbd_port, "options",
			mig_options(vm_vmi(m->vm), mig_pause_fixed(m->host, m->target_node)));

	if (params && m->key &&
	    js_set(params, "tls", js_pack("{s:s, s:s}", "user", m->user, "key", m->key)))
		params = js_unref(params);
	/* A launcher of an older Ferry copies no claims, a target of an older one takes none: both sides must agree. */
	if (params && mig_disks_any(m->vm) &&
	    js_set(params, "disks", m->disks ? js_ref(m->disks) : js_new_array()))
		params = js_unref(params);
	if (m->key)
		explicit_bzero(m->key, strlen(m->key));
	if (!params)
		return err_set(err, RC_NOMEM, "out of memory");
	return vm_call(m->vm, "startOutgoing", params, 3 * MIG_CALL_DEADLINE, on_accepted, m->vm,
		       err);
}

static void begin_if_ready(struct mig_source *m)
{
	struct err err = {0};

	if (m->state != SRC_PREPARING || !m->has_key || !m->net_ready || !m->is_written)
		return;
	const Handover *h = mig_handover(m->vm, m->uid);

	if (!h)
		return; /* its event wakes this again */
	m->epoch = API_GET(&h->spec, epoch, 0);
	m->timer = ev_src_free(m->timer);
	mig_source_step(m, SRCEV_READY);
	if (start_outgoing(m, &err)) {
		ended(m, err.msg);
		return;
	}
	mig_event(m->vm, "Normal", "Migrating", "VirtualMachineInstance is migrating.");
	mig_source_say_mode(m);
	mig_pause_warn(m);
}

static void on_key(const struct http_result *r, void *arg)
{
	struct mig_source *m = arg;
	CLEANUP(js_unrefp) struct json *j = NULL;
	char why[400];

	m->http = http_slot_free(m->http);
	if (r->rc || r->status != 200 || js_parse(r->body, r->n, &j, NULL)) {
		mig_source_answer_text(r, why, sizeof(why));
		ended(m, why);
		return;
	}
	m->port = js_get_int(j, "port", MIG_PORT);
	m->nbd_port = js_get_int(j, "nbdPort", MIG_PORT + 1);
	m->disks = js_ref(js_get(j, "disks"));
	if (js_get_bool(j, "tls", true)) {
		m->user = mem_strdup(js_get_str(j, "user"));
		m->key = mem_strdup(js_get_str(j, "key"));
		if (!m->user || !m->key) {
			ended(m, "the target's agent gave no key");
			return;
		}
	}
	m->has_key = true;
	mig_proof_drop(m->vm, m->uid, m->claims);
	begin_if_ready(m);
}

static void ask_key(struct mig_source *m)
{
	struct err err;
	struct json *body = js_pack("{s:s, s:s*, s:O*, s:O*}", "migrationUid", m->uid, "flows",
				    m->flows, "devices", m->vm->devices, "claims", m->claims);

	failpoint("source-agent.asks-key");
	if (mig_source_post(m, "key", body, MIG_CALL_DEADLINE, on_key, &err))
		ended(m, err.msg);
}

static void ask_key_if_ready(struct mig_source *m)
{
	if (m->state == SRC_PREPARING && m->net_ready && m->is_proven && !m->has_key && !m->http &&
	    !m->vm->asks_devices)
		ask_key(m);
}

static void on_proof(void *arg, enum rc rc, const char *why)
{
	struct mig_source *m = arg;

	if (rc) {
		ended(m, why);
		return;
	}
	m->is_proven = true;
	ask_key_if_ready(m);
}

/* What nobody copies has to be the same on both nodes: the target is to find what is written here. */
static enum rc prove(struct mig_source *m, struct err *err)
{
	TRY(mig_proof_claims(m->vm, true, &m->claims, err));
	m->is_proven = js_len(m->claims) == 0;
	return m->is_proven
		       ? RC_OK
		       : mig_proof_write(&m->proof, m->vm, m->uid, m->claims, on_proof, m, err);
}

/* What SRC_PREPARING still waits for. */
static const char *awaited(const struct mig_source *m)
{
	if (!m->is_proven)
		return "this node's shared storage did not take the proof that both nodes see it";
	if (!m->net_ready)
		return "the move's way through this node's network was not made";
	if (m->vm->asks_devices)
		return "the launcher did not say what the guest has taken of its devices";
	if (!m->has_key)
		return "the target's agent gave no key";
	if (!m->is_written)
		return "the API server did not take the move's start";
	return "the move's hand-over record was not seen";
}

static void on_prepare_late(void *arg)
{
	struct mig_source *m = arg;
	char why[200];

	m->timer = ev_src_free(m->timer);
	(void)snprintf(why, sizeof(why), "%s within %llu s", awaited(m),
		       (unsigned long long)(PREPARE_LIMIT / USEC_PER_SEC));
	ignore_rc(api_set_str(&m->reason, "Timeout"));
	ended(m, why);
}

static enum rc open_work(struct src_job *j)
{
	struct mig_source *m = j->m;
	const struct vm_net_ops *net = &m->host->cfg.net;

	if (m->net.ns_fd < 0)
		TRY(net_ns_open(j->netns_dir, j->ns_name, &m->net.ns_fd, &j->err));
	m->net.cfg.pod_ns_fd = m->net.ns_fd;
	if (m->net.has_net && !m->net.handover)
		TRY(vmnet_source_open(&m->net.handover, &m->net.cfg, &j->err));
	TRY(net->mig_connect(m->net.pod, m->net.peer, m->net.ports, 2, net->arg, &j->err));
	m->is_open = true;
	return m->net.has_ports_filter ? vmnet_flows_dump(m->net.ns_fd, &j->out, &j->err) : RC_OK;
}

static void opened(struct mig_source *m, enum rc rc, const char *why)
{
	if (rc) {
		ended(m, why);
		return;
	}
	m->net_ready = true;
	ask_key_if_ready(m);
	begin_if_ready(m);
}

static struct mig_source *source_new(struct vm *vm, const VirtualMachineInstanceMigrationState *s)
{
	struct mig_source *m = mem_alloc(sizeof(*m));

	if (!m)
		return NULL;
	m->vm = vm;
	m->host = vm->host;
	m->net.ns_fd = -1;
	m->uid = mem_strdup(s->migrationUid);
	m->target_node = mem_strdup(s->targetNode);
	m->begun_at = loop_realtime(vm->host->cfg.loop);
	m->since = loop_now(vm->host->cfg.loop);
	if (!m->uid || !m->target_node) {
		source_destroy(m);
		return NULL;
	}
	return m;
}

/* Where the target is: its agent, and the ports that it published. */
static enum rc find_target(struct mig_source *m, const VirtualMachineInstanceMigrationState *s,
			   struct err *err)
{
	struct in_addr peer, data;
	char ip[NET_IP4_TEXT];
	uint16_t agent_port;
	size_t n = 0;

	TRY(mig_node_address(m->host, s->targetNode, &peer, &agent_port, err));
	TRY(mig_data_address(m->host, s, s->targetNode, &data, err));
	net_ip4_format(data, m->target_ip);
	(void)snprintf(m->agent_url, sizeof(m->agent_url), "https://%s:%u",
		       net_ip4_format(peer, ip), agent_port);
	TRY(mig_net_init(m->vm, peer, data, &m->net, err));
	m->net.ports[0] = MIG_PORT;
	m->net.ports[1] = MIG_PORT + 1;
	JS_FOREACH(it, s->targetDirectMigrationNodePorts) {
		int64_t port = 0;

		if (n < 2 && !str_to_i64(it.key, 1, 65535, &port, NULL))
			m->net.ports[js_int(it.value, MIG_PORT) == MIG_PORT ? 0 : 1] =
				(uint16_t)port;
		n++;
	}
	if (n == 1)
		m->net.ports[1] = (uint16_t)(m->net.ports[0] + 1);
	return RC_OK;
}

static enum rc begin(struct mig_source *m, const VirtualMachineInstanceMigrationState *s,
		     struct err *err)
{
	TRY(find_target(m, s, err));
	mig_source_step(m, SRCEV_BEGIN);
	TRY(ev_timer_after(m->host->cfg.loop, &m->timer, PREPARE_LIMIT, on_prepare_late, m, err));
	mig_devices_ask(m->vm);
	TRY(prove(m, err));
	TRY(run(m, open_work, opened, err));
	vm_sync(m->vm); /* writes startTimestamp: from then on the controller does not take the move back */
	return RC_OK;
}

/* --- the end without a move --- */

static enum rc abort_work(struct src_job *j)
{
	struct mig_source *m = j->m;

	failpoint("source-agent.closes");
	mig_net_abort(&m->net, m->uid);
	if (m->net.handover)
		ignore_rc(vmnet_source_abort(m->net.handover, &j->err));
	return close_work(j);
}

static void closed(struct mig_source *m, enum rc rc, const char *why)
{
	if (rc)
		log_warn("move %s: its network is not tidy: %s", m->uid, why);
	m->vm->needs_tidy |= rc != RC_OK;
	vm_tidy(m->vm);
	if (m->state == SRC_GIVEN)
		mig_source_kick(m->vm); /* the rest is closed later: see close_later() */
}

static enum rc cut_work(struct src_job *j)
{
	struct mig_source *m = j->m;

	if (m->is_open)
		TRY(m->host->cfg.net.mig_close(m->net.pod, m->host->cfg.net.arg, &j->err));
	m->is_open = false;
	mig_net_abort(&m->net, m->uid);
	return RC_OK;
}

void mig_source_cut(struct mig_source *m)
{
	struct err err = {0};

	m->is_cut = true;
	log_warn("move %s: the cancel has no effect: its way through the network is closed",
		 m->uid);
	if (run(m, cut_work, closed, &err))
		log_warn("move %s: %s", m->uid, err.msg);
}

/* The guest is here: say so. */
static void ended(struct mig_source *m, const char *why)
{
	struct err err;

	if (!mig_source_step(m, SRCEV_ENDED) && !mig_source_step(m, SRCEV_CANCEL))
		return;
	m->http = http_slot_free(m->http);
	m->proof = mig_proof_free(m->proof);
	m->timer = ev_src_free(m->timer);
	m->watch = ev_src_free(m->watch);
	if (!m->has_key)
		mig_proof_drop(m->vm, m->uid, m->claims);
	ignore_rc(api_set_str(&m->failure, why));
	m->host->n_moves_failed++;
	log_warn("move %s: '%s/%s' stays here: %s", m->uid, m->vm->ns, m->vm->name, why);
	mig_event(m->vm, "Warning", "Migrated",
		  "VirtualMachineInstance migration uid %s failed. reason:%s", m->uid, why);
	mig_write_handover(m->vm, m->uid, HandoverState_Aborted, NULL, why);
	if (run(m, abort_work, closed, &err))
		log_warn("move %s: %s", m->uid, err.msg);
	vm_sync(m->vm);
}

/* --- the switch --- */

static void on_continued(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;

	/* The launcher itself ends a move that cannot go on; its event says so. */
	if (r->rc && vm->source)
		log_warn("move %s: the switch was refused: %s", vm->source->uid, r->message);
}

static enum rc flows_work(struct src_job *j)
{
	return vmnet_flows_dump(j->m->net.ns_fd, &j->out, &j->err);
}

static void have_flows(struct mig_source *m, enum rc rc, const char *why)
{
	if (rc)
		log_warn("move %s: the newest flows are not copied: %s", m->uid, why);
	m->flows_pending = false;
	if (m->state == SRC_RELEASED && !m->http && !m->timer)
		give_permission(m);
}

static void let_go_on(struct mig_source *m)
{
	struct json *params = js_pack("{s:s, s:I}", "migrationUid", m->uid, "epoch", m->epoch);
	struct err err = {0};

	if (vm_call(m->vm, "continueOutgoing", params, MIG_CALL_DEADLINE, on_continued, m->vm,
		    &err))
		log_warn("move %s: the switch cannot go on: %s", m->uid, err.msg);
}

static void switch_now(struct mig_source *m, usec_t stop_at)
{
	struct vmnet_switch_stats st = {0};
	enum src_state next;
	struct err err = {0};

	if (m->state == SRC_SWITCHING) { /* a new launcher, which has not heard the answer */
		let_go_on(m);
		return;
	}
	if (!src_next(m->state, SRCEV_STANDS, &next))
		return; /* it has ended, and its network with it */
	m->stop_at = stop_at;
	if (m->net.handover && vmnet_source_switch(m->net.handover, stop_at, &st, &err))
		log_warn("move %s: frames are not sent on: %s", m->uid, err.msg);
	else if (m->net.handover)
		log_debug("move %s: %llu frames sent again, %llu lost, %llu us", m->uid,
			  (unsigned long long)st.n_resent, (unsigned long long)st.n_overrun,
			  (unsigned long long)st.took);
	mig_source_step(m, SRCEV_STANDS);
	if (m->state != SRC_SWITCHING)
		return; /* it is being cancelled */
	failpoint("source-agent.continues");
	let_go_on(m);
	if (m->net.has_ports_filter && !run(m, flows_work, have_flows, &err))
		m->flows_pending = true;
}

/* --- the permission --- */

static void on_close_timer(void *arg)
{
	struct mig_source *m = arg;
	struct err err;

	m->timer = ev_src_free(m->timer);
	if (run(m, close_work, closed, &err))
		log_warn("move %s: %s", m->uid, err.msg);
}

/* Post-copy: the guest is gone, the migration link stays until the last page has gone over. */
static enum rc leave_work(struct src_job *j)
{
	return j->m->net.handover ? vmnet_source_finish(j->m->net.handover, &j->err) : RC_OK;
}

/* The copy is made: nothing needs the migration link any more, and a move back may need it at once. */
static enum rc finish_work(struct src_job *j)
{
	struct mig_source *m = j->m;
	const struct vm_net_ops *net = &m->host->cfg.net;

	if (m->is_open)
		TRY(net->mig_close(m->net.pod, net->arg, &j->err));
	m->is_open = false;
	return m->net.handover ? vmnet_source_finish(m->net.handover, &j->err) : RC_OK;
}

/* The guest runs at the target.  What is left of it here goes over, or ends with this copy. */
static void taken(struct mig_source *m)
{
	struct err err;

	if (!mig_source_is_split(m)) {
		mig_source_given(m, SRCEV_TAKEN);
		return;
	}
	mig_source_step(m, SRCEV_SHARED);
	m->http = http_slot_free(m->http);
	m->timer = ev_src_free(m->timer);
	m->vm->is_source_done = true;
	if (run(m, leave_work, closed, &err))
		log_warn("move %s: %s", m->uid, err.msg);
	mig_source_phase_split(m);
}

/* The guest and all its memory are at the target: this copy ends, its frames are sent on for a while. */
void mig_source_given(struct mig_source *m, enum src_event why)
{
	struct vm *vm = m->vm;
	struct err err;

	failpoint("source-agent.gives");
	mig_source_step(m, why);
	m->http = http_slot_free(m->http);
	m->timer = ev_src_free(m->timer);
	m->host->n_moves_out++;
	vm->is_source_done = true;
	vm_end_copy(vm);
	if (run(m, finish_work, closed, &err))
		log_warn("move %s: %s", m->uid, err.msg);
}

static void on_retry(void *arg)
{
	struct mig_source *m = arg;

	m->timer = ev_src_free(m->timer);
	give_permission(m);
}

void mig_source_lost(struct mig_source *m, enum src_event event, const char *why)
{
	mig_source_step(m, event);
	m->http = http_slot_free(m->http);
	m->timer = ev_src_free(m->timer);
	ignore_rc(api_set_str(&m->failure, why));
	m->host->n_moves_failed++;
	log_error("move %s: '%s/%s' was released and the target cannot run it: %s", m->uid,
		  m->vm->ns, m->vm->name, why);
	mig_event(m->vm, "Warning", "Migrated",
		  "VirtualMachineInstance migration uid %s failed. reason:%s", m->uid, why);
	/* It runs nowhere and never will: what stands here ends, and the VMI says Failed. */
	m->vm->is_source_done = false;
	m->vm->is_half |= event == SRCEV_BROKEN;
	vm_end_copy(m->vm);
	vm_kick(m->vm);
}

static void on_permission(const struct http_result *r, void *arg)
{
	struct mig_source *m = arg;
	char why[400];
	struct err err;

	m->http = http_slot_free(m->http);
	if (!r->rc && r->status == 200) {
		struct vm *vm = m->vm;
		CLEANUP(js_unrefp) struct json *j = NULL;

		ignore_rc(js_parse(r->body, r->n, &j, NULL)); /* figures only */
		mig_pause_measured(m, (usec_t)js_get_int(j, "resumeAt", 0));
		taken(m);
		vm_kick(vm);
		return;
	}
	mig_source_answer_text(r, why, sizeof(why));
	/* A clear no is final; silence and "later" are asked again, for as long as it takes: the guest
	 * stands still, but never runs twice.  An agent that does not know the move may just have started. */
	usec_t now = loop_now(m->host->cfg.loop);
	bool unknown = !r->rc && r->status == 404;

	m->unknown_since = !unknown ? 0 : m->unknown_since ? m->unknown_since : now;
	if (!r->rc && (r->status == 409 || r->status == 403 ||
		       (unknown && now - m->unknown_since > UNKNOWN_FOR))) {
		m->may_have_run = unknown;
		mig_source_lost(m, SRCEV_REFUSED, why);
		return;
	}
	m->backoff = MIN(MAX(m->backoff * 2, PERMISSION_RETRY), PERMISSION_RETRY_MAX);
	log_warn("move %s: the target did not take the guest yet, asking again: %s", m->uid, why);
	if (ev_timer_after(m->host->cfg.loop, &m->timer, m->backoff, on_retry, m, &err))
		log_error("move %s: %s", m->uid, err.msg);
}

static void give_permission(struct mig_source *m)
{
	struct err err;

	if (m->flows_pending)
		return; /* they go with it, and are a millisecond away */
	failpoint("source-agent.permits");
	struct json *body =
		js_pack("{s:s, s:I, s:I, s:s*, s:O*}", "migrationUid", m->uid, "epoch", m->epoch,
			"stopAt", (int64_t)m->stop_at, "flows", m->flows, "migration", m->last);

	if (mig_source_post(m, "permission", body, MIG_CALL_DEADLINE, on_permission, &err) &&
	    ev_timer_after(m->host->cfg.loop, &m->timer, PERMISSION_RETRY, on_retry, m, &err))
		log_error("move %s: %s", m->uid, err.msg);
}

static void released(struct mig_source *m)
{
	if (!mig_source_step(m, SRCEV_RELEASED))
		return;
	m->watch = ev_src_free(m->watch);
	give_permission(m);
	mig_write_handover(m->vm, m->uid, HandoverState_Released, "releasedTime", NULL);
}

/* --- what the launcher says --- */

static const char *failure_of(const struct mig_source *m, const struct json *data)
{
	const struct json *f = js_get(data, "failure");

	if (m->is_aborted_by_user || m->cancel_sent)
		return MIG_ABORTED;
	return js_get_str(f, "message") ? js_get_str(f, "message") : "QEMU gave no reason";
}

/* Asked to cancel, and it does not: another launcher has come, which knows nothing of it. */
static bool forgot_cancel(const struct mig_source *m, const char *phase)
{
	return m->state == SRC_CANCELLING && m->cancel_sent && !str_eq(phase, "cancelling") &&
	       !str_eq(phase, "completed");
}

static void on_phase(struct mig_source *m, const struct json *data)
{
	const char *phase = js_get_str(data, "phase");

	js_unref(m->last);
	m->last = js_ref(data);
	m->last_at = loop_now(m->host->cfg.loop);
	if (js_get(data, "stopAt") && !m->stop_at)
		m->stop_at = (usec_t)js_get_int(data, "stopAt", 0);
	if (mig_source_phase_split(m)) {
		;					   /* post-copy's own */
	} else if (js_get_bool(data, "released", false)) { /* whatever became of QEMU since */
		released(m);
	} else if (str_eq(phase, "failed") || str_eq(phase, "cancelled")) {
		if (!m->reason && !m->is_aborted_by_user)
			m->reason = mem_strdup(js_get_str(js_get(data, "failure"), "reason"));
		ended(m, failure_of(m, data));
	} else if (mig_source_is_unreleased(data)) {
		mig_source_ask_back(m);
	} else if (forgot_cancel(m, phase)) {
		mig_source_ask_cancel(m, m->cancel_reason);
	}
	mig_source_finish(m);
	if (m->state < SRC_RELEASED)
		mig_source_watch(m);
}

/* An agent that restarted in the middle: the launcher knows how far it got. */
static void take_up_again(struct vm *vm, const struct json *data)
{
	const VirtualMachineInstanceMigrationState *s = mig_state(vm);
	const char *phase = js_get_str(data, "phase");
	struct mig_source *m;
	struct err err = {0};

	if (!s || API_GET(s, failed, false) || API_GET(s, completed, false) ||
	    !str_eq(js_get_str(data, "migrationUid"), s->migrationUid) ||
	    !str_eq(s->sourceNode, vm->host->cfg.node_name))
		return;
	m = vm->source = source_new(vm, s);
	if (!m)
		return;
	const Handover *h = mig_handover(vm, m->uid);

	if (find_target(m, s, &err)) {
		log_warn("move %s: %s", m->uid, err.msg);
		return;
	}
	m->epoch = h ? API_GET(&h->spec, epoch, 0) : js_get_int(data, "epoch", 0);
	m->is_written = m->has_key = true;
	m->net_ready = true;
	mig_source_step(m, SRCEV_BEGIN);
	mig_source_step(m, SRCEV_READY);
	mig_source_step(m, SRCEV_ACCEPTED);
	log_info("move %s: found again in phase %s", m->uid, phase ? phase : "");
	if (run(m, open_work, closed, &err))
		log_warn("move %s: %s", m->uid, err.msg);
	if (str_eq(phase, "pre-switchover"))
		switch_now(m, (usec_t)js_get_int(data, "stopAt", 0));
}

void mig_source_event(struct vm *vm, const char *name, const struct json *data)
{
	struct mig_source *m = vm->source;

	if (strcmp(name, "preSwitchover") == 0) {
		if (m && str_eq(js_get_str(data, "migrationUid"), m->uid))
			switch_now(m, (usec_t)js_get_int(data, "stopAt", 0));
		return;
	}
	if (strcmp(name, "migration") != 0 || !str_eq(js_get_str(data, "role"), "source"))
		return;
	if (!m || !str_eq(js_get_str(data, "migrationUid"), m->uid)) {
		if (m)
			return;
		take_up_again(vm, data);
		m = vm->source;
		if (!m)
			return;
	}
	on_phase(m, data);
}

/* --- what the VMI asks --- */

static bool is_over(const struct mig_source *m)
{
	return m->state == SRC_GIVEN || m->state == SRC_FAILED || m->state == SRC_LOST;
}

/* Also a move that an agent before us had begun to prepare (its start is written) and of which the launcher
 * knows nothing: it begins again. */
static bool is_due(const struct vm *vm, const VirtualMachineInstanceMigrationState *s)
{
	return s && s->migrationUid && s->targetNodeAddress && !vm->is_target &&
	       !vm->is_source_done && vm->has_answered &&
	       (vm->state == VM_RUNNING || vm->state == VM_PAUSED) && vm->stop_grace < 0 &&
	       str_eq(s->sourceNode, vm->host->cfg.node_name) && !API_GET(s, failed, false) &&
	       !API_GET(s, completed, false);
}

/* The target's answer may never come: what the VMI says counts as well.  True: that was the end. */
static bool kick_released(struct mig_source *m, const VirtualMachineInstanceMigrationState *s)
{
	if (m->state != SRC_RELEASED)
		return false;
	/* Its agent is another one by now and knows no move, but it has taken the guest. */
	if (API_GET(s, completed, false)) {
		mig_source_given(m, SRCEV_TAKEN);
		return true;
	}
	/* The target may have run the guest for a moment: it does not go on here. */
	if (!mig_is_alone(m->vm))
		return false;
	m->may_have_run = true;
	mig_source_lost(m, SRCEV_REFUSED, "the target's pod is over");
	return true;
}

static bool is_finish_asked(const struct vm *vm)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	const FerryVMIStatus *f = vmi ? vmi->status.ferry : NULL;

	return f && f->migration && API_GET(f->migration, finishRequested, false);
}

static void kick_move(struct mig_source *m, const VirtualMachineInstanceMigrationState *s)
{
	if (!str_eq(s->migrationUid, m->uid))
		return;
	if (m->state == SRC_PREPARING && (API_GET(s, failed, false))) {
		ended(m, s->failureReason ? s->failureReason : "the move was taken back");
		return;
	}
	if (kick_released(m, s))
		return;
	if (mig_source_kick_split(m, s))
		return;
	if (s->startTimestamp && !m->is_written)
		m->is_written = true;
	m->finish_asked |= is_finish_asked(m->vm);
	mig_source_finish(m);
	if (API_GET(s, abortRequested, false) && !m->cancel_asked) {
		m->cancel_asked = m->is_aborted_by_user = true;
		mig_event(m->vm, "Normal", "Migrating",
			  "VirtualMachineInstance is aborting migration.");
	}
	if (m->cancel_asked && !m->cancel_sent && m->state == SRC_PREPARING)
		ended(m, MIG_ABORTED);
	else if (m->cancel_asked && !m->cancel_sent &&
		 (m->state == SRC_MOVING || m->state == SRC_SWITCHING)) {
		mig_source_step(m, SRCEV_CANCEL);
		mig_source_ask_cancel(m, "abortRequested");
	}
	ask_key_if_ready(m);
	begin_if_ready(m);
}

/* Once every node must know the new place, frames need no sending on. */
static void close_later(struct mig_source *m)
{
	struct err err;

	if (m->state == SRC_GIVEN && !m->timer && (m->net.handover || m->is_open) && !m->jobs &&
	    ev_timer_after(m->host->cfg.loop, &m->timer, FORWARD_FOR, on_close_timer, m, &err))
		log_warn("move %s: %s", m->uid, err.msg);
}

bool mig_source_is_active(const struct vm *vm)
{
	return vm->source && !is_over(vm->source);
}

bool mig_source_is_streaming(const struct vm *vm)
{
	return vm->source && vm->source->state == SRC_STREAMING;
}

void mig_source_make_way(struct vm *vm)
{
	struct mig_source *m = vm->source;
	struct err err;

	if (!m || !is_over(m) || (!m->net.handover && !m->is_open))
		return;
	m->timer = ev_src_free(m->timer);
	if (run(m, close_work, closed, &err))
		log_warn("move %s: %s", m->uid, err.msg);
}

/* The agent before this one wrote the start and died before QEMU began: the key is spent, the guest is here. */
static void end_orphan(struct vm *vm, const VirtualMachineInstanceMigrationState *s)
{
	if (!s->migrationUid || !s->startTimestamp || vm->is_target || vm->is_source_done ||
	    !vm->has_answered || (vm->state != VM_RUNNING && vm->state != VM_PAUSED) ||
	    !str_eq(s->sourceNode, vm->host->cfg.node_name) || API_GET(s, failed, false) ||
	    API_GET(s, completed, false))
		return;
	vm->source = source_new(vm, s);
	vm->needs_tidy = true; /* the way that it has opened may stand open */
	if (vm->source)
		ended(vm->source, "the source's agent was restarted before the move had begun");
}

void mig_source_kick(struct vm *vm)
{
	const VirtualMachineInstanceMigrationState *s = mig_state(vm);
	struct err err = {0};

	if (vm->source && is_over(vm->source)) {
		close_later(vm->source);
		if (vm->source->state == SRC_FAILED && s &&
		    !str_eq(s->migrationUid, vm->source->uid) && !vm->source->jobs)
			vm->source = mig_source_free(vm->source);
	}
	if (!s)
		return;
	if (vm->source) {
		kick_move(vm->source, s);
		return;
	}
	end_orphan(vm, s);
	if (vm->source || !is_due(vm, s))
		return;
	/* A target of an earlier move: that story is over. */
	if (vm->target)
		vm->target = mig_target_free(vm->target);
	vm->source = source_new(vm, s);
	if (!vm->source) {
		log_error("VM '%s/%s': out of memory", vm->ns, vm->name);
		return;
	}
	if (begin(vm->source, s, &err))
		ended(vm->source, err.msg);
}

void mig_source_written(struct vm *vm)
{
	if (vm->source)
		mig_source_kick(vm);
}
