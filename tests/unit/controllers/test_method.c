/* How the memory of a move goes over: every row of the table is reached, and the page shows the same table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/macro.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/migration/method.h"

/* A guest and two nodes for which nothing is against several connections. */
#define ABLE(memory_, cpus_, ...)                                                                \
	{                                                                                        \
		.memory = (memory_), .cpus = (cpus_), .knows_multifd = true, .knows_zstd = true, \
		.knows_xbzrle = true, __VA_ARGS__                                                \
	}
#define WITHOUT(...)                                      \
	{                                                 \
		.memory = 4 * GIB, .cpus = 8, __VA_ARGS__ \
	}

static const struct {
	struct method_facts facts;
	const char *reason;
	int64_t channels, xbzrle, bandwidth;
	bool zstd;
} cases[] = {
	{ABLE(4 * GIB, 8, .post_copy = true, .compression = METHOD_WISH_ZSTD),
	 "PostCopyOverCompression", 0, 0, 0, false},
	{ABLE(4 * GIB, 8, .post_copy = true), "PostCopy", 0, 0, 0, false},
	{ABLE(4 * GIB, 8, .post_copy = true, .bandwidth = 32 * MIB), "PostCopy", 0, 0, 32 * MIB,
	 false},
	{ABLE(4 * GIB, 8, .compression = METHOD_WISH_ZSTD, .bandwidth = 20 * MIB - 1),
	 "LimitOverCompression", 0, 0, 20 * MIB - 1, false},
	{ABLE(4 * GIB, 8, .compression = METHOD_WISH_ZSTD, .bandwidth = 20 * MIB),
	 "CompressionAsked", 2, 0, 10 * MIB, true},
	{ABLE(4 * GIB, 8, .compression = METHOD_WISH_ZSTD), "CompressionAsked", 2, 0, 0, true},
	{ABLE(4 * GIB, 1, .compression = METHOD_WISH_ZSTD, .has_cpu_limit = true),
	 "CompressionAsked", 2, 0, 0, true},
	{WITHOUT(.compression = METHOD_WISH_ZSTD, .knows_multifd = true), "CompressionUnknown", 0,
	 0, 0, false},
	{WITHOUT(.compression = METHOD_WISH_ZSTD, .knows_zstd = true), "CompressionUnknown", 0, 0,
	 0, false},
	/* 4 GiB at 128 MiB/s: 32 s */
	{ABLE(4 * GIB, 8, .bandwidth = 128 * MIB), "SlowLinkZstd", 2, 0, 118 * MIB, true},
	{ABLE(4 * GIB, 8, .bandwidth = 128 * MIB, .compression = METHOD_WISH_PLAIN), "Limited", 0,
	 0, 128 * MIB, false},
	{ABLE(4 * GIB, 8, .bandwidth = 128 * MIB, .has_cpu_limit = true), "SlowLink", 0,
	 METHOD_XBZRLE_BYTES, 128 * MIB, false},
	{ABLE(4 * GIB, 8, .bandwidth = 10 * MIB), "SlowLink", 0, METHOD_XBZRLE_BYTES, 10 * MIB,
	 false},
	{WITHOUT(.bandwidth = 64 * MIB, .knows_multifd = true, .knows_xbzrle = true), "SlowLink", 0,
	 METHOD_XBZRLE_BYTES, 64 * MIB, false},
	{WITHOUT(.bandwidth = 64 * MIB), "Limited", 0, 0, 64 * MIB, false},
	{ABLE(4 * GIB, 8, .bandwidth = 140 * MIB), "Limited", 0, 0, 140 * MIB, false},
	/* more than one thread sends, and less than the limit is QEMU's */
	{ABLE(4 * GIB, 8, .bandwidth = 256 * MIB), "Parallel", 4, 0, 236 * MIB, false},
	{ABLE(4 * GIB, 8, .has_cpu_limit = true), "CPULimit", 0, 0, 0, false},
	/* two are enough for zstd on a slow link */
	{ABLE(4 * GIB, 2, .bandwidth = 128 * MIB), "SlowLinkZstd", 2, 0, 118 * MIB, true},
	{ABLE(4 * GIB, 1, .bandwidth = 128 * MIB), "SlowLink", 0, METHOD_XBZRLE_BYTES, 128 * MIB,
	 false},
	{ABLE(4 * GIB, 1, .post_copy = false), "FewProcessors", 0, 0, 0, false},
	{ABLE(4 * GIB, 0, .post_copy = false), "FewProcessors", 0, 0, 0, false},
	{ABLE(GIB - 1, 8, .post_copy = false), "Small", 0, 0, 0, false},
	{WITHOUT(.knows_zstd = true, .knows_xbzrle = true), "MultifdUnknown", 0, 0, 0, false},
	{ABLE(GIB, 4, .post_copy = false), "Parallel", 2, 0, 0, false},
	{ABLE(4 * GIB, 3, .post_copy = false), "FewProcessors", 0, 0, 0, false},
	{ABLE(4 * GIB, 8, .post_copy = false), "Parallel", 4, 0, 0, false},
	{ABLE(4 * GIB, 128, .post_copy = false), "Parallel", METHOD_CHANNELS_MAX, 0, 0, false},
	{ABLE(4 * GIB, 8, .compression = METHOD_WISH_PLAIN), "Parallel", 4, 0, 0, false},
};

