/* lib/net/steer.h - frames for one MAC that enter by a device leave by another one at once,
 * whatever the bridge above thinks (netdev `fwd`).
 *
 * Why: a bridge never sends a frame back out of the port it came in by, so that a node which has
 * just lost a VM cannot pass on, by its forwarding table alone, what other nodes still send it.
 * One table of the family netdev per device; its map is all state there is.
 *
 * Blocking; pool threads.  A struct steer may be used from any thread, one call at a time.
 */
#ifndef NET_STEER_H
#define NET_STEER_H

#include "net/addr.h"

struct steer;

/* Makes sure that the table for `dev` exists.  reset: entries left by earlier moves go. */
MUST_CHECK enum rc net_steer_init(int ns_fd, const char *dev, bool reset, struct err *err);
MUST_CHECK enum rc net_steer_drop(int ns_fd, const char *dev,
				  struct err *err); /* the whole table */
/* What is steered for a MAC that keep() does not want goes, whoever began it; a missing table is fine. */
MUST_CHECK enum rc net_steer_sweep(int ns_fd, const char *dev,
				   bool (*keep)(struct net_mac mac, void *arg), void *arg,
				   struct err *err);
/* An open socket and prebuilt messages for one MAC: from `dev` to `out_dev` (may be dev itself:
 * back to where the VXLAN device sends that MAC).  The entry expires by itself after ttl (0:
 * never). */
MUST_CHECK enum rc net_steer_new(struct steer **out, int ns_fd, const char *dev, struct net_mac mac,
				 const char *out_dev, usec_t ttl, struct err *err);
struct steer *net_steer_free(struct steer *s); /* leaves the kernel's entry as it is */
DEFINE_CLEANUP(struct steer *, net_steer_free);
MUST_CHECK enum rc net_steer_on(struct steer *s,
				struct err *err); /* one system call; may be repeated */
MUST_CHECK enum rc net_steer_off(struct steer *s, struct err *err); /* missing is fine */

#endif
