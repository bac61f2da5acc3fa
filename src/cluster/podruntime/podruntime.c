#include "cluster/podruntime/podruntime.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/failpoint.h"
#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/podruntime/podsweep.h"
#include "ctl/exec.h"
#include "ctl/plan.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "virt/names.h"

#define BACKOFF_MIN	(1 * USEC_PER_SEC)
#define BACKOFF_MAX	(300 * USEC_PER_SEC)
#define WRITE_RETRY_MIN (200 * USEC_PER_MSEC)
#define WRITE_RETRY_MAX (10 * USEC_PER_SEC)
#define GRACE_DEFAULT	30
#define STORAGE_LATE	(5 * USEC_PER_SEC)

struct podrt {
	struct podrt_config cfg;
	char *node_name, *host_ip, *state_dir, *run_dir;
	struct map pods; /* uid -> struct podrt_pod */
	struct kcache_handler *handler;
	bool is_started;
	uint64_t n_started, n_failed, n_refused;
};

struct podrt_pod {
	struct podrt *rt;
	struct kobj *obj; /* last known */
	bool is_gone;	  /* the object has left the API */
	bool is_deleted;
	int64_t grace;
	enum pod_state state;
	struct pod_facts facts;
	struct podnet_attached net;
	char *state_dir, *run_dir;
	void *data;
	struct ev_src *timer;
	usec_t backoff;
	unsigned steps_left; /* of preparing: network and workload */
	enum rc step_rc;     /* first failure of them */
	bool step_final;
	struct exec_run *write;
	struct ev_src *write_timer;
	usec_t write_backoff;
	bool wants_write;
	bool final_written; /* status of an ended pod was written */
	unsigned jobs;	    /* pool jobs that hold this pod */
	bool is_dead;	    /* free when jobs is 0 */
};

/* A pod's network and folders, made or removed: the network's part on the network's queue, <state>/pods/<uid> where its
 * storage may hang without holding up anybody's network. */
struct net_job {
	struct podrt_pod *pod;
	struct podnet *net;
	char uid[64];
	char *state_dir, *run_dir;
	char *record; /* pod.json */
	struct podnet_pod what;
	bool has_net, is_recorded;
	struct podnet_attached attached;
	struct ev_src *late_timer;
	enum rc rc;
	struct err err;
};

static void step(struct podrt_pod *p, enum pod_event e);

/* --- accessors --- */

const Pod *podrt_pod_obj(const struct podrt_pod *p)
{
	return kobj_typed(p->obj);
}

const char *podrt_pod_uid(const struct podrt_pod *p)
{
	return kobj_uid(p->obj);
}

const char *podrt_pod_state_dir(const struct podrt_pod *p)
{
	return p->state_dir;
}

const char *podrt_pod_run_dir(const struct podrt_pod *p)
{
	return p->run_dir;
}

const struct podrt_config *podrt_pod_config(const struct podrt_pod *p)
{
	return &p->rt->cfg;
}

const struct podnet_attached *podrt_pod_net(const struct podrt_pod *p)
{
	return &p->net;
}

enum pod_state podrt_pod_state(const struct podrt_pod *p)
{
	return p->state;
}

bool podrt_pod_is_deleted(const struct podrt_pod *p)
{
	return p->is_deleted;
}

void **podrt_pod_data(struct podrt_pod *p)
{
	return &p->data;
}

struct pod_facts *podrt_pod_facts(struct podrt_pod *p)
{
	return &p->facts;
}

struct podrt_pod *podrt_find(const struct podrt *rt, const char *uid)
{
	return map_get(&rt->pods, uid);
}

size_t podrt_count(const struct podrt *rt)
{
	return rt->pods.n;
}

static usec_t now_real(const struct podrt_pod *p)
{
	return loop_realtime(p->rt->cfg.loop);
}

/* --- forgetting --- */

