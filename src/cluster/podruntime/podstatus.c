#include "cluster/podruntime/podstatus.h"

#include "api/api.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"

#define GATE_PAUSE "kubevirt.io/virtual-machine-unpaused"

void pod_facts_fini(struct pod_facts *f)
{
	f->pod_ip = mem_free(f->pod_ip);
	f->reason = mem_free(f->reason);
	f->message = mem_free(f->message);
	for (size_t i = 0; i < f->n_images; i++) {
		mem_free(f->images[i].name);
		mem_free(f->images[i].image);
		mem_free(f->images[i].id);
	}
	f->n_images = 0;
}

enum rc pod_facts_why(struct pod_facts *f, const char *reason, const char *message)
{
	TRY(api_set_str(&f->reason, reason));
	return api_set_str(&f->message, message);
}

enum rc pod_facts_add_image(struct pod_facts *f, const char *name, const char *image,
			    const char *id)
{
	size_t i = 0;

	while (i < f->n_images && strcmp(f->images[i].name, name) != 0)
		i++;
	if (i == POD_IMAGES_MAX)
		return RC_TOO_BIG;
	struct pod_image *m = &f->images[i];

	if (i == f->n_images) {
		*m = (struct pod_image){0};
		TRY(api_set_str(&m->name, name));
		f->n_images++;
	}
	TRY(api_set_str(&m->image, image));
	return api_set_str(&m->id, id);
}

static enum rc set_time(char **field, usec_t t)
{
	char text[32];

	if (!t)
		return RC_OK;
	time_rfc3339(t, text);
	return api_set_str(field, text);
}

static const char *phase_of(const struct pod_facts *f)
{
	if (f->has_ended)
		return f->exit_code || f->reason ? "Failed" : "Succeeded";
	return f->is_running ? "Running" : "Pending";
}

static enum rc set_state(const struct pod_facts *f, usec_t now, ContainerStatus *c)
{
	c->state = api_new(&api_type_ContainerState);
	if (!c->state)
		return RC_NOMEM;
	if (f->has_ended) {
		ContainerStateTerminated *t =
			api_ensure(&api_type_ContainerStateTerminated, &c->state->terminated);

		if (!t)
			return RC_NOMEM;
		API_SET(t, exitCode, f->exit_code);
		TRY(api_set_str(&t->reason, f->exit_code ? "Error" : "Completed"));
		TRY(api_set_str(&t->message, f->message));
		TRY(set_time(&t->startedAt, f->started_at));
		return set_time(&t->finishedAt, now);
	}
	if (f->is_running) {
		ContainerStateRunning *r =
			api_ensure(&api_type_ContainerStateRunning, &c->state->running);

		return r ? set_time(&r->startedAt, f->started_at) : RC_NOMEM;
	}
	ContainerStateWaiting *w = api_ensure(&api_type_ContainerStateWaiting, &c->state->waiting);

	if (!w)
		return RC_NOMEM;
	TRY(api_set_str(&w->reason, f->reason ? f->reason : "ContainerCreating"));
	return api_set_str(&w->message, f->message);
}

static enum rc add_container(const Pod *pod, const struct pod_facts *f, size_t i, usec_t now,
			     Pod *out)
{
	const Container *from = &pod->spec.containers[i];
	ContainerStatus *c = api_append(&out->status.containerStatuses,
					&out->status.n_containerStatuses, sizeof(*c));

	if (!c)
		return RC_NOMEM;
	TRY(api_set_str(&c->name, from->name));
	TRY(api_set_str(&c->image, from->image));
	TRY(api_set_str(&c->imageID, from->image)); /* part of this agent, not pulled */
	API_SET(c, ready, f->is_running && !f->has_ended);
	API_SET(c, started, f->is_running && !f->has_ended);
	API_SET(c, restartCount, 0);
	return set_state(f, now, c);
}

/* Images of volumes, as completed init containers: this is where KubeVirt's clients look for digests. */
static enum rc add_image(const struct pod_image *m, const struct pod_facts *f, Pod *out)
{
	ContainerStatus *c = api_append(&out->status.initContainerStatuses,
					&out->status.n_initContainerStatuses, sizeof(*c));

	if (!c)
		return RC_NOMEM;
	TRY(api_set_str(&c->name, m->name));
	TRY(api_set_str(&c->image, m->image));
	TRY(api_set_str(&c->imageID, m->id));
	API_SET(c, ready, true);
	API_SET(c, restartCount, 0);
	c->state = api_new(&api_type_ContainerState);
	ContainerStateTerminated *t =
		c->state ? api_ensure(&api_type_ContainerStateTerminated, &c->state->terminated)
			 : NULL;

	if (!t)
		return RC_NOMEM;
	API_SET(t, exitCode, 0);
	TRY(api_set_str(&t->reason, "Completed"));
	TRY(set_time(&t->startedAt, f->seen_at));
	return set_time(&t->finishedAt, f->seen_at);
}

static enum rc cond(Pod *p, const char *type, bool on, const char *reason, const char *message,
		    usec_t now)
{
	return API_COND_SET(&p->status, PodCondition, now, .type = type,
			    .status = on ? "True" : "False", .reason = reason, .message = message);
}

