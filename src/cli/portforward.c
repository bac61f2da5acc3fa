/* src/cli/portforward.c - ports of a guest at local ones, in virtctl's words. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/udpforward.h"
#include "cli/wsjoin.h"
#include "ev/ev.h"
#include "http/join.h"

enum { PORTS_MAX = 32, CONNECTIONS_MAX = 256, UDP_PEERS_MAX = 64 };
static const usec_t UDP_IDLE =
	120 * USEC_PER_SEC; /* the least that RFC 4787 (REQ-5) lets a NAT wait */

struct forward {
	struct session *session;
	uint16_t local, remote;
	int fd;
	struct ev_src *io;
	bool is_udp;
	struct udpforward *udp;
	char *url; /* UDP's */
};

struct session {
	struct client_flags flags;
	struct client *client;
	struct loop *loop;
	const char *address;
	bool is_stdio;
	const char *plural;
	char ns[64], name[254];
	struct forward ports[PORTS_MAX];
	size_t n_ports;
	struct list connections;
	size_t n_connections;
	struct ev_src *signals[2];
	struct err err;
};

struct connection {
	struct list link;
	struct session *session;
	struct http_join *join;
	int fd; /* until the server has let us in; -1 with --stdio */
};

static void connection_free(struct connection *c)
{
	list_remove(&c->link);
	c->session->n_connections--;
	http_join_free(c->join);
	fd_close(c->fd);
	mem_free(c);
}

static void over(struct connection *c)
{
	struct session *s = c->session;

	connection_free(c);
	if (s->is_stdio)
		loop_quit(s->loop, 0);
}

static void on_open(struct http_join *j, void *arg)
{
	struct connection *c = arg;
	struct session *s = c->session;
	struct err err = {0};
	int fd = STEAL_FD(c->fd);
	bool is_stdio = fd < 0;

	if (!http_join_attach(j, is_stdio ? STDIN_FILENO : fd, is_stdio ? STDOUT_FILENO : fd, &err))
		return;
	fprintf(stderr, "error: %s\n", err.msg);
	if (is_stdio)
		err_copy(&s->err, &err);
	over(c);
}

/* The command goes on: others are at work, and the next one may succeed. */
static void on_end(struct http_join *j, enum rc rc, const char *text, void *arg)
{
	struct connection *c = arg;

	(void)j;
	if (rc && c->session->is_stdio)
		(void)err_set(&c->session->err, rc, "%s", text);
	else if (!str_is_empty(text))
		fprintf(stderr, "%s%s\n", rc ? "error: " : "", text);
	over(c);
}

static const struct http_join_ops ops = {.on_open = on_open, .on_end = on_end};

/* fd -1: standard input and output. */
static enum rc connect_to(struct session *s, uint16_t port, int fd, struct err *err)
{
	struct connection *c = mem_alloc(sizeof(*c));
	char path[48];

	if (!c) {
		fd_close(fd);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	c->session = s;
	c->fd = fd;
	list_push_tail(&s->connections, &c->link);
	s->n_connections++;
	(void)snprintf(path, sizeof(path), "/portforward/%u/tcp", port);
	enum rc rc = wsjoin_connect(&c->join, s->client, s->plural, *s->ns ? s->ns : NULL, s->name,
				    path, &ops, c, err);

	if (rc)
		connection_free(c);
	return rc;
}

static void on_port(uint32_t revents, void *arg)
{
	struct forward *f = arg;
	struct session *s = f->session;
	struct err err = {0};
	int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)revents;
	if (fd < 0)
		return;
	fprintf(stderr, "Handling connection for %u\n", f->local);
	if (s->n_connections >= CONNECTIONS_MAX) {
		fprintf(stderr, "error: %d connections are open already\n", CONNECTIONS_MAX);
		fd_close(fd);
	} else if (connect_to(s, f->remote, fd, &err)) {
		fprintf(stderr, "error: %s\n", err.msg);
	}
}

static void on_peer(void *arg)
{
	fprintf(stderr, "Handling connection for %u\n", ((struct forward *)arg)->local);
}

static void on_udp_error(const char *text, void *arg)
{
	(void)arg;
	fprintf(stderr, "error: %s\n", text);
}

