/* src/virt/migration/mig_qemu.h - what is said to QEMU for a move, and what it answers: pure functions.
 *
 * Capabilities are chosen once per move from the table in mig_qemu.c; both sides get the same options.
 */
#ifndef VIRT_MIGRATION_MIG_QEMU_H
#define VIRT_MIGRATION_MIG_QEMU_H

#include "base/err.h"

struct json;

#define MIG_TLS_ID	    "ferry-tls"
#define MIG_DOWNTIME_MAX_MS 2000000 /* QEMU's own limit of downtime-limit */

enum mig_role { MIG_SOURCE, MIG_TARGET };

struct mig_options {
	int64_t downtime_limit_ms;     /* the most that QEMU's downtime-limit is set to; 300 */
	int64_t initial_downtime_ms;   /* what it starts with, if less; 8 */
	int64_t max_bandwidth;	       /* bytes a second; 0 = no limit */
	int64_t switchover_timeout_ms; /* from the guest's stop to the end; 10000 */
	int64_t max_pause_ms;	       /* the declared limit; 0 = none was declared */
	int64_t fixed_pause_ms;	       /* what a pause to this target costs beside the bytes; 0 */
	int64_t multifd_channels;      /* 0 = off */
	int64_t xbzrle_cache;	       /* bytes, a power of two; 0 = off; not with multifd */
	bool zstd;		       /* with multifd only */
	bool auto_converge;
	bool post_copy; /* allowed; begun when the passes do not shrink, or when it is asked for */
};

struct mig_tls {
	char user[65];
	char key[129]; /* hexadecimal, 16 to 64 bytes */
	bool on;
};

/* j may be NULL: defaults.  RC_INVALID with the member; RC_UNSUPPORTED for what is not there yet. */
MUST_CHECK enum rc mig_options_decode(const struct json *j, struct mig_options *out,
				      struct err *err);
/* j may be NULL: no TLS. */
MUST_CHECK enum rc mig_tls_decode(const struct json *j, struct mig_tls *out, struct err *err);
/* A literal IPv4 or IPv6 address, never a name: nothing is resolved on the way. */
bool mig_is_address(const char *s);

/* Arguments of QMP commands; NULL: out of memory. */
struct json *mig_capabilities(const struct mig_options *o, enum mig_role role);
struct json *mig_parameters(const struct mig_options *o, enum mig_role role, bool tls);
/* Is it time for post-copy?  After a pass, given what was left after the one before it: when the guest's
 * writes outrun the link (by the forecast, or because the passes do not shrink), more passes only cost time. */
bool mig_wants_post_copy(const struct mig_options *o, bool outruns, int64_t passes,
			 int64_t remaining, int64_t remaining_before);
/* What QEMU's downtime-limit should be after a pass, given what was left after the one before it. */
int64_t mig_next_downtime(const struct mig_options *o, int64_t limit_now, int64_t passes,
			  int64_t remaining, int64_t remaining_before);
struct json *mig_channels(enum mig_role role, const char *address, int port);
/* Where a target in post-copy listens anew (migrate-recover). */
struct json *mig_recover_uri(const char *address, int port);
/* fast_aes: this host computes AES in hardware (move_has_fast_aes()). */
struct json *mig_tls_object(const char *dir, const struct mig_tls *tls, enum mig_role role,
			    bool fast_aes);

/* calc-dirty-rate: how much of the guest's memory changes within so many seconds, looked up in about so many of its
 * pages.  With every accelerator; memory_bytes is the guest's. */
struct json *mig_measure(int64_t seconds, int64_t memory_bytes, int64_t pages);

struct mig_measured {
	bool is_done, goes_on; /* neither: QEMU has measured nothing */
	int64_t bytes_per_second;
	int64_t seconds; /* of the measurement */
};
/* query-dirty-rate's value. */
void mig_measured_parse(const struct json *q, struct mig_measured *out);

enum mig_status {
	MIGQ_NONE,
	MIGQ_SETUP,
	MIGQ_ACTIVE,
	MIGQ_PRE_SWITCHOVER,
	MIGQ_DEVICE,
	MIGQ_POSTCOPY_ACTIVE,
	MIGQ_POSTCOPY_PAUSED,
	MIGQ_POSTCOPY_RECOVER, /* with recover-setup: the halves are being joined again */
	MIGQ_COMPLETED,
	MIGQ_FAILED,
	MIGQ_CANCELLING,
	MIGQ_CANCELLED,
	MIGQ_OTHER,
	MIGQ__MAX
};
enum mig_status mig_status_parse(const char *s);

struct mig_stats {
	enum mig_status status;
	int64_t total, transferred, remaining; /* of memory, bytes */
	int64_t dirty_rate, rate;	       /* bytes a second */
	int64_t passes, zero_pages, normal_pages;
	int64_t downtime_bytes;	  /* sent while the guest stood */
	int64_t postcopy_bytes;	  /* sent after the guest had stopped here for good */
	int64_t throttle_percent; /* of the time in which the guest does not get its processors */
	int64_t elapsed_ms, setup_ms, expected_downtime_ms, downtime_ms; /* -1: not told */
	char error[256];
};
/* Post-copy has begun at the source for good: once a page has gone over in it, QEMU can no longer fall back
 * to running the guest here (postcopy_start() has returned without an error). */
bool mig_is_beyond_return(const struct mig_stats *s);
/* query-migrate's value. */
void mig_stats_parse(const struct json *q, struct mig_stats *out);
struct json *mig_stats_json(const struct mig_stats *s); /* {"memory": {...}, "elapsedMs", ...} */

#endif
