/* A wall clock that a test turns: preloaded into the programs of a node.
 *
 * FERRY_TEST_CLOCK names a file of eight bytes, the seconds by which the clock is wrong; it is mapped, so a change is
 * seen at once.  Where there is no such file the clock is right.  CLOCK_MONOTONIC is never touched.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t right;
static const volatile int64_t *wrong_by = &right;

__attribute__((constructor)) static void map(void)
{
	const char *path = getenv("FERRY_TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(right), PROT_READ, MAP_SHARED, fd, 0);

	if (p != MAP_FAILED)
		wrong_by = p;
	if (fd >= 0)
		close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	int r = (int)syscall(SYS_clock_gettime, id, t);

	if (!r && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		t->tv_sec += *wrong_by;
	return r;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	struct timespec t;

	(void)tz;
	clock_gettime(CLOCK_REALTIME, &t);
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	if (out)
		*out = t.tv_sec;
	return t.tv_sec;
}
