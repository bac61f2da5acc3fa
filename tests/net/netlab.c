/* tests/net/netlab.c - drives podnet and vmnet from a script: one command a line on stdin, one
 * answer line on stdout ("ok ..." or "err RC message").  Test code: it makes the calls that
 * ferry-node makes, and plays the guest by pumping frames between the pod's tap and a tap in a
 * namespace with a real network stack.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/if_tun.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/podruntime/netdns.h"
#include "cluster/podruntime/podnet.h"
#include "cluster/podruntime/services.h"
#include "net/ns.h"
#include "net/tcp.h"
#include "virt/node/vmnet.h"

#define MAX_THINGS 1024
#define ARGS_MAX   64

struct node {
	char name[32];
	int ns_fd;
	struct podnet *net;
	struct podnet_config cfg;
	char ns_dir[256];
};
struct vm {
	char uid[64];
	struct node *node;
	struct podnet_attached att;
	struct podnet_pod pod;
	int ns_fd;
	int tap_fd;
	struct vmnet_handover *ho;
	struct vmnet_config cfg;
	char dir[300];
	char pod_uid[64];
};
struct guest {
	char name[32];
	int tap_fd;
	struct vm *vm;
	int stop_fd;
	pthread_t thread;
	bool runs;
	usec_t stopped;
};

static struct node nodes[MAX_THINGS];
static struct vm vms[MAX_THINGS];
static struct guest guests[MAX_THINGS];
static struct podnet_peer peers[MAX_THINGS];
static struct podnet_binding bindings[MAX_THINGS];
static struct service svcs[MAX_THINGS];
static struct svc_port svc_ports[MAX_THINGS];
static struct svc_endpoint svc_eps[MAX_THINGS][8];
static size_t n_nodes, n_vms, n_guests, n_peers, n_bindings, n_svcs;
static struct services services;

static struct node *node_of(const char *name)
{
	for (size_t i = 0; i < n_nodes; i++)
		if (str_eq(nodes[i].name, name))
			return &nodes[i];
	fprintf(stderr, "no node %s\n", name);
	exit(3);
}

static struct vm *vm_of(const char *uid)
{
	for (size_t i = 0; i < n_vms; i++)
		if (str_eq(vms[i].uid, uid))
			return &vms[i];
	fprintf(stderr, "no vm %s\n", uid);
	exit(3);
}

static struct guest *guest_of(const char *name)
{
	for (size_t i = 0; i < n_guests; i++)
		if (str_eq(guests[i].name, name))
			return &guests[i];
	fprintf(stderr, "no guest %s\n", name);
	exit(3);
}

static struct in_addr ip(const char *s)
{
	struct in_addr a = {0};
	struct err e = {0};

	if (strcmp(s, "-") != 0 && net_ip4_parse(s, &a, &e)) {
		fprintf(stderr, "%s\n", e.msg);
		exit(3);
	}
	return a;
}

static struct net_mac mac(const char *s)
{
	struct net_mac m = {0};
	struct err e = {0};

	if (strcmp(s, "-") != 0 && net_mac_parse(s, &m, &e)) {
		fprintf(stderr, "%s\n", e.msg);
		exit(3);
	}
	return m;
}

static usec_t realtime(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (usec_t)t.tv_sec * USEC_PER_SEC + (usec_t)t.tv_nsec / 1000;
}

/* ---- the guest ---- */

static void *pump(void *arg)
{
	struct guest *g = arg;
	struct pollfd p[3] = {
		{g->tap_fd, POLLIN, 0}, {g->vm->tap_fd, POLLIN, 0}, {g->stop_fd, POLLIN, 0}};
	char buf[70000];

	for (;;) {
		ssize_t n;

		if (poll(p, 3, -1) < 0 || p[2].revents) {
			g->stopped = realtime();
			return NULL;
		}
		/* By turns: what piled up for the guest must not flood its own queue with answers. */
		for (int k = 0; k < 64 && (n = read(g->tap_fd, buf, sizeof(buf))) > 0; k++)
			if (write(g->vm->tap_fd, buf, (size_t)n) < 0)
				break;
		for (int k = 0; k < 32 && (n = read(g->vm->tap_fd, buf, sizeof(buf))) > 0; k++)
			if (write(g->tap_fd, buf, (size_t)n) < 0)
				break;
	}
}

