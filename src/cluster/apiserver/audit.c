#include "cluster/apiserver/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/prom.h"
#include "ev/ev.h"

/* Where the lines go; shared with the job that writes. */
struct sink {
	pthread_mutex_t lock; /* of the file */
	unsigned refs;	      /* the loop's thread counts */
	char *path;
	uint64_t max_bytes;
	unsigned keep;
};

/* A batch on its way; outlives the log when that is freed meanwhile. */
struct job {
	struct audit *owner; /* NULL: it is gone */
	struct sink *sink;
	char *bytes;
	size_t n;
	enum rc rc;
	struct err err;
};

struct audit {
	struct loop *loop;
	struct sink *sink;
	struct sbuf waiting;
	struct job *job; /* NULL: nothing is being written */
	size_t n_waiting, n_flying;
	uint64_t written, lost;
	bool is_failing; /* told already */
};

/* ---- the file, on the pool's thread -------------------------------------------------------------------- */

static void shift(const struct sink *k)
{
	char from[4096], to[4096];

	for (unsigned i = k->keep; i > 1; i--) {
		(void)snprintf(from, sizeof(from), "%s.%u", k->path, i - 1);
		(void)snprintf(to, sizeof(to), "%s.%u", k->path, i);
		(void)rename(from, to); /* it may not be there */
	}
	(void)snprintf(to, sizeof(to), "%s.1", k->path);
	if (k->keep)
		(void)rename(k->path, to);
	else
		(void)unlink(k->path);
}

static enum rc open_file(const struct sink *k, int *fd, uint64_t *size, struct err *err)
{
	struct stat st;

	*fd = open(k->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (*fd < 0)
		return err_set_sys(err, errno, "cannot open '%s'", k->path);
	*size = fstat(*fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	return RC_OK;
}

static enum rc append(struct sink *k, const char *bytes, size_t n, struct err *err)
{
	CLEANUP(fd_closep) int fd = -1;
	uint64_t size = 0;
	enum rc rc = open_file(k, &fd, &size, err);

	if (!rc && size && size + n > k->max_bytes) {
		fd = fd_close(fd);
		shift(k);
		rc = open_file(k, &fd, &size, err);
	}
	return rc ? rc : file_write_all(fd, bytes, n, err);
}

static enum rc append_locked(struct sink *k, const char *bytes, size_t n, struct err *err)
{
	pthread_mutex_lock(&k->lock);
	enum rc rc = append(k, bytes, n, err);

	pthread_mutex_unlock(&k->lock);
	return rc;
}

/* Waits for the pool no longer than two seconds. */
static enum rc append_last(struct sink *k, const char *bytes, size_t n, struct err *err)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 2;
	if (pthread_mutex_timedlock(&k->lock, &end))
		return err_set(err, RC_TIMEOUT, "'%s' hangs", k->path);
	enum rc rc = append(k, bytes, n, err);

	pthread_mutex_unlock(&k->lock);
	return rc;
}

static void work(void *arg)
{
	struct job *j = arg;

	j->rc = append_locked(j->sink, j->bytes, j->n, &j->err);
}

/* ---- batches ----------------------------------------------------------------------------------------------- */

static void sink_unref(struct sink *k)
{
	if (--k->refs)
		return;
	pthread_mutex_destroy(&k->lock);
	mem_free(k->path);
	mem_free(k);
}

static void job_free(struct job *j)
{
	sink_unref(j->sink);
	mem_free(j->bytes);
	mem_free(j);
}

static void flush(struct audit *a);

static void after(void *arg)
{
	struct job *j = arg;
	struct audit *a = j->owner;

	if (a) {
		a->job = NULL;
		if (j->rc)
			a->lost += a->n_flying;
		else
			a->written += a->n_flying;
		a->n_flying = 0;
		if (j->rc && !a->is_failing)
			log_warn("audit lines are lost, and counted: %s", j->err.msg);
		else if (!j->rc && a->is_failing)
			log_info("audit lines are written again");
		a->is_failing = j->rc != RC_OK;
	}
	job_free(j);
	if (a)
		flush(a);
}

static void flush(struct audit *a)
{
	if (a->job || !a->waiting.n)
		return;
	struct job *j = mem_alloc(sizeof(*j));

	if (!j)
		return; /* with the next line */
	if (sbuf_take(&a->waiting, &j->bytes, &j->n)) {
		mem_free(j);
		return;
	}
	a->waiting = (struct sbuf)SBUF_INIT(AUDIT_BUFFER_BYTES);
	j->owner = a;
	j->sink = a->sink;
	j->sink->refs++;
	a->n_flying = a->n_waiting;
	a->n_waiting = 0;
	a->job = j;
	/* A disk that hangs holds up nobody else's work. */
	if (pool_run_ordered(a->loop, POOL_SLOW, work, after, j, NULL)) {
		a->job = NULL;
		a->lost += a->n_flying;
		a->n_flying = 0;
		job_free(j);
	}
}

/* ---- for others -------------------------------------------------------------------------------------------- */

static enum rc sink_new(struct audit *a, const struct audit_config *config)
{
	struct sink *k = mem_alloc(sizeof(*k));
	char *path = mem_strdup(config->path);

