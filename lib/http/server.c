#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/server_int.h"

/* Theory of operation
 *
 * libmicrohttpd runs without threads on its own epoll descriptor, which our loop watches as one source:
 * readable means MHD_run().  A resumed connection does not make it readable; server_kick() asks for a
 * run after what the loop does now, so that all answers of one turn go out together.
 *
 * The certificate comes from a callback and the clients' chains are verified by us (tls.c), so both can
 * be replaced without touching the listening socket or the connections.
 */
enum { BACKLOG = 1024 };
static const usec_t IDLE_DEFAULT = 180 * USEC_PER_SEC;

struct conn *conn_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

/* Driving libmicrohttpd */

/* A timer that fires too early costs a run; setting it anew for each run would cost a system call. */
static void set_timer(struct http_server *s, usec_t delay)
{
	usec_t due = loop_now(s->loop) + delay;

	if (ev_timer_is_armed(s->timer) && s->timer_due <= due)
		return;
	s->timer_due = due;
	ev_timer_rearm(s->timer, delay);
}

static void pump(struct http_server *s)
{
	MHD_UNSIGNED_LONG_LONG ms = 0;

	s->in_mhd++;
	MHD_run(s->mhd);
	s->in_mhd--;
	if (MHD_get_timeout(s->mhd, &ms) != MHD_YES)
		return;
	if (ms == 0)
		server_kick(s);
	else
		set_timer(s, (usec_t)ms * USEC_PER_MSEC);
}

static void on_kick(void *arg)
{
	struct http_server *s = arg;

	s->kick = ev_src_free(s->kick);
	pump(s);
}

void server_kick(struct http_server *s)
{
	if (s->kick)
		return;
	if (ev_defer(s->loop, &s->kick, on_kick, s, NULL))
		set_timer(s, 0); /* needs no memory */
}

static void on_epoll(uint32_t events, void *arg)
{
	(void)events;
	pump(arg);
}

static void on_timer(void *arg)
{
	pump(arg);
}

PRINTF_LIKE(2, 0) static void on_mhd_log(void *cls, const char *fmt, va_list ap)
{
	char text[512];

	(void)cls;
	if (!log_is_on(LOG_LVL_DEBUG))
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_debug("http: %s", text);
}

/* Connections */

static void set_address(struct conn *k, struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *sa = info ? info->client_addr : NULL;
	struct ucred cred;
	socklen_t n = sizeof(cred);

	k->peer.address = k->address;
	k->peer.uid = (uid_t)-1;
	if (sa && sa->sa_family == AF_INET) {
		inet_ntop(AF_INET, &((const struct sockaddr_in *)sa)->sin_addr, k->address,
			  sizeof(k->address));
	} else if (sa && sa->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)sa)->sin6_addr, k->address,
			  sizeof(k->address));
	} else {
		snprintf(k->address, sizeof(k->address), "unix");
		k->peer.is_unix = true;
		if (getsockopt(k->fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0)
			k->peer.uid = cred.uid;
	}
}

static void set_socket_options(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{IPPROTO_TCP, TCP_NODELAY, 1},
		{SOL_SOCKET, SO_KEEPALIVE, 1}, /* finds dead peers of idle watches */
		{IPPROTO_TCP, TCP_KEEPIDLE, 30},
		{IPPROTO_TCP, TCP_KEEPINTVL, 10},
		{IPPROTO_TCP, TCP_KEEPCNT, 3},
		{IPPROTO_TCP, TCP_USER_TIMEOUT, 60000},
	};

	/* Not of a unix socket: then they fail, and nothing is lost. */
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		if (setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			       sizeof(options[i].value)))
			break;
}

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct http_server *s = cls;
	struct conn *k = *context;
	const union MHD_ConnectionInfo *info;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (!k)
			return;
		if (k->req)
			req_free(k->req);
		guard_leave(k);
		tls_peer_fini(&k->id);
		mem_free(k);
		*context = NULL;
		s->n_conns--;
		return;
	}
	k = mem_alloc(sizeof(*k));
	if (!k)
		return; /* its requests are refused: there is no connection to hang them on */
	k->server = s;
	info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	k->fd = info ? info->connect_fd : -1;
	set_address(k, c);
	if (!k->peer.is_unix)
		set_socket_options(k->fd);
	info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	guard_enter(k, k->peer.is_unix || !info ? NULL : info->client_addr);
	*context = k;
	s->n_conns++;
}

static enum MHD_Result on_accept(void *cls, const struct sockaddr *sa, socklen_t n)
{
	(void)n;
	return guard_accepts(cls, sa) ? MHD_YES : MHD_NO;
}

