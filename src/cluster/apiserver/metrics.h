/* src/cluster/apiserver/metrics.h - what the API server counts of requests and watches, under the names and
 * labels of kube-apiserver.  Loop thread only.
 *
 * Label values come from the tables of kinds, hooks and paths, never from what a client wrote.
 */
#ifndef APISERVER_METRICS_H
#define APISERVER_METRICS_H

#include "ctl/prom.h"

struct apisrv;
struct apisrv_call;
struct resource;

/* Of the watches of one resource. */
struct watch_counts {
	uint64_t events, slow;	/* slow: watches ended because the reader was too slow */
	struct prom_hist sizes; /* bytes of events */
};

struct metrics;

MUST_CHECK enum rc metrics_new(struct metrics **out);
struct metrics *metrics_free(struct metrics *m); /* NULL is fine; returns NULL */
/* A request is over; c->status 0: the client left before its answer. */
void metrics_count(struct metrics *m, const struct apisrv_call *c, usec_t took);
void metrics_count_event(const struct resource *res, size_t bytes);

#endif