static enum rc do_guest(char **a, struct err *err)
{
	struct guest *g = &guests[n_guests];
	int ns = open(a[2], O_RDONLY | O_CLOEXEC);
	enum rc rc;

	if (ns < 0)
		return err_set_sys(err, errno, "open %s", a[2]);
	snprintf(g->name, sizeof(g->name), "%s", a[1]);
	rc = net_tap_open(ns, "eth0", 0, false, 16384, &g->tap_fd, err);
	close(ns);
	if (rc)
		return rc;
	g->stop_fd = eventfd(0, EFD_CLOEXEC);
	n_guests++;
	return RC_OK;
}

static enum rc do_pump(char **a, struct err *err)
{
	struct guest *g = guest_of(a[1]);

	g->vm = vm_of(a[2]);
	if (pthread_create(&g->thread, NULL, pump, g))
		return err_set(err, RC_IO, "thread");
	g->runs = true;
	return RC_OK;
}

static enum rc do_pause(char **a, struct err *err)
{
	struct guest *g = guest_of(a[1]);
	uint64_t v = 1;

	(void)err;
	if (g->runs) {
		ignore_rc(write(g->stop_fd, &v, sizeof(v)) > 0 ? RC_OK : RC_IO);
		pthread_join(g->thread, NULL);
		ignore_rc(read(g->stop_fd, &v, sizeof(v)) > 0 ? RC_OK : RC_IO);
		g->runs = false;
	}
	printf("ok %llu\n", (unsigned long long)g->stopped);
	return RC_EXISTS; /* answered */
}

/* ---- nodes ---- */

/* up NAME NETNS SEGMENT UNDERLAY GATEWAY? NSDIR */
static enum rc do_up(char **a, struct err *err)
{
	struct node *n = NULL;

	for (size_t i = 0; i < n_nodes; i++)
		if (str_eq(nodes[i].name, a[1]))
			n = &nodes[i];
	if (!n)
		n = &nodes[n_nodes++];
	podnet_free(n->net);
	n->net = NULL;
	snprintf(n->name, sizeof(n->name), "%s", a[1]);
	n->ns_fd = open(a[2], O_RDONLY | O_CLOEXEC);
	if (n->ns_fd < 0)
		return err_set_sys(err, errno, "open %s", a[2]);
	snprintf(n->ns_dir, sizeof(n->ns_dir), "%s", a[6]);
	n->cfg = (struct podnet_config){.ns_fd = n->ns_fd,
					.pod_ns_dir = n->ns_dir,
					.underlay = ip(a[4]),
					.segment = ip(a[3]),
					.network = ip("10.244.0.0"),
					.prefix = 16,
					.gateway = ip("10.244.0.1"),
					.service_network = ip("10.96.0.0"),
					.service_prefix = 16,
					.is_gateway = a[5][0] == '1'};
	return podnet_up(&n->net, &n->cfg, err);
}

static enum rc do_down(char **a, struct err *err)
{
	return podnet_down(&node_of(a[1])->cfg, err);
}

static enum rc do_gateway(char **a, struct err *err)
{
	return podnet_set_gateway(node_of(a[1])->net, a[2][0] == '1', err);
}

static enum rc do_peer(char **a, struct err *err)
{
	(void)err;
	peers[n_peers++] = (struct podnet_peer){ip(a[1]), ip(a[2]), a[3][0] == '1'};
	return RC_OK;
}

static enum rc do_bind(char **a, struct err *err)
{
	struct podnet_binding b = {mac(a[1]), ip(a[2]), ip(a[3]), atoi(a[4])};

	(void)err;
	for (size_t i = 0; i < n_bindings; i++)
		if (net_mac_equal(bindings[i].mac, b.mac)) {
			bindings[i] = b;
			return RC_OK;
		}
	bindings[n_bindings++] = b;
	return RC_OK;
}

