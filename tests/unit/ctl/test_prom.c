/* Prometheus text: histograms, families and their bound, what a process tells of itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "ctl/prom.h"
#include "lib/promcheck.h"
#include "lib/torture.h"

static const struct prom_buckets three = {3, {0.5, 1, 2.5}};

static void a_histogram_counts_upwards(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536), labels = SBUF_INIT(100);
	struct prom_hist h = {0};

	(void)state;
	prom_hist_add(&h, &three, 0.5); /* a bound belongs to its bucket */
	prom_hist_add(&h, &three, 0.75);
	prom_hist_add(&h, &three, 9);
	prom_label_add(&labels, "a", "x");
	prom_head(&b, "t_seconds", "histogram", "What it is.");
	prom_hist_print(&b, "t_seconds", &labels, &three, &h);
	assert_string_equal(sbuf_str(&b), "# HELP t_seconds What it is.\n"
					  "# TYPE t_seconds histogram\n"
					  "t_seconds_bucket{a=\"x\",le=\"0.5\"} 1\n"
					  "t_seconds_bucket{a=\"x\",le=\"1\"} 2\n"
					  "t_seconds_bucket{a=\"x\",le=\"2.5\"} 2\n"
					  "t_seconds_bucket{a=\"x\",le=\"+Inf\"} 3\n"
					  "t_seconds_sum{a=\"x\"} 10.250000\n"
					  "t_seconds_count{a=\"x\"} 3\n");
	mem_free(prom_check(sbuf_str(&b)));
	prom_head(&b, "u_seconds", "histogram", "Without labels.");
	prom_hist_print(&b, "u_seconds", NULL, &three, &h);
	assert_non_null(strstr(sbuf_str(&b), "\nu_seconds_bucket{le=\"0.5\"} 1\n"));
	assert_non_null(strstr(sbuf_str(&b), "\nu_seconds_sum 10.250000\nu_seconds_count 3\n"));
	mem_free(prom_check(sbuf_str(&b)));
}

static void a_family_has_a_bound(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);
	struct prom_family f;

	(void)state;
	prom_family_init(&f, "n_total", "Things.", NULL, 2);
	for (int i = 0; i < 5; i++) {
		char value[8];

		snprintf(value, sizeof(value), "v%d", i);
		const struct prom_label labels[] = {{"a", value}, {"b", "\"\\\n"}};

		prom_family_add(&f, labels, 2, 1);
		prom_family_add(&f, labels, 2, 2);
	}
	prom_family_print(&f, &b);
	assert_string_equal(sbuf_str(&b), "# HELP n_total Things.\n"
					  "# TYPE n_total counter\n"
					  "n_total{a=\"v0\",b=\"\\\"\\\\\\n\"} 3\n"
					  "n_total{a=\"v1\",b=\"\\\"\\\\\\n\"} 3\n"
					  "n_total{a=\"other\",b=\"other\"} 9\n");
	mem_free(prom_check(sbuf_str(&b)));
	prom_family_fini(&f);
}

static void a_process_tells_of_itself(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);

	(void)state;
	prom_process(&b, 1700000000 * (usec_t)USEC_PER_SEC);
	assert_int_equal(sbuf_rc(&b), RC_OK);
	prom_golden("process", sbuf_str(&b));
	assert_non_null(strstr(sbuf_str(&b), "process_start_time_seconds 1700000000\n"));
	assert_null(strstr(sbuf_str(&b), "process_open_fds 0\n"));
	assert_null(strstr(sbuf_str(&b), "process_resident_memory_bytes 0\n"));
}

/* A count that finds no memory is lost, never half there. */
static enum rc count_and_print(void)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);
	struct prom_family f;

	prom_family_init(&f, "t_seconds", "Times.", &three, 1);
	prom_family_add(&f, &(struct prom_label){"a", "x"}, 1, 1);
	prom_family_add(&f, &(struct prom_label){"a", "y"}, 1, 1);
	bool is_whole = f.series.n == 2;

	prom_family_print(&f, &b);
	prom_family_fini(&f);
	return sbuf_rc(&b) ? sbuf_rc(&b) : is_whole ? RC_OK : RC_NOMEM;
}

static void failed_allocations_leak_nothing(void **state)
{
	(void)state;
	torture(count_and_print);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_histogram_counts_upwards),
		cmocka_unit_test(a_family_has_a_bound),
		cmocka_unit_test(a_process_tells_of_itself),
		cmocka_unit_test(failed_allocations_leak_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
