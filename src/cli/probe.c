/* src/cli/probe.c - what a client of a VM notices: new connections, one held connection, datagrams.
 *
 * Three measurements run side by side against an echo service:
 *   new   a fresh TCP connection every --new-every; connect, one byte there and back, close
 *   held  one connection, a numbered request every --held-every, the next only after the reply
 *   udp   --udp-rate numbered datagrams a second, each counted when its echo comes back
 * A line on standard input ("mark", or any text) prints the window so far as one JSON line and starts
 * a new window, so that a caller can cut the time into moves.  The end prints the last window.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd.h"
#include "ev/ev.h"
#include "json/json.h"

#define MAX_DURATION (1000000 * USEC_PER_SEC)
#define UDP_DRAIN    (500 * USEC_PER_MSEC)

enum { UDP_WINDOW = 1 << 16, MAX_PENDING = 256 };

struct window {
	usec_t start;
	uint64_t new_count, new_failed;
	usec_t new_slowest, new_gap; /* gap: longest stretch without any success */
	usec_t new_last_ok;
	uint64_t held_rounds;
	usec_t held_slowest;
	uint32_t held_retrans;
	uint64_t udp_sent, udp_back, udp_dup;
	usec_t udp_gap, udp_last;
	char first_error[160];
};

struct attempt {
	struct probe *p;
	struct ev_src *io;
	int fd;
	usec_t start;
	bool connected;
	bool used;
};

struct probe {
	struct loop *loop;
	struct sockaddr_in to;
	usec_t new_every, held_every, timeout, duration;
	uint64_t udp_rate;
	struct window w;
	struct ev_src *new_timer, *held_timer, *udp_timer, *end_timer, *in_io, *held_io, *udp_io,
		*sig[2];
	struct attempt attempts[MAX_PENDING];
	usec_t new_due, udp_due;
	int held_fd;
	uint64_t held_n;
	usec_t held_sent;
	char held_in[8];
	size_t held_got;
	bool held_waiting, held_connected;
	bool held_broken;
	char held_error[120];
	uint32_t held_retrans_base;
	int udp_fd;
	uint64_t udp_n, udp_home; /* sent and back since the start */
	bool is_ending;
	unsigned n_signals;
	uint8_t udp_seen[UDP_WINDOW / 8];
	char line[256];
	size_t line_n;
	uint64_t windows;
};

static double ms(usec_t t)
{
	return (double)t / 1000.0;
}

static void note_error(struct probe *p, const char *what, int error)
{
	if (!p->w.first_error[0])
		(void)snprintf(p->w.first_error, sizeof(p->w.first_error), "%s: %s", what,
			       strerror(error));
}

static void window_reset(struct probe *p)
{
	usec_t now = loop_now(p->loop);

	p->w = (struct window){.start = now, .new_last_ok = now, .udp_last = now};
}