static bool has_gate(const Pod *p)
{
	for (size_t i = 0; i < p->spec.n_readinessGates; i++)
		if (str_eq(p->spec.readinessGates[i].conditionType, GATE_PAUSE))
			return true;
	return false;
}

static enum rc set_conditions(const struct pod_facts *f, usec_t now, Pod *p)
{
	bool up = f->is_running && !f->has_ended;
	bool gated = has_gate(p);
	bool ready = up && (!gated || f->is_unpaused);
	const char *why = f->has_ended ? (f->exit_code || f->reason ? "PodFailed" : "PodCompleted")
				       : "ContainersNotReady";
	const char *text = f->has_ended ? NULL : "containers with unready status: [compute]";

	TRY(cond(p, "Initialized", true, f->has_ended && !f->exit_code ? "PodCompleted" : NULL,
		 NULL, now));
	TRY(cond(p, "ContainersReady", up, up ? NULL : why, up ? NULL : text, now));
	if (gated)
		TRY(cond(p, GATE_PAUSE, f->is_unpaused, f->is_unpaused ? "NotPaused" : "Paused",
			 f->is_unpaused ? "the virtual machine is not paused"
					: "the virtual machine is paused",
			 now));
	if (up && !ready) {
		why = "ReadinessGatesNotReady";
		text = "corresponding condition of pod readiness gate \"" GATE_PAUSE
		       "\" is not True";
	}
	return cond(p, "Ready", ready, ready ? NULL : why, ready ? NULL : text, now);
}

static enum rc set_addresses(const struct pod_facts *f, Pod *p)
{
	PodStatus *s = &p->status;

	TRY(api_set_str(&s->hostIP, f->host_ip));
	if (!s->n_hostIPs) {
		PodIP *ip = api_append(&s->hostIPs, &s->n_hostIPs, sizeof(*ip));

		if (!ip)
			return RC_NOMEM;
		TRY(api_set_str(&ip->ip, f->host_ip));
	}
	TRY(api_set_str(&s->podIP, f->pod_ip));
	if (f->pod_ip && !s->n_podIPs) {
		PodIP *ip = api_append(&s->podIPs, &s->n_podIPs, sizeof(*ip));

		if (!ip)
			return RC_NOMEM;
		TRY(api_set_str(&ip->ip, f->pod_ip));
	}
	return RC_OK;
}

/* Guaranteed when all limits equal the requests, BestEffort without any. */
static const char *qos_of(const Pod *p)
{
	bool any = false, all = true;

	for (size_t i = 0; i < p->spec.n_containers; i++) {
		const PodResourceRequirements *r = p->spec.containers[i].resources;

		any = any || (r && (r->requests.n || r->limits.n));
		all = all && r && r->limits.n && api_map_equal(&r->limits, &r->requests);
	}
	return any && all ? "Guaranteed" : any ? "Burstable" : "BestEffort";
}

static void clear_lists(PodStatus *s)
{
	while (s->n_containerStatuses)
		api_remove(&api_type_ContainerStatus, &s->containerStatuses,
			   &s->n_containerStatuses, s->n_containerStatuses - 1);
	while (s->n_initContainerStatuses)
		api_remove(&api_type_ContainerStatus, &s->initContainerStatuses,
			   &s->n_initContainerStatuses, s->n_initContainerStatuses - 1);
}

/* When the container had ended before, that time stays. */
static usec_t ended_before(const Pod *pod, usec_t now)
{
	usec_t t;

	if (!pod->status.n_containerStatuses)
		return now;
	const ContainerState *s = pod->status.containerStatuses[0].state;

	if (!s || !s->terminated || !s->terminated->finishedAt ||
	    time_parse(s->terminated->finishedAt, &t, NULL))
		return now;
	return t;
}

static enum rc build(const Pod *pod, const struct pod_facts *f, usec_t now, Pod *p)
{
	PodStatus *s = &p->status;

	clear_lists(s);
	TRY(api_set_str(&s->phase, phase_of(f)));
	TRY(api_set_str(&s->qosClass, qos_of(p)));
	TRY(set_time(&s->startTime, f->seen_at));
	TRY(api_set_str(&s->reason, f->has_ended ? f->reason : NULL));
	TRY(api_set_str(&s->message, f->has_ended ? f->message : NULL));
	TRY(set_addresses(f, p));
	for (size_t i = 0; i < pod->spec.n_containers; i++)
		TRY(add_container(pod, f, i, ended_before(pod, now), p));
	for (size_t i = 0; i < f->n_images; i++)
		TRY(add_image(&f->images[i], f, p));
	return set_conditions(f, now, p);
}

enum rc podstatus_build(const Pod *pod, const struct pod_facts *f, usec_t now, Pod **out,
			struct err *err)
{
	CLEANUP(Pod_freep) Pod *p = Pod_clone(pod);

	if (!p || build(pod, f, now, p))
		return err_set(err, RC_NOMEM, "out of memory");
	*out = STEAL(p);
	return RC_OK;
}
