#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "ctl/prom.h"

static void print_memory(struct sbuf *out)
{
	CLEANUP(mem_freep) char *text = NULL;
	unsigned long long all = 0, resident = 0;
	double page = (double)sysconf(_SC_PAGESIZE);
	size_t n;

	if (file_read("/proc/self/statm", 4096, &text, &n, NULL) ||
	    sscanf(text, "%llu %llu", &all, &resident) != 2)
		return;
	prom_one(out, "process_resident_memory_bytes", "gauge", "Resident memory of the process.",
		 (double)resident * page);
	prom_one(out, "process_virtual_memory_bytes", "gauge", "Address space of the process.",
		 (double)all * page);
}

static void print_files(struct sbuf *out)
{
	DIR *dir = opendir("/proc/self/fd");
	struct rlimit max;
	size_t n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir) {
		closedir(dir);
		/* Two are "." and "..", one is the folder itself. */
		prom_one(out, "process_open_fds", "gauge", "Open file descriptors.",
			 (double)(n - MIN(n, (size_t)3)));
	}
	if (!getrlimit(RLIMIT_NOFILE, &max))
		prom_one(out, "process_max_fds", "gauge", "How many there may be.",
			 (double)max.rlim_cur);
}

void prom_process(struct sbuf *out, usec_t started)
{
	struct rusage ru;

	if (!getrusage(RUSAGE_SELF, &ru))
		prom_one(out, "process_cpu_seconds_total", "counter", "CPU time of the process.",
			 (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
				 (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6);
	print_memory(out);
	print_files(out);
	prom_one(out, "process_start_time_seconds", "gauge", "When the process started.",
		 (double)started / 1e6);
}
