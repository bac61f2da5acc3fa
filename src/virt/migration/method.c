#include "virt/migration/method.h"

#include "base/macro.h"

/* Several connections cost a handshake each (0.05 to 0.15 s in all, with TLS, on busy processors), and no more time of
 * processors than one; they pay where there is enough memory, and processors to spare: on two that are busy the guest
 * stood no shorter, and sometimes longer. */
enum { CPUS_FOR_PARALLEL = 4, CPUS_FOR_ZSTD = 2, ZSTD_CHANNELS = 2, SLOW_PASS_S = 30 };
/* QEMU looks at its limit ten times a second, and what is queued for a connection by then (128 pages) still leaves: the
 * channels go over it by as much. */
#define CHANNEL_EXCESS	    (10 * 128 * (int64_t)4096) /* 5 MiB/s */
#define ONE_THREAD	    (256 * (int64_t)MIB)
#define MEMORY_FOR_PARALLEL ((int64_t)GIB)

static bool wants_zstd(const struct method_facts *f)
{
	return f->compression == METHOD_WISH_ZSTD;
}

static bool may_compress(const struct method_facts *f)
{
	return f->compression != METHOD_WISH_PLAIN;
}

/* The limit alone makes one pass over all memory take so long. */
static bool is_slow(const struct method_facts *f)
{
	return f->bandwidth > 0 && f->memory / f->bandwidth >= SLOW_PASS_S;
}

/* --- the conditions of the rows --- */

static bool post_copy_over_zstd(const struct method_facts *f)
{
	return f->post_copy && wants_zstd(f);
}

static bool post_copy(const struct method_facts *f)
{
	return f->post_copy;
}

static bool zstd_keeps_limit(const struct method_facts *f)
{
	return !f->bandwidth || f->bandwidth >= 2 * ZSTD_CHANNELS * CHANNEL_EXCESS;
}

static bool zstd_over_limit(const struct method_facts *f)
{
	return wants_zstd(f) && !zstd_keeps_limit(f);
}

static bool zstd_is_asked(const struct method_facts *f)
{
	return wants_zstd(f) && f->knows_multifd && f->knows_zstd;
}

static bool zstd_is_unknown(const struct method_facts *f)
{
	return wants_zstd(f);
}

static bool slow_with_processors(const struct method_facts *f)
{
	return is_slow(f) && may_compress(f) && !f->has_cpu_limit && f->cpus >= CPUS_FOR_ZSTD &&
	       zstd_keeps_limit(f) && f->knows_multifd && f->knows_zstd;
}

static bool slow(const struct method_facts *f)
{
	return is_slow(f) && may_compress(f) && f->knows_xbzrle;
}

/* What one thread encrypts and sends in any case (about 350 MB/s were measured) needs no second one. */
static bool limited(const struct method_facts *f)
{
	return f->bandwidth > 0 && f->bandwidth < ONE_THREAD;
}

static bool cpu_limit(const struct method_facts *f)
{
	return f->has_cpu_limit;
}

static bool few_processors(const struct method_facts *f)
{
	return f->cpus < CPUS_FOR_PARALLEL;
}

static bool small(const struct method_facts *f)
{
	return f->memory < MEMORY_FOR_PARALLEL;
}

static bool multifd_is_unknown(const struct method_facts *f)
{
	return !f->knows_multifd;
}

static bool always(const struct method_facts *f)
{
	(void)f;
	return true;
}

/* --- the table --- */

enum channels { CH_ONE, CH_TWO, CH_BY_PROCESSORS };

