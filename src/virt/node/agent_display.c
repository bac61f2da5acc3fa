#include "virt/node/agent_display.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/server.h"
#include "virt/node/agent_answer.h"
#include "virt/node/agent_session.h"
#include "virt/node/vm.h"

struct agent_display {
	struct agent_sessions sessions; /* with QEMU's VNC server */
	struct list waits;
};

/* A request that waits for the launcher. */
struct wait {
	struct list link;
	struct agent_display *d; /* NULL: freed */
	struct http_req *req;	 /* NULL: the client has left */
	char *vm;
	bool is_picture, preserves;
};

/* --- a session --- */

static void refuse_second(struct http_req *req)
{
	agent_answer_rc(req, RC_CLOSED, "Active VNC connection. Request denied.");
}

void agent_display_attach(struct agent_display *d, struct http_req *req, const char *vm_name,
			  int fd, bool preserves)
{
	if (preserves && agent_sessions_has(&d->sessions, vm_name)) {
		fd_close(fd);
		refuse_second(req);
		return;
	}
	agent_sessions_open(&d->sessions, req, vm_name, fd);
}

/* --- a picture --- */

void agent_display_picture(struct http_req *req, int fd)
{
	CLEANUP(fd_closep) int from = fd;
	struct stat st;

	if (fstat(from, &st) < 0 || st.st_size <= 0 || st.st_size > LIMIT_PICTURE_BYTES) {
		agent_answer_rc(req, RC_TOO_BIG, "the picture is empty or larger than 16 MiB");
		return;
	}
	CLEANUP(mem_freep) char *png = mem_alloc((size_t)st.st_size);
	ssize_t n = png ? pread(from, png, (size_t)st.st_size, 0) : -1;

	if (n > 0)
		http_respond_take(req, 200, "image/png", STEAL(png), (size_t)n, NULL, 0);
	else
		agent_answer_rc(req, png ? RC_IO : RC_NOMEM, "the picture cannot be read");
}

/* --- waiting for the launcher --- */

static void wait_free(struct wait *w)
{
	list_remove(&w->link);
	mem_free(w->vm);
	mem_free(w);
}

static void on_cancel(struct http_req *req, void *arg)
{
	struct wait *w = arg;

	(void)req;
	w->req = NULL;
}

static void on_done(enum rc rc, const char *message, int fd, void *arg)
{
	struct wait *w = arg;

	if (w->req && w->d) {
		http_req_on_cancel(w->req, NULL, NULL);
		if (rc || fd < 0)
			agent_answer_rc(w->req, rc ? rc : RC_IO, message);
		else if (w->is_picture)
			agent_display_picture(w->req, STEAL_FD(fd));
		else
			agent_display_attach(w->d, w->req, w->vm, STEAL_FD(fd), w->preserves);
	}
	fd_close(fd);
	wait_free(w);
}

static bool is_asked(const struct http_req *req, const char *param)
{
	return str_eq(http_req_param(req, param), "true");
}

static struct wait *wait_new(struct agent_display *d, struct http_req *req, const char *vm_name)
{
	struct wait *w = mem_alloc(sizeof(*w));

	if (w)
		w->vm = mem_strdup(vm_name);
	if (!w || !w->vm) {
		mem_free(w);
		agent_answer_rc(req, RC_NOMEM, "out of memory");
		return NULL;
	}
	w->d = d;
	w->req = req;
	list_push_tail(&d->waits, &w->link);
	http_req_on_cancel(req, on_cancel, w);
	return w;
}

static void wait_failed(struct wait *w, const struct err *err)
{
	struct http_req *req = w->req;

	http_req_on_cancel(req, NULL, NULL);
	wait_free(w);
	agent_answer_rc(req, err->rc, err->msg);
}

void agent_display_vnc(struct agent_display *d, struct http_req *req, struct vm *vm,
		       const char *vm_name)
{
	bool preserves = is_asked(req, "preserveSession");
	struct err err = {0};
	struct wait *w;

	if (preserves && agent_sessions_has(&d->sessions, vm_name)) {
		refuse_second(req);
		return;
	}
	w = wait_new(d, req, vm_name);
	if (!w)
		return;
	w->preserves = preserves;
	if (vm_display_open(vm, on_done, w, &err))
		wait_failed(w, &err);
}

void agent_display_screenshot(struct agent_display *d, struct http_req *req, struct vm *vm,
			      const char *vm_name)
{
	struct err err = {0};
	struct wait *w = wait_new(d, req, vm_name);

	if (!w)
		return;
	w->is_picture = true;
	if (vm_screenshot(vm, is_asked(req, "moveCursor"), on_done, w, &err))
		wait_failed(w, &err);
}

struct agent_display *agent_display_new(void)
{
	struct agent_display *d = mem_alloc(sizeof(*d));

	if (!d)
		return NULL;
	agent_sessions_init(&d->sessions, "display", "the display has ended");
	list_init(&d->waits);
	return d;
}

struct agent_display *agent_display_free(struct agent_display *d)
{
	if (!d)
		return NULL;
	agent_sessions_fini(&d->sessions);
	/* Answers of launchers that are still to come find nobody. */
	LIST_FOREACH_SAFE(it, tmp, &d->waits) {
		struct wait *w = LIST_ENTRY(it, struct wait, link);

		list_remove(&w->link);
		w->d = NULL;
		w->req = NULL;
	}
	return mem_free(d);
}
