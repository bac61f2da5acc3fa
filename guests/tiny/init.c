/* guests/tiny/init.c - the first and only program of the `tiny` test guest.
 *
 * It loads the modules that the build put in order, asks for an address with busybox's udhcpc,
 * and then serves, in one poll loop:
 *
 *   7777/tcp, 7777/udp   echo
 *   7778/tcp             one command a line, one JSON answer a line:
 *     status             boot id, uptime, heartbeat, integrity counters, kernel complaints
 *     dirty MIB RATE     rewrite MIB of memory at RATE MiB/s (0: flat out; MIB 0: stop)
 *     verify MIB RATE    keep MIB of memory filled with a checked pattern, renewed at RATE MiB/s (0: as
 *                        fast as it goes; MIB 0: stop)
 *     disk BYTES [RATE]  write and re-read checked blocks on the data disk, at RATE MiB/s (0: as fast as it
 *                        goes; BYTES 0: stop)
 *     poweroff | reboot | panic
 *
 * With tiny.agent=1 it also answers as qemu-guest-agent would, on the port org.qemu.guest_agent.0: about what it is, its
 * interfaces, users and file systems (the last two are made up), a freeze that is only a mark, and a reboot.
 *
 * Kernel arguments: tiny.heartbeat=1 prints a line a second on the console instead of a shell;
 * tiny.ip=A.B.C.D/N,GW sets a fixed address instead of DHCP; tiny.nopower=1 ignores the power button,
 * which otherwise powers off at once.
 *
 * The integrity rule: every page of the verify area and every block of the disk carries its own
 * number, a generation and a checksum; a reader that finds anything else counts a bad one and prints
 * CORRUPT.  Workers are children, so that the echo loop's timing is not theirs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/input.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ECHO_PORT = 7777, COMMAND_PORT = 7778, MAX_CONNS = 512, PAGE = 4096 };

/* Shared with the worker children. */
struct counters {
	volatile uint64_t heartbeat;
	volatile uint64_t dirtied;
	volatile uint64_t mem_checks;
	volatile uint64_t mem_bad;
	volatile uint64_t disk_checks;
	volatile uint64_t disk_bad;
	volatile uint64_t kernel_bad;
	char kernel_text[200];
};

static struct counters *cnt;
static char boot_id[64];
static char cmdline[4096];
static pid_t worker_dirty, worker_verify, worker_disk;

struct conn {
	bool command;
	char line[256];
	size_t n;
};
static struct pollfd fds[MAX_CONNS];
static struct conn conns[MAX_CONNS];
static int n_fds;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void read_text(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
	if (fd >= 0)
		close(fd);
}

static const char *kernel_arg(const char *name)
{
	static char value[256];
	const char *p = strstr(cmdline, name);

	if (!p)
		return NULL;
	p += strlen(name);
	size_t n = strcspn(p, " \n");

	if (n >= sizeof(value))
		n = sizeof(value) - 1;
	memcpy(value, p, n);
	value[n] = '\0';
	return value;
}