static void pod_free(struct podrt_pod *p)
{
	p->timer = ev_src_free(p->timer);
	p->write_timer = ev_src_free(p->write_timer);
	p->write = exec_run_free(p->write);
	if (p->rt->cfg.workload->forget && p->data)
		p->rt->cfg.workload->forget(p, p->rt->cfg.arg);
	pod_facts_fini(&p->facts);
	p->obj = kobj_unref(p->obj);
	mem_free(p->state_dir);
	mem_free(p->run_dir);
	mem_free(p);
}

static void pod_forget(struct podrt_pod *p)
{
	ignore_rc(map_take(&p->rt->pods, podrt_pod_uid(p)) ? RC_OK : RC_NOT_FOUND);
	if (p->jobs) {
		p->is_dead = true; /* the last job frees it */
		p->timer = ev_src_free(p->timer);
		p->write_timer = ev_src_free(p->write_timer);
		p->write = exec_run_free(p->write);
	} else {
		pod_free(p);
	}
}

/* --- writing status --- */

static void write_now(struct podrt_pod *p);

static void on_write_timer(void *arg)
{
	struct podrt_pod *p = arg;

	p->write_timer = ev_src_free(p->write_timer);
	write_now(p);
}

static void on_written(enum rc rc, const struct err *err, void *arg)
{
	struct podrt_pod *p = arg;

	p->write = exec_run_free(p->write);
	if (rc && rc != RC_NOT_FOUND) {
		if (rc != RC_CONFLICT)
			log_warn("pod '%s/%s': cannot write its status, retrying: %s",
				 kobj_ns(p->obj), kobj_name(p->obj), err ? err->msg : rc_name(rc));
		p->write_backoff = MIN(MAX(p->write_backoff * 2, WRITE_RETRY_MIN), WRITE_RETRY_MAX);
		p->wants_write = true;
		if (ev_timer_after(p->rt->cfg.loop, &p->write_timer, p->write_backoff,
				   on_write_timer, p, NULL))
			log_error("pod '%s': no memory to retry", kobj_name(p->obj));
		return;
	}
	p->write_backoff = 0;
	if (p->state == POD_DONE)
		p->final_written = true;
	if (p->wants_write)
		write_now(p);
}

/* An ended pod whose deletion was asked for is deleted for good; otherwise its status is brought up
 * to date. */
static enum rc plan_write(struct podrt_pod *p, struct plan *plan, struct err *err)
{
	const Pod *old = podrt_pod_obj(p);
	Pod *wanted = NULL;

	if (p->state == POD_DONE && p->is_deleted)
		return plan_delete(plan, &api_kind_Pod, kobj_ns(p->obj), kobj_name(p->obj),
				   kobj_uid(p->obj), 0, NULL);
	TRY(podstatus_build(old, &p->facts, now_real(p), &wanted, err));
	return plan_update(plan, &api_kind_Pod, old, wanted, "status");
}

static void write_now(struct podrt_pod *p)
{
	CLEANUP(plan_fini) struct plan plan = {0};
	struct err err = {0};

	p->wants_write = false;
	if (p->write || p->write_timer || p->is_gone) {
		p->wants_write = true;
		return;
	}
	plan_init(&plan);
	enum rc rc = plan_write(p, &plan, &err);

	if (!rc && plan_is_empty(&plan)) {
		p->final_written = p->final_written || p->state == POD_DONE;
		return;
	}
	if (!rc)
		rc = exec_plan(p->rt->cfg.exec, &p->write, &plan, on_written, p, &err);
	if (rc)
		on_written(rc, &err, p);
}

void podrt_report(struct podrt_pod *p)
{
	if (!p->is_dead)
		write_now(p);
}

/* --- network --- */

static void job_free(struct net_job *j)
{
	j->late_timer = ev_src_free(j->late_timer);
	mem_free(j->state_dir);
	mem_free(j->run_dir);
	mem_free(j->record);
	mem_free(j);
}

static struct net_job *job_new(struct podrt_pod *p)
{
	struct net_job *j = mem_alloc(sizeof(*j));

