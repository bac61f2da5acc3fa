#include "virt/migration/mig_qemu.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "json/json.h"

/* --- options --- */

static const struct {
	const char *name;
	size_t offset;
	int64_t min, max;
} number_options[] = {
	{"downtimeLimitMs", offsetof(struct mig_options, downtime_limit_ms), 1,
	 MIG_DOWNTIME_MAX_MS},
	{"initialDowntimeMs", offsetof(struct mig_options, initial_downtime_ms), 1, 2000000},
	{"maxBandwidthBytes", offsetof(struct mig_options, max_bandwidth), 0, INT64_MAX},
	{"switchoverTimeoutMs", offsetof(struct mig_options, switchover_timeout_ms), 100, 3600000},
	{"maxPauseMs", offsetof(struct mig_options, max_pause_ms), 0, 2000000},
	{"fixedPauseMs", offsetof(struct mig_options, fixed_pause_ms), 0, 2000000},
	{"multifdChannels", offsetof(struct mig_options, multifd_channels), 0, 64},
	{"xbzrleCacheBytes", offsetof(struct mig_options, xbzrle_cache), 0, (int64_t)1 << 30},
};

static enum rc decode_option(const char *key, const struct json *v, struct mig_options *o,
			     struct err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(number_options); i++) {
		if (!str_eq(key, number_options[i].name))
			continue;
		int64_t n = js_int(v, INT64_MIN);

		if (n < number_options[i].min || n > number_options[i].max)
			return err_set(err, RC_INVALID, "options.%s: not in %" PRId64 "..%" PRId64,
				       key, number_options[i].min, number_options[i].max);
		*(int64_t *)(void *)((char *)o + number_options[i].offset) = n;
		return RC_OK;
	}
	if (str_eq(key, "autoConverge") && js_type(v) == JS_BOOL) {
		o->auto_converge = js_bool(v, false);
		return RC_OK;
	}
	if (str_eq(key, "postCopy") && js_type(v) == JS_BOOL) {
		o->post_copy = js_bool(v, false);
		return RC_OK;
	}
	if (str_eq(key, "compression") &&
	    (str_eq(js_str(v), "none") || str_eq(js_str(v), "zstd"))) {
		o->zstd = str_eq(js_str(v), "zstd");
		return RC_OK;
	}
	return err_set(err, RC_INVALID, "options.%s: unknown, or of a wrong type", key);
}

/* As QEMU 10.0 refuses it, in one place and before it is asked; of zstd without multifd it would say nothing. */
static enum rc check_combination(const struct mig_options *o, struct err *err)
{
	if (o->post_copy && o->multifd_channels)
		return err_set(err, RC_INVALID,
			       "options.postCopy: QEMU does not combine it with multifdChannels");
	if (o->xbzrle_cache && o->multifd_channels)
		return err_set(
			err, RC_INVALID,
			"options.xbzrleCacheBytes: QEMU does not combine it with multifdChannels");
	if (o->zstd && !o->multifd_channels)
		return err_set(err, RC_INVALID, "options.compression: needs multifdChannels");
	if (o->xbzrle_cache & (o->xbzrle_cache - 1))
		return err_set(err, RC_INVALID, "options.xbzrleCacheBytes: not a power of two");
	return RC_OK;
}

enum rc mig_options_decode(const struct json *j, struct mig_options *out, struct err *err)
{
	struct mig_options o = {
		.downtime_limit_ms = 300, .initial_downtime_ms = 8, .switchover_timeout_ms = 10000};

	if (j && !js_is_object(j))
		return err_set(err, RC_INVALID, "options: must be an object");
	JS_FOREACH(it, j) {
		enum rc rc = decode_option(it.key, it.value, &o, err);

		if (rc)
			return rc;
	}
	enum rc rc = check_combination(&o, err);

	if (!rc)
		*out = o;
	return rc;
}

enum rc mig_tls_decode(const struct json *j, struct mig_tls *out, struct err *err)
{
	const char *user = js_get_str(j, "user"), *key = js_get_str(j, "key");