static void load_modules(void)
{
	char list[8192];
	int fd = open("/modules/order", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, list, sizeof(list) - 1);

	if (n <= 0)
		return;
	close(fd);
	list[n] = '\0';
	for (char *name = strtok(list, "\n"); name; name = strtok(NULL, "\n")) {
		char path[300];

		snprintf(path, sizeof(path), "/modules/%s", name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
			printf("tiny: module %s: %s\n", name, strerror(errno));
		if (fd >= 0)
			close(fd);
	}
}

static void run(char *const argv[])
{
	pid_t pid = fork();

	if (pid == 0) {
		execv(argv[0], argv);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static void set_address(const char *ifname, const char *cidr)
{
	char text[64];
	struct ifreq r = {0};
	struct sockaddr_in *a = (struct sockaddr_in *)&r.ifr_addr;
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(text, sizeof(text), "%s", cidr);
	char *gw = strchr(text, ',');
	char *slash = strchr(text, '/');

	if (gw)
		*gw++ = '\0';
	if (slash)
		*slash++ = '\0';
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", ifname);
	a->sin_family = AF_INET;
	inet_pton(AF_INET, text, &a->sin_addr);
	ioctl(s, SIOCSIFADDR, &r);
	int bits = slash ? atoi(slash) : 8;

	a->sin_addr.s_addr = htonl(bits ? 0xffffffffu << (32 - bits) : 0);
	ioctl(s, SIOCSIFNETMASK, &r);
	ioctl(s, SIOCGIFFLAGS, &r);
	r.ifr_flags |= IFF_UP | IFF_RUNNING;
	ioctl(s, SIOCSIFFLAGS, &r);
	if (gw) {
		struct rtentry rt = {.rt_flags = RTF_UP | RTF_GATEWAY};
		struct sockaddr_in *to = (struct sockaddr_in *)&rt.rt_dst;
		struct sockaddr_in *mask = (struct sockaddr_in *)&rt.rt_genmask;
		struct sockaddr_in *via = (struct sockaddr_in *)&rt.rt_gateway;

		to->sin_family = mask->sin_family = via->sin_family = AF_INET;
		inet_pton(AF_INET, gw, &via->sin_addr);
		ioctl(s, SIOCADDRT, &rt);
	}
	close(s);
}

static void network_up(void)
{
	const char *fixed;

	set_address("lo", "127.0.0.1/8");
	fixed = kernel_arg("tiny.ip=");
	if (fixed) {
		set_address("eth0", fixed);
		return;
	}
	if (access("/sys/class/net/eth0", F_OK) < 0)
		return;
	char *const link_up[] = {"/bin/busybox", "ip", "link", "set", "eth0", "up", NULL};
	char *const dhcp[] = {"/bin/busybox", "udhcpc", "-f", "-i", "eth0",	  "-T", "1",
			      "-A",	      "1",	"-S", "-s", "/udhcpc.sh", NULL};

	run(link_up);
	if (fork() == 0) { /* keeps asking until an answer comes, and renews */
		execv(dhcp[0], dhcp);
		_exit(127);
	}
}

/* Memory */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdu;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53u;
	return x ^ (x >> 33);
}

static void page_fill(uint64_t *p, uint64_t number, uint64_t generation)
{
	p[0] = number;
	p[1] = generation;
	p[2] = mix(number * 31 + generation);
	for (size_t i = 3; i < PAGE / 8; i += 61)
		p[i] = mix(p[2] + i);
}

static bool page_ok(const uint64_t *p, uint64_t number, uint64_t generation)
{
	if (p[0] != number || p[1] != generation || p[2] != mix(number * 31 + generation))
		return false;
	for (size_t i = 3; i < PAGE / 8; i += 61)
		if (p[i] != mix(p[2] + i))
			return false;
	return true;
}

/* Sleeps until it is due: an emulated guest that looks every other millisecond costs its host half a core. */
static void pace(double start, double done_mib, double rate)
{
	double early;

	while (rate > 0 && (early = done_mib / rate - (now_s() - start)) > 0)
		usleep(early > 0.5 ? 500000 : 1000 + (useconds_t)(early * 1e6));
}

static void dirty_loop(unsigned mib, double rate)
{
	size_t pages = (size_t)mib * 256;
	uint64_t *m = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	double start = now_s();
	double done = 0;

	if (m == MAP_FAILED)
		_exit(1);
	for (uint64_t round = 1;; round++)
		for (size_t i = 0; i < pages; i++) {
			m[i * (PAGE / 8) + (round & 511)] = mix(round + i);
			cnt->dirtied++;
			done += PAGE / 1048576.0;
			if ((i & 255) == 0)
				pace(start, done, rate);
		}
}

static void verify_loop(unsigned mib, double rate)
{
	size_t pages = (size_t)mib * 256;
	uint64_t *m = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	double start = now_s(), done = 0;

	if (m == MAP_FAILED)
		_exit(1);
	for (size_t i = 0; i < pages; i++)
		page_fill(m + i * (PAGE / 8), i, 0);
	for (uint64_t g = 0;; g++)
		for (size_t i = 0; i < pages; i++) {
			uint64_t *p = m + i * (PAGE / 8);

			if (!page_ok(p, i, g)) {
				cnt->mem_bad++;
				printf("CORRUPT memory page %zu generation %llu\n", i,
				       (unsigned long long)g);
				fflush(stdout);
			}
			page_fill(p, i, g + 1);
			cnt->mem_checks++;
			done += PAGE / 1048576.0;
			if ((i & 63) == 0) {
				usleep(500);
				pace(start, done, rate);
			}
		}
}

static void disk_loop(const char *dev, uint64_t bytes, double rate)
{
	double start = now_s(), done = 0;
	int fd = open(dev, O_RDWR | O_DIRECT | O_CLOEXEC);
	uint64_t blocks = bytes / PAGE;
	uint64_t *w = NULL, *r = NULL;

	if (fd < 0 || posix_memalign((void **)&w, PAGE, PAGE) ||
	    posix_memalign((void **)&r, PAGE, PAGE) || blocks == 0)
		_exit(1);
	for (uint64_t g = 1;; g++)
		for (uint64_t i = 0; i < blocks; i++) {
			memset(w, 0, PAGE);
			page_fill(w, i, g);
			if (pwrite(fd, w, PAGE, (off_t)(i * PAGE)) != PAGE ||
			    pread(fd, r, PAGE, (off_t)(i * PAGE)) != PAGE ||
			    memcmp(w, r, PAGE) != 0) {
				cnt->disk_bad++;
				printf("CORRUPT disk block %llu: %s\n", (unsigned long long)i,
				       strerror(errno));
				fflush(stdout);
			}
			uint64_t old = (i + 1) % blocks; /* what the last round left */
			bool has_old = g > 1 || old <= i;

			if (has_old && (pread(fd, r, PAGE, (off_t)(old * PAGE)) != PAGE ||
					!page_ok(r, old, old <= i ? g : g - 1)))
				cnt->disk_bad++;
			cnt->disk_checks++;
			done += PAGE / 1048576.0;
			usleep(1000);
			pace(start, done, rate);
		}
}

static pid_t stop_worker(pid_t pid)
{
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	return 0;
}

/* Kernel complaints: anything at warning level or worse after the guest is up. */
static void watch_kernel(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_CLOEXEC);
	char line[8192];

	if (fd < 0)
		_exit(1);
	lseek(fd, 0, SEEK_END);
	for (;;) {
		ssize_t n = read(fd, line, sizeof(line) - 1);

		if (n < 0 && errno == EPIPE)
			continue; /* overwritten: the next read goes on */
		if (n <= 0)
			_exit(0);
		line[n] = '\0';
		int level = atoi(line) & 7;
		const char *text = strchr(line, ';');

		if (level > 4 || !text)
			continue;
		snprintf(cnt->kernel_text, sizeof(cnt->kernel_text), "%s", text + 1);
		for (char *c = cnt->kernel_text; *c; c++)
			if (*c == '"' || *c == '\\' || (unsigned char)*c < 32)
				*c = ' ';
		__sync_synchronize(); /* whoever sees the count sees why */
		cnt->kernel_bad++;
		printf("kernel: %s\n", cnt->kernel_text);
		fflush(stdout);
	}
}

static void heartbeat_loop(bool print)
{
	for (;;) {
		cnt->heartbeat++;
		if (print) {
			printf("tick %llu %.3f boot %s bad %llu\n",
			       (unsigned long long)cnt->heartbeat, now_s(), boot_id,
			       (unsigned long long)(cnt->mem_bad + cnt->disk_bad +
						    cnt->kernel_bad));
			fflush(stdout);
		}
		usleep(print ? 1000000 : 100000);
	}
}

static void shell_loop(void)
{
	for (;;) {
		pid_t pid = fork();

		if (pid == 0) {
			setsid();
			int fd = open("/dev/ttyS0", O_RDWR);

			if (fd >= 0) {
				ioctl(fd, TIOCSCTTY, 1);
				dup2(fd, 0);
				dup2(fd, 1);
				dup2(fd, 2);
			}
			execl("/bin/busybox", "sh", "-l", (char *)NULL);
			_exit(127);
		}
		if (pid > 0)
			waitpid(pid, NULL, 0);
		sleep(1);
	}
}

/* The data disk: the last virtio disk that is not the boot disk, else the boot disk's second partition. */
static const char *data_disk(void)
{
	static const char *const names[] = {"/dev/vdb", "/dev/sdb", "/dev/vda2", "/dev/sda2"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (access(names[i], F_OK) == 0)
			return names[i];
	return NULL;
}

static void answer_status(char *out, size_t size)
{
	snprintf(
		out, size,
		"{\"bootID\":\"%s\",\"uptime\":%.3f,\"heartbeat\":%llu,\"dirtied\":%llu,\"memChecks\":%llu,"
		"\"memBad\":%llu,\"diskChecks\":%llu,\"diskBad\":%llu,\"kernelBad\":%llu,"
		"\"kernelText\":\"%s\",\"disk\":\"%s\"}\n",
		boot_id, now_s(), (unsigned long long)cnt->heartbeat,
		(unsigned long long)cnt->dirtied, (unsigned long long)cnt->mem_checks,
		(unsigned long long)cnt->mem_bad, (unsigned long long)cnt->disk_checks,
		(unsigned long long)cnt->disk_bad, (unsigned long long)cnt->kernel_bad,
		cnt->kernel_text, data_disk() ? data_disk() : "");
}

static void command(char *line, char *out, size_t size)
{
	unsigned mib = 0;
	double rate = 0;
	unsigned long long bytes = 0;

	snprintf(out, size, "{\"ok\":true}\n");
	if (strcmp(line, "status") == 0) {
		answer_status(out, size);
	} else if (sscanf(line, "dirty %u %lf", &mib, &rate) >= 1) {
		worker_dirty = stop_worker(worker_dirty);
		if (mib && (worker_dirty = fork()) == 0)
			dirty_loop(mib, rate);
	} else if (sscanf(line, "verify %u %lf", &mib, &rate) >= 1) {
		worker_verify = stop_worker(worker_verify);
		if (mib && (worker_verify = fork()) == 0)
			verify_loop(mib, rate);
	} else if (sscanf(line, "disk %llu %lf", &bytes, &rate) >= 1) {
		worker_disk = stop_worker(worker_disk);
		if (bytes && !data_disk())
			snprintf(out, size, "{\"error\":\"no data disk\"}\n");
		else if (bytes && (worker_disk = fork()) == 0)
			disk_loop(data_disk(), bytes, rate);
	} else if (strcmp(line, "poweroff") == 0) {
		sync();
		reboot(RB_POWER_OFF);
	} else if (strcmp(line, "reboot") == 0) {
		sync();
		reboot(RB_AUTOBOOT);
	} else if (strcmp(line, "panic") == 0) {
		int fd = open("/proc/sysrq-trigger", O_WRONLY);

		if (fd < 0 || write(fd, "c", 1) < 0)
			snprintf(out, size, "{\"error\":\"sysrq\"}\n");
	} else {
		snprintf(out, size, "{\"error\":\"unknown command\"}\n");
	}
}

static int listen_on(int type, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int s = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, bytes = 16 << 20;

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* What piled up while the guest stood still arrives at once: the usual 208 KiB hold some 90 small
	 * datagrams, and a test of the network must not count what this socket dropped. */
	if (type == SOCK_DGRAM)
		setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) < 0)
		printf("tiny: port %u: %s\n", port, strerror(errno));
	if (type == SOCK_STREAM)
		listen(s, 256);
	return s;
}