	if (!j)
		return NULL;
	j->pod = p;
	j->net = p->rt->cfg.net;
	(void)snprintf(j->uid, sizeof(j->uid), "%s", podrt_pod_uid(p));
	j->what.uid = j->uid;
	j->state_dir = mem_strdup(p->state_dir);
	j->run_dir = mem_strdup(p->run_dir);
	if (!j->state_dir || !j->run_dir) {
		job_free(j);
		return NULL;
	}
	return j;
}

/* True: the pod is still wanted. */
static bool job_done(struct net_job *j)
{
	struct podrt_pod *p = j->pod;

	p->jobs--;
	if (p->is_dead) {
		if (!p->jobs)
			pod_free(p);
		return false;
	}
	return true;
}

/* Said, not ended: nothing can take away from there what hangs. */
static void on_storage_late(void *arg)
{
	struct net_job *j = arg;

	j->late_timer = ev_src_free(j->late_timer);
	log_warn("pod %s: its folder waits for storage that does not answer", j->uid);
}

static enum rc on_storage(struct net_job *j, bool is_removal, pool_fn work, pool_fn after,
			  struct err *err)
{
	const struct podrt_config *c = &j->pod->rt->cfg;

	TRY(podsweep_on_storage(c->workload, c->arg, c->loop, is_removal, work, after, j, err));
	ignore_rc(ev_timer_after(c->loop, &j->late_timer, STORAGE_LATE, on_storage_late, j,
				 NULL)); /* nobody is told, then */
	return RC_OK;
}

/* Before anything of the pod is there, so that it is found whenever the agent dies. */
static void record_work(void *arg)
{
	struct net_job *j = arg;
	CLEANUP(mem_freep) char *path = mem_printf("%s/pod.json", j->state_dir);

	j->rc = path ? file_mkdir_p(j->state_dir, 0711, &j->err)
		     : err_set(&j->err, RC_NOMEM, "out of memory");
	if (!j->rc)
		j->rc = file_write_durable(path, j->record, strlen(j->record), 0600, &j->err);
}

static void attach_work(void *arg)
{
	struct net_job *j = arg;

	j->rc = file_mkdir_p(j->run_dir, 0755, &j->err);
	if (!j->rc && j->has_net && j->net)
		j->rc = podnet_attach(j->net, &j->what, &j->attached, &j->err);
}

static void prepare_step_done(struct podrt_pod *p);

static void attach_after(void *arg)
{
	struct net_job *j = arg;
	struct podrt_pod *p = j->pod;

	if (job_done(j)) {
		if (j->rc && !p->step_rc) {
			p->step_rc = j->rc;
			ignore_rc(pod_facts_why(&p->facts,
						j->is_recorded ? "NetworkNotReady"
							       : "CreateContainerError",
						j->err.msg));
		}
		prepare_step_done(p);
	}
	job_free(j);
}

static void record_after(void *arg)
{
	struct net_job *j = arg;
	const struct podrt_config *c = &j->pod->rt->cfg;

	j->late_timer = ev_src_free(j->late_timer);
	j->is_recorded = !j->rc;
	if (!j->rc && !j->pod->is_dead)
		j->rc = pool_run_ordered(c->loop, c->net_queue, attach_work, attach_after, j,
					 &j->err);
	if (j->rc || j->pod->is_dead)
		attach_after(j);
}

/* The pod's place on the cluster network, from its annotations. */
static enum rc read_identity(const Pod *pod, struct podnet_pod *out, bool *has_net, struct err *err)
{
	const char *address = api_annotation(&pod->metadata, ANN_ADDRESS);
	const char *mac = api_annotation(&pod->metadata, ANN_MAC);
	const char *uid = api_annotation(&pod->metadata, ANN_UID);
	int64_t number = 0;