static enum rc do_unbind(char **a, struct err *err)
{
	(void)err;
	for (size_t i = 0; i < n_bindings; i++)
		if (net_mac_equal(bindings[i].mac, mac(a[1])))
			bindings[i--] = bindings[--n_bindings];
	return RC_OK;
}

static enum rc do_program(char **a, struct err *err)
{
	return podnet_program(node_of(a[1])->net, peers, n_peers, bindings, n_bindings, err);
}

static enum rc do_place(char **a, struct err *err)
{
	return podnet_place(node_of(a[1])->net, mac(a[2]), ip(a[3]), atoi(a[4]), err);
}

/* sweep NODE [UID [ADDRESS MAC]]...: each pod ends with a slash when the other two follow */
static enum rc do_sweep(char **a, struct err *err)
{
	struct podnet_live live[ARGS_MAX] = {0};
	size_t n = 0;

	for (char **w = a + 2; *w; w++) {
		char *slash = strchr(*w, '/');

		live[n].uid = *w;
		if (slash && w[1] && w[2]) {
			*slash = '\0';
			live[n].address = ip(*++w);
			live[n].mac = mac(*++w);
		}
		n++;
	}
	return podnet_sweep(node_of(a[1])->net, live, n, err);
}

/* ---- VMs ---- */

/* attach VM NODE PODUID ADDRESS MAC SILENT? QEMUUID */
static enum rc do_attach(char **a, struct err *err)
{
	struct vm *v = &vms[n_vms++];
	enum rc rc;

	snprintf(v->uid, sizeof(v->uid), "%s", a[1]);
	snprintf(v->pod_uid, sizeof(v->pod_uid), "%s", a[3]);
	v->node = node_of(a[2]);
	v->pod = (struct podnet_pod){v->pod_uid, ip(a[4]), mac(a[5]), a[6][0] == '1',
				     (uid_t)atoi(a[7])};
	v->tap_fd = -1;
	rc = podnet_attach(v->node->net, &v->pod, &v->att, err);
	if (rc)
		return rc;
	rc = net_ns_open(v->node->ns_dir, v->att.ns_name, &v->ns_fd, err);
	if (rc)
		return rc;
	printf("ok %s/%s %s\n", v->node->ns_dir, v->att.ns_name, v->att.host_if);
	return RC_EXISTS;
}

static enum rc do_reattach(char **a, struct err *err)
{
	struct vm *v = vm_of(a[1]);

	return podnet_attach(v->node->net, &v->pod, &v->att, err);
}

static enum rc do_detach(char **a, struct err *err)
{
	struct vm *v = vm_of(a[1]);
	enum rc rc = podnet_detach(v->node->net, v->pod_uid, err);

	fd_close(v->tap_fd);
	fd_close(v->ns_fd);
	v->uid[0] = '\0'; /* others hold pointers into the table: no compaction */
	return rc;
}

static struct vmnet_port ports[MAX_THINGS][16];

static size_t parse_ports(char *s, struct vmnet_port *out)
{
	size_t n = 0;

	for (char *p = strtok(s, ","); p; p = strtok(NULL, ",")) {
		char *colon = strchr(p, ':');

		if (!colon)
			continue;
		out[n++] = (struct vmnet_port){strncmp(p, "udp", 3) == 0 ? VMNET_UDP : VMNET_TCP,
					       (uint16_t)atoi(colon + 1)};
	}
	return n;
}

/* vmnet VM masquerade|bridge PORTS DIR INCOMING? OPENTAP? */
static enum rc do_vmnet(char **a, struct err *err)
{
	struct vm *v = vm_of(a[1]);