static void accept_on(int listener, bool is_command)
{
	int c = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	int one = 1;

	if (c < 0)
		return;
	if (n_fds == MAX_CONNS) {
		close(c);
		return;
	}
	setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fds[n_fds] = (struct pollfd){c, POLLIN, 0};
	conns[n_fds] = (struct conn){.command = is_command};
	n_fds++;
}

static void echo_udp(int s)
{
	char b[65536];
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	ssize_t n;

	while ((n = recvfrom(s, b, sizeof(b), MSG_DONTWAIT, (struct sockaddr *)&from, &len)) >= 0)
		sendto(s, b, (size_t)n, MSG_DONTWAIT, (struct sockaddr *)&from, len);
}

/* False: the connection is over. */
static bool serve(int i)
{
	char b[8192], out[1024];
	ssize_t n = read(fds[i].fd, b, sizeof(b));

	if (n <= 0)
		return false;
	if (!conns[i].command)
		return write(fds[i].fd, b, (size_t)n) == n;
	for (ssize_t k = 0; k < n; k++) {
		struct conn *c = &conns[i];

		if (b[k] != '\n') {
			if (c->n + 1 >= sizeof(c->line))
				return false;
			c->line[c->n++] = b[k];
			continue;
		}
		c->line[c->n] = '\0';
		c->n = 0;
		command(c->line, out, sizeof(out));
		if (write(fds[i].fd, out, strlen(out)) < 0)
			return false;
	}
	return true;
}