	*has_net = address != NULL;
	if (uid) {
		TRY(str_to_i64(uid, 1, UINT32_MAX - 1, &number, err));
		out->qemu_uid = (uid_t)number;
	}
	out->is_silent = api_label(&pod->metadata, LABEL_MIGRATION_UID) != NULL;
	if (!address)
		return RC_OK;
	if (!mac)
		return err_set(err, RC_INVALID, "the pod has an address but no " ANN_MAC);
	TRY(net_ip4_parse(address, &out->address, err));
	return net_mac_parse(mac, &out->mac, err);
}

static enum rc start_attach(struct podrt_pod *p, struct err *err)
{
	const Pod *pod = podrt_pod_obj(p);
	struct net_job *j = job_new(p);

	if (!j)
		return err_set(err, RC_NOMEM, "out of memory");
	CLEANUP(js_unrefp)
	struct json *rec =
		js_pack("{s:s, s:s, s:s, s:I}", "uid", j->uid, "namespace", kobj_ns(p->obj), "name",
			kobj_name(p->obj), "seenAt", (int64_t)p->facts.seen_at);
	enum rc rc = read_identity(pod, &j->what, &j->has_net, err);

	j->record = js_to_text(rec);
	if (!rc && !j->record)
		rc = err_set(err, RC_NOMEM, "out of memory");
	if (!rc && j->has_net)
		rc = api_set_str(&p->facts.pod_ip, api_annotation(&pod->metadata, ANN_ADDRESS));
	if (!rc)
		rc = on_storage(j, false, record_work, record_after, err);
	if (rc)
		job_free(j);
	else
		p->jobs++;
	return rc;
}

/* --- the steps --- */

static void fail(struct podrt_pod *p, const char *reason, const char *message)
{
	ignore_rc(pod_facts_why(&p->facts, reason, message));
	if (p->facts.exit_code == 0)
		p->facts.exit_code = 1;
	step(p, PODEV_FAILED);
}

/* It ran, and is not there any more.  As the kubelet does: a pod is not started twice, who owns it decides what comes
 * next. */
static void fail_vanished(struct podrt_pod *p)
{
	p->facts.exit_code = 137;
	fail(p, "ContainerStatusUnknown",
	     "it was running and could not be found any more: the machine or its node was "
	     "restarted");
}

static void prepare_step_done(struct podrt_pod *p)
{
	if (--p->steps_left)
		return;
	if (!p->step_rc) {
		p->backoff = 0;
		ignore_rc(pod_facts_why(&p->facts, NULL, NULL));
		step(p, PODEV_PREPARED);
	} else if (p->step_final) {
		if (p->facts.exit_code == 0)
			p->facts.exit_code = 1;
		step(p, PODEV_FAILED);
	} else {
		step(p, PODEV_MISSING);
	}
}

void podrt_prepared(struct podrt_pod *p, enum rc rc, bool is_final, const char *reason,
		    const char *message)
{
	if (rc && (!p->step_rc || is_final)) {
		p->step_rc = rc;
		p->step_final = is_final;
		ignore_rc(pod_facts_why(&p->facts, reason, message));
	}
	prepare_step_done(p);
}

static void do_prepare(struct podrt_pod *p)
{
	struct err err = {0};

	p->step_rc = RC_OK;
	p->step_final = false;
	p->steps_left = 2;
	if (start_attach(p, &err)) {
		p->step_rc = err.rc;
		p->step_final = rc_retry(err.rc) == RETRY_NO;
		ignore_rc(pod_facts_why(&p->facts, "CreateContainerError", err.msg));
		p->steps_left--;
	}
	p->rt->cfg.workload->prepare(p, p->rt->cfg.arg);
}

static void on_backoff(void *arg)
{
	struct podrt_pod *p = arg;

	p->timer = ev_src_free(p->timer);
	step(p, PODEV_RETRY);
}

static usec_t next_backoff(const struct podrt_pod *p)
{
	return MIN(MAX(p->backoff * 2, BACKOFF_MIN), BACKOFF_MAX);
}