	memset(out, 0, sizeof(*out));
	if (!j || js_is_null(j))
		return RC_OK;
	if (js_len(j) != 2 || !user || !*user || strlen(user) >= sizeof(out->user) ||
	    strspn(user, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") !=
		    strlen(user))
		return err_set(err, RC_INVALID, "tls.user: letters, digits, '-' and '_' only");
	if (!key || strlen(key) < 32 || strlen(key) >= sizeof(out->key) || strlen(key) % 2 ||
	    strspn(key, "0123456789abcdefABCDEF") != strlen(key))
		return err_set(err, RC_INVALID, "tls.key: 16 to 64 bytes in hexadecimal");
	snprintf(out->user, sizeof(out->user), "%s", user);
	snprintf(out->key, sizeof(out->key), "%s", key);
	out->on = true;
	return RC_OK;
}

bool mig_is_address(const char *s)
{
	unsigned char b[16];

	return s && (inet_pton(AF_INET, s, b) == 1 || inet_pton(AF_INET6, s, b) == 1);
}

/* --- what QEMU is told --- */

/* name, on at the source, on at the target.  Everything that could be left over from an earlier move is
 * said, so that a VM that has moved before starts from the same point.
 *
 *   events                  progress without polling
 *   return-path             the target answers: the source's `completed` means that all has been loaded
 *   pause-before-switchover the node acts between the guest's stop and the last bytes
 *   late-block-activate     the target takes image locks at `cont`, not when the state is loaded
 *   validate-uuid           refuses the state of another VM
 */
static const struct {
	const char *name;
	bool source, target;
} fixed_capabilities[] = {
	{"events", true, true},
	{"return-path", true, true},
	{"pause-before-switchover", true, true},
	{"late-block-activate", true, true},
	{"validate-uuid", true, true},
	{"rdma-pin-all", false, false},
	{"release-ram", false, false},
};

static enum rc add_capability(struct json *list, const char *name, bool on)
{
	return js_append(list, js_pack("{s:s, s:b}", "capability", name, "state", (int)on));
}

/* What QEMU does not combine: all that is off is said before what is on, as it checks each step against the ones
 * before it.  preempt (pages that the guest waits for have a connection of their own) needs post-copy, so it goes
 * off first and on last. */
static enum rc add_ways(struct json *list, const struct mig_options *o)
{
	const struct {
		const char *name;
		bool on;
	} ways[] = {
		{"postcopy-ram", o->post_copy},
		{"postcopy-preempt", o->post_copy},
		{"xbzrle", o->xbzrle_cache > 0},
		{"multifd", o->multifd_channels > 0},
	};
	enum rc rc = RC_OK;

	for (size_t i = ARRAY_SIZE(ways); !rc && i > 0; i--)
		if (!ways[i - 1].on)
			rc = add_capability(list, ways[i - 1].name, false);
	for (size_t i = 0; !rc && i < ARRAY_SIZE(ways); i++)
		if (ways[i].on)
			rc = add_capability(list, ways[i].name, true);
	return rc;
}

struct json *mig_capabilities(const struct mig_options *o, enum mig_role role)
{
	struct json *list = js_new_array();
	enum rc rc = list ? RC_OK : RC_NOMEM;

	for (size_t i = 0; !rc && i < ARRAY_SIZE(fixed_capabilities); i++)
		rc = add_capability(list, fixed_capabilities[i].name,
				    role == MIG_SOURCE ? fixed_capabilities[i].source
						       : fixed_capabilities[i].target);
	if (!rc)
		rc = add_ways(list, o);
	if (!rc)
		rc = add_capability(list, "auto-converge", role == MIG_SOURCE && o->auto_converge);
	if (rc) {
		js_unref(list);
		return NULL;
	}
	return js_pack("{s:o}", "capabilities", list);
}

static enum rc set_channels(struct json *j, const struct mig_options *o)
{
	enum rc rc = js_set(j, "multifd-channels", js_new_int(o->multifd_channels));

	return rc ? rc : js_set(j, "multifd-compression", js_new_str(o->zstd ? "zstd" : "none"));
}

static enum rc set_source(struct json *j, const struct mig_options *o)
{
	enum rc rc = js_set(j, "downtime-limit",
			    js_new_int(MIN(o->initial_downtime_ms, o->downtime_limit_ms)));

	if (!rc)
		rc = js_set(j, "max-bandwidth", js_new_int(o->max_bandwidth));
	if (!rc && o->post_copy)
		rc = js_set(j, "max-postcopy-bandwidth", js_new_int(o->max_bandwidth));
	if (!rc && o->xbzrle_cache)
		rc = js_set(j, "xbzrle-cache-size", js_new_int(o->xbzrle_cache));
	return rc;
}

struct json *mig_parameters(const struct mig_options *o, enum mig_role role, bool tls)
{
	struct json *j =
		js_pack("{s:s, s:s}", "tls-creds", tls ? MIG_TLS_ID : "", "tls-hostname", "");
	enum rc rc = j ? RC_OK : RC_NOMEM;

