#include "virt/node/volwork.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"

enum { FIRST_QUEUE = 64 }; /* below are the network's, the pods' and the images' */

struct storage {
	char *name;
	unsigned queue;	 /* and the one after it, for removing */
	unsigned n_jobs; /* not answered yet */
	usec_t since;	 /* the last answer, or when there began to be something to answer */
};

struct volwork {
	struct loop *loop;
	char *node_name, *shared_dir, *local_dir;
	usec_t late_after;
	struct map storages; /* root folder -> struct storage */
	unsigned next_queue;
};

struct job {
	struct volwork *w;
	struct storage *s;
	pool_fn work, after;
	void *arg;
};

static void free_storage(void *arg)
{
	struct storage *s = arg;

	mem_free(s->name);
	mem_free(s);
}

enum rc volwork_new(struct volwork **out, const struct volwork_config *config, struct err *err)
{
	CLEANUP(volwork_freep) struct volwork *w = mem_alloc(sizeof(*w));

	if (!w)
		return err_set(err, RC_NOMEM, "out of memory");
	map_init(&w->storages, free_storage);
	w->loop = config->loop;
	w->late_after = config->late_after ? config->late_after : VOLWORK_LATE_AFTER;
	w->next_queue = FIRST_QUEUE;
	w->node_name = mem_strdup(config->node_name);
	w->shared_dir = mem_strdup(config->shared_dir);
	w->local_dir = mem_strdup(config->local_dir);
	if (!w->node_name || (config->shared_dir && !w->shared_dir) ||
	    (config->local_dir && !w->local_dir))
		return err_set(err, RC_NOMEM, "out of memory");
	*out = STEAL(w);
	return RC_OK;
}

struct volwork *volwork_free(struct volwork *w)
{
	if (!w)
		return NULL;
	map_fini(&w->storages);
	mem_free(w->node_name);
	mem_free(w->shared_dir);
	mem_free(w->local_dir);
	return mem_free(w);
}

static char *name_of(const struct volwork *w, const char *root)
{
	if (str_eq(root, w->shared_dir))
		return mem_printf("the shared storage of node '%s'", w->node_name);
	if (str_eq(root, w->local_dir))
		return mem_printf("the storage for local volumes of node '%s'", w->node_name);
	return mem_printf("folder '%s' of node '%s'", root, w->node_name);
}

static enum rc storage_of(struct volwork *w, const char *root, struct storage **out,
			  struct err *err)
{
	struct storage *s = map_get(&w->storages, root);

	if (!s) {
		s = mem_alloc(sizeof(*s));
		if (s)
			s->name = name_of(w, root);
		if (!s || !s->name || map_set(&w->storages, root, s)) {
			if (s)
				free_storage(s);
			return err_set(err, RC_NOMEM, "out of memory");
		}
		s->queue = w->next_queue;
		w->next_queue += 2;
	}
	*out = s;
	return RC_OK;
}

static void job_work(void *arg)
{
	struct job *j = arg;

	j->work(j->arg);
}

static void job_after(void *arg)
{
	struct job j = *(struct job *)arg;

	mem_free(arg);
	j.s->n_jobs--;
	j.s->since = loop_now(j.w->loop);
	j.after(j.arg);
}

static enum rc check_late(const struct volwork *w, const struct storage *s, struct err *err)
{
	usec_t late = s->n_jobs ? loop_now(w->loop) - s->since : 0;

	if (late < w->late_after)
		return RC_OK;
	return err_set(err, RC_TIMEOUT, "%s has not answered for %llu s", s->name,
		       (unsigned long long)(late / USEC_PER_SEC));
}

enum rc volwork_run(struct volwork *w, const char *root, pool_fn work, pool_fn after, void *arg,
		    struct err *err)
{
	struct storage *s;

	if (!root)
		return pool_run(w->loop, work, after, arg, err);
	TRY(storage_of(w, root, &s, err));
	TRY(check_late(w, s, err));
	struct job *j = mem_alloc(sizeof(*j));

	if (!j)
		return err_set(err, RC_NOMEM, "out of memory");
	*j = (struct job){.w = w, .s = s, .work = work, .after = after, .arg = arg};
	enum rc rc = pool_run_ordered(w->loop, POOL_SLOW | s->queue, job_work, job_after, j, err);

	if (rc) {
		mem_free(j);
		return rc;
	}
	if (!s->n_jobs++)
		s->since = loop_now(w->loop);
	return RC_OK;
}

enum rc volwork_remove(struct volwork *w, const char *root, pool_fn work, pool_fn after, void *arg,
		       struct err *err)
{
	struct storage *s;

	TRY(storage_of(w, root, &s, err));
	return pool_run_ordered(w->loop, POOL_SLOW | (s->queue + 1), work, after, arg, err);
}

const char *volwork_name(const struct volwork *w, const char *root)
{
	const struct storage *s = map_get(&w->storages, root);

	return s ? s->name : NULL;
}
