#include "cluster/podruntime/podsweep.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/try.h"
#include "cluster/podruntime/podnet.h"
#include "cluster/podruntime/podruntime.h"
#include "ev/ev.h"
#include "net/addr.h"
#include "virt/names.h"

struct podsweep {
	const struct podrt_config *cfg;
	struct podnet_live *live; /* their uids are own copies */
	size_t n_live, cap_live;
	char **gone; /* those of which <state>/pods/<uid> is left */
	uint32_t n_gone;
	void (*done)(void *arg);
	void *arg;
	enum rc rc;
	struct err err;
};

enum rc podsweep_new(struct podsweep **out, const struct podrt_config *config, struct err *err)
{
	struct podsweep *s = mem_alloc(sizeof(*s));

	if (!s)
		return err_set(err, RC_NOMEM, "out of memory");
	s->cfg = config;
	*out = s;
	return RC_OK;
}

static void free_texts(char **texts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		mem_free(texts[i]);
	mem_free(texts);
}

struct podsweep *podsweep_free(struct podsweep *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < s->n_live; i++)
		mem_free((char *)s->live[i].uid);
	mem_free(s->live);
	free_texts(s->gone, s->n_gone);
	return mem_free(s);
}

enum rc podsweep_spare(struct podsweep *s, const Pod *pod, struct err *err)
{
	const char *address = api_annotation(&pod->metadata, ANN_ADDRESS),
		   *mac = api_annotation(&pod->metadata, ANN_MAC);
	struct podnet_live l = {.uid = mem_strdup(pod->metadata.uid)};

	if (!l.uid || !mem_grow((void **)&s->live, &s->cap_live, s->n_live, sizeof(*s->live))) {
		mem_free((char *)l.uid);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	/* What cannot be read is none: such a pod was refused, and has opened nothing. */
	if (address && net_ip4_parse(address, &l.address, NULL))
		l.address = (struct in_addr){0};
	if (mac && net_mac_parse(mac, &l.mac, NULL))
		l.mac = (struct net_mac){0};
	s->live[s->n_live++] = l;
	return RC_OK;
}

/* --- processes and network --- */

static bool is_live(const struct podsweep *s, const char *uid)
{
	for (size_t i = 0; i < s->n_live; i++)
		if (strcmp(s->live[i].uid, uid) == 0)
			return true;
	return false;
}

static enum rc end_pod(const struct podsweep *s, const char *uid, const char *run, struct err *err)
{
	const struct podrt_config *c = s->cfg;

	log_info("pod %s: not in the API any more, its leftovers are removed", uid);
	if (c->workload->sweep)
		TRY(c->workload->sweep(uid, run, c->arg, err));
	return c->net ? podnet_detach(c->net, uid, err) : RC_OK;
}

static enum rc one_run(const char *uid, void *arg, struct err *err)
{
	struct podsweep *s = arg;
	CLEANUP(mem_freep) char *run = mem_printf("%s/pods/%s", s->cfg->run_dir, uid);

	if (!run)
		return err_set(err, RC_NOMEM, "out of memory");
	if (is_live(s, uid))
		return RC_OK;
	TRY(end_pod(s, uid, run, err));
	return file_remove_tree(run, err);
}

static enum rc one_state(const char *uid, void *arg, struct err *err)
{
	struct podsweep *s = arg;

	if (is_live(s, uid))
		return RC_OK;
	return api_append_str(&s->gone, &s->n_gone, uid) ? err_set(err, RC_NOMEM, "out of memory")
							 : RC_OK;
}

static enum rc each_pod(struct podsweep *s, const char *base,
			enum rc (*fn)(const char *uid, void *arg, struct err *err), struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/pods", base);

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	TRY(file_mkdir_p(path, 0755, err));
	return file_each(path, fn, s, err);
}

static void sweep_work(void *arg)
{
	struct podsweep *s = arg;
	const struct podrt_config *c = s->cfg;

	s->rc = each_pod(s, c->run_dir, one_run, &s->err);
	if (!s->rc)
		s->rc = each_pod(s, c->state_dir, one_state, &s->err);
	if (!s->rc && c->net)
		s->rc = podnet_sweep(c->net, s->live, s->n_live, &s->err);
}

/* --- disks --- */

enum rc podsweep_on_storage(const struct podrt_workload *w, void *workload_arg, struct loop *loop,
			    bool is_removal, pool_fn work, pool_fn after, void *job,
			    struct err *err)
{
	return w->on_storage ? w->on_storage(is_removal, work, after, job, workload_arg, err)
			     : pool_run(loop, work, after, job, err);
}

struct podrt_gone {
	struct loop *loop;
	const struct podrt_workload *workload;
	void *arg; /* of the workload */
	char *uid, *dir;
	enum rc rc;
	struct err err;
};

static void gone_free(struct podrt_gone *g)
{
	mem_free(g->uid);
	mem_free(g->dir);
	mem_free(g);
}

static void gone_work(void *arg)
{
	struct podrt_gone *g = arg;

	g->rc = file_remove_tree(g->dir, &g->err);
}

static void gone_after(void *arg)
{
	struct podrt_gone *g = arg;

	if (g->rc)
		log_warn("pod %s: leftovers stay for now: %s", g->uid, g->err.msg);
	gone_free(g);
}

void podrt_swept(struct podrt_gone *g, enum rc rc, const char *message)
{
	g->rc = rc ? err_set(&g->err, rc, "%s", message)
		   : podsweep_on_storage(g->workload, g->arg, g->loop, true, gone_work, gone_after,
					 g, &g->err);
	if (g->rc) /* else it is the job's from here on */
		gone_after(g);
}

static void sweep_disks(const struct podsweep *s, const char *uid)
{
	const struct podrt_config *c = s->cfg;
	struct podrt_gone *g = mem_alloc(sizeof(*g));
	struct err err = {0};

	if (g)
		*g = (struct podrt_gone){.loop = c->loop,
					 .workload = c->workload,
					 .arg = c->arg,
					 .uid = mem_strdup(uid),
					 .dir = mem_printf("%s/pods/%s", c->state_dir, uid)};
	if (!g || !g->uid || !g->dir) {
		log_warn("pod %s: leftovers stay for now: out of memory", uid);
		if (g)
			gone_free(g);
		return;
	}
	bool has_disks = c->workload->sweep_disks != NULL;
	enum rc rc = has_disks ? c->workload->sweep_disks(g, uid, c->arg, &err) : RC_OK;

	if (rc || !has_disks)
		podrt_swept(g, rc, err.msg);
}

static void sweep_after(void *arg)
{
	struct podsweep *s = arg;

	if (s->rc)
		log_warn("leftovers of old pods stay for now: %s", s->err.msg);
	for (size_t i = 0; i < s->n_gone; i++)
		sweep_disks(s, s->gone[i]);
	s->done(s->arg);
	podsweep_free(s);
}

enum rc podsweep_run(struct podsweep *s, void (*done)(void *arg), void *arg, struct err *err)
{
	s->done = done;
	s->arg = arg;
	return pool_run_ordered(s->cfg->loop, s->cfg->net_queue, sweep_work, sweep_after, s, err);
}