static enum rc take_datagrams(struct forward *f, struct err *err)
{
	const struct session *s = f->session;
	char path[48];

	(void)snprintf(path, sizeof(path), "/portforward/%u/udp", f->remote);
	TRY(wsjoin_url(s->client, s->plural, *s->ns ? s->ns : NULL, s->name, path, &f->url, err));
	int fd = STEAL_FD(f->fd);
	const struct udpforward_config config = {.client = client_http(s->client),
						 .url = f->url,
						 .fd = fd,
						 .peers_max = UDP_PEERS_MAX,
						 .idle = UDP_IDLE,
						 .interval = USEC_PER_SEC,
						 .on_peer = on_peer,
						 .on_error = on_udp_error,
						 .arg = f};

	return udpforward_new(&f->udp, &config, err);
}

static enum rc listen_at(struct forward *f, struct err *err)
{
	TRY(wsjoin_listen(f->is_udp ? SOCK_DGRAM : SOCK_STREAM, f->session->address, &f->local,
			  &f->fd, err));
	if (f->is_udp)
		return take_datagrams(f, err);
	return ev_io(f->session->loop, &f->io, f->fd, EPOLLIN, on_port, f, err);
}

static void on_signal(int signo, void *arg)
{
	(void)signo;
	loop_quit(((struct session *)arg)->loop, 0);
}

static enum rc start(struct session *s, struct err *err)
{
	static const int stops[] = {SIGINT, SIGTERM};

	for (size_t i = 0; i < ARRAY_SIZE(stops); i++)
		TRY(ev_signal(s->loop, &s->signals[i], stops[i], on_signal, s, err));
	if (s->is_stdio)
		return connect_to(s, s->ports[0].remote, -1, err);
	for (size_t i = 0; i < s->n_ports; i++)
		TRY(listen_at(&s->ports[i], err));
	for (size_t i = 0; i < s->n_ports; i++)
		printf("Forwarding %sfrom %s:%u -> %u\n", s->ports[i].is_udp ? "udp " : "",
		       s->address, s->ports[i].local, s->ports[i].remote);
	return fflush(stdout) ? err_set_sys(err, errno, "cannot print the ports") : RC_OK;
}

static int run(struct session *s)
{
	struct err err = {0};
	int code = 0;

	if (client_open(&s->client, &s->flags, &err))
		return cmd_fail(&err);
	s->loop = client_loop(s->client);
	enum rc rc = start(s, &err);

	if (!rc)
		rc = loop_run(s->loop, &code, &err);
	while (!list_is_empty(&s->connections))
		connection_free(LIST_ENTRY(s->connections.next, struct connection, link));
	for (size_t i = 0; i < s->n_ports; i++) {
		ev_src_free(s->ports[i].io);
		fd_close(s->ports[i].fd);
		udpforward_free(s->ports[i].udp);
		mem_free(s->ports[i].url);
	}
	for (size_t i = 0; i < ARRAY_SIZE(s->signals); i++)
		ev_src_free(s->signals[i]);
	client_free(s->client);
	if (!rc && s->err.rc)
		return cmd_fail(&s->err);
	return rc ? cmd_fail(&err) : code;
}

/* --- the words --- */

static bool is_one_of(struct str word, const char *list)
{
	char text[32] = "";

	if (word.n >= sizeof(text))
		return false;
	memcpy(text, word.p, word.n);
	return str_list_has(list, ',', text);
}

/* "vm/NAME[/NS]", "vmi/NAME[/NS]"; virtctl's older "NAME" alone is a VMI. */
static enum rc take_target(struct session *s, const char *text, struct err *err)
{
	struct str rest = str_of(text), kind = str_split(&rest, '/'), name, ns = {0};

	s->plural = "virtualmachineinstances";
	if (!rest.p) {
		name = kind;
	} else {
		name = str_split(&rest, '/');
		ns = rest;
		if (is_one_of(kind, "vm,vms,virtualmachine,virtualmachines"))
			s->plural = "virtualmachines";
		else if (!is_one_of(kind,
				    "vmi,vmis,virtualmachineinstance,virtualmachineinstances"))
			return err_set(err, RC_INVALID, "unsupported resource type '%.*s'",
				       (int)kind.n, kind.p);
	}
	if (!name.n || name.n >= sizeof(s->name) || ns.n >= sizeof(s->ns) || (ns.p && !ns.n))
		return err_set(err, RC_INVALID,
			       "target must contain type and name separated by '/'");
	memcpy(s->name, name.p, name.n);
	if (ns.p)
		memcpy(s->ns, ns.p, ns.n);
	return RC_OK;
}