/* The guest agent */

struct agent {
	int fd;
	char line[4096];
	size_t n;
	bool frozen;
};

static int open_agent_port(void)
{
	char path[64], name[64];

	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), "/sys/class/virtio-ports/vport%dp1/name", i);
		read_text(path, name, sizeof(name));
		if (strcmp(name, "org.qemu.guest_agent.0") != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/vport%dp1", i);
		return open(path, O_RDWR | O_CLOEXEC);
	}
	return -1;
}

static void agent_say(struct agent *a, const char *text)
{
	size_t n = strlen(text);

	while (n > 0) {
		ssize_t k = write(a->fd, text, n);

		if (k <= 0)
			return;
		text += k;
		n -= (size_t)k;
	}
}

static void agent_info(struct agent *a)
{
	static const char *const names[] = {"guest-sync-delimited",  "guest-ping",
					    "guest-get-time",	     "guest-info",
					    "guest-shutdown",	     "guest-network-get-interfaces",
					    "guest-get-fsinfo",	     "guest-get-host-name",
					    "guest-get-users",	     "guest-get-timezone",
					    "guest-get-osinfo",	     "guest-fsfreeze-status",
					    "guest-fsfreeze-freeze", "guest-fsfreeze-thaw"};
	char out[4096] = "{\"return\":{\"version\":\"7.2.0\",\"supported_commands\":[";

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		snprintf(out + strlen(out), sizeof(out) - strlen(out),
			 "%s{\"name\":\"%s\",\"enabled\":true,\"success-response\":%s}",
			 i ? "," : "", names[i],
			 strcmp(names[i], "guest-shutdown") == 0 ? "false" : "true");
	strcat(out, "]}}\n");
	agent_say(a, out);
}