	snprintf(v->dir, sizeof(v->dir), "%s", a[4]);
	v->cfg = (struct vmnet_config){.ns_fd = v->ns_fd,
				       .pod_if = PODNET_POD_IF,
				       .binding = str_eq(a[2], "bridge") ? VMNET_BRIDGE
									 : VMNET_MASQUERADE,
				       .address = v->pod.address,
				       .prefix = 16,
				       .gateway = ip("10.244.0.1"),
				       .mac = v->pod.mac,
				       .vm_network = ip("10.0.2.0"),
				       .vm_prefix = 24,
				       .mtu = podnet_mtu(v->node->net),
				       .dir = v->dir,
				       .hostname = "guest-one",
				       .domain = "default.svc.cluster.local",
				       .search = {"default.svc.cluster.local", "svc.cluster.local"},
				       .dns = {ip("10.244.0.1")},
				       .is_incoming = a[5][0] == '1',
				       .owner = v->pod.qemu_uid};
	v->cfg.ports = ports[v - vms];
	v->cfg.n_ports = parse_ports(a[3], ports[v - vms]);
	return vmnet_up(&v->cfg, a[6][0] == '1' ? &v->tap_fd : NULL, err);
}

static enum rc do_vmnet_down(char **a, struct err *err)
{
	return vmnet_down(vm_of(a[1])->cfg.dir, err);
}

static enum rc do_settle(char **a, struct err *err)
{
	return vmnet_settle(vm_of(a[1])->ns_fd, err);
}

/* flows FROM TO */
static enum rc do_flows(char **a, struct err *err)
{
	struct sbuf t = SBUF_INIT(4 * MIB);
	enum rc rc = vmnet_flows_dump(vm_of(a[1])->ns_fd, &t, err);

	if (!rc)
		rc = vmnet_flows_load(vm_of(a[2])->ns_fd, sbuf_str(&t), err);
	if (!rc)
		printf("ok %zu\n", t.n);
	sbuf_fini(&t);
	return rc ? rc : RC_EXISTS;
}

static struct vmnet_handover_config ho_config(const struct vm *v, const char *peer)
{
	return (struct vmnet_handover_config){.node_ns_fd = v->node->ns_fd,
					      .host_if = v->att.host_if,
					      .bridge = PODNET_BRIDGE,
					      .vxlan = PODNET_VXLAN,
					      .mac = v->pod.mac,
					      .peer = ip(peer),
					      .pod_ns_fd = getenv("NETLAB_BLIND") ? -1 : v->ns_fd};
}

/* srcopen VM PEER */
static enum rc do_srcopen(char **a, struct err *err)
{
	struct vm *v = vm_of(a[1]);
	struct vmnet_handover_config c = ho_config(v, a[2]);

	return vmnet_source_open(&v->ho, &c, err);
}

/* srcswitch VM [STOPUSEC] */
static enum rc do_srcswitch(char **a, struct err *err)
{
	struct vmnet_switch_stats s;
	enum rc rc = vmnet_source_switch(vm_of(a[1])->ho,
					 a[2] ? strtoull(a[2], NULL, 10) : realtime(), &s, err);

	if (rc)
		return rc;
	printf("ok %llu %llu %llu %llu\n", (unsigned long long)s.n_resent,
	       (unsigned long long)s.n_overrun, (unsigned long long)s.took,
	       (unsigned long long)s.n_unread);
	return RC_EXISTS;
}

static enum rc do_srcabort(char **a, struct err *err)
{
	return vmnet_source_abort(vm_of(a[1])->ho, err);
}

static enum rc do_srcfinish(char **a, struct err *err)
{
	return vmnet_source_finish(vm_of(a[1])->ho, err);
}

static enum rc do_srcclose(char **a, struct err *err)
{
	struct vm *v = vm_of(a[1]);

	return vmnet_source_close(STEAL(v->ho), err);
}

static enum rc do_tgtopen(char **a, struct err *err)
{
	struct vm *v = vm_of(a[1]);
	struct vmnet_handover_config c = ho_config(v, a[2]);

	return vmnet_target_open(&v->ho, &c, err);
}

static enum rc do_tgtactivate(char **a, struct err *err)
{
	usec_t t = realtime();
	enum rc rc = vmnet_target_activate(vm_of(a[1])->ho, err);

	if (rc)
		return rc;
	printf("ok %llu\n", (unsigned long long)(realtime() - t));
	return RC_EXISTS;
}

static enum rc do_tgtclose(char **a, struct err *err)
{
	struct vm *v = vm_of(a[1]);

	return vmnet_target_close(STEAL(v->ho), err);
}

