#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/capture.h"
#include "net/steer.h"
#include "vmnet_int.h"

#define SLACK_BLIND  (20 * USEC_PER_MSEC) /* what QEMU has not read is not known */
#define SLACK_SEEING (5 * USEC_PER_MSEC)
#define SOURCE_TTL \
	(3600 * USEC_PER_SEC) /* an agent that never comes back: frames stop being sent on */
#define TARGET_TTL (86400 * USEC_PER_SEC) /* must outlast any move; vmnet_target_close() ends it */

struct vmnet_handover {
	struct net *net;
	struct steer *steer;
	struct capture *capture; /* source: what came before the switch */
	struct capture
		*sent_on; /* source: what went to the target since; for a move that is given up */
	struct net_batch *change;  /* source: away; target: here */
	struct net_batch *restore; /* source: back here */
	struct net_batch *mute;	   /* source: nothing of its pod gets out any more */
	usec_t slack;
	usec_t stop; /* 0: not switched */
	usec_t took;
	bool has_gap;
	uint64_t n_unread;
};

struct vmnet_handover *vmnet_handover_free(struct vmnet_handover *h)
{
	if (!h)
		return NULL;
	net_capture_free(h->capture);
	net_capture_free(h->sent_on);
	net_steer_free(h->steer);
	net_batch_free(h->change);
	net_batch_free(h->restore);
	net_batch_free(h->mute);
	net_free(h->net);
	return mem_free(h);
}

static enum rc handover_new(struct vmnet_handover **out, const struct vmnet_handover_config *c,
			    struct err *err)
{
	CLEANUP(vmnet_handover_freep)
	struct vmnet_handover *h = mem_alloc(sizeof(*h));
	enum rc rc;

	if (!h)
		return err_set(err, RC_NOMEM, "no memory for a hand-over");
	h->slack = c->slack ? c->slack : c->pod_ns_fd > 0 ? SLACK_SEEING : SLACK_BLIND;
	rc = net_open(&h->net, c->node_ns_fd, err);
	if (!rc)
		rc = net_steer_init(c->node_ns_fd, c->vxlan, false, err);
	if (!rc)
		rc = net_batch_new(&h->change, h->net, err);
	if (!rc)
		rc = net_batch_new(&h->restore, h->net, err);
	if (!rc)
		rc = net_batch_new(&h->mute, h->net, err);
	if (rc)
		return rc;
	*out = STEAL(h);
	return RC_OK;
}

/* ---- source ---- */

enum rc vmnet_source_open(struct vmnet_handover **out, const struct vmnet_handover_config *c,
			  struct err *err)
{
	CLEANUP(vmnet_handover_freep)
	struct vmnet_handover *h = NULL;
	struct net_fdb remote = {
		.kind = NET_FDB_REMOTE, .dev = c->vxlan, .mac = c->mac, .dst = c->peer};
	struct net_fdb away = {.kind = NET_FDB_PORT, .dev = c->vxlan, .mac = c->mac};
	struct net_fdb here = {.kind = NET_FDB_PORT, .dev = c->host_if, .mac = c->mac};
	struct net_port_set unlock = {.locked = NET_OFF}, lock = {.locked = NET_ON};
	struct net_capture_config cap = {.ns_fd = c->node_ns_fd,
					 .dev = c->host_if,
					 .dest = c->mac,
					 .out_dev = c->vxlan,
					 .ring_bytes = c->ring_bytes,
					 .tap_ns_fd = c->pod_ns_fd,
					 .tap = c->pod_ns_fd > 0 ? VMNET_TAP : NULL};
	struct net_capture_config back = {.ns_fd = c->node_ns_fd,
					  .dev = c->vxlan,
					  .dest = c->mac,
					  .out_dev = c->host_if,
					  .ring_bytes = c->ring_bytes};
	enum rc rc = handover_new(&h, c, err);

	/* Which node the VXLAN port would send the MAC to: of no effect before the bridge sends it there. */
	if (!rc)
		rc = net_fdb_set(h->net, &remote, err);
	/* What the guest said before it stopped may still wait for its turn on a busy processor: the port is
	 * unlocked before the MAC points elsewhere, and locked again when the source is gone for good. */
	if (!rc)
		rc = net_batch_port_set(h->change, c->host_if, &unlock, err);
	if (!rc)
		rc = net_batch_fdb_set(h->change, &away, err);
	if (!rc)
		rc = net_batch_fdb_set(h->restore, &here, err);
	if (!rc)
		rc = net_batch_port_set(h->restore, c->host_if, &lock, err);
	if (!rc)
		rc = net_batch_port_set(h->mute, c->host_if, &lock, err);
	if (!rc)
		rc = net_steer_new(&h->steer, c->node_ns_fd, c->vxlan, c->mac, c->vxlan, SOURCE_TTL,
				   err);
	if (!rc)
		rc = net_capture_start(&h->capture, &cap, err);
	if (!rc)
		rc = net_capture_start(&h->sent_on, &back, err);
	if (rc) {
		err_prepend(err, "hand-over at the source");
		return rc;
	}
	*out = STEAL(h);
	return RC_OK;
}

enum rc vmnet_source_switch(struct vmnet_handover *h, usec_t stop, struct vmnet_switch_stats *stats,
			    struct err *err)
{
	usec_t begin = clock_monotonic();
	struct err e = {0};
	enum rc rc;