static void do_wait(struct podrt_pod *p)
{
	struct err err;

	p->backoff = next_backoff(p);
	/* The second and later waits of a pull that fails say so, as Kubernetes does. */
	if (str_eq(p->facts.reason, "ErrImagePull") && p->backoff > BACKOFF_MIN)
		ignore_rc(api_set_str(&p->facts.reason, "ImagePullBackOff"));
	if (p->state == POD_WAITING)
		log_warn("pod '%s/%s': %s: %s, retrying in %llu s", kobj_ns(p->obj),
			 kobj_name(p->obj), p->facts.reason ? p->facts.reason : "not ready",
			 p->facts.message ? p->facts.message : "",
			 (unsigned long long)(p->backoff / USEC_PER_SEC));
	if (ev_timer_after(p->rt->cfg.loop, &p->timer, p->backoff, on_backoff, p, &err))
		log_error("pod '%s': %s", kobj_name(p->obj), err.msg);
	podrt_report(p);
}

void podrt_started(struct podrt_pod *p, enum rc rc, const char *reason, const char *message)
{
	if (!rc) {
		p->facts.is_running = true;
		if (!p->facts.started_at)
			p->facts.started_at = now_real(p);
		p->rt->n_started++;
		step(p, PODEV_STARTED);
	} else if (rc == RC_NOT_FOUND && p->facts.started_at) {
		fail_vanished(p); /* neither it nor its launcher is there: a power cut */
	} else if (rc == RC_NOT_FOUND) {
		step(p, PODEV_MISSING);
	} else {
		fail(p, reason, message);
	}
}

void podrt_exited(struct podrt_pod *p, int exit_code, const char *reason, const char *message)
{
	if (p->state == POD_CLEANING || p->state == POD_DONE)
		return;
	p->facts.exit_code = exit_code;
	ignore_rc(pod_facts_why(&p->facts, reason, message));
	step(p, PODEV_EXITED);
}

static void do_stop(struct podrt_pod *p)
{
	p->rt->cfg.workload->stop(p, p->grace, p->rt->cfg.arg);
}

static void do_clean(struct podrt_pod *p)
{
	p->timer = ev_src_free(p->timer);
	p->rt->cfg.workload->cleanup(p, p->rt->cfg.arg);
}

static void detach_work(void *arg)
{
	struct net_job *j = arg;

	if (j->net)
		j->rc = podnet_detach(j->net, j->uid, &j->err);
	if (!j->rc)
		j->rc = file_remove_tree(j->run_dir, &j->err);
}

/* By it the next agent knows that something of the pod may be left: last. */
static void remove_work(void *arg)
{
	struct net_job *j = arg;

	j->rc = file_remove_tree(j->state_dir, &j->err);
}

static void clean_failed(struct podrt_pod *p, const char *why)
{
	log_warn("pod '%s/%s': cannot clean up: %s, retrying in %llu s", kobj_ns(p->obj),
		 kobj_name(p->obj), why, (unsigned long long)(next_backoff(p) / USEC_PER_SEC));
	step(p, PODEV_MISSING);
}

static void remove_after(void *arg)
{
	struct net_job *j = arg;
	struct podrt_pod *p = j->pod;

	if (job_done(j)) {
		if (j->rc) {
			clean_failed(p, j->err.msg);
		} else {
			failpoint("agent.cleaned"); /* nothing of it is left, and nobody knows */
			step(p, PODEV_CLEANED);
		}
	}
	job_free(j);
}

static void detach_after(void *arg)
{
	struct net_job *j = arg;

	if (!j->rc)
		j->rc = on_storage(j, true, remove_work, remove_after, &j->err);
	if (j->rc)
		remove_after(j);
}

void podrt_retry(struct podrt_pod *p)
{
	if (p->state == POD_CLEANING && p->timer)
		step(p, PODEV_RETRY);
}

