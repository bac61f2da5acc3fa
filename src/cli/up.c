/* src/cli/up.c - `ferry up` and `ferry down`: a cluster on this machine, its nodes in boxes.
 *
 *   the machine's own namespace              box node-1            box node-2
 *   ferry-apiserver  172.30.77.1:6443        ferry-node            ferry-node
 *   ferry-controller                         launchers, QEMUs      launchers, QEMUs
 *        |                                       | eth0 .11            | eth0 .12
 *   =====+============ bridge ferry0 ============+=====================+====
 *
 * Everything that `up` makes is written below the state folder before it is made, so that `down` finds
 * it also after a crash: <state>/pids/NAME holds the pid of the supervisor of each process.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "cli/box.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/resource.h"
#include "cli/supervise.h"
#include "json/json.h"
#include "net/link.h"
#include "net/ns.h"

enum { MAX_NODES = 32, API_PORT = 6443, FIRST_NODE = 10 };
#define UNDERLAY     "172.30.77"
#define POD_CIDR     "10.244.0.0"
#define SERVICE_CIDR "10.96.0.0"
static const usec_t READY_TIMEOUT = 30 * USEC_PER_SEC;

struct up {
	char state[PATH_MAX];
	char bin[PATH_MAX];
	uint64_t nodes;
	const char *node_args;	    /* extra arguments for every ferry-node, blank-separated */
	const char *apiserver_args; /* and for ferry-apiserver */
	bool quiet;
	bool is_making; /* what there is may be ours: a failure takes it down */
	usec_t t0;
	char since[32]; /* when that was, by the clock on the wall */
};

static void step(const struct up *u, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void step(const struct up *u, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (u->quiet)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "  %5.2f s  %s\n", (double)(clock_monotonic() - u->t0) / 1e6, text);
}

/* The folder our own program stands in: the daemons stand beside it. */
static enum rc find_bin(struct up *u, struct err *err)
{
	ssize_t n = readlink("/proc/self/exe", u->bin, sizeof(u->bin) - 1);

	if (n <= 0)
		return err_set_sys(err, errno, "cannot find our own program");
	u->bin[n] = '\0';
	char *slash = strrchr(u->bin, '/');

	if (slash)
		*slash = '\0';
	return RC_OK;
}

static enum rc set_state(struct up *u, const char *state, struct err *err)
{
	enum rc rc = file_mkdir_p(state, 0755, err);

	if (!rc && !realpath(state, u->state))
		rc = err_set_sys(err, errno, "cannot resolve '%s'", state);
	return rc;
}