static uint32_t held_retrans(const struct probe *p)
{
	struct tcp_info info;
	socklen_t n = sizeof(info);

	if (p->held_fd < 0 || getsockopt(p->held_fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
		return 0;
	return info.tcpi_total_retrans;
}

static void window_print(struct probe *p, const char *name)
{
	struct window *w = &p->w;
	usec_t now = loop_now(p->loop);
	usec_t waiting = p->held_waiting ? now - p->held_sent : 0;
	uint32_t retrans = held_retrans(p);

	if (p->new_every && now - w->new_last_ok > w->new_gap)
		w->new_gap = now - w->new_last_ok;
	CLEANUP(js_unrefp)
	struct json *j = js_pack(
		"{s:s, s:f, s:{s:I, s:I, s:f, s:f}, s:{s:I, s:f, s:b, s:s, s:I}, s:{s:I, s:I, s:I, s:I, s:f}, s:s}",
		"window", name, "seconds", ms(now - w->start) / 1000, "new", "count",
		(int64_t)w->new_count, "failed", (int64_t)w->new_failed, "slowestMs",
		ms(w->new_slowest), "longestGapMs", ms(w->new_gap), "held", "rounds",
		(int64_t)w->held_rounds, "longestGapMs", ms(MAX(w->held_slowest, waiting)),
		"broken", p->held_broken, "error", p->held_error, "retransmits",
		(int64_t)(retrans - p->held_retrans_base), "udp", "sent", (int64_t)w->udp_sent,
		"back", (int64_t)w->udp_back, "duplicates", (int64_t)w->udp_dup, "lost",
		(int64_t)(w->udp_sent > w->udp_back ? w->udp_sent - w->udp_back : 0),
		"longestGapMs", ms(w->udp_gap), "firstError", w->first_error);
	char *text = j ? js_to_text(j) : NULL;

	printf("%s\n", text ? text : "{}");
	fflush(stdout);
	mem_free(text);
	p->held_retrans_base = retrans;
	p->windows++;
	window_reset(p);
}

static int open_socket(struct probe *p, int type, int *error)
{
	int one = 1;
	int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		*error = errno;
		return -1;
	}
	if (type == SOCK_STREAM)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (struct sockaddr *)&p->to, sizeof(p->to)) < 0 && errno != EINPROGRESS) {
		*error = errno;
		return fd_close(fd);
	}
	return fd;
}

/* New connections */

static void attempt_end(struct attempt *a, bool ok, const char *what, int error)
{
	struct probe *p = a->p;
	usec_t now = loop_now(p->loop);
	usec_t took = now - a->start;

	p->w.new_count++;
	if (ok) {
		if (took > p->w.new_slowest)
			p->w.new_slowest = took;
		if (now - p->w.new_last_ok > p->w.new_gap)
			p->w.new_gap = now - p->w.new_last_ok;
		p->w.new_last_ok = now;
	} else {
		p->w.new_failed++;
		note_error(p, what, error);
	}
	a->io = ev_src_free(a->io);
	a->fd = fd_close(a->fd);
	a->used = false;
}

static void on_attempt(uint32_t revents, void *arg)
{
	struct attempt *a = arg;
	char c;

	(void)revents;
	if (!a->connected) {
		int error = 0;
		socklen_t n = sizeof(error);

		getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &n);
		if (error) {
			attempt_end(a, false, "connect", error);
			return;
		}
		if (send(a->fd, "x", 1, MSG_NOSIGNAL) != 1) {
			attempt_end(a, false, "send", errno);
			return;
		}
		a->connected = true;
		ev_io_set(a->io, EPOLLIN);
		return;
	}
	ssize_t k = recv(a->fd, &c, 1, 0);

	if (k < 0 && errno == EAGAIN)
		return;
	attempt_end(a, k == 1 && c == 'x', "receive", k < 0 ? errno : ECONNRESET);
}

static void start_attempt(struct probe *p)
{
	for (size_t i = 0; i < MAX_PENDING; i++) {
		struct attempt *a = &p->attempts[i];
		int error = 0;

		if (a->used)
			continue;
		*a = (struct attempt){.p = p, .used = true, .start = loop_now(p->loop)};
		a->fd = open_socket(p, SOCK_STREAM, &error);
		if (a->fd < 0 || ev_io(p->loop, &a->io, a->fd, EPOLLOUT, on_attempt, a, NULL))
			attempt_end(a, false, "connect", error);
		return;
	}
	p->w.new_count++;
	p->w.new_failed++;
	note_error(p, "too many connections are waiting", EBUSY);
}

static void on_new_due(void *arg)
{
	struct probe *p = arg;
	usec_t now = loop_now(p->loop);

	for (size_t i = 0; i < MAX_PENDING; i++)
		if (p->attempts[i].used && now - p->attempts[i].start > p->timeout)
			attempt_end(&p->attempts[i], false, "no answer", ETIMEDOUT);
	start_attempt(p);
	p->new_due += p->new_every;
	ev_timer_rearm(p->new_timer, p->new_due > now ? p->new_due - now : 0);
}

/* The held connection */

