/* lib/net/capture.h - a short memory of the frames that a link sent, and sending them on
 * elsewhere.
 *
 * A capture has a thread of its own, so that a busy event loop loses nothing.  It keeps the last
 * frames that left through one device, with the kernel's time stamps, and from
 * net_capture_forward() on sends those after an instant, and all that follow, out of another
 * device.  Frames keep their virtio-net header: partial checksums and large segments stay what
 * they are.
 *
 * Calls from any thread, one at a time.
 */
#ifndef NET_CAPTURE_H
#define NET_CAPTURE_H

#include "net/addr.h"

struct capture;

struct net_capture_config {
	int ns_fd;	     /* -1: the calling thread's */
	const char *dev;     /* frames that leave by this device ... */
	struct net_mac dest; /* ... for this unicast MAC only */
	const char *out_dev; /* where they are sent on */
	size_t ring_bytes;   /* memory bound; 0: 4 MiB.  The oldest go first. */
	/* Where the frames end up, to know at net_capture_forward() what was not taken any more; NULL: not
	 * known.  Counted are frames put into the tap, frames taken out of it, and frames on their way from
	 * dev to the tap, which wait for the processor on a busy machine. */
	int tap_ns_fd;
	const char *tap;
};

struct net_capture_stats {
	uint64_t n_seen;      /* frames taken since the start */
	uint64_t n_forwarded; /* frames sent on */
	uint64_t n_overrun;   /* frames that the kernel had to drop before we took them */
	uint64_t n_failed;    /* frames that could not be sent on */
	usec_t oldest;	      /* realtime of the oldest frame still held, 0: none */
};

MUST_CHECK enum rc net_capture_start(struct capture **out, const struct net_capture_config *cfg,
				     struct err *err);
/* Sends on what was captured at or after `since` (realtime, microseconds) and, with a tap, everything
 * that its reader has not taken, in order, and from now on all at once.  The thread does it: this call
 * does not wait.  *n_unread (may be NULL): frames not taken, as far as is known.  RC_EXPIRED (after
 * doing it all the same) when the ring no longer reached back to `since`. */
MUST_CHECK enum rc net_capture_forward(struct capture *c, usec_t since, uint64_t *n_unread,
				       struct err *err);
/* The same frames back out of the device itself (a hand-over that was given up): those since
 * `since`. Stops forwarding. */
MUST_CHECK enum rc net_capture_replay(struct capture *c, usec_t since, struct err *err);
void net_capture_stats(struct capture *c, struct net_capture_stats *out);
/* Nothing is sent any more when it returns; the thread closes what is open and ends by itself. */
struct capture *net_capture_free(struct capture *c);
DEFINE_CLEANUP(struct capture *, net_capture_free);

/* One whole Ethernet frame, out of dev, n times. */
MUST_CHECK enum rc net_frame_send(int ns_fd, const char *dev, const void *frame, size_t len,
				  unsigned n, struct err *err);

#endif