void podrt_cleaned(struct podrt_pod *p, enum rc rc, const char *message)
{
	struct net_job *j = rc ? NULL : job_new(p);
	struct err err = {0};

	/* A pod whose phase is final is gone as soon as somebody deletes it, and its owner with it. */
	if (rc != RC_BUSY) {
		p->facts.is_running = false;
		p->facts.is_unpaused = false;
		p->facts.has_ended = true;
	}
	if (rc) {
		clean_failed(p, message);
		return;
	}
	if (!j || pool_run_ordered(p->rt->cfg.loop, p->rt->cfg.net_queue, detach_work, detach_after,
				   j, &err)) {
		if (j)
			job_free(j);
		clean_failed(p, "out of memory");
		return;
	}
	p->jobs++;
}

static void on_forget(void *arg)
{
	pod_forget(arg);
}

/* The object may vanish in the middle of an answer to our own delete: what is on the stack still uses
 * the pod, so it goes in a turn of its own. */
static void do_finish(struct podrt_pod *p)
{
	if (p->is_gone) {
		p->timer = ev_src_free(p->timer);
		if (ev_defer(p->rt->cfg.loop, &p->timer, on_forget, p, NULL))
			log_error("pod '%s': no memory to forget it", kobj_name(p->obj));
		return;
	}
	if (!p->final_written || p->is_deleted)
		write_now(p);
}

/* The only function that writes p->state. */
static void step(struct podrt_pod *p, enum pod_event e)
{
	struct pod_edge edge = pod_edge(p->state, e);

	if (edge.act == PODACT_REFUSED) {
		log_debug("pod '%s': %s is not expected in state %s", kobj_name(p->obj),
			  pod_event_name(e), pod_state_name(p->state));
		return;
	}
	if (edge.next != p->state)
		log_info("pod '%s/%s' (%s): %s -> %s on %s", kobj_ns(p->obj), kobj_name(p->obj),
			 podrt_pod_uid(p), pod_state_name(p->state), pod_state_name(edge.next),
			 pod_event_name(e));
	p->state = edge.next;
	switch (edge.act) {
	case PODACT_PREPARE:
		do_prepare(p);
		break;
	case PODACT_WAIT:
		do_wait(p);
		break;
	case PODACT_START:
		p->rt->cfg.workload->start(p, p->rt->cfg.arg);
		break;
	case PODACT_ADOPT:
		p->rt->cfg.workload->adopt(p, p->rt->cfg.arg);
		break;
	case PODACT_REPORT:
		podrt_report(p);
		break;
	case PODACT_STOP:
		do_stop(p);
		break;
	case PODACT_CLEAN:
		do_clean(p);
		break;
	case PODACT_FINISH:
		do_finish(p);
		break;
	default:
		break;
	}
}

/* --- pods come and go --- */

static struct podrt_pod *pod_new(struct podrt *rt, const struct kobj *o)
{
	struct podrt_pod *p = mem_alloc(sizeof(*p));

	if (!p)
		return NULL;
	p->rt = rt;
	p->obj = kobj_ref(o);
	p->facts.host_ip = rt->host_ip;
	p->facts.seen_at = loop_realtime(rt->cfg.loop);
	p->facts.is_unpaused = false;
	p->grace = GRACE_DEFAULT;
	podnet_names(kobj_uid(o), &p->net);
	p->state_dir = mem_printf("%s/pods/%s", rt->state_dir, kobj_uid(o));
	p->run_dir = mem_printf("%s/pods/%s", rt->run_dir, kobj_uid(o));
	if (!p->state_dir || !p->run_dir || map_set(&rt->pods, kobj_uid(o), p)) {
		pod_free(p);
		return NULL;
	}
	return p;
}

static bool was_started_here(const struct podrt_pod *p, usec_t *seen_at)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/pod.json", p->state_dir);
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *j = NULL;
	size_t n = 0;

	if (!path || file_read(path, 65536, &text, &n, NULL) || js_parse(text, n, &j, NULL))
		return false;
	*seen_at = (usec_t)js_get_int(j, "seenAt", (int64_t)*seen_at);
	return true;
}

