#include "virt/launcher/kvm_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

/* The proof runs in a child, since a KVM that does not work may hang the thread that enters the guest.
 * The child reports a byte per step over a pipe: host steps below, then the guest's stages, which the
 * guest program writes to a port.  The parent waits for the end with a deadline.
 */

extern const char kvm_guest_start[], kvm_guest_end[];

enum { MEMORY = 2 << 20, LOAD_AT = 0x1000, DATA_FROM = 0x101, DATA_TO = 0x1f0, DEADLINE_MS = 2000 };
enum { STAGE_FAILED = 0xee, STAGE_END = 0x5a };
enum {
	STEP_OPEN = 0x80,
	STEP_VERSION,
	STEP_VM,
	STEP_MEMORY,
	STEP_IRQCHIP,
	STEP_VCPU,
	STEP_CPUID,
	STEP_MSRS,
	STEP_ENTER,
	STEP_STRANGE_EXIT,
	STEP_DIRTY,
	STEP_DONE
};

static const char *const host_steps[] = {
	"opening /dev/kvm",
	"asking for KVM's version",
	"making a VM",
	"giving the guest memory",
	"making its interrupt controllers",
	"making a vCPU",
	"setting the CPU's features",
	"setting model-specific registers as QEMU does",
	"entering the guest",
	"running the guest (it left for no reason of its own)",
	"reading which pages the guest wrote",
};
static const char *const guest_stages[] = {
	"its first instruction",
	"real mode",
	"protected mode",
	"long mode in ring 0",
	"interrupt flags",
	"exceptions",
	"changing page tables",
	"model-specific registers",
	"user mode and back",
	"a timer interrupt",
	"cpuid",
	"memory",
	"vector instructions",
};

/* --- the child --- */

static int report_fd;

static void report(int step)
{
	unsigned char c = (unsigned char)step;

	if (write(report_fd, &c, 1) != 1)
		_exit(3);
}

/* The step is told before it is tried: the last one told is the one that failed. */
static void need(bool fine)
{
	if (!fine)
		_exit(1);
}

static int make_vm(int kvm)
{
	__u64 identity = 0xfffbc000;

	report(STEP_VM);
	int vm = ioctl(kvm, KVM_CREATE_VM, 0);

	need(vm >= 0);
	need(ioctl(vm, KVM_SET_IDENTITY_MAP_ADDR, &identity) == 0 || errno == ENOTTY);
	need(ioctl(vm, KVM_SET_TSS_ADDR, 0xfffbd000) == 0);
	return vm;
}

static unsigned char *give_memory(int vm)
{
	unsigned char *mem =
		mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region region = {.flags = KVM_MEM_LOG_DIRTY_PAGES,
						     .memory_size = MEMORY};

	report(STEP_MEMORY);
	need(mem != MAP_FAILED);
	/* Both are symbols of one object. */
	/* cppcheck-suppress comparePointers */
	memcpy(mem + LOAD_AT, kvm_guest_start, (size_t)(kvm_guest_end - kvm_guest_start));
	region.userspace_addr = (uintptr_t)mem;
	need(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) == 0);
	return mem;
}

/* True: the CPU has IA32_ARCH_CAPABILITIES. */
static bool set_cpuid(int kvm, int vcpu)
{
	bool has = false;

	enum { N = 256 };
	struct kvm_cpuid2 *c = mem_alloc(sizeof(*c) + N * sizeof(c->entries[0]));

	report(STEP_CPUID);
	need(c != NULL);
	c->nent = N;
	need(ioctl(kvm, KVM_GET_SUPPORTED_CPUID, c) == 0);
	need(ioctl(vcpu, KVM_SET_CPUID2, c) == 0);
	for (unsigned i = 0; i < c->nent; i++)
		has |= c->entries[i].function == 7 && c->entries[i].index == 0 &&
		       (c->entries[i].edx & (1u << 29));
	mem_free(c);
	return has;
}

/* As struct kvm_msrs, with room. */
struct msrs {
	__u32 nmsrs;
	__u32 pad;
	struct kvm_msr_entry entry[12];
};