/* tapfd VM: the number under which a child may inherit it */
static enum rc do_tapfd(char **a, struct err *err)
{
	(void)err;
	printf("ok %d\n", vm_of(a[1])->tap_fd);
	return RC_EXISTS;
}

static enum rc do_closetap(char **a, struct err *err)
{
	struct vm *v = vm_of(a[1]);

	(void)err;
	v->tap_fd = fd_close(v->tap_fd);
	return RC_OK;
}

/* exec VM PROGRAM ARGS...: in the pod's namespace, with the tap as descriptor 10 */
static enum rc do_exec(char **a, struct err *err)
{
	struct vm *v = vm_of(a[1]);
	pid_t pid = fork();

	if (pid < 0)
		return err_set_sys(err, errno, "fork");
	if (pid == 0) {
		if (dup2(v->tap_fd, 10) < 0 || setns(v->ns_fd, CLONE_NEWNET) < 0)
			_exit(126);
		execvp(a[2], a + 2);
		_exit(127);
	}
	v->tap_fd = fd_close(v->tap_fd);
	printf("ok %d\n", (int)pid);
	return RC_EXISTS;
}

static enum rc do_wait(char **a, struct err *err)
{
	(void)err;
	waitpid(atoi(a[1]), NULL, 0);
	return RC_OK;
}

/* ---- services ---- */

/* svc NS NAME CLUSTERIP PROTO PORT NODEPORT AFFINITY EP:PORT... */
static enum rc do_svc(char **a, struct err *err)
{
	size_t i = n_svcs++, n = 0;

	(void)err;
	for (char **e = a + 8; *e; e++) {
		char *colon = strchr(*e, ':');

		*colon = '\0';
		svc_eps[i][n++] = (struct svc_endpoint){ip(*e), (uint16_t)atoi(colon + 1)};
	}
	svc_ports[i] = (struct svc_port){str_eq(a[4], "udp") ? SVC_UDP : SVC_TCP,
					 (uint16_t)atoi(a[5]), (uint16_t)atoi(a[6]), svc_eps[i], n};
	svcs[i] =
		(struct service){mem_strdup(a[1]),    mem_strdup(a[2]), ip(a[3]), &svc_ports[i], 1,
				 (uint32_t)atoi(a[7])};
	services = (struct services){.items = svcs,
				     .n = n_svcs,
				     .network = ip("10.244.0.0"),
				     .prefix = 16,
				     .gateway = ip("10.244.0.1"),
				     .service_network = ip("10.96.0.0"),
				     .service_prefix = 16,
				     .dns = ip("10.96.0.10")};
	return RC_OK;
}

static enum rc do_apply(char **a, struct err *err)
{
	return services_apply(node_of(a[1])->ns_fd, &services, err);
}

/* dns NODE start|update|stop DIR [RESOLV] */
static enum rc do_dns(char **a, struct err *err)
{
	struct netdns_config c = {node_of(a[1])->ns_fd, a[3], ip("10.244.0.1"), PODNET_GATEWAY_IF,
				  "cluster.local",	a[4]};

	if (str_eq(a[2], "start"))
		return netdns_start(&c, err);
	if (str_eq(a[2], "stop"))
		return netdns_stop(&c, err);
	return netdns_update(&c, &services, err);
}

/* mig listen|connect|close NODE PODADDRESS PEER PORT... */
static enum rc do_mig(char **a, struct err *err)
{
	struct podnet *p = node_of(a[2])->net;
	uint16_t list[PODNET_MIG_PORTS] = {0};
	size_t n = 0;

	if (str_eq(a[1], "close"))
		return podnet_mig_close(p, ip(a[3]), err);
	for (char **e = a + 5; *e && n < PODNET_MIG_PORTS; e++)
		list[n++] = (uint16_t)atoi(*e);
	return str_eq(a[1], "listen") ? podnet_mig_listen(p, ip(a[3]), ip(a[4]), list, n, err)
				      : podnet_mig_connect(p, ip(a[3]), ip(a[4]), list, n, err);
}

/* abort NETNS PEER */
static enum rc do_abort(char **a, struct err *err)
{
	int ns = open(a[1], O_RDONLY | O_CLOEXEC);
	unsigned n = 0;
	enum rc rc = net_tcp_abort(ns, ip(a[2]), &n, err);