static int on_certificate(gnutls_session_t session, const gnutls_datum_t *ca_names, int n_ca_names,
			  const gnutls_pk_algorithm_t *algos, int n_algos, gnutls_pcert_st **chain,
			  unsigned *n_chain, gnutls_privkey_t *key)
{
	struct MHD_Connection *c = gnutls_session_get_ptr(session);
	struct conn *k = c ? conn_of(c) : NULL;

	(void)ca_names;
	(void)n_ca_names;
	(void)algos;
	(void)n_algos;
	if (!k)
		return -1;
	tls_store_current(k->server->tls, chain, n_chain, key);
	return 0;
}

/* Listening */

static enum rc listen_unix(const char *path, int *out, struct err *err)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	CLEANUP(fd_closep) int fd = -1;
	struct stat st;
	mode_t old;
	int r;

	if (strlen(path) >= sizeof(sa.sun_path))
		return err_set(err, RC_INVALID, "the socket's path '%s' is too long", path);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		unlink(path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set_sys(err, errno, "cannot make a socket");
	old = umask(0177);
	r = bind(fd, (struct sockaddr *)&sa, sizeof(sa));
	umask(old);
	if (r < 0 || listen(fd, BACKLOG) < 0)
		return err_set_sys(err, errno, "cannot listen on '%s'", path);
	*out = STEAL_FD(fd);
	return RC_OK;
}

static enum rc listen_tcp(const char *address, uint16_t port, int *out, struct err *err)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
	CLEANUP(fd_closep) int fd = -1;
	int on = 1, off = 0, r;

	if (!is_v4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1)
		return err_set(err, RC_INVALID, "'%s' is not a numeric address", address);
	fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set_sys(err, errno, "cannot make a socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!is_v4)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	r = is_v4 ? bind(fd, (struct sockaddr *)&v4, sizeof(v4))
		  : bind(fd, (struct sockaddr *)&v6, sizeof(v6));
	if (r < 0 && errno == EADDRINUSE)
		return err_set(err, RC_EXISTS, "port %u of %s is already taken", port, address);
	if (r < 0 || listen(fd, BACKLOG) < 0)
		return err_set_sys(err, errno, "cannot listen on %s port %u", address, port);
	*out = STEAL_FD(fd);
	return RC_OK;
}

static enum rc open_listener(struct http_server *s, const struct http_server_config *config,
			     struct err *err)
{
	struct sockaddr_storage sa = {0};
	socklen_t n = sizeof(sa);
	enum rc rc = RC_OK;

	if (config->listen_fd > 0) {
		s->listen_fd = config->listen_fd;
	} else if (config->unix_path) {
		s->unix_path = mem_strdup(config->unix_path);
		rc = s->unix_path ? listen_unix(config->unix_path, &s->listen_fd, err)
				  : err_set(err, RC_NOMEM, "cannot allocate a server");
	} else {
		rc = listen_tcp(config->address, config->port, &s->listen_fd, err);
	}
	if (rc)
		return rc;
	if (getsockname(s->listen_fd, (struct sockaddr *)&sa, &n) < 0)
		return err_set_sys(err, errno, "cannot ask a socket for its address");
	if (sa.ss_family == AF_INET)
		s->port = ntohs(((struct sockaddr_in *)&sa)->sin_port);
	if (sa.ss_family == AF_INET6)
		s->port = ntohs(((struct sockaddr_in6 *)&sa)->sin6_port);
	return RC_OK;
}

static enum rc start_daemon(struct http_server *s, const struct http_server_config *config,
			    struct err *err)
{
	unsigned flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_ALLOW_SUSPEND_RESUME;
	usec_t idle = config->idle_timeout ? config->idle_timeout : IDLE_DEFAULT;
	unsigned max = config->connections_max ? config->connections_max : LIMIT_CONNECTIONS;
	const char *ca = s->tls ? tls_store_ca_pem(s->tls) : NULL;
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)on_certificate},
		{MHD_OPTION_HTTPS_PRIORITIES, 0,
		 (void *)(uintptr_t) "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
		{ca ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, (void *)(uintptr_t)ca},
		{MHD_OPTION_END, 0, NULL},
	};
	struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};

	if (s->tls)
		flags |= MHD_USE_TLS;
	enum rc rc = guard_init(s, config, max, idle, err);

	if (rc)
		return rc;
	s->mhd = MHD_start_daemon(
		flags, 0, on_accept, s, req_on_access, s, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, s,
		MHD_OPTION_LISTEN_SOCKET, s->listen_fd, MHD_OPTION_URI_LOG_CALLBACK, req_on_uri, s,
		MHD_OPTION_NOTIFY_COMPLETED, req_on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(64 * 1024),
		MHD_OPTION_CONNECTION_LIMIT, max, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned)(idle / USEC_PER_SEC), MHD_OPTION_ARRAY, s->tls ? tls : none,
		MHD_OPTION_END);
	if (!s->mhd)
		return err_set(err, RC_IO, "cannot start the HTTP server");
	s->listen_fd = -1; /* the daemon's */
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);

	if (!info || info->epoll_fd < 0)
		return err_set(err, RC_IO, "the HTTP server has no epoll descriptor");
	return ev_io(s->loop, &s->epoll_src, info->epoll_fd, EPOLLIN, on_epoll, s, err);
}