static void agent_interfaces(struct agent *a)
{
	struct ifreq r = {.ifr_name = "eth0"}, h = {.ifr_name = "eth0"};
	char out[1024], ip[INET_ADDRSTRLEN] = "";
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const unsigned char *m = (const unsigned char *)h.ifr_hwaddr.sa_data;

	ioctl(s, SIOCGIFHWADDR, &h);
	if (ioctl(s, SIOCGIFADDR, &r) == 0)
		inet_ntop(AF_INET, &((struct sockaddr_in *)&r.ifr_addr)->sin_addr, ip, sizeof(ip));
	close(s);
	snprintf(
		out, sizeof(out),
		"{\"return\":[{\"name\":\"lo\",\"ip-addresses\":[{\"ip-address-type\":\"ipv4\","
		"\"ip-address\":\"127.0.0.1\",\"prefix\":8}]},{\"name\":\"eth0\",\"hardware-address\":"
		"\"%02x:%02x:%02x:%02x:%02x:%02x\",\"ip-addresses\":[{\"ip-address-type\":\"ipv4\","
		"\"ip-address\":\"%s\",\"prefix\":24}]}]}\n",
		m[0], m[1], m[2], m[3], m[4], m[5], ip);
	agent_say(a, out);
}

static void agent_command(struct agent *a)
{
	static const struct {
		const char *name, *answer;
	} fixed[] = {
		{"\"guest-ping\"", "{}"},
		{"\"guest-get-time\"", "1700000000000000000"},
		{"\"guest-get-host-name\"", "{\"host-name\":\"tiny\"}"},
		{"\"guest-get-timezone\"", "{\"zone\":\"UTC\",\"offset\":0}"},
		{"\"guest-get-osinfo\"",
		 "{\"name\":\"Tiny\",\"id\":\"tiny\",\"pretty-name\":\"Tiny 1\",\"version\":\"1\","
		 "\"version-id\":\"1\",\"kernel-release\":\"6.1\",\"kernel-version\":\"#1\","
		 "\"machine\":\"x86_64\"}"},
		{"\"guest-get-users\"", "[{\"user\":\"root\",\"login-time\":1700000000.5}]"},
		{"\"guest-get-fsinfo\"",
		 "[{\"name\":\"vda1\",\"mountpoint\":\"/\",\"type\":\"ext4\",\"used-bytes\":1000,"
		 "\"total-bytes\":4000,\"disk\":[{\"serial\":\"s1\",\"bus-type\":\"virtio\"}]}]"},
	};
	const char *id = strstr(a->line, "\"id\"");
	char out[1024];

	if (strstr(a->line, "guest-sync-delimited")) {
		snprintf(out, sizeof(out), "\xff{\"return\":%lld}\n",
			 id ? strtoll(id + 4 + strspn(id + 4, ": "), NULL, 10) : 0);
		agent_say(a, out);
		return;
	}
	if (strstr(a->line, "guest-info")) {
		agent_info(a);
		return;
	}
	if (strstr(a->line, "guest-network-get-interfaces")) {
		agent_interfaces(a);
		return;
	}
	if (strstr(a->line, "guest-fsfreeze-status")) {
		agent_say(a, a->frozen ? "{\"return\":\"frozen\"}\n" : "{\"return\":\"thawed\"}\n");
		return;
	}
	if (strstr(a->line, "guest-fsfreeze-")) {
		a->frozen = strstr(a->line, "-freeze\"") != NULL;
		agent_say(a, "{\"return\":1}\n");
		return;
	}
	if (strstr(a->line, "guest-shutdown")) {
		sync();
		reboot(strstr(a->line, "reboot") ? RB_AUTOBOOT : RB_POWER_OFF);
	}
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		if (strstr(a->line, fixed[i].name)) {
			snprintf(out, sizeof(out), "{\"return\":%s}\n", fixed[i].answer);
			agent_say(a, out);
			return;
		}
	agent_say(a, "{\"error\":{\"class\":\"CommandNotFound\",\"desc\":\"no such command\"}}\n");
}