static void each_case_has_its_row(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct method m = method_choose(&cases[i].facts);

		if (!str_eq(m.reason, cases[i].reason))
			fail_msg("case %zu: %s instead of %s", i, m.reason, cases[i].reason);
		assert_int_equal(m.channels, cases[i].channels);
		assert_int_equal(m.xbzrle, cases[i].xbzrle);
		assert_int_equal(m.bandwidth, cases[i].bandwidth);
		assert_int_equal(m.zstd, cases[i].zstd);
		assert_non_null(m.message);
	}
}

static void every_row_is_reached(void **state)
{
	struct method_row row;

	(void)state;
	for (size_t i = 0; method_row(i, &row); i++) {
		bool is_reached = false;

		for (size_t k = 0; k < ARRAY_SIZE(cases); k++)
			is_reached |= str_eq(cases[k].reason, row.reason);
		if (!is_reached)
			fail_msg("no case of %s", row.reason);
	}
}

/* Over all combinations: nothing is chosen that QEMU refuses, or that a node does not know. */
static void nothing_is_chosen_that_qemu_does_not_combine(void **state)
{
	static const int64_t rates[] = {0, MIB, 32 * MIB, GIB}, sizes[] = {64 * MIB, GIB, 64 * GIB};

	(void)state;
	for (unsigned bits = 0; bits < 32; bits++)
		for (int wish = METHOD_WISH_NONE; wish <= METHOD_WISH_ZSTD; wish++)
			for (size_t r = 0; r < ARRAY_SIZE(rates); r++)
				for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
					struct method_facts f = {.post_copy = bits & 1,
								 .has_cpu_limit = bits & 2,
								 .knows_multifd = bits & 4,
								 .knows_zstd = bits & 8,
								 .knows_xbzrle = bits & 16,
								 .compression =
									 (enum method_wish)wish,
								 .cpus = 4,
								 .bandwidth = rates[r],
								 .memory = sizes[s]};
					struct method m = method_choose(&f);

					assert_false(m.channels && (f.post_copy || m.xbzrle));
					assert_false(m.zstd && (!m.channels || !f.knows_zstd));
					assert_false(m.channels && !f.knows_multifd);
					assert_false(m.xbzrle && !f.knows_xbzrle);
					assert_false(m.zstd && f.compression == METHOD_WISH_PLAIN);
					assert_int_equal(!f.bandwidth, !m.bandwidth);
					assert_true(m.bandwidth <= f.bandwidth && m.bandwidth >= 0);
				}
}

static void the_page_has_this_table(void **state)
{
	CLEANUP(mem_freep)
	char *page = NULL;
	struct method_row row;
	size_t n;

	(void)state;
	assert_int_equal(file_read(DOCS_DIR "/internals/migration.md", 1 << 20, &page, &n, NULL),
			 RC_OK);
	const char *at = page;

	for (size_t i = 0; method_row(i, &row); i++) {
		CLEANUP(mem_freep)
		char *line = mem_printf("| %s | `%s` | %s | %s | %s |\n", row.when, row.reason,
					row.channels, row.zstd ? "zstd" : "-",
					row.xbzrle ? "64 MiB" : "-");

		at = strstr(at, line);
		if (!at)
			fail_msg("docs/internals/migration.md lacks, in this place, the row\n%s",
				 line);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_case_has_its_row),
		cmocka_unit_test(every_row_is_reached),
		cmocka_unit_test(nothing_is_chosen_that_qemu_does_not_combine),
		cmocka_unit_test(the_page_has_this_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