/* Paths below the state folder; the caller frees. */
static char *below(const struct up *u, const char *fmt, ...) PRINTF_LIKE(2, 3);
static char *below(const struct up *u, const char *fmt, ...)
{
	char tail[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(tail, sizeof(tail), fmt, ap);
	va_end(ap);
	return mem_printf("%s/%s", u->state, tail);
}

static enum rc make_dirs(const struct up *u, struct err *err)
{
	static const char *const dirs[] = {"pids",   "logs",	"nodes",
					   "shared", "control", "fence-agents"};
	enum rc rc = RC_OK;

	for (size_t i = 0; i < ARRAY_SIZE(dirs) && !rc; i++) {
		CLEANUP(mem_freep) char *path = below(u, "%s", dirs[i]);

		rc = path ? file_mkdir_p(path, 0755, err) : err_set(err, RC_NOMEM, "out of memory");
	}
	return rc;
}

/* One `up` or `down` at a time for a state folder. */
static enum rc take_lock(const struct up *u, int *fd, struct err *err)
{
	CLEANUP(mem_freep) char *path = below(u, "lock");

	*fd = open(path ? path : "", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*fd < 0)
		return err_set_sys(err, errno, "cannot open the lock in '%s'", u->state);
	if (flock(*fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(err, RC_BUSY,
			       "another 'ferry up' or 'ferry down' is at work on '%s'", u->state);
	return RC_OK;
}

/* Starts `ferry _box args...` detached; args is NULL-terminated. */
static enum rc start_box(const struct up *u, const char *name, const char *const *args,
			 struct err *err)
{
	CLEANUP(mem_freep) char *self = mem_printf("%s/ferry", u->bin);
	CLEANUP(mem_freep) char *log = below(u, "logs/%s.log", name);
	CLEANUP(mem_freep) char *pidfile = below(u, "pids/%s", name);
	const char *argv[80] = {self, "_box", "--log", log};
	size_t n = 4;

	if (!self || !log || !pidfile)
		return err_set(err, RC_NOMEM, "out of memory");
	while (*args && n + 1 < ARRAY_SIZE(argv))
		argv[n++] = *args++;
	pid_t pid = fork();

	if (pid == 0) {
		(void)setsid();
		execv(self, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	if (pid < 0)
		return err_set_sys(err, errno, "cannot fork");
	return pidfile_write(pidfile, pid, err);
}

static enum rc run_wait(const char *const *argv, struct err *err)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return err_set_sys(err, errno, "cannot run '%s'", argv[0]);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return err_set(err, RC_IO, "'%s %s' failed", argv[0], argv[1] ? argv[1] : "");
	return RC_OK;
}

static enum rc make_underlay(struct err *err)
{
	CLEANUP(net_freep) struct net *n = NULL;
	const struct net_link_set on = {.up = NET_ON};
	struct net_mac mac;
	struct in_addr a;
	enum rc rc = net_open(&n, -1, err);

	if (!rc)
		rc = net_mac_parse("02:fe:00:4d:00:01", &mac, err);
	if (!rc)
		rc = net_ip4_parse(UNDERLAY ".1", &a, err);
	if (!rc)
		rc = net_bridge_add(n, BOX_BRIDGE, mac, 1500, err);
	if (!rc)
		rc = net_addr_add(n, BOX_BRIDGE, a, 24, err);
	if (!rc)
		rc = net_link_set(n, BOX_BRIDGE, &on, err);
	return rc;
}

/* Pods and services are reached through the gateway node, the first one. */
static enum rc make_routes(struct err *err)
{
	static const char *const networks[] = {POD_CIDR, SERVICE_CIDR};
	CLEANUP(net_freep) struct net *n = NULL;
	struct net_route r = {.prefix = 16, .dev = BOX_BRIDGE};
	enum rc rc = net_open(&n, -1, err);

	if (!rc)
		rc = net_ip4_parse(UNDERLAY ".11", &r.via, err);
	for (size_t i = 0; i < ARRAY_SIZE(networks) && !rc; i++) {
		rc = net_ip4_parse(networks[i], &r.dst, err);
		if (!rc)
			rc = net_route_set(n, &r, err);
	}
	return rc;
}

#define MAX_BOX_ARGS 64

/* "node-2:WORD" is a word for that node only; NULL: for another one. */
static const char *word_for(const char *word, const char *node)
{
	size_t n = strlen(node), digits = 0;

	if (strncmp(word, node, n) == 0 && word[n] == ':')
		return word + n + 1;
	if (str_has_prefix(word, "node-"))
		digits = strspn(word + 5, "0123456789");
	return digits && word[5 + digits] == ':' ? NULL : word;
}

/* Adds the words of text (cut in place, may be NULL) behind args; of those for one node only name's own (NULL: all). */
static void add_words(const char *args[MAX_BOX_ARGS], char *text, const char *name)
{
	char *save = NULL;
	size_t n = 0;

	while (args[n])
		n++;
	for (char *w = text ? strtok_r(text, " ", &save) : NULL; w && n + 1 < MAX_BOX_ARGS;
	     w = strtok_r(NULL, " ", &save)) {
		const char *mine = name ? word_for(w, name) : w;

		if (mine)
			args[n++] = mine;
	}
}

static enum rc start_apiserver(const struct up *u, struct err *err)
{
	CLEANUP(mem_freep) char *prog = mem_printf("%s/ferry-apiserver", u->bin);
	CLEANUP(mem_freep) char *dir = below(u, "control");
	CLEANUP(mem_freep) char *audit = below(u, "logs/audit.log");
	CLEANUP(mem_freep) char *extra = mem_strdup(u->apiserver_args ? u->apiserver_args : "");
	const char *args[MAX_BOX_ARGS] = {"--",
					  prog,
					  "--state",
					  dir,
					  "--listen",
					  UNDERLAY ".1:6443",
					  "--audit-log",
					  audit,
					  "--audit-log-size",
					  "32",
					  "--audit-log-keep",
					  "4"};

	if (!prog || !dir || !audit || !extra)
		return err_set(err, RC_NOMEM, "out of memory");
	add_words(args, extra, NULL);
	return start_box(u, "apiserver", args, err);
}

static enum rc start_controller(const struct up *u, struct err *err)
{
	CLEANUP(mem_freep) char *prog = mem_printf("%s/ferry-controller", u->bin);
	CLEANUP(mem_freep) char *pki = below(u, "control/pki");
	CLEANUP(mem_freep) char *agents = below(u, "fence-agents");
	const char *const args[] = {"--",
				    prog,
				    "--server",
				    "https://" UNDERLAY ".1:6443",
				    "--pki",
				    pki,
				    "--metrics",
				    UNDERLAY ".1:8443",
				    "--fence-agents",
				    agents,
				    NULL};

	return start_box(u, "controller", args, err);
}

static enum rc issue_node(const struct up *u, const char *name, const char *address,
			  struct err *err)
{
	CLEANUP(mem_freep) char *prog = mem_printf("%s/ferry-apiserver", u->bin);
	CLEANUP(mem_freep) char *control = below(u, "control");
	CLEANUP(mem_freep) char *out = below(u, "nodes/%s/pki", name);
	CLEANUP(mem_freep) char *cn = mem_printf("system:node:%s", name);
	const char *const argv[] = {prog,    "issue", "--state",      control, "--cn",
				    cn,	     "--org", "system:nodes", "--san", address,
				    "--san", name,    "--out",	      out,     NULL};

	return run_wait(argv, err);
}

static enum rc start_node(const struct up *u, unsigned i, struct err *err)
{
	char name[32], link[32], address[32], cidr[40];

	(void)snprintf(name, sizeof(name), "node-%u", i);
	(void)snprintf(link, sizeof(link), "ferry-n%u", i);
	(void)snprintf(address, sizeof(address), UNDERLAY ".%u", FIRST_NODE + i);
	(void)snprintf(cidr, sizeof(cidr), "%s/24", address);
	enum rc rc = issue_node(u, name, address, err);

	if (rc)
		return rc;
	CLEANUP(mem_freep) char *prog = mem_printf("%s/ferry-node", u->bin);
	CLEANUP(mem_freep) char *state = below(u, "nodes/%s", name);
	CLEANUP(mem_freep) char *shared = below(u, "shared");
	CLEANUP(mem_freep) char *inside = below(u, "pids/%s.inside", name);
	CLEANUP(mem_freep) char *extra = mem_strdup(u->node_args ? u->node_args : "");
	const char *args[MAX_BOX_ARGS] = {
		"--name",    name,
		"--state",   state,
		"--shared",  shared,
		"--cover",   u->state,
		"--link",    link,
		"--address", cidr,
		"--gateway", UNDERLAY ".1",
		"--pidfile", inside,
		"--",	     prog,
		"--name",    name,
		"--server",  "https://" UNDERLAY ".1:6443",
		"--pki",     BOX_STATE "/pki",
		"--state",   BOX_STATE,
		"--run",     BOX_RUN,
		"--shared",  BOX_SHARED,
		"--address", address,
	};

	if (!prog || !state || !shared || !inside || !extra)
		return err_set(err, RC_NOMEM, "out of memory");
	add_words(args, extra, name);
	return start_box(u, name, args, err);
}

/* Waiting */

static bool process_alive(const struct up *u, const char *name)
{
	CLEANUP(mem_freep) char *pidfile = below(u, "pids/%s", name);

	return pidfile && pidfile_read(pidfile) > 0;
}

static void nap_ms(unsigned ms)
{
	struct timespec t = {.tv_nsec = (long)ms * 1000000};

	nanosleep(&t, NULL);
}

/* The kubeconfig appears with the first start; then /readyz answers.  Between tries a few milliseconds:
 * there is no event to wait for before the socket listens. */
static enum rc wait_apiserver(const struct up *u, struct client **out, struct err *err)
{
	CLEANUP(mem_freep) char *config = below(u, "control/pki/admin.kubeconfig");
	const struct client_flags flags = {.kubeconfig = config};

	while (clock_monotonic() - u->t0 < READY_TIMEOUT) {
		CLEANUP(client_freep) struct client *c = NULL;
		CLEANUP(answer_fini) struct answer a = {0};

		if (!process_alive(u, "apiserver"))
			return err_set(err, RC_CLOSED,
				       "the API server ended; see %s/logs/apiserver.log", u->state);
		if (access(config, R_OK) == 0 && !client_open(&c, &flags, err) &&
		    !client_call(c, "GET", "/readyz", NULL, NULL, NULL, USEC_PER_SEC, &a, err)) {
			*out = STEAL(c);
			return RC_OK;
		}
		nap_ms(5);
	}
	return err_set(err, RC_TIMEOUT, "the API server did not come up; see %s/logs/apiserver.log",
		       u->state);
}

struct ready {
	uint64_t want;
	uint64_t n;
	char seen[MAX_NODES][32];
	const struct up *u;
};

/* A state that was up before holds what its nodes said then: only what was said since counts.  Both are
 * RFC 3339 in UTC and whole seconds, which sort as text. */
static bool is_fresh(const struct up *u, const char *heartbeat)
{
	return heartbeat && strcmp(heartbeat, u->since) >= 0;
}

static bool on_node(const char *type, const struct json *node, void *arg)
{
	struct ready *r = arg;
	const char *name = js_str(js_at(node, "metadata", "name", NULL));
	const struct json *conds = js_at(node, "status", "conditions", NULL);

	(void)type;
	for (uint64_t i = 0; i < r->n; i++)
		if (str_eq(r->seen[i], name))
			return true;
	for (size_t i = 0; i < js_len(conds); i++) {
		const struct json *c = js_item(conds, i);

		if (name && str_eq(js_get_str(c, "type"), "Ready") &&
		    str_eq(js_get_str(c, "status"), "True") &&
		    is_fresh(r->u, js_get_str(c, "lastHeartbeatTime")) && r->n < MAX_NODES) {
			(void)snprintf(r->seen[r->n++], sizeof(r->seen[0]), "%s", name);
			step(r->u, "%s is Ready", name);
		}
	}
	return r->n < r->want;
}

/* The last error in the log of the first node that did not come; "" when it said nothing. */
static void last_error(const struct up *u, const struct ready *r, char *out, size_t size)
{
	CLEANUP(mem_freep) char *text = NULL;
	char name[32];
	bool is_there = true;

	out[0] = '\0';
	for (uint64_t i = 1; i <= r->want && is_there; i++) {
		(void)snprintf(name, sizeof(name), "node-%u", (unsigned)i);
		is_there = false;
		for (uint64_t k = 0; k < r->n; k++)
			is_there = is_there || str_eq(r->seen[k], name);
	}
	CLEANUP(mem_freep) char *log = below(u, "logs/%s.log", name);

	if (is_there || !log || file_read(log, LIMIT_FILE_BYTES, &text, NULL, NULL))
		return;
	for (const char *at = text; (at = strstr(at, " error ")); at++)
		(void)snprintf(out, size, "%.*s", (int)strcspn(at + 7, "\n"), at + 7);
}

static enum rc wait_nodes(const struct up *u, struct client *c, struct err *err)
{
	struct ready r = {.want = u->nodes, .u = u};
	enum rc rc = client_watch(c, "/api/v1/nodes?watch=1&timeoutSeconds=30", READY_TIMEOUT,
				  on_node, &r, err);

	if (r.n >= r.want)
		return RC_OK;
	char why[400];

	last_error(u, &r, why, sizeof(why));
	return err_set(err, rc ? rc : RC_TIMEOUT,
		       "%llu of %llu nodes became Ready%s%s; see %s/logs/node-*.log",
		       (unsigned long long)r.n, (unsigned long long)r.want, *why ? ": " : "", why,
		       u->state);
}

/* Before anything is made: a port that another cluster or program holds.  IP_FREEBIND: the address may
 * not be there yet, a listener on all addresses counts all the same. */
static enum rc check_port(struct err *err)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(API_PORT)};
	CLEANUP(fd_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;
	enum rc rc = net_ip4_parse(UNDERLAY ".1", &a.sin_addr, err);

	if (rc)
		return rc;
	if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		return err_set_sys(err, errno, "cannot try port %d", API_PORT);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return RC_OK;
	if (errno != EADDRINUSE)
		return err_set_sys(err, errno, "cannot use port %d of " UNDERLAY ".1", API_PORT);
	return err_set(err, RC_EXISTS,
		       "port %d of " UNDERLAY
		       ".1 is already taken: another cluster is up on this machine, or "
		       "another program listens there ('ss -ltnp sport = :%d' shows which)",
		       API_PORT, API_PORT);
}

/* The emulator that a node will run: --node-args may name another one, for all or for that node. */
static enum rc qemu_path(const struct up *u, const char *node, char *out, size_t size)
{
	CLEANUP(mem_freep) char *extra = mem_strdup(u->node_args ? u->node_args : "");
	bool is_next = false;
	char *save = NULL;

	if (!extra)
		return RC_NOMEM;
	(void)snprintf(out, size, "/usr/bin/qemu-system-x86_64");
	for (char *w = strtok_r(extra, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		const char *mine = word_for(w, node);

		if (!mine)
			continue;
		if (is_next || str_has_prefix(mine, "--qemu="))
			(void)snprintf(out, size, "%s", is_next ? mine : mine + strlen("--qemu="));
		is_next = str_eq(mine, "--qemu");
	}
	return RC_OK;
}

static enum rc check_qemu(const char *path, struct err *err)
{
	char line[256];
	const char *const argv[] = {path, "--version", NULL};
	int major = 0;

	if (access(path, X_OK) < 0)
		return err_set_sys(err, errno,
				   "cannot run '%s': install qemu-system-x86, version 10 or newer "
				   "('ferry doctor' "
				   "tells what else is missing)",
				   path);
	if (!cmd_first_line(argv, line, sizeof(line)) ||
	    sscanf(line, "QEMU emulator version %d", &major) != 1)
		return err_set(err, RC_UNSUPPORTED, "'%s' does not say which version of QEMU it is",
			       path);
	if (major < 10)
		fprintf(stderr,
			"warning: %s: version 10 or newer is needed to move emulated (TCG) guests, "
			"which older "
			"ones corrupt: their moves are refused\n",
			line);
	return RC_OK;
}

/* Of all nodes; what several in a row have is asked once. */
static enum rc check_qemus(const struct up *u, struct err *err)
{
	char path[PATH_MAX], last[PATH_MAX] = "", node[32];

	for (unsigned i = 1; i <= u->nodes; i++) {
		(void)snprintf(node, sizeof(node), "node-%u", i);
		if (qemu_path(u, node, path, sizeof(path)))
			return err_set(err, RC_NOMEM, "out of memory");
		if (!str_eq(path, last))
			TRY(check_qemu(path, err));
		memcpy(last, path, sizeof(last));
	}
	return RC_OK;
}

static enum rc cluster_up(struct up *u, struct err *err)
{
	CLEANUP(client_freep) struct client *c = NULL;
	CLEANUP(fd_closep) int lock = -1;
	enum rc rc = make_dirs(u, err);

	if (!rc)
		rc = take_lock(u, &lock, err);
	if (rc)
		return rc;
	if (process_alive(u, "apiserver"))
		return err_set(err, RC_EXISTS,
			       "a cluster is already up on '%s' ('ferry down --state %s' stops it)",
			       u->state, u->state);
	rc = check_qemus(u, err);
	if (!rc)
		rc = check_port(err);
	if (rc)
		return rc;
	u->is_making = true;
	rc = make_underlay(err);
	if (!rc)
		rc = start_apiserver(u, err);
	if (!rc)
		rc = wait_apiserver(u, &c, err);
	if (rc)
		return rc;
	step(u, "API server on https://%s.1:%d", UNDERLAY, API_PORT);
	rc = start_controller(u, err);
	for (unsigned i = 1; i <= u->nodes && !rc; i++)
		rc = start_node(u, i, err);
	if (!rc)
		rc = make_routes(err);
	if (!rc)
		rc = wait_nodes(u, c, err);
	return rc;
}

/* Down */

static void stop_named(const struct up *u, const char *name, usec_t grace)
{
	CLEANUP(mem_freep) char *pidfile = below(u, "pids/%s", name);

	if (pidfile && !pidfile_stop(pidfile, grace))
		fprintf(stderr, "warning: the supervisor of %s does not end\n", name);
}

static void stop_nodes(const struct up *u)
{
	for (unsigned i = 1; i <= MAX_NODES; i++) {
		CLEANUP(mem_freep) char *outside = below(u, "pids/node-%u", i);
		CLEANUP(mem_freep) char *inside = below(u, "pids/node-%u.inside", i);

		if (outside && !pidfile_stop(outside, 8 * USEC_PER_SEC))
			fprintf(stderr, "warning: node-%u does not end\n", i);
		/* Should the process outside have been killed: pid 1 of the box ends all that is in it. */
		if (inside && !pidfile_stop(inside, 8 * USEC_PER_SEC))
			fprintf(stderr, "warning: the box of node-%u does not end\n", i);
	}
}

static void remove_links(void)
{
	CLEANUP(net_freep) struct net *n = NULL;
	struct err err;

	if (net_open(&n, -1, &err))
		return;
	for (unsigned i = 1; i <= MAX_NODES; i++) {
		char link[NET_IFNAME];

		(void)snprintf(link, sizeof(link), "ferry-n%u", i);
		ignore_rc(net_link_del(n, link, NULL)); /* gone with its box, as a rule */
	}
	if (net_link_del(n, BOX_BRIDGE, &err))
		fprintf(stderr, "warning: %s\n", err.msg);
}

static bool has_ended(const struct json *vmi)
{
	const char *phase = js_str(js_at(vmi, "status", "phase", NULL));

	return str_eq(phase, "Succeeded") || str_eq(phase, "Failed");
}

/* Before that there is nothing that could shut down. */
static bool has_guest(const struct json *vmi)
{
	return str_eq(js_str(js_at(vmi, "status", "phase", NULL)), "Running");
}

/* waiting has the uids.  A guest has ended when its node says so; the object stays: only the controller would let it go,
 * which is down. */
static bool on_vmi(const char *type, const struct json *vmi, void *arg)
{
	struct json *waiting = arg;
	const char *uid = js_str(js_at(vmi, "metadata", "uid", NULL));

	if (uid && (str_eq(type, "DELETED") || has_ended(vmi)))
		js_del(waiting, uid);
	return js_len(waiting) > 0;
}

/* Guests are asked to shut down, as at `systemctl poweroff`: the VMs' specs stay as they are, so what was
 * running runs again after the next `up`. */
static enum rc stop_guests(const struct up *u, usec_t timeout, struct err *err)
{
	CLEANUP(mem_freep) char *config = below(u, "control/pki/admin.kubeconfig");
	const struct client_flags flags = {.kubeconfig = config};
	CLEANUP(client_freep) struct client *c = NULL;
	CLEANUP(js_unrefp) struct json *list = NULL;
	CLEANUP(js_unrefp) struct json *waiting = js_new_object();
	enum rc rc = client_open(&c, &flags, err);

	if (!rc)
		rc = client_get(c, "/apis/kubevirt.io/v1/virtualmachineinstances", &list, err);
	const struct json *items = js_get(list, "items");

	for (size_t i = 0; i < js_len(items) && !rc; i++) {
		const struct json *meta = js_get(js_item(items, i), "metadata");
		CLEANUP(mem_freep)
		char *path =
			mem_printf("/apis/kubevirt.io/v1/namespaces/%s/virtualmachineinstances/%s",
				   js_get_str(meta, "namespace"), js_get_str(meta, "name"));

		if (!client_send(c, "DELETE", path, NULL, NULL, NULL, NULL) &&
		    has_guest(js_item(items, i)) &&
		    (!waiting || js_set(waiting, js_get_str(meta, "uid"), js_new_bool(true))))
			rc = err_set(err, RC_NOMEM, "out of memory");
	}
	size_t n = js_len(waiting);

	if (rc || !n)
		return rc;
	step(u, "shutting down %zu guest%s", n, n == 1 ? "" : "s");
	CLEANUP(mem_freep)
	char *watch = mem_printf(
		"/apis/kubevirt.io/v1/virtualmachineinstances?watch=1&resourceVersion=%s",
		js_str(js_at(list, "metadata", "resourceVersion", NULL)));

	return client_watch(c, watch, timeout, on_vmi, waiting, err);
}

static void cluster_down(const struct up *u, bool now, usec_t guest_timeout)
{
	struct err err;

	/* Without the controller nothing starts a stopped guest again. */
	stop_named(u, "controller", 5 * USEC_PER_SEC);
	if (!now && process_alive(u, "apiserver") && stop_guests(u, guest_timeout, &err))
		fprintf(stderr,
			"warning: not all guests shut down in time (%s): they are cut off\n",
			err.msg);
	stop_nodes(u);
	stop_named(u, "apiserver", 5 * USEC_PER_SEC);
	remove_links();
}

static enum rc need_root(struct err *err)
{
	if (geteuid() == 0)
		return RC_OK;
	return err_set(err, RC_FORBIDDEN,
		       "this makes namespaces and network links, so it needs root: use sudo");
}

static int down_run(const struct cmd *c, int argc, char **argv)
{
	const char *state = getenv("FERRY_STATE"), *timeout = "60";
	struct up u = {.t0 = clock_monotonic()};
	bool now = false, purge = false, help;
	const struct opt opts[] = {
		{.name = "--state", .value = &state},
		{.name = "--now", .is_flag = true, .flag = &now},
		{.name = "--timeout", .value = &timeout},
		{.name = "--purge", .is_flag = true, .flag = &purge},
		{0},
	};
	CLEANUP(fd_closep) int lock = -1;
	struct err err = {0};
	usec_t limit = 0;
	int n;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	enum rc rc = need_root(&err);

	if (!rc)
		rc = cmd_duration(timeout, 3600 * USEC_PER_SEC, &limit, &err);
	if (!rc && access(state ? state : "/var/lib/ferry", F_OK) < 0) {
		fprintf(stderr, "nothing is up on '%s'\n", state ? state : "/var/lib/ferry");
		return EXIT_OK;
	}
	if (!rc)
		rc = set_state(&u, state ? state : "/var/lib/ferry", &err);
	if (!rc)
		rc = make_dirs(&u, &err);
	if (!rc)
		rc = take_lock(&u, &lock, &err);
	if (rc)
		return cmd_fail(&err);
	cluster_down(&u, now, limit);
	if (purge && file_remove_tree(u.state, &err))
		return cmd_fail(&err);
	step(&u, "down%s", purge ? ", and its data removed" : "");
	return EXIT_OK;
}

static void print_next(const struct up *u)
{
	printf("\nThe cluster is up. Next:\n"
	       "  export KUBECONFIG=%s/control/pki/admin.kubeconfig\n"
	       "  %s/ferry get nodes -o wide        (kubectl works as well)\n"
	       "  %s/ferry apply -f examples/vm.yaml\n"
	       "  %s/ferry migrate tiny\n"
	       "  sudo %s/ferry down --state %s\n",
	       u->state, u->bin, u->bin, u->bin, u->bin, u->state);
}

static int up_run(const struct cmd *c, int argc, char **argv)
{
	const char *state = getenv("FERRY_STATE"), *nodes = "2";
	struct up u = {.t0 = clock_monotonic()};
	const struct opt opts[] = {
		{.name = "--state", .value = &state},
		{.name = "--nodes", .value = &nodes},
		{.name = "--node-args", .value = &u.node_args},
		{.name = "--apiserver-args", .value = &u.apiserver_args},
		{.name = "--quiet", .letter = 'q', .is_flag = true, .flag = &u.quiet},
		{0},
	};
	struct err err = {0};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n)
		return cmd_usage(c, "unexpected argument '%s'", argv[0]);
	time_rfc3339(clock_realtime(), u.since);
	enum rc rc = need_root(&err);

	if (!rc)
		rc = str_to_u64(nodes, MAX_NODES, &u.nodes, &err);
	if (!rc && !u.nodes)
		rc = err_set(&err, RC_INVALID, "--nodes: at least 1, at most %d", MAX_NODES);
	if (!rc)
		rc = find_bin(&u, &err);
	if (!rc)
		rc = set_state(&u, state ? state : "/var/lib/ferry", &err);
	if (!rc) {
		rc = cluster_up(&u, &err);
		if (rc && u.is_making)
			cluster_down(&u, true, 0);
	}
	if (rc)
		return cmd_fail(&err);
	if (!u.quiet)
		print_next(&u);
	return EXIT_OK;
}

const struct cmd cmd_up = {
	.name = "up",
	.args = "[--nodes N] [--state DIR]",
	.summary = "Start a control plane and N nodes on this machine, each node in namespaces of "
		   "its own.",
	.help = "  --nodes N      how many nodes (default 2)\n"
		"  --state DIR    where everything is kept (default $FERRY_STATE, else "
		"/var/lib/ferry)\n"
		"  --node-args S  more arguments for every ferry-node, blank-separated; node-2:WORD is\n"
		"                 for that node only\n"
		"  --apiserver-args S  more arguments for ferry-apiserver, blank-separated\n"
		"  -q, --quiet    say nothing unless it fails\n",
	.run = up_run,
};

const struct cmd cmd_down = {
	.name = "down",
	.args = "[--state DIR] [--now] [--timeout TIME] [--purge]",
	.summary = "Shut the guests down and stop the cluster that `ferry up` started.",
	.help = "  --now          cut the guests off instead of shutting them down\n"
		"  --timeout D    how long guests may take: 90, 5m (default 60)\n"
		"  --purge        remove the state folder as well: every object and disk in it\n",
	.run = down_run,
};
