/* tests/fuzz/runner.c - runs a fuzz target without libFuzzer.
 *
 *   fuzz_x [--seconds N] [--seed N] FOLDER...
 *
 * Every file of the folders first, then, for N seconds of a processor, random changes of them: flipped, cut, copied
 * and spliced bytes, and numbers and words that parsers trip over.  The input of a crash is in
 * crash-<target>.bin of the current folder, because it is written before each run.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

enum { INPUT_MAX = 64 * 1024, FILES_MAX = 4096 };

struct input {
	uint8_t *p;
	size_t n;
};

static struct input files[FILES_MAX];
static size_t n_files;
static uint64_t rng = 1;

static uint64_t next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static size_t below(size_t n)
{
	return n ? next_random() % n : 0;
}

static void add_file(const char *path)
{
	FILE *f = fopen(path, "re");
	static uint8_t buf[INPUT_MAX];

	if (!f || n_files == FILES_MAX)
		exit(2);
	size_t n = fread(buf, 1, sizeof(buf), f);

	fclose(f);
	files[n_files].p = malloc(n + 1);
	if (!files[n_files].p)
		exit(2);
	memcpy(files[n_files].p, buf, n);
	files[n_files++].n = n;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_folder(const char *path)
{
	struct dirent **list;
	int n = scandir(path, &list, NULL, by_name);

	if (n < 0) {
		perror(path);
		exit(2);
	}
	for (int i = 0; i < n; i++) {
		char full[PATH_MAX];

		snprintf(full, sizeof(full), "%s/%s", path, list[i]->d_name);
		if (list[i]->d_name[0] != '.')
			add_file(full);
		free(list[i]);
	}
	free(list);
}

static size_t insert(uint8_t *p, size_t n, size_t at, const void *what, size_t len)
{
	if (n + len > INPUT_MAX)
		return n;
	memmove(p + at + len, p + at, n - at);
	memcpy(p + at, what, len);
	return n + len;
}

static size_t change(uint8_t *p, size_t n)
{
	static const char *const words[] = {
		"null",	 "true",       "{}",	 "[]",
		"\"\"",	 "-1",	       "0",	 "9223372036854775808",
		"1e999", "\\u0000",    "\xff",	 "{\"a\":",
		"[[[[",	 "}}",	       "$patch", "/-",
		"~1",	 "4294967296", "\n",	 ",",
		"=",	 "\r\n",       ":",	 "%",
		"..",	 "--",	       "\t",
	};
	const struct input *other = &files[below(n_files)];
	size_t at = below(n + 1), len;
	const char *w;

	switch (next_random() % 7) {
	case 0:
		if (n)
			p[below(n)] ^= (uint8_t)(1u << below(8));
		return n;
	case 1:
		if (n)
			p[below(n)] = (uint8_t)next_random();
		return n;
	case 2: /* cut */
		len = below(n - at + 1);
		memmove(p + at, p + at + len, n - at - len);
		return n - len;
	case 3:
		w = words[below(sizeof(words) / sizeof(words[0]))];
		return insert(p, n, at, w, strlen(w));
	case 4: /* repeat a part */
		len = below(n - at + 1);
		len = len > 512 ? 512 : len;
		return insert(p, n, below(n + 1), memcpy((uint8_t[512]){0}, p + at, len), len);
	case 5: /* splice */
		if (!other->n)
			return n;
		len = below(other->n);
		return insert(p, n, at, other->p + len, below(other->n - len));
	default:
		return at;
	}
}

/* Seconds of a processor that this has had: as much is tried on a machine that others use too. */
static unsigned worked(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (unsigned)t.tv_sec;
}

static void fuzz(const char *name, unsigned seconds)
{
	static uint8_t buf[INPUT_MAX];
	char path[PATH_MAX];
	unsigned end = worked() + seconds;
	unsigned long runs = 0;

	snprintf(path, sizeof(path), "crash-%s.bin", name);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	/* a shared mapping: what is written into it is in the file even if we die */
	if (fd < 0 || ftruncate(fd, INPUT_MAX + 8) < 0)
		exit(2);
	uint8_t *saved = mmap(NULL, INPUT_MAX + 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (saved == MAP_FAILED)
		exit(2);
	while (worked() < end && n_files) {
		for (int batch = 0; batch < 256; batch++, runs++) {
			const struct input *from = &files[below(n_files)];
			size_t n = from->n;

			memcpy(buf, from->p, n);
			for (size_t i = below(8) + 1; i > 0; i--)
				n = change(buf, n);
			memcpy(saved, &n, sizeof(n));
			memcpy(saved + 8, buf, n);
			LLVMFuzzerTestOneInput(buf, n);
		}
	}
	munmap(saved, INPUT_MAX + 8);
	close(fd);
	unlink(path);
	printf("%s: %zu files, %lu changed inputs in %u s\n", name, n_files, runs, seconds);
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');
	unsigned seconds = getenv("FERRY_TEST_LONG") ? 600 : 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
			if (!seconds)
				seconds = (unsigned)strtoul(argv[i + 1], NULL, 10);
			i++;
		} else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
			rng = strtoull(argv[++i], NULL, 10) | 1;
		} else {
			add_folder(argv[i]);
		}
	}
	for (size_t i = 0; i < n_files; i++)
		LLVMFuzzerTestOneInput(files[i].p, files[i].n);
	fuzz(name ? name + 1 : argv[0], seconds);
	return 0;
}