static void held_break(struct probe *p, const char *what, int error)
{
	p->held_broken = true;
	(void)snprintf(p->held_error, sizeof(p->held_error), "%s: %s", what, strerror(error));
	p->held_waiting = false;
	p->held_io = ev_src_free(p->held_io);
	p->held_fd = fd_close(p->held_fd);
}

static void held_send(void *arg)
{
	struct probe *p = arg;
	char request[9];

	if (p->held_broken)
		return;
	(void)snprintf(request, sizeof(request), "%08llu",
		       (unsigned long long)(++p->held_n % 100000000));
	p->held_sent = loop_now(p->loop);
	p->held_got = 0;
	p->held_waiting = true;
	if (send(p->held_fd, request, 8, MSG_NOSIGNAL) != 8)
		held_break(p, "send", errno);
}

static void held_reply(struct probe *p)
{
	usec_t took = loop_now(p->loop) - p->held_sent;
	char want[9];

	(void)snprintf(want, sizeof(want), "%08llu", (unsigned long long)(p->held_n % 100000000));
	if (memcmp(want, p->held_in, 8) != 0) {
		held_break(p, "the echo differs", EBADMSG);
		return;
	}
	p->held_waiting = false;
	p->w.held_rounds++;
	if (took > p->w.held_slowest)
		p->w.held_slowest = took;
	ev_timer_rearm(p->held_timer, p->held_every);
}

static void on_held(uint32_t revents, void *arg)
{
	struct probe *p = arg;

	(void)revents;
	if (!p->held_connected) {
		int error = 0;
		socklen_t n = sizeof(error);

		getsockopt(p->held_fd, SOL_SOCKET, SO_ERROR, &error, &n);
		if (error) {
			held_break(p, "connect", error);
			return;
		}
		p->held_connected = true;
		ev_io_set(p->held_io, EPOLLIN);
		held_send(p);
		return;
	}
	ssize_t k = recv(p->held_fd, p->held_in + p->held_got, 8 - p->held_got, 0);

	if (k < 0 && errno == EAGAIN)
		return;
	if (k <= 0) {
		held_break(p, "receive", k < 0 ? errno : ECONNRESET);
		return;
	}
	p->held_got += (size_t)k;
	if (p->held_got == 8)
		held_reply(p);
}

/* Datagrams */

static void on_udp(uint32_t revents, void *arg)
{
	struct probe *p = arg;
	uint64_t n;

	(void)revents;
	while (recv(p->udp_fd, &n, sizeof(n), 0) == sizeof(n)) {
		usec_t now = loop_now(p->loop);
		uint8_t bit = (uint8_t)(1u << (n & 7));
		uint8_t *seen = &p->udp_seen[(n % UDP_WINDOW) / 8];

		if (n > p->udp_n || p->udp_n - n >= UDP_WINDOW / 2)
			continue;
		if (*seen & bit) {
			p->w.udp_dup++;
			continue;
		}
		*seen |= bit;
		p->w.udp_back++;
		p->udp_home++;
		if (now - p->w.udp_last > p->w.udp_gap)
			p->w.udp_gap = now - p->w.udp_last;
		p->w.udp_last = now;
	}
	if (p->is_ending && p->udp_home == p->udp_n)
		loop_quit(p->loop, 0);
}

static void on_udp_due(void *arg)
{
	struct probe *p = arg;
	usec_t step = USEC_PER_SEC / p->udp_rate;
	usec_t now = loop_now(p->loop);

	while (p->udp_due <= now) {
		uint64_t n = ++p->udp_n;

		p->udp_seen[(n % UDP_WINDOW) / 8] &= (uint8_t) ~(1u << (n & 7));
		if (send(p->udp_fd, &n, sizeof(n), MSG_NOSIGNAL) != sizeof(n))
			note_error(p, "send datagram", errno);
		p->w.udp_sent++;
		p->udp_due += step;
	}
	ev_timer_rearm(p->udp_timer, p->udp_due - now);
}

/* Control */