	if (!rc && o->multifd_channels)
		rc = set_channels(j, o);
	if (!rc && role == MIG_SOURCE)
		rc = set_source(j, o);
	/* The launcher announces after `cont`, so QEMU's five rounds are too many.  None would be too few: its
	 * virtio-net then drops the timer that the device's next reset stops, and a guest that has moved takes
	 * QEMU down when it reboots (QEMU 10.0, hw/net/virtio-net.c).  The one frame that leaves with the
	 * loading of the state meets a port that is locked still. */
	if (!rc && role == MIG_TARGET)
		rc = js_set(j, "announce-rounds", js_new_int(1));
	return rc ? js_unref(j) : j;
}

/* QEMU switches as soon as it thinks that what is left fits into the limit, so a high one costs an idle
 * guest a long pause for nothing.  It starts low, and is doubled after each pass as long as the passes
 * shrink; when they do not, waiting buys nothing and the whole limit is used.  The first two passes (the
 * whole memory, and what was written meanwhile) say nothing yet. */
static bool shrinks_enough(int64_t remaining, int64_t remaining_before)
{
	return remaining < remaining_before / 10 * 7;
}

bool mig_wants_post_copy(const struct mig_options *o, bool outruns, int64_t passes,
			 int64_t remaining, int64_t remaining_before)
{
	/* Throttling acts from pass to pass: it has its chance first. */
	int64_t patience = o->auto_converge ? 6 : 1;

	if (!o->post_copy)
		return false;
	return (outruns && !o->auto_converge) ||
	       (passes > patience && !shrinks_enough(remaining, remaining_before));
}

int64_t mig_next_downtime(const struct mig_options *o, int64_t limit_now, int64_t passes,
			  int64_t remaining, int64_t remaining_before)
{
	bool shrinks = shrinks_enough(remaining, remaining_before);

	if (passes <= 2 || limit_now >= o->downtime_limit_ms)
		return limit_now;
	return shrinks ? MIN(limit_now * 2, o->downtime_limit_ms) : o->downtime_limit_ms;
}

struct json *mig_channels(enum mig_role role, const char *address, int port)
{
	CLEANUP(js_unrefp) struct json *alive = role == MIG_SOURCE ? js_new_bool(true) : NULL;
	char text[8];

	snprintf(text, sizeof(text), "%d", port);
	/* The source's alone: QEMU has it for none that listens.  A peer that is silent for good is noticed by the
	 * kernel also where QEMU only waits for its answer (the handshake of a connection that is not the first,
	 * which neither a cancel nor a yank ends in QEMU 10.0); after what time is the pod's network namespace's
	 * to say. */
	return js_pack("{s:[{s:s, s:{s:s, s:s, s:s, s:s, s:O*}}]}", "channels", "channel-type",
		       "main", "addr", "transport", "socket", "type", "inet", "host", address,
		       "port", text, "keep-alive", alive);
}

struct json *mig_recover_uri(const char *address, int port)
{
	char uri[96];

	snprintf(uri, sizeof(uri), strchr(address, ':') ? "tcp:[%s]:%d" : "tcp:%s:%d", address,
		 port);
	return js_pack("{s:s}", "uri", uri);
}

/* A pre-shared key is bound to SHA-256 (RFC 8446, 4.2.11), which leaves AES-128-GCM and ChaCha20-Poly1305 of
 * TLS 1.3, and GnuTLS's own order puts ChaCha20 first.  Where AES is in hardware that is the slower of the
 * two by nearly ten times, and encryption is most of what a move computes; elsewhere the order is right.  The
 * client's order counts, so both sides may differ in it. */
struct json *mig_tls_object(const char *dir, const struct mig_tls *tls, enum mig_role role,
			    bool fast_aes)
{
	return js_pack("{s:s, s:s, s:s, s:s, s:s*, s:s*}", "qom-type", "tls-creds-psk", "id",
		       MIG_TLS_ID, "dir", dir, "endpoint", role == MIG_SOURCE ? "client" : "server",
		       "username", role == MIG_SOURCE ? tls->user : NULL, "priority",
		       fast_aes ? "NORMAL:-CHACHA20-POLY1305:+CHACHA20-POLY1305" : NULL);
}

/* QEMU's own bounds of sample-pages, which is for each GiB. */
enum { SAMPLE_MIN = 128, SAMPLE_MAX = 16384 };

struct json *mig_measure(int64_t seconds, int64_t memory_bytes, int64_t pages)
{
	double gib = (double)MAX(memory_bytes, 1) / (double)((int64_t)1 << 30);
	double sample = (double)pages / gib;
	int64_t n = sample < SAMPLE_MIN	  ? SAMPLE_MIN
		    : sample > SAMPLE_MAX ? SAMPLE_MAX
					  : (int64_t)sample;

