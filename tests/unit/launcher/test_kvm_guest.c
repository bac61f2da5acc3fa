#include "virt/launcher/kvm_probe.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"

extern const char kvm_guest_start[], kvm_guest_end[];

enum { ROM = 65536, CODE_AT = 0x100 };

/* Enables A20, copies the program from the ROM to 0x1000 and jumps there. */
static const unsigned char copier[] = {
	0xfa,				    /* cli */
	0xe4, 0x92, 0x0c, 0x02, 0xe6, 0x92, /* in al,92h; or al,2; out 92h,al */
	0xb8, 0x00, 0xf0, 0x8e, 0xd8,	    /* ds = f000h */
	0x31, 0xc0, 0x8e, 0xc0,		    /* es = 0 */
	0xbe, 0x00, 0x01, 0xbf, 0x00, 0x10, /* si = 100h, di = 1000h */
	0xb9, 0x00, 0x10, 0xfc, 0xf3, 0xa4, /* cx = 1000h; rep movsb */
	0xea, 0x00, 0x10, 0x00, 0x00,	    /* jmp 0:1000h */
};
static const unsigned char reset_vector[] = {0xea, 0x00, 0x00, 0x00, 0xf0}; /* jmp f000:0 */

static const char *const qemu = "/usr/bin/qemu-system-x86_64";

static void make_rom(const char *path)
{
	static unsigned char rom[ROM];
	size_t n = (size_t)(kvm_guest_end - kvm_guest_start);

	assert_true(n < 0x1000);
	memcpy(rom, copier, sizeof(copier));
	memcpy(rom + CODE_AT, kvm_guest_start, n);
	memcpy(rom + 0xfff0, reset_vector, sizeof(reset_vector));
	assert_int_equal(file_write_durable(path, rom, ROM, 0600, NULL), RC_OK);
}

/* The program itself is right: an emulated CPU passes all its stages.  (Whether a KVM does is the proof.) */
static void an_emulated_cpu_passes_every_stage(void **state)
{
	static const unsigned char want[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x5a};
	char dir[] = "/tmp/test_kvm_guest.XXXXXX", rom[64], debug[80];
	unsigned char got[sizeof(want)];
	size_t n = 0;
	int out[2];

	if (access(qemu, X_OK) < 0)
		skip();
	assert_non_null(mkdtemp(dir));
	snprintf(rom, sizeof(rom), "%s/rom", dir);
	make_rom(rom);
	assert_int_equal(pipe(out), 0);
	snprintf(debug, sizeof(debug), "file,id=d,path=/dev/fd/%d", out[1]);
	pid_t pid = fork();

	if (pid == 0) {
		alarm(60);
		execl(qemu, qemu, "-accel", "tcg", "-cpu", "max", "-machine", "pc", "-m", "16",
		      "-nodefaults", "-display", "none", "-bios", rom, "-chardev", debug, "-device",
		      "isa-debugcon,iobase=0xf4,chardev=d", NULL);
		_exit(127);
	}
	close(out[1]);
	while (n < sizeof(got)) {
		ssize_t r = read(out[0], got + n, sizeof(got) - n);

		if (r <= 0)
			break;
		n += (size_t)r;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(out[0]);
	assert_int_equal(n, sizeof(want));
	assert_memory_equal(got, want, sizeof(want));
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
}

static void the_verdict_is_remembered_until_the_next_boot(void **state)
{
	char path[] = "/tmp/test_kvm_cache.XXXXXX";
	struct kvm_verdict v = {0};
	char *boot = NULL, line[256];
	size_t n;
	int fd = mkstemp(path);

	close(fd);
	assert_int_equal(file_read("/proc/sys/kernel/random/boot_id", 64, &boot, &n, NULL), RC_OK);
	snprintf(line, sizeof(line),
		 "{\"bootId\": \"%.36s\", \"works\": true, \"reason\": \"as remembered\"}", boot);
	assert_int_equal(file_write_durable(path, line, strlen(line), 0600, NULL), RC_OK);
	kvm_probe_cached(path, &v);
	assert_true(v.works);
	assert_string_equal(v.reason, "as remembered");

	/* of another boot, or broken: proven again and written anew */
	assert_int_equal(file_write_durable(path, "{\"bootId\": \"x\"", 14, 0600, NULL), RC_OK);
	kvm_probe_cached(path, &v);
	assert_string_not_equal(v.reason, "as remembered");
	unlink(path);
	free(boot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_emulated_cpu_passes_every_stage),
		cmocka_unit_test(the_verdict_is_remembered_until_the_next_boot),
	};

	return cmocka_run_group_tests_name("kvm_guest", tests, NULL, NULL);
}