static void on_drained(void *arg)
{
	struct probe *p = arg;

	loop_quit(p->loop, 0);
}

/* Datagrams that are on their way are waited for, or they would count as lost; a second signal waits for
 * nothing. */
static void on_end(void *arg)
{
	struct probe *p = arg;
	struct err err;

	if (p->is_ending)
		return;
	p->is_ending = true;
	if (p->udp_n != p->udp_home) {
		p->udp_timer = ev_src_free(p->udp_timer);
		p->end_timer = ev_src_free(p->end_timer);
		if (!ev_timer_after(p->loop, &p->end_timer, UDP_DRAIN, on_drained, p, &err))
			return;
	}
	loop_quit(p->loop, 0);
}

static void on_signal(int signo, void *arg)
{
	struct probe *p = arg;

	(void)signo;
	if (p->n_signals++)
		loop_quit(p->loop, 0);
	else
		on_end(p);
}

static void on_input(uint32_t revents, void *arg)
{
	struct probe *p = arg;
	char b[256];
	ssize_t k = read(STDIN_FILENO, b, sizeof(b));

	(void)revents;
	if (k <= 0) {
		p->in_io = ev_src_free(p->in_io);
		/* Callers end a probe with both, a signal and this, in any order: together they are one end. */
		if (!p->duration)
			on_end(p);
		return;
	}
	for (ssize_t i = 0; i < k; i++) {
		if (b[i] != '\n') {
			if (p->line_n + 1 < sizeof(p->line))
				p->line[p->line_n++] = b[i];
			continue;
		}
		p->line[p->line_n] = '\0';
		p->line_n = 0;
		window_print(p, p->line);
	}
}

static enum rc parse_target(const char *s, struct sockaddr_in *out, struct err *err)
{
	char host[256];
	const char *colon = strrchr(s, ':');
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *ai = NULL;
	uint64_t port;

	if (!colon || (size_t)(colon - s) >= sizeof(host) ||
	    str_to_u64(colon + 1, 65535, &port, NULL) || !port)
		return err_set(err, RC_INVALID, "'%s' is not ADDRESS:PORT", s);
	memcpy(host, s, (size_t)(colon - s));
	host[colon - s] = '\0';
	int r = getaddrinfo(host, NULL, &hints, &ai);

	if (r)
		return err_set(err, RC_NOT_FOUND, "cannot resolve '%s': %s", host, gai_strerror(r));
	*out = *(struct sockaddr_in *)(void *)ai->ai_addr;
	out->sin_port = htons((uint16_t)port);
	freeaddrinfo(ai);
	return RC_OK;
}

static enum rc probe_start(struct probe *p, struct err *err)
{
	struct loop *l = p->loop;
	int error = 0;
	enum rc rc = ev_signal(l, &p->sig[0], SIGINT, on_signal, p, err);