	fd_close(ns);
	if (!rc)
		printf("ok %u\n", n);
	return rc ? rc : RC_EXISTS; /* answered */
}

/* routes NETNS VIA */
static enum rc do_routes(char **a, struct err *err)
{
	int ns = open(a[1], O_RDONLY | O_CLOEXEC);
	enum rc rc = podnet_client_routes(ns, &nodes[0].cfg, ip(a[2]), err);

	fd_close(ns);
	return rc;
}

/* ---- load: an echo server and numbered datagrams, fast enough to be trusted ---- */

struct load {
	char name[32];
	int fd;
	unsigned rate; /* 0: echo server */
	pthread_t thread;
	volatile bool stop;
	uint32_t n_sent, n_back;
	uint8_t *seen;
};

#define STREAM_MAX (1u << 20)
static struct load loads[MAX_THINGS];
static size_t n_loads;

static usec_t clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (usec_t)t.tv_sec * USEC_PER_SEC + (usec_t)t.tv_nsec / 1000;
}

static void *echo_run(void *arg)
{
	struct load *l = arg;
	struct sockaddr_in from;
	char buf[2048];

	while (!l->stop) {
		socklen_t n_from = sizeof(from);
		ssize_t n = recvfrom(l->fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &n_from);

		if (n >= 0)
			ignore_rc(sendto(l->fd, buf, (size_t)n, 0, (struct sockaddr *)&from,
					 n_from) < 0
					  ? RC_IO
					  : RC_OK);
	}
	return NULL;
}

static void stream_drain(struct load *l)
{
	uint32_t k;

	while (recv(l->fd, &k, sizeof(k), MSG_DONTWAIT) == (ssize_t)sizeof(k))
		if (k < STREAM_MAX && !l->seen[k]) {
			l->seen[k] = 1;
			l->n_back++;
		}
}

static void *stream_run(void *arg)
{
	struct load *l = arg;
	usec_t begin = clock_us(), end;

	while (!l->stop && l->n_sent < STREAM_MAX) {
		uint32_t due = (uint32_t)((clock_us() - begin) * l->rate / USEC_PER_SEC);
		struct pollfd p = {l->fd, POLLIN, 0};

		for (; l->n_sent < due; l->n_sent++)
			ignore_rc(send(l->fd, &l->n_sent, sizeof(l->n_sent), 0) < 0 ? RC_IO
										    : RC_OK);
		poll(&p, 1, 1);
		stream_drain(l);
	}
	end = clock_us() + USEC_PER_SEC;
	while (clock_us() < end && l->n_back < l->n_sent) {
		struct pollfd p = {l->fd, POLLIN, 0};

		poll(&p, 1, 20);
		stream_drain(l);
	}
	return NULL;
}