	return js_pack("{s:I, s:I, s:s}", "calc-time", seconds, "sample-pages", n, "mode",
		       "page-sampling");
}

/* --- what QEMU says --- */

void mig_measured_parse(const struct json *q, struct mig_measured *out)
{
	const char *status = js_get_str(q, "status");
	int64_t mib = js_get_int(q, "dirty-rate", -1), seconds = js_get_int(q, "calc-time", 0);

	*out = (struct mig_measured){.goes_on = str_eq(status, "measuring")};
	if (!str_eq(status, "measured") || mib < 0 || mib > INT64_MAX >> 20 || seconds <= 0)
		return;
	out->is_done = true;
	out->bytes_per_second = mib << 20;
	out->seconds = seconds;
}

enum mig_status mig_status_parse(const char *s)
{
	static const char *const names[MIGQ__MAX] = {
		[MIGQ_NONE] = "none",
		[MIGQ_SETUP] = "setup",
		[MIGQ_ACTIVE] = "active",
		[MIGQ_DEVICE] = "device",
		[MIGQ_COMPLETED] = "completed",
		[MIGQ_FAILED] = "failed",
		[MIGQ_CANCELLED] = "cancelled",
		[MIGQ_CANCELLING] = "cancelling",
		[MIGQ_PRE_SWITCHOVER] = "pre-switchover",
		[MIGQ_POSTCOPY_ACTIVE] = "postcopy-active",
		[MIGQ_POSTCOPY_PAUSED] = "postcopy-paused",
		[MIGQ_POSTCOPY_RECOVER] = "postcopy-recover",
	};

	if (!s)
		return MIGQ_NONE;
	if (str_eq(s, "postcopy-recover-setup"))
		return MIGQ_POSTCOPY_RECOVER;
	for (int i = 0; i < MIGQ__MAX; i++)
		if (names[i] && str_eq(s, names[i]))
			return (enum mig_status)i;
	return MIGQ_OTHER;
}

bool mig_is_beyond_return(const struct mig_stats *s)
{
	switch (s->status) {
	case MIGQ_POSTCOPY_PAUSED:
	case MIGQ_POSTCOPY_RECOVER:
		return true;
	case MIGQ_POSTCOPY_ACTIVE:
		return s->postcopy_bytes > 0;
	default:
		return false; /* completed is told by itself */
	}
}

void mig_stats_parse(const struct json *q, struct mig_stats *out)
{
	const struct json *ram = js_get(q, "ram");
	const char *error = js_get_str(q, "error-desc");
	int64_t page = js_get_int(ram, "page-size", 4096);

	*out = (struct mig_stats){
		.status = mig_status_parse(js_get_str(q, "status")),
		.total = js_get_int(ram, "total", 0),
		.transferred = js_get_int(ram, "transferred", 0),
		.remaining = js_get_int(ram, "remaining", 0),
		.dirty_rate = js_get_int(ram, "dirty-pages-rate", 0) * page,
		.rate = (int64_t)(js_real(js_get(ram, "mbps"), 0) * 1000000 / 8),
		.passes = js_get_int(ram, "dirty-sync-count", 0),
		.zero_pages = js_get_int(ram, "duplicate", 0),
		.normal_pages = js_get_int(ram, "normal", 0),
		.downtime_bytes = js_get_int(ram, "downtime-bytes", 0),
		.postcopy_bytes = js_get_int(ram, "postcopy-bytes", 0),
		.elapsed_ms = js_get_int(q, "total-time", -1),
		.throttle_percent = js_get_int(q, "cpu-throttle-percentage", 0),
		.setup_ms = js_get_int(q, "setup-time", -1),
		.expected_downtime_ms = js_get_int(q, "expected-downtime", -1),
		.downtime_ms = js_get_int(q, "downtime", -1),
	};
	snprintf(out->error, sizeof(out->error), "%s", error ? error : "");
}

struct json *mig_stats_json(const struct mig_stats *s)
{
	return js_pack("{s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:I, s:I, s:I}", "memory",
		       "total", s->total, "transferred", s->transferred, "remaining", s->remaining,
		       "dirtyBytesPerSecond", s->dirty_rate, "bytesPerSecond", s->rate, "passes",
		       s->passes, "zeroPages", s->zero_pages, "normalPages", s->normal_pages,
		       "throttlePercent", s->throttle_percent, "elapsedMs", s->elapsed_ms,
		       "setupMs", s->setup_ms, "expectedDowntimeMs", s->expected_downtime_ms);
}