static enum rc take_number(struct str text, bool may_be_zero, uint16_t *out, struct err *err)
{
	uint64_t port = 0;
	char number[8] = "";

	if (text.n < sizeof(number))
		memcpy(number, text.p, text.n);
	if (str_to_u64(number, 65535, &port, NULL) || (!port && !may_be_zero))
		return err_set(err, RC_INVALID, "'%.*s' is not a port", (int)text.n, text.p);
	*out = (uint16_t)port;
	return RC_OK;
}

/* "[tcp/|udp/]LOCAL[:REMOTE]"; local 0, or ":REMOTE": any that is free. */
static enum rc take_port(struct session *s, const char *text, struct err *err)
{
	struct forward *f = &s->ports[s->n_ports];
	struct str rest = str_of(text), first;

	if (s->n_ports == PORTS_MAX)
		return err_set(err, RC_TOO_BIG, "at most %d ports", PORTS_MAX);
	*f = (struct forward){.session = s, .fd = -1};
	if (strchr(text, '/')) {
		struct str protocol = str_split(&rest, '/');

		f->is_udp = is_one_of(protocol, "udp");
		if (!f->is_udp && !is_one_of(protocol, "tcp"))
			return err_set(err, RC_INVALID, "unknown protocol '%.*s'", (int)protocol.n,
				       protocol.p);
	}
	if (f->is_udp && s->is_stdio)
		return err_set(err, RC_INVALID,
			       "--stdio is for tcp: a stream does not keep datagrams apart");
	first = str_split(&rest, ':');
	if (first.n || !rest.p)
		TRY(take_number(first, rest.p != NULL, &f->local, err));
	f->remote = f->local;
	if (rest.p)
		TRY(take_number(rest, false, &f->remote, err));
	s->n_ports++;
	return RC_OK;
}

static int port_forward_run(const struct cmd *c, int argc, char **argv)
{
	struct session s = {.address = "127.0.0.1"};
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &s.flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &s.flags.ns},
		{.name = "--address", .value = &s.address},
		{.name = "--stdio", .is_flag = true, .flag = &s.is_stdio},
		{0},
	};
	struct err err = {0};
	int n;
	bool help;

	list_init(&s.connections);
	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n < 2)
		return cmd_usage(c, "a target and at least one port are needed");
	if (s.is_stdio && n != 2)
		return cmd_usage(c, "only one port supported when forwarding to stdio");
	enum rc rc = take_target(&s, argv[0], &err);

	for (int i = 1; i < n && !rc; i++)
		rc = take_port(&s, argv[i], &err);
	return rc ? cmd_usage(c, "%s", err.msg) : run(&s);
}

const struct cmd cmd_port_forward = {
	.name = "port-forward",
	.args = "vm/NAME[/NS]|vmi/NAME[/NS] [tcp/|udp/]LOCAL[:PORT]... [--address A] [--stdio]",
	.summary = "Connect local ports to ports of a guest.",
	.help = "  LOCAL[:PORT]   a port of this machine, and the guest's if it is another one; 0: any that is\n"
		"                 free. udp/LOCAL[:PORT]: datagrams, each as it is\n"
		"  --address A    where to listen (127.0.0.1)\n"
		"  --stdio        standard input and output instead of a local port; tcp only\n\n"
		"Who may ask for it reaches the guest, also where its network is closed to others.\n"
		"An open connection ends when the guest moves; the next one finds it.\n"
		"With UDP each local address and port has a connection of its own, until both sides have been\n"
		"silent for two minutes; at most 64 at once, then the longest silent one goes.\n\n"
		"  ferry port-forward vm/web 8080:80\n"
		"  ferry port-forward vm/dns udp/5353:53\n"
		"  ssh -o 'ProxyCommand=ferry port-forward --stdio vm/web %p' root@web\n",
	.run = port_forward_run,
};