static enum rc load_start(struct load *l, const char *name, const char *ns, void *(*fn)(void *),
			  const char *addr, int port, struct err *err)
{
	CLEANUP(net_ns_leave) int old = -1;
	int ns_fd = open(ns, O_RDONLY | O_CLOEXEC), bytes = 4 << 20;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct timeval tv = {.tv_usec = 100000};
	enum rc rc = net_ns_enter(ns_fd, &old, err);

	fd_close(ns_fd);
	if (rc)
		return rc;
	snprintf(l->name, sizeof(l->name), "%s", name);
	l->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (setsockopt(l->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0 ||
	    setsockopt(l->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) < 0)
		return err_set_sys(err, errno, "socket");
	a.sin_addr = addr ? ip(addr) : (struct in_addr){0};
	if (addr ? connect(l->fd, (struct sockaddr *)&a, sizeof(a))
		 : bind(l->fd, (struct sockaddr *)&a, sizeof(a)))
		return err_set_sys(err, errno, "bind or connect");
	l->seen = mem_alloc(STREAM_MAX);
	n_loads++;
	return pthread_create(&l->thread, NULL, fn, l) ? err_set(err, RC_IO, "thread") : RC_OK;
}

/* echo NAME NETNS PORT */
static enum rc do_echo(char **a, struct err *err)
{
	return load_start(&loads[n_loads], a[1], a[2], echo_run, NULL, atoi(a[3]), err);
}

/* stream NAME NETNS ADDRESS PORT RATE */
static enum rc do_stream(char **a, struct err *err)
{
	struct load *l = &loads[n_loads];

	l->rate = (unsigned)atoi(a[5]);
	return load_start(l, a[1], a[2], stream_run, a[3], atoi(a[4]), err);
}

/* loadstop NAME: sent, lost, the first numbers lost */
static enum rc do_loadstop(char **a, struct err *err)
{
	(void)err;
	for (size_t i = 0; i < n_loads; i++) {
		struct load *l = &loads[i];

		if (!str_eq(l->name, a[1]))
			continue;
		l->stop = true;
		pthread_join(l->thread, NULL);
		fd_close(l->fd);
		printf("ok %u %u", l->n_sent, l->n_sent - l->n_back);
		for (uint32_t k = 0, n = 0; k < l->n_sent && n < 8; k++)
			if (!l->seen[k] && l->rate && ++n)
				printf(" %u", k);
		printf("\n");
		mem_free(l->seen);
		return RC_EXISTS;
	}
	return RC_NOT_FOUND;
}

static const struct {
	const char *name;
	int min_args;
	enum rc (*fn)(char **a, struct err *err);
} commands[] = {
	{"up", 7, do_up},
	{"down", 2, do_down},
	{"gateway", 3, do_gateway},
	{"peer", 4, do_peer},
	{"bind", 5, do_bind},
	{"unbind", 2, do_unbind},
	{"program", 2, do_program},
	{"place", 5, do_place},
	{"sweep", 2, do_sweep},
	{"attach", 8, do_attach},
	{"reattach", 2, do_reattach},
	{"detach", 2, do_detach},
	{"vmnet", 7, do_vmnet},
	{"vmnetdown", 2, do_vmnet_down},
	{"settle", 2, do_settle},
	{"flows", 3, do_flows},
	{"guest", 3, do_guest},
	{"pump", 3, do_pump},
	{"pause", 2, do_pause},
	{"srcopen", 3, do_srcopen},
	{"srcswitch", 2, do_srcswitch},
	{"srcabort", 2, do_srcabort},
	{"srcfinish", 2, do_srcfinish},
	{"srcclose", 2, do_srcclose},
	{"tgtopen", 3, do_tgtopen},
	{"tgtactivate", 2, do_tgtactivate},
	{"tgtclose", 2, do_tgtclose},
	{"tapfd", 2, do_tapfd},
	{"closetap", 2, do_closetap},
	{"svc", 8, do_svc},
	{"apply", 2, do_apply},
	{"dns", 4, do_dns},
	{"mig", 4, do_mig},
	{"abort", 3, do_abort},
	{"routes", 3, do_routes},
	{"echo", 4, do_echo},
	{"exec", 3, do_exec},
	{"wait", 2, do_wait},
	{"stream", 6, do_stream},
	{"loadstop", 2, do_loadstop},
};

static void run(char *line)
{
	char *a[ARGS_MAX + 1] = {0};
	struct err err = {0};
	int n = 0;
	enum rc rc = RC_NOT_FOUND;

	for (char *save = NULL, *p = strtok_r(line, " \n", &save); p && n < ARGS_MAX;
	     p = strtok_r(NULL, " \n", &save))
		a[n++] = p;
	for (size_t i = 0; i < ARRAY_SIZE(commands) && n; i++)
		if (str_eq(commands[i].name, a[0]))
			rc = n < commands[i].min_args
				     ? err_set(&err, RC_INVALID, "too few arguments")
				     : commands[i].fn(a, &err);
	if (rc == RC_OK)
		printf("ok\n");
	else if (rc != RC_EXISTS || err.msg[0])
		printf("err %s %s\n", rc_name(rc), err.msg);
	fflush(stdout);
}

int main(void)
{
	char line[4096];

	log_setup("netlab", LOG_LVL_INFO, false);
	while (fgets(line, sizeof(line), stdin))
		run(line);
	return 0;
}