static const struct {
	bool (*holds)(const struct method_facts *f);
	const char *reason, *when, *message;
	enum channels channels;
	bool zstd, xbzrle;
} rows[] = {
	{post_copy_over_zstd, "PostCopyOverCompression", "post-copy allowed, zstd asked for",
	 "Post-copy is allowed, and QEMU does not combine it with the several connections that zstd needs.",
	 CH_ONE, false, false},
	{post_copy, "PostCopy", "post-copy allowed",
	 "Post-copy is allowed, and QEMU does not combine it with several connections.", CH_ONE,
	 false, false},
	{zstd_over_limit, "LimitOverCompression",
	 "zstd asked for, bandwidthPerMigration below 20Mi",
	 "bandwidthPerMigration is so low that the several connections of zstd would not keep to it.",
	 CH_ONE, false, false},
	{zstd_is_asked, "CompressionAsked", "zstd asked for, both sides know it",
	 "The migration policy asks for zstd.", CH_TWO, true, false},
	{zstd_is_unknown, "CompressionUnknown", "zstd asked for",
	 "The migration policy asks for zstd, and a node does not tell that its QEMU knows it.",
	 CH_ONE, false, false},
	{slow_with_processors, "SlowLinkZstd",
	 "a pass takes 30 s by bandwidthPerMigration of 20Mi or more, 2 processors or more, no CPU limit, both sides know zstd",
	 "bandwidthPerMigration makes a pass over the memory long, and there are processors to compress it.",
	 CH_TWO, true, false},
	{slow, "SlowLink", "a pass takes 30 s by bandwidthPerMigration, both sides know XBZRLE",
	 "bandwidthPerMigration makes a pass over the memory long: of pages that change again only the "
	 "difference is sent.",
	 CH_ONE, false, true},
	{limited, "Limited", "bandwidthPerMigration below 256Mi",
	 "One thread fills bandwidthPerMigration.", CH_ONE, false, false},
	{cpu_limit, "CPULimit", "the VM has a CPU limit",
	 "The VM has a CPU limit, which more threads would share with the guest.", CH_ONE, false,
	 false},
	{few_processors, "FewProcessors", "a node has fewer than 4 processors",
	 "A node has fewer than 4 processors, or does not tell how many: more threads would be in the guests' "
	 "way.",
	 CH_ONE, false, false},
	{small, "Small", "less than 1 GiB of memory",
	 "The guest has less than 1 GiB, which one connection carries as soon as several are there.",
	 CH_ONE, false, false},
	{multifd_is_unknown, "MultifdUnknown", "a node does not tell that it knows multifd",
	 "A node does not tell that its QEMU knows several connections.", CH_ONE, false, false},
	{always, "Parallel", "else", "Several threads encrypt and send.", CH_BY_PROCESSORS, false,
	 false},
};

static int64_t channels_of(enum channels c, const struct method_facts *f)
{
	switch (c) {
	case CH_TWO:
		return ZSTD_CHANNELS;
	case CH_BY_PROCESSORS: /* half of them: the guests keep the other half */
		return MIN(MAX(f->cpus / 2, 2), METHOD_CHANNELS_MAX);
	default:
		return 0;
	}
}

struct method method_choose(const struct method_facts *f)
{
	size_t i = 0;

	while (!rows[i].holds(f)) /* the last row always does */
		i++;

	int64_t channels = channels_of(rows[i].channels, f);

	return (struct method){.reason = rows[i].reason,
			       .message = rows[i].message,
			       .channels = channels,
			       .bandwidth =
				       f->bandwidth ? f->bandwidth - channels * CHANNEL_EXCESS : 0,
			       .xbzrle = rows[i].xbzrle ? METHOD_XBZRLE_BYTES : 0,
			       .zstd = rows[i].zstd};
}

bool method_row(size_t i, struct method_row *out)
{
	static const char *const channels[] = {
		[CH_ONE] = "0", [CH_TWO] = "2", [CH_BY_PROCESSORS] = "n"};

	if (i >= ARRAY_SIZE(rows))
		return false;
	*out = (struct method_row){.reason = rows[i].reason,
				   .when = rows[i].when,
				   .message = rows[i].message,
				   .channels = channels[rows[i].channels],
				   .zstd = rows[i].zstd,
				   .xbzrle = rows[i].xbzrle};
	return true;
}