	if (!k || !path) {
		mem_free(k);
		mem_free(path);
		return RC_NOMEM;
	}
	pthread_mutex_init(&k->lock, NULL);
	k->path = path;
	k->max_bytes = config->max_bytes;
	k->keep = config->keep;
	k->refs = 1;
	a->sink = k;
	return RC_OK;
}

enum rc audit_new(struct audit **out, struct loop *loop, const struct audit_config *config,
		  struct err *err)
{
	CLEANUP(audit_freep) struct audit *a = mem_alloc(sizeof(*a));

	if (!a || sink_new(a, config))
		return err_set(err, RC_NOMEM, "out of memory");
	a->loop = loop;
	a->waiting = (struct sbuf)SBUF_INIT(AUDIT_BUFFER_BYTES);
	/* Found out now, and not when the first line is lost. */
	enum rc rc = append_locked(a->sink, "", 0, err);

	if (rc)
		return rc;
	*out = STEAL(a);
	return RC_OK;
}

struct audit *audit_free(struct audit *a)
{
	struct err err = {0};

	if (!a)
		return NULL;
	if (a->job)
		a->job->owner = NULL;
	if (a->sink) {
		if (a->waiting.n && append_last(a->sink, a->waiting.p, a->waiting.n, &err))
			log_warn("%zu audit lines are lost: %s", a->n_waiting, err.msg);
		sink_unref(a->sink);
	}
	sbuf_fini(&a->waiting);
	return mem_free(a);
}

void audit_lose(struct audit *a)
{
	a->lost++;
}

void audit_line(struct audit *a, const char *text, size_t n)
{
	if (a->waiting.n + n + 2 > AUDIT_BUFFER_BYTES) {
		a->lost++;
		return;
	}
	size_t before = a->waiting.n;

	sbuf_add(&a->waiting, text, n);
	sbuf_addc(&a->waiting, '\n');
	if (sbuf_rc(&a->waiting)) {
		/* Out of memory: what is there stays, without half a line. */
		a->lost++;
		a->waiting.n = before;
		a->waiting.rc = RC_OK;
		if (a->waiting.p)
			a->waiting.p[before] = '\0';
		return;
	}
	a->n_waiting++;
	flush(a);
}

void audit_metrics(const struct audit *a, struct sbuf *out)
{
	static const char lost[] = "apiserver_audit_error_total";

	prom_one(out, "apiserver_audit_event_total", "counter", "Audit lines made.",
		 (double)(a->written + a->lost + a->n_waiting + a->n_flying));
	prom_head(out, lost, "counter",
		  "Audit lines that were lost: the buffer was full, or the file failed.");
	prom_sample(out, lost, &(struct prom_label){"plugin", "log"}, 1, NULL, (double)a->lost);
}