	/* From other nodes, then from here; then what had come in meanwhile, and what still
	 * trickles in. */
	rc = net_steer_on(h->steer, err);
	if (!rc)
		rc = net_batch_send(h->change, err);
	if (rc) {
		err_prepend(err, "switch of the hand-over");
		return rc;
	}
	h->stop = stop;
	if (h->capture) {
		rc = net_capture_forward(h->capture, stop > h->slack ? stop - h->slack : 0,
					 &h->n_unread, &e);
		h->has_gap = rc == RC_EXPIRED;
		if (h->has_gap)
			rc = RC_OK; /* a gap is no reason to stop: it is counted */
	}
	h->took = clock_monotonic() - begin;
	if (stats)
		vmnet_source_stats(h, stats);
	return rc ? err_copy(err, &e) : RC_OK;
}

void vmnet_source_stats(struct vmnet_handover *h, struct vmnet_switch_stats *stats)
{
	struct net_capture_stats cs = {0};

	if (h->capture)
		net_capture_stats(h->capture, &cs);
	*stats = (struct vmnet_switch_stats){.n_resent = cs.n_forwarded,
					     .n_overrun = cs.n_overrun + h->has_gap,
					     .n_unread = h->n_unread,
					     .took = h->took};
}

enum rc vmnet_source_abort(struct vmnet_handover *h, struct err *err)
{
	struct err e = {0};
	enum rc rc = net_batch_send(h->restore, err);
	enum rc rc2 = net_steer_off(h->steer, rc ? &e : err);

	if (!rc)
		rc = rc2;
	/* What the target got in the meantime, and, because QEMU takes one frame while it stands still and
	 * drops it, what came since the stop: into the source's queue once more. */
	if (!rc && h->capture && h->stop) {
		rc2 = net_capture_replay(h->capture, h->stop > h->slack ? h->stop - h->slack : 0,
					 &e);
		if (!rc2 || rc2 == RC_EXPIRED)
			rc2 = net_capture_forward(h->sent_on, h->stop, NULL, &e);
		if (rc2 && rc2 != RC_EXPIRED) {
			rc = rc2;
			err_copy(err, &e);
		}
	}
	h->stop = 0;
	if (rc)
		err_prepend(err, "cannot take the hand-over back");
	return rc;
}

enum rc vmnet_source_finish(struct vmnet_handover *h, struct err *err)
{
	struct err e = {0};
	enum rc rc = net_batch_send(h->mute, &e);

	h->capture = net_capture_free(h->capture);
	h->sent_on = net_capture_free(h->sent_on);
	if (!rc || rc == RC_NOT_FOUND) /* the pod may be gone already, and its link with it */
		return RC_OK;
	return err_copy(err, &e);
}

enum rc vmnet_source_close(struct vmnet_handover *h, struct err *err)
{
	enum rc rc = RC_OK;

	if (!h)
		return RC_OK;
	rc = net_steer_off(h->steer, err);
	vmnet_handover_free(h);
	return rc;
}

enum rc vmnet_steering_end(const char *vxlan, struct net_mac mac, struct err *err)
{
	CLEANUP(net_steer_freep) struct steer *s = NULL;
	enum rc rc = net_steer_new(&s, -1, vxlan, mac, vxlan, SOURCE_TTL, err);

	return rc ? rc : net_steer_off(s, err);
}

enum rc vmnet_reclaim(const struct vmnet_handover_config *c, struct err *err)
{
	CLEANUP(net_freep) struct net *net = NULL;
	CLEANUP(net_batch_freep) struct net_batch *b = NULL;
	struct net_fdb here = {.kind = NET_FDB_PORT, .dev = c->host_if, .mac = c->mac};
	struct net_port_set port = {.locked = NET_ON, .bcast_flood = NET_ON, .mcast_flood = NET_ON};
	enum rc rc = net_open(&net, c->node_ns_fd, err);

	if (!rc)
		rc = net_batch_new(&b, net, err);
	if (!rc)
		rc = net_batch_fdb_set(b, &here, err);
	if (!rc)
		rc = net_batch_port_set(b, c->host_if, &port, err);
	if (!rc)
		rc = net_batch_send(b, err);
	/* Only then: the bridge drops what comes in by the VXLAN port for a MAC that it looks for there. */
	return rc ? rc : vmnet_steering_end(c->vxlan, c->mac, err);
}

/* ---- target ---- */

enum rc vmnet_target_open(struct vmnet_handover **out, const struct vmnet_handover_config *c,
			  struct err *err)
{
	CLEANUP(vmnet_handover_freep)
	struct vmnet_handover *h = NULL;
	struct net_fdb here = {.kind = NET_FDB_PORT, .dev = c->host_if, .mac = c->mac};
	struct net_port_set speak = {.bcast_flood = NET_ON, .mcast_flood = NET_ON};
	enum rc rc = handover_new(&h, c, err);

	if (!rc)
		rc = net_batch_fdb_set(h->change, &here, err);
	if (!rc)
		rc = net_batch_port_set(h->change, c->host_if, &speak, err);
	/* What the source sends on reaches the guest's queue before this node is told that the
	 * VM is here: its own frames still go to the source.  Nothing else arrives for this MAC
	 * before the source's stop. */
	if (!rc)
		rc = net_steer_new(&h->steer, c->node_ns_fd, c->vxlan, c->mac, c->host_if,
				   TARGET_TTL, err);
	if (!rc)
		rc = net_steer_on(h->steer, err);
	if (rc) {
		err_prepend(err, "hand-over at the target");
		return rc;
	}
	*out = STEAL(h);
	return RC_OK;
}

enum rc vmnet_target_activate(struct vmnet_handover *h, struct err *err)
{
	enum rc rc = net_batch_send(h->change, err);

	if (rc)
		err_prepend(err, "activation at the target");
	return rc;
}

enum rc vmnet_target_close(struct vmnet_handover *h, struct err *err)
{
	enum rc rc;

	if (!h)
		return RC_OK;
	rc = net_steer_off(h->steer, err);
	vmnet_handover_free(h);
	return rc;
}
