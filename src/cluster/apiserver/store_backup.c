#include <unistd.h>

#include "base/mem.h"
#include "cluster/apiserver/store_int.h"
#include "ev/ev.h"

/* A backup takes its turn in the queue that commits go through, a slice at a time: a commit waits for at most
 * one slice, a slice for at most one commit.  What comes after the last slice needs the store no more and
 * runs beside it. */

struct store_backup {
	struct store *store;
	struct db_copy *copy;
	struct store_backup_opts opts;
	char *path;
	bool is_cancelled; /* the loop's; is_dropped: what the pool was told of it */
	bool is_dropped, begun, end;
	size_t pages, of;
	struct store_file_info info;
	enum rc rc;
	struct err err;
};

static void slice_work(void *arg)
{
	struct store_backup *b = arg;

	if (!b->begun) {
		b->begun = true;
		b->rc = db_copy_begin(&b->copy, b->store->db, b->path, &b->err);
		if (b->rc)
			return;
	}
	b->rc = db_copy_step(b->copy, STORE_COPY_PAGES, &b->end, &b->err);
	db_copy_progress(b->copy, &b->pages, &b->of);
	if (b->rc || b->end)
		db_copy_detach(b->copy);
}

static void finish_work(void *arg)
{
	struct store_backup *b = arg;

	if (b->copy && !b->rc && !b->is_dropped)
		b->rc = db_copy_finish(b->copy, &b->info, &b->err);
	b->copy = db_copy_free(b->copy);
}

static void finish_after(void *arg)
{
	struct store_backup *b = arg;

	b->store->backup = NULL;
	if (!b->is_cancelled)
		b->opts.done(b->opts.arg, b->rc, b->rc ? NULL : &b->info, b->rc ? &b->err : NULL);
	else if (!b->is_dropped && !b->rc)
		unlink(b->path); /* it was finished while it was cancelled */
	mem_free(b->path);
	mem_free(b);
}

static void next(struct store_backup *b);

static void slice_after(void *arg)
{
	struct store_backup *b = arg;

	if (!b->rc && b->store->broken)
		b->rc = err_set(&b->err, RC_CLOSED, "the store failed while it was copied");
	if (!b->is_cancelled && !b->rc && b->opts.progress)
		b->opts.progress(b->opts.arg, b->pages, b->of);
	next(b);
}

static void next(struct store_backup *b)
{
	struct loop *loop = b->store->loop;

	b->is_dropped = b->is_cancelled;
	bool over = b->rc || b->is_cancelled || b->end;
	enum rc rc = !over ? pool_run_ordered(loop, STORE_QUEUE, slice_work, slice_after, b, NULL)
			   : pool_run_ordered(loop, POOL_SLOW, finish_work, finish_after, b, NULL);

	if (!rc)
		return;
	/* No memory to hand it over: nothing of it runs, so what is left is done here. */
	if (!b->rc)
		b->rc = err_set(&b->err, rc, "out of memory");
	b->is_dropped = true;
	b->copy = db_copy_free(b->copy);
	finish_after(b);
}

char *store_backup_place(const struct store *s)
{
	return s->path ? mem_printf("%s.backup", s->path) : NULL;
}

/* The store is ours alone, so a file there is what a killed server left. */
enum rc store_backup_sweep(struct store *s)
{
	CLEANUP(mem_freep) char *place = store_backup_place(s);

	if (!place)
		return RC_NOMEM;
	unlink(place);
	return RC_OK;
}

enum rc store_backup(struct store *s, const struct store_backup_opts *opts,
		     struct store_backup **out, struct err *err)
{
	if (!s->db)
		return err_set(err, RC_UNSUPPORTED, "a store in memory has no file to copy");
	if (s->broken)
		return err_set(err, RC_CLOSED, "the store failed and must be opened again");
	if (s->backup)
		return err_set(err, RC_BUSY, "another backup is being made");
	struct store_backup *b = mem_alloc(sizeof(*b));

	if (b && store_backup_sweep(s))
		b = mem_free(b);
	if (!b || !(b->path = mem_strdup(opts->path))) {
		mem_free(b);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	b->store = s;
	b->opts = *opts;
	b->opts.path = NULL;
	enum rc rc = pool_run_ordered(s->loop, STORE_QUEUE, slice_work, slice_after, b, err);

	if (rc) {
		mem_free(b->path);
		mem_free(b);
		return rc;
	}
	s->backup = b;
	*out = b;
	return RC_OK;
}

void store_backup_cancel(struct store_backup *b)
{
	b->is_cancelled = true;
}

void store_backup_end(struct store *s)
{
	if (s->backup)
		s->backup->is_cancelled = true;
}
