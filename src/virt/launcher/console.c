#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "virt/launcher/launcher_int.h"

/* The serial console: one connection to QEMU, shared by several clients.  What the guest prints goes to
 * all of them; what any of them types goes to the guest.  A client that does not read is let go, since
 * waiting for it would stop the guest's serial port.
 *
 * QEMU writes the log itself, appending; here it is only kept short.
 */

enum { MAX_CLIENTS = 8, CHUNK = 16384, LOG_MAX = 4 << 20, LOG_KEEP = 2 << 20 };
static const usec_t LOG_PERIOD = 10 * USEC_PER_SEC;

struct console_client {
	struct list link;
	struct console *c;
	int fd;
	struct ev_src *io;
};

struct console {
	struct launcher *l;
	int fd;
	struct ev_src *io;
	struct list clients;
	unsigned n_clients;
	char typed[4096]; /* not yet taken by QEMU */
	size_t n_typed;
};

static void client_free(struct console_client *k)
{
	list_remove(&k->link);
	k->c->n_clients--;
	ev_src_free(k->io);
	fd_close(k->fd);
	mem_free(k);
}

void console_free(struct launcher *l)
{
	struct console *c = l->console;

	l->console = NULL;
	if (!c)
		return;
	while (!list_is_empty(&c->clients))
		client_free(LIST_ENTRY(c->clients.next, struct console_client, link));
	ev_src_free(c->io);
	fd_close(c->fd);
	mem_free(c);
}

static void watch(struct console *c)
{
	bool full = c->n_typed > 0;

	ev_io_set(c->io, EPOLLIN | (full ? EPOLLOUT : 0u));
	LIST_FOREACH(it, &c->clients)
		ev_io_set(LIST_ENTRY(it, struct console_client, link)->io, full ? 0u : EPOLLIN);
}

static void push_typed(struct console *c)
{
	ssize_t n = send(c->fd, c->typed, c->n_typed, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n > 0) {
		c->n_typed -= (size_t)n;
		memmove(c->typed, c->typed + n, c->n_typed);
	}
	watch(c);
}

static void on_client(uint32_t revents, void *arg)
{
	struct console_client *k = arg;
	struct console *c = k->c;

	ssize_t n = recv(k->fd, c->typed + c->n_typed, sizeof(c->typed) - c->n_typed, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		c->n_typed += (size_t)n;
		push_typed(c);
		return;
	}
	client_free(k);
	if (list_is_empty(&c->clients))
		console_free(c->l);
}

static void on_guest(uint32_t revents, void *arg)
{
	struct console *c = arg;
	char buf[CHUNK];

	if (revents & EPOLLOUT)
		push_typed(c);
	if (!(revents & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) { /* QEMU has gone, or moved: all clients hear of it */
		console_free(c->l);
		return;
	}
	LIST_FOREACH_SAFE(it, tmp, &c->clients) {
		struct console_client *k = LIST_ENTRY(it, struct console_client, link);

		if (send(k->fd, buf, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
			client_free(k);
	}
	if (list_is_empty(&c->clients))
		console_free(c->l);
}

static enum rc console_connect(struct launcher *l, struct err *err)
{
	char path[PATH_LEN];
	struct console *c = mem_alloc(sizeof(*c));

	if (!c)
		return err_set(err, RC_NOMEM, "out of memory");
	l->console = c;
	c->l = l;
	list_init(&c->clients);
	path_in(l, "serial0.sock", path);
	c->fd = -1;
	enum rc rc = file_connect_unix(path, &c->fd, err);

	return rc ? rc : ev_io(l->loop, &c->io, c->fd, EPOLLIN, on_guest, c, err);
}

static enum rc add_client(struct launcher *l, int *theirs, struct err *err)
{
	struct console *c = l->console;
	int pair[2], size = 256 * 1024;
	struct console_client *k = mem_alloc(sizeof(*k));

	if (!k)
		return err_set(err, RC_NOMEM, "out of memory");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		mem_free(k);
		return err_set_sys(err, errno, "cannot make a socket pair");
	}
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	k->c = c;
	k->fd = pair[0];
	list_push_tail(&c->clients, &k->link);
	c->n_clients++;
	enum rc rc = ev_io(l->loop, &k->io, k->fd, EPOLLIN, on_client, k, err);

	if (rc) {
		client_free(k);
		close(pair[1]);
		return rc;
	}
	*theirs = pair[1];
	return RC_OK;
}

void console_open(struct launcher *l, struct ipc_call *call)
{
	struct err err = {0};
	int fd = -1;
	enum rc rc = RC_OK;

	if (!vm_is_alive(l) || l->state == VM_STARTING) {
		ipc_call_fail(call, RC_CONFLICT, "there is no running VM");
		return;
	}
	if (!l->spec->serial_console) {
		ipc_call_fail(call, RC_NOT_FOUND, "this VM has no serial console");
		return;
	}
	if (l->console && l->console->n_clients >= MAX_CLIENTS) {
		ipc_call_fail(call, RC_BUSY, "%d clients share this console already", MAX_CLIENTS);
		return;
	}
	if (!l->console)
		rc = console_connect(l, &err);
	if (!rc)
		rc = add_client(l, &fd, &err);
	if (rc) {
		if (l->console && list_is_empty(&l->console->clients))
			console_free(l);
		ipc_call_fail_err(call, &err);
		return;
	}
	ipc_call_done(call, js_new_object(), &fd, 1);
}

/* --- the log --- */

/* Keeps the younger half in serial.log.1 and empties the log: QEMU appends, so it goes on at the new end. */
static void shorten(struct launcher *l, int fd, off_t size)
{
	char path[PATH_LEN], old[PATH_LEN];
	CLEANUP(mem_freep) char *buf = mem_alloc(LOG_KEEP);

	path_in(l, "serial.log", path);
	path_in(l, "serial.log.1", old);
	CLEANUP(fd_closep) int from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = from >= 0 && buf ? pread(from, buf, LOG_KEEP, size - LOG_KEEP) : 0;

	if (n > 0 && file_write_durable(old, buf, (size_t)n, 0640, NULL))
		log_warn("vm: the older part of the serial log is lost, going on");
	if (ftruncate(fd, 0) < 0)
		log_warn("vm: the serial log cannot be shortened: %s", strerror(errno));
}

static void on_log_timer(void *arg)
{
	struct launcher *l = arg;
	struct stat st;

	if (l->serial_log_fd >= 0 && fstat(l->serial_log_fd, &st) == 0 && st.st_size > LOG_MAX)
		shorten(l, l->serial_log_fd, st.st_size);
	ev_timer_rearm(l->log_timer, LOG_PERIOD);
}

void console_watch_log(struct launcher *l)
{
	struct err err = {0};
	char path[PATH_LEN];

	if (!l->spec->serial_console || !l->spec->serial_log || l->log_timer)
		return;
	path_in(l, "serial.log", path);
	if (l->serial_log_fd < 0)
		l->serial_log_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
	if (ev_timer_after(l->loop, &l->log_timer, LOG_PERIOD, on_log_timer, l, &err))
		log_warn("vm: the serial log is not kept short: %s", err.msg);
}