/* Nobody at the other end: a read gives nothing at once, so it is slept for. */
static void agent_loop(void)
{
	struct agent a = {.fd = open_agent_port()};
	unsigned char c;

	while (a.fd >= 0) {
		if (read(a.fd, &c, 1) != 1) {
			usleep(50000);
		} else if (c == 0xff || a.n + 1 >= sizeof(a.line)) {
			a.n = 0;
		} else if (c != '\n') {
			a.line[a.n++] = (char)c;
		} else {
			a.line[a.n] = '\0';
			a.n = 0;
			agent_command(&a);
		}
	}
	_exit(0);
}

static void on_child(int sig)
{
	(void)sig;
}

/* The ACPI power button: how a machine asks its guest to shut down.  -1: there is none.  By its name: a
 * keyboard has a power key as well. */
static int open_button(void)
{
	const char *ignored = kernel_arg("tiny.nopower=");
	char path[40], name[64];

	for (int i = 0; i < 8 && !(ignored && *ignored == '1'); i++) {
		snprintf(path, sizeof(path), "/dev/input/event%d", i);
		int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

		memset(name, 0, sizeof(name));
		if (fd >= 0 && ioctl(fd, EVIOCGNAME(sizeof(name) - 1), name) >= 0 &&
		    strcmp(name, "Power Button") == 0)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

static void on_button(int fd)
{
	struct input_event e;

	while (read(fd, &e, sizeof(e)) == sizeof(e))
		if (e.type == EV_KEY && e.code == KEY_POWER && e.value) {
			printf("tiny: power button\n");
			fflush(stdout);
			sync();
			reboot(RB_POWER_OFF);
		}
}

int main(void)
{
	mount("none", "/proc", "proc", 0, NULL);
	mount("none", "/sys", "sysfs", 0, NULL);
	mount("none", "/dev", "devtmpfs", 0, NULL);
	read_text("/proc/cmdline", cmdline, sizeof(cmdline));
	read_text("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id));
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, on_child);
	cnt = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	load_modules();
	network_up();
	printf("tiny: up boot %s\n", boot_id);
	fflush(stdout);

	const char *beat = kernel_arg("tiny.heartbeat=");
	bool print = beat && *beat == '1';

	if (fork() == 0)
		heartbeat_loop(print);
	if (fork() == 0)
		watch_kernel();
	if (!print && fork() == 0)
		shell_loop();

	const char *wanted = kernel_arg("tiny.agent=");

	if (wanted && *wanted == '1' && fork() == 0)
		agent_loop();

	int udp = listen_on(SOCK_DGRAM, ECHO_PORT);

	fds[0] = (struct pollfd){listen_on(SOCK_STREAM, ECHO_PORT), POLLIN, 0};
	fds[1] = (struct pollfd){listen_on(SOCK_STREAM, COMMAND_PORT), POLLIN, 0};
	fds[2] = (struct pollfd){udp, POLLIN, 0};
	fds[3] = (struct pollfd){open_button(), POLLIN, 0};
	n_fds = 4;
	for (;;) {
		if (poll(fds, (nfds_t)n_fds, 1000) < 0)
			continue;
		if (fds[0].revents)
			accept_on(fds[0].fd, false);
		if (fds[1].revents)
			accept_on(fds[1].fd, true);
		if (fds[2].revents)
			echo_udp(udp);
		if (fds[3].revents)
			on_button(fds[3].fd);
		for (int i = 4; i < n_fds; i++)
			if (fds[i].revents && !serve(i)) {
				close(fds[i].fd);
				n_fds--;
				fds[i] = fds[n_fds];
				conns[i] = conns[n_fds];
				i--;
			}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
	}
}