enum rc http_server_new(struct http_server **out, struct loop *loop,
			const struct http_server_config *config, struct err *err)
{
	CLEANUP(http_server_freep) struct http_server *s = mem_alloc(sizeof(*s));
	enum rc rc;

	if (!s) {
		fd_close(config->listen_fd > 0 ? config->listen_fd : -1);
		return err_set(err, RC_NOMEM, "cannot allocate a server");
	}
	signal(SIGPIPE, SIG_IGN); /* a write to a closed connection is an error code */
	s->loop = loop;
	s->listen_fd = -1;
	s->handler = config->handler;
	s->arg = config->arg;
	s->body_max = config->body_max ? config->body_max : LIMIT_BODY_BYTES;
	list_init(&s->reqs);
	rc = open_listener(s, config, err);
	if (!rc && config->cert_file)
		rc = tls_store_new(&s->tls, config->cert_file, config->key_file, config->ca_file,
				   err);
	if (!rc)
		rc = ev_timer_after(loop, &s->timer, USEC_INFINITY, on_timer, s, err);
	if (!rc)
		rc = start_daemon(s, config, err);
	if (!rc)
		*out = STEAL(s);
	return rc;
}

enum rc http_server_reload_tls(struct http_server *s, struct err *err)
{
	return s->tls ? tls_store_reload(s->tls, err) : RC_OK;
}

uint16_t http_server_port(const struct http_server *s)
{
	return s->port;
}

void http_server_stats(const struct http_server *s, struct http_server_stats *out)
{
	*out = (struct http_server_stats){
		.requests = s->n_requests,
		.open_requests = s->n_reqs,
		.open_streams = s->n_streams,
		.open_websockets = s->n_ws,
		.connections = s->n_conns,
		.body_bytes = s->guard.bodies,
		.answer_bytes = s->guard.answers,
		.strangers = s->guard.n_strangers,
		.trusted = s->guard.n_trusted,
		.others = s->guard.n_others,
	};
	memcpy(out->refused, s->guard.refused, sizeof(out->refused));
}

/* Stopping */

static void on_stopped(void *arg)
{
	struct http_server *s = arg;
	http_stopped_fn fn = s->stopped;

	for (struct list *it = s->reqs.next; it != &s->reqs;) { /* the grace period is over */
		struct http_req *r = LIST_ENTRY(it, struct http_req, link);

		it = it->next;
		if (!r->is_ws)
			req_give_up(r);
	}
	s->stopped = NULL;
	if (fn)
		fn(s->stopped_arg);
}

void server_check_stopped(struct http_server *s)
{
	if (s->stopping && s->stopped && s->n_reqs == 0)
		ev_timer_rearm(s->stop_timer, 0);
}

void http_server_stop(struct http_server *s, usec_t grace, http_stopped_fn done, void *arg)
{
	assert(!s->stopping);
	s->stopping = true;
	s->stopped = done;
	s->stopped_arg = arg;
	s->listen_fd = MHD_quiesce_daemon(s->mhd);
	s->listen_fd = fd_close(s->listen_fd);
	/* Without a timer there is no grace: out of memory here means to stop at once. */
	if (ev_timer_after(s->loop, &s->stop_timer, s->n_reqs ? grace : 0, on_stopped, s, NULL)) {
		on_stopped(s);
		return;
	}
	for (struct list *it = s->reqs.next; it != &s->reqs;) {
		struct http_req *r = LIST_ENTRY(it, struct http_req, link);

		it = it->next;
		if (r->ws) {
			http_ws_close(r->ws, HTTP_WS_GOING_AWAY, "the server is stopping");
		} else if (r->is_stream && r->is_owned) {
			http_cancel_fn cancel = r->cancel;
			void *cancel_arg = r->cancel_arg;

			http_stream_end(r); /* a clean end: watchers resume elsewhere or later */
			if (cancel)
				cancel(r, cancel_arg);
		}
	}
}

struct http_server *http_server_free(struct http_server *s)
{
	if (!s)
		return NULL;
	assert(s->in_mhd == 0);
	s->stopped = NULL;
	for (struct list *it = s->reqs.next; s->mhd && it != &s->reqs;) {
		struct http_req *r = LIST_ENTRY(it, struct http_req, link);

		it = it->next;
		if (r->ws)
			ws_server_detach(r->ws);
		else
			req_give_up(r);
	}
	s->epoll_src = ev_src_free(s->epoll_src);
	if (s->mhd)
		MHD_stop_daemon(s->mhd);
	guard_fini(s);
	ev_src_free(s->kick);
	ev_src_free(s->timer);
	ev_src_free(s->stop_timer);
	fd_close(s->listen_fd);
	if (s->unix_path)
		unlink(s->unix_path);
	mem_free(s->unix_path);
	tls_store_free(s->tls);
	return mem_free(s);
}