static bool is_over(const Pod *pod)
{
	return str_eq(pod->status.phase, "Succeeded") || str_eq(pod->status.phase, "Failed");
}

/* A pod that had ended before: nothing is to be run, at most to be cleaned up. */
static void take_ended(struct podrt_pod *p, const Pod *pod)
{
	p->facts.has_ended = true;
	p->facts.exit_code = str_eq(pod->status.phase, "Failed");
	ignore_rc(pod_facts_why(&p->facts, pod->status.reason, pod->status.message));
	ignore_rc(api_set_str(&p->facts.pod_ip, pod->status.podIP));
	p->final_written = true;
	step(p, PODEV_FAILED);
}

static void take_up(struct podrt *rt, const struct kobj *o)
{
	const Pod *pod = kobj_typed(o);
	struct podrt_pod *p = pod_new(rt, o);

	if (!p) {
		log_error("pod '%s': out of memory", kobj_name(o));
		return;
	}
	p->is_deleted = kobj_is_going(o);
	p->grace = API_GET(&pod->metadata, deletionGracePeriodSeconds, GRACE_DEFAULT);
	if (is_over(pod)) {
		take_ended(p, pod);
	} else if (was_started_here(p, &p->facts.seen_at)) {
		ignore_rc(
			api_set_str(&p->facts.pod_ip, api_annotation(&pod->metadata, ANN_ADDRESS)));
		if (pod->status.n_containerStatuses && pod->status.containerStatuses[0].state &&
		    pod->status.containerStatuses[0].state->running)
			ignore_rc(time_parse(
				pod->status.containerStatuses[0].state->running->startedAt,
				&p->facts.started_at, NULL));
		for (size_t i = 0; i < pod->status.n_initContainerStatuses; i++) {
			const ContainerStatus *c = &pod->status.initContainerStatuses[i];

			ignore_rc(pod_facts_add_image(&p->facts, c->name, c->image, c->imageID));
		}
		step(p, PODEV_FOUND);
		if (p->is_deleted)
			step(p, PODEV_DELETED);
	} else if (p->is_deleted) {
		step(p, PODEV_DELETED);
	} else if (str_eq(pod->status.phase, "Running")) {
		/* Its end was cleaned up, and the agent died before it could tell: of a VM that has moved away this is
		 * the old copy's pod, and to start it would be a second one. */
		fail_vanished(p);
	} else {
		const char *why = rt->cfg.workload->refuse(pod, rt->cfg.arg);

		if (why) {
			rt->n_refused++;
			fail(p, "UnsupportedPod", why);
		} else {
			step(p, PODEV_SEEN);
		}
	}
}

/* The API tells of less than what was written: it went back to a backup.  Nobody else would ever say how the
 * pod goes on: its VMI would be Running for ever. */
static bool is_behind(const struct podrt_pod *p, const Pod *pod)
{
	const char *phase = pod->status.phase;

	if (p->state == POD_DONE)
		return p->final_written && !is_over(pod);
	return p->state == POD_RUNNING && !is_over(pod) && !str_eq(phase, "Running");
}

static void on_changed(struct podrt_pod *p, const struct kobj *o)
{
	const ObjectMeta *m = kobj_meta(o);
	int64_t grace = API_GET(m, deletionGracePeriodSeconds, GRACE_DEFAULT);

	kobj_unref(p->obj);
	p->obj = kobj_ref(o);
	if (kobj_is_going(o) && (!p->is_deleted || grace < p->grace)) {
		p->is_deleted = true;
		p->grace = grace;
		step(p, PODEV_DELETED);
	}
	if (is_behind(p, kobj_typed(o)))
		write_now(p);
}