	if (!rc)
		rc = ev_signal(l, &p->sig[1], SIGTERM, on_signal, p, err);
	if (!rc && p->duration)
		rc = ev_timer_after(l, &p->end_timer, p->duration, on_end, p, err);
	if (!rc && p->new_every) {
		p->new_due = loop_now(l);
		rc = ev_timer_after(l, &p->new_timer, 0, on_new_due, p, err);
	}
	if (!rc && p->held_every) {
		rc = ev_timer_after(l, &p->held_timer, USEC_INFINITY, held_send, p, err);
		p->held_fd = open_socket(p, SOCK_STREAM, &error);
		if (!rc && p->held_fd < 0)
			return err_set_sys(err, error, "cannot connect");
		if (!rc)
			rc = ev_io(l, &p->held_io, p->held_fd, EPOLLOUT, on_held, p, err);
	}
	if (!rc && p->udp_rate) {
		p->udp_due = loop_now(l);
		p->udp_fd = open_socket(p, SOCK_DGRAM, &error);
		if (p->udp_fd < 0)
			return err_set_sys(err, error, "cannot open a datagram socket");
		rc = ev_io(l, &p->udp_io, p->udp_fd, EPOLLIN, on_udp, p, err);
		int room = 4 << 20;

		/* As much as the kernel allows: what came back must not be lost here. */
		(void)setsockopt(p->udp_fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
		if (!rc)
			rc = ev_timer_after(l, &p->udp_timer, 0, on_udp_due, p, err);
	}
	return rc;
}

static void probe_stop(struct probe *p)
{
	struct ev_src *all[] = {p->new_timer, p->held_timer, p->udp_timer, p->end_timer, p->in_io,
				p->held_io,   p->udp_io,     p->sig[0],	   p->sig[1]};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		ev_src_free(all[i]);
	for (size_t i = 0; i < MAX_PENDING; i++)
		if (p->attempts[i].used) {
			ev_src_free(p->attempts[i].io);
			fd_close(p->attempts[i].fd);
		}
	fd_close(p->held_fd);
	fd_close(p->udp_fd);
	loop_free(p->loop);
}

static int probe_run(const struct cmd *c, int argc, char **argv)
{
	const char *new_every = "20ms", *held_every = "2ms", *timeout = "1s", *duration = "0",
		   *udp = "0";
	const struct opt opts[] = {
		{.name = "--new-every", .value = &new_every},
		{.name = "--held-every", .value = &held_every},
		{.name = "--timeout", .value = &timeout},
		{.name = "--duration", .value = &duration},
		{.name = "--udp-rate", .value = &udp},
		{0},
	};
	CLEANUP(mem_freep) struct probe *p = mem_alloc(sizeof(*p));
	struct err err = {0};
	int n;
	bool help;
	enum rc rc;

	if (!p)
		return EXIT_FAIL;
	p->held_fd = p->udp_fd = -1;
	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 1)
		return cmd_usage(c, "one ADDRESS:PORT is needed");
	rc = parse_target(argv[0], &p->to, &err);
	if (!rc)
		rc = str_to_duration(new_every, MAX_DURATION, &p->new_every, &err);
	if (!rc)
		rc = str_to_duration(held_every, MAX_DURATION, &p->held_every, &err);
	if (!rc)
		rc = str_to_duration(timeout, MAX_DURATION, &p->timeout, &err);
	if (!rc)
		rc = str_to_duration(duration, MAX_DURATION, &p->duration, &err);
	if (!rc)
		rc = str_to_u64(udp, 100000, &p->udp_rate, &err);
	if (!rc)
		rc = loop_new(&p->loop, LOOP_REAL, &err);
	if (rc)
		return cmd_fail(&err);
	window_reset(p);
	rc = probe_start(p, &err);
	/* Standard input may be a file or /dev/null, which epoll refuses: then there are no marks. */
	if (!rc)
		ignore_rc(ev_io(p->loop, &p->in_io, STDIN_FILENO, EPOLLIN, on_input, p, NULL));
	if (!rc)
		rc = loop_run(p->loop, NULL, &err);
	if (!rc)
		window_print(p, "end");
	bool ok = !rc && !p->held_broken;

	probe_stop(p);
	if (rc)
		return cmd_fail(&err);
	return ok ? EXIT_OK : EXIT_FAIL;
}

const struct cmd cmd_probe = {
	.name = "probe",
	.args = "ADDRESS:PORT [--new-every 20ms] [--held-every 2ms] [--udp-rate N] [--duration D]",
	.summary = "Measure what clients of an echo service notice, in milliseconds.",
	.help = "  --new-every D    a new TCP connection this often (0: none); default 20ms\n"
		"  --held-every D   a request on one held connection this often (0: none); default 2ms\n"
		"  --udp-rate N     numbered datagrams a second, echoed (0: none); default 0\n"
		"  --timeout D      a new connection that takes longer has failed; default 1s\n"
		"  --duration D     stop after this long (0: until a signal or the end of input)\n\n"
		"Each line on standard input prints the window so far as JSON and starts a new one.\n"
		"The exit code is 1 when the held connection broke.\n",
	.run = probe_run,
};