/* What QEMU sets at every reset: features that KVM offers by itself, and the ordinary ones. */
static void set_msrs(int kvm, int vcpu, bool has_capabilities)
{
	static const unsigned ordinary[] = {0xc0000080, 0xc0000081, 0xc0000082, 0xc0000083,
					    0xc0000084, 0xc0000102, 0x174,	0x175,
					    0x176,	0x277,	    0x10};
	struct msrs feature = {.nmsrs = 1, .entry[0].index = 0x10a /* IA32_ARCH_CAPABILITIES */};
	struct msrs m = {.nmsrs = ARRAY_SIZE(ordinary)};

	report(STEP_MSRS);
	if (has_capabilities && ioctl(kvm, KVM_GET_MSRS, &feature) == 1)
		need(ioctl(vcpu, KVM_SET_MSRS, &feature) == 1);
	for (size_t i = 0; i < ARRAY_SIZE(ordinary); i++)
		m.entry[i].index = ordinary[i];
	need(ioctl(vcpu, KVM_GET_MSRS, &m) == (int)ARRAY_SIZE(ordinary));
	need(ioctl(vcpu, KVM_SET_MSRS, &m) == (int)ARRAY_SIZE(ordinary));
}

static void enter(int vcpu)
{
	struct kvm_sregs s;
	struct kvm_regs r = {.rip = LOAD_AT, .rflags = 2};

	report(STEP_ENTER);
	need(ioctl(vcpu, KVM_GET_SREGS, &s) == 0);
	s.cs.base = s.cs.selector = 0;
	need(ioctl(vcpu, KVM_SET_SREGS, &s) == 0);
	need(ioctl(vcpu, KVM_SET_REGS, &r) == 0);
}

static void run_guest(int vcpu, const struct kvm_run *run)
{
	for (;;) {
		if (ioctl(vcpu, KVM_RUN, 0) < 0) {
			if (errno == EINTR || errno == EAGAIN)
				continue;
			need(false);
		}
		if (run->exit_reason != KVM_EXIT_IO || run->io.direction != KVM_EXIT_IO_OUT ||
		    run->io.size != 1)
			break;
		unsigned char stage = ((const unsigned char *)run)[run->io.data_offset];

		if (run->io.port == 0xf4)
			report(stage);
		if (run->io.port == 0xf4 && stage == STAGE_END)
			return;
		need(run->io.port != 0xf4 || stage != STAGE_FAILED);
	}
	report(STEP_STRANGE_EXIT);
	_exit(1);
}

/* Live migration depends on it: a KVM that forgets a written page would corrupt the guest. */
static void check_dirty(int vm)
{
	static unsigned char bits[MEMORY / 4096 / 8];
	struct kvm_dirty_log log = {.dirty_bitmap = bits};

	report(STEP_DIRTY);
	need(ioctl(vm, KVM_GET_DIRTY_LOG, &log) == 0);
	for (int p = DATA_FROM; p < DATA_TO; p++)
		need(bits[p / 8] & (1 << (p % 8)));
}

NORETURN static void child(int out)
{
	report_fd = out;
	report(STEP_OPEN);
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	need(kvm >= 0);
	report(STEP_VERSION);
	need(ioctl(kvm, KVM_GET_API_VERSION, 0) == KVM_API_VERSION);
	int vm = make_vm(kvm);

	give_memory(vm);
	report(STEP_IRQCHIP);
	need(ioctl(vm, KVM_CREATE_IRQCHIP, 0) == 0);
	report(STEP_VCPU);
	int vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);

	need(vcpu >= 0 && size > 0);
	struct kvm_run *run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);

	need(run != MAP_FAILED);
	set_msrs(kvm, vcpu, set_cpuid(kvm, vcpu));
	enter(vcpu);
	run_guest(vcpu, run);
	check_dirty(vm);
	report(STEP_DONE);
	_exit(0);
}

/* --- the parent --- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

struct outcome {
	int host_step; /* the last told, -1: none */
	int stage;     /* the guest's last passed one */
	bool failed_check, late, done;
};