static void on_pod(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct podrt *rt = arg;
	struct podrt_pod *p = old ? podrt_find(rt, kobj_uid(old)) : NULL;

	if (!rt->is_started)
		return;
	/* Gone, or replaced by another of the same name within one event. */
	if (p && (!new || strcmp(kobj_uid(old), kobj_uid(new)) != 0)) {
		p->is_gone = true;
		p->is_deleted = true;
		p->grace = 0;
		step(p, PODEV_DELETED);
	}
	if (!new || !str_eq(((const Pod *)kobj_typed(new))->spec.nodeName, rt->node_name))
		return;
	p = podrt_find(rt, kobj_uid(new));
	if (p)
		on_changed(p, new);
	else
		take_up(rt, new);
}

/* --- start: sweep what a crash left, then take up what is there --- */

static void take_up_all(struct podrt *rt, bool ended)
{
	struct kiter it;

	kcache_list(rt->cfg.cache, &api_kind_Pod, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (is_over(kobj_typed(o)) == ended)
			on_pod(NULL, o, rt);
}

/* Those that have ended last: what their clean-up leaves alone is what the others of the same VM use, a move for example. */
static void on_swept(void *arg)
{
	struct podrt *rt = arg;

	rt->is_started = true;
	take_up_all(rt, false);
	take_up_all(rt, true);
}

enum rc podrt_start(struct podrt *rt, struct err *err)
{
	CLEANUP(podsweep_freep) struct podsweep *s = NULL;
	struct kiter it;

	TRY(podsweep_new(&s, &rt->cfg, err));
	kcache_list(rt->cfg.cache, &api_kind_Pod, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		TRY(podsweep_spare(s, kobj_typed(o), err));
	TRY(podsweep_run(s, on_swept, rt, err));
	(void)STEAL(s); /* it is the job's */
	return RC_OK;
}

enum rc podrt_new(struct podrt **out, const struct podrt_config *config, struct err *err)
{
	CLEANUP(podrt_freep) struct podrt *rt = mem_alloc(sizeof(*rt));

	if (!rt)
		return err_set(err, RC_NOMEM, "out of memory");
	map_init(&rt->pods, NULL);
	rt->cfg = *config;
	rt->node_name = mem_strdup(config->node_name);
	rt->host_ip = mem_strdup(config->host_ip);
	rt->state_dir = mem_strdup(config->state_dir);
	rt->run_dir = mem_strdup(config->run_dir);
	if (!rt->node_name || !rt->host_ip || !rt->state_dir || !rt->run_dir)
		return err_set(err, RC_NOMEM, "out of memory");
	rt->cfg.node_name = rt->node_name;
	rt->cfg.host_ip = rt->host_ip;
	rt->cfg.state_dir = rt->state_dir;
	rt->cfg.run_dir = rt->run_dir;
	TRY(kcache_on(config->cache, &rt->handler, &api_kind_Pod, on_pod, rt, err));
	*out = STEAL(rt);
	return RC_OK;
}

struct podrt *podrt_free(struct podrt *rt)
{
	if (!rt)
		return NULL;
	kcache_handler_free(rt->handler);
	while (rt->pods.n)
		pod_forget(rt->pods.items[0].value);
	map_fini(&rt->pods);
	mem_free(rt->node_name);
	mem_free(rt->host_ip);
	mem_free(rt->state_dir);
	mem_free(rt->run_dir);
	return mem_free(rt);
}

void podrt_metrics(const struct podrt *rt, struct sbuf *out)
{
	size_t by_state[POD__STATES] = {0};

	MAP_FOREACH(it, &rt->pods)
		by_state[((const struct podrt_pod *)it->value)->state]++;
	sbuf_adds(out, "# TYPE ferry_pods gauge\n");
	for (int s = 0; s < POD__STATES; s++)
		sbuf_addf(out, "ferry_pods{state=\"%s\"} %zu\n", pod_state_name((enum pod_state)s),
			  by_state[s]);
	sbuf_addf(out, "# TYPE ferry_pods_started_total counter\nferry_pods_started_total %llu\n",
		  (unsigned long long)rt->n_started);
	sbuf_addf(out, "# TYPE ferry_pods_refused_total counter\nferry_pods_refused_total %llu\n",
		  (unsigned long long)rt->n_refused);
}