static void listen_to(int fd, struct outcome *o)
{
	int64_t end = now_ms() + DEADLINE_MS;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		unsigned char c;
		int64_t left = end - now_ms();

		if (left <= 0 || poll(&p, 1, (int)left) == 0) {
			o->late = true;
			return;
		}
		ssize_t n = read(fd, &c, 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		if (c == STEP_DONE)
			o->done = true;
		else if (c == STAGE_FAILED)
			o->failed_check = true;
		else if (c >= STEP_OPEN)
			o->host_step = c - STEP_OPEN;
		else if (c < STAGE_END)
			o->stage = c;
	}
}

static void judge(const struct outcome *o, struct kvm_verdict *out)
{
	out->works = o->done;
	if (o->done)
		snprintf(out->reason, sizeof(out->reason),
			 "a test guest ran and did all it should");
	else if (o->host_step == STEP_ENTER - STEP_OPEN ||
		 o->host_step == STEP_STRANGE_EXIT - STEP_OPEN)
		snprintf(out->reason, sizeof(out->reason), "a test guest %s at: %s",
			 o->late	   ? "hung"
			 : o->failed_check ? "found a fault"
					   : "was thrown out",
			 guest_stages[MIN((size_t)o->stage + 1, ARRAY_SIZE(guest_stages) - 1)]);
	else
		snprintf(out->reason, sizeof(out->reason), "%s %s",
			 host_steps[MAX(o->host_step, 0)], o->late ? "took too long" : "failed");
}

void kvm_probe(struct kvm_verdict *out)
{
	struct outcome o = {.host_step = -1};
	int pair[2], status;

	*out = (struct kvm_verdict){.works = false};
	if (access("/dev/kvm", R_OK | W_OK) < 0) {
		snprintf(out->reason, sizeof(out->reason), "/dev/kvm: %s", strerror(errno));
		return;
	}
	if (pipe2(pair, O_CLOEXEC) < 0) {
		snprintf(out->reason, sizeof(out->reason), "no pipe for the test guest: %s",
			 strerror(errno));
		return;
	}
	pid_t pid = fork();

	if (pid == 0) {
		close(pair[0]);
		child(pair[1]);
	}
	close(pair[1]);
	if (pid > 0) {
		listen_to(pair[0], &o);
		kill(pid, SIGKILL);
		/* A vCPU stuck in the kernel may not die at once; then init reaps it, and KVM does not work. */
		for (int i = 0; i < 100 && waitpid(pid, &status, WNOHANG) == 0; i++)
			nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	close(pair[0]);
	judge(&o, out);
}

/* --- remembered until the next boot --- */

static void read_boot_id(char out[40])
{
	CLEANUP(mem_freep) char *text = NULL;
	size_t n;

	out[0] = '\0';
	if (!file_read("/proc/sys/kernel/random/boot_id", 64, &text, &n, NULL))
		snprintf(out, 40, "%.36s", text);
}

bool kvm_probe_remembered(const char *cache_path, struct kvm_verdict *out)
{
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *j = NULL;
	char boot[40];
	size_t n;

	read_boot_id(boot);
	if (!boot[0] || file_read(cache_path, 4096, &text, &n, NULL) ||
	    js_parse(text, n, &j, NULL) || !str_eq(js_get_str(j, "bootId"), boot) ||
	    !js_get_str(j, "reason"))
		return false;
	out->works = js_get_bool(j, "works", false);
	snprintf(out->reason, sizeof(out->reason), "%s", js_get_str(j, "reason"));
	return true;
}

void kvm_probe_cached(const char *cache_path, struct kvm_verdict *out)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	CLEANUP(mem_freep) char *line = NULL;
	char boot[40];

	if (kvm_probe_remembered(cache_path, out))
		return;
	kvm_probe(out);
	read_boot_id(boot);
	j = js_pack("{s:s, s:b, s:s}", "bootId", boot, "works", (int)out->works, "reason",
		    out->reason);
	line = j ? js_to_text(j) : NULL;
	if (line) /* without the cache the proof is only made again */
		ignore_rc(file_write_durable(cache_path, line, strlen(line), 0644, NULL));
}
