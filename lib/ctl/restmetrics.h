/* lib/ctl/restmetrics.h - counts what an API client asks, under the names of client-go and of KubeVirt.
 *
 * Loop thread only.
 */
#ifndef CTL_RESTMETRICS_H
#define CTL_RESTMETRICS_H

#include "base/err.h"

struct kube;
struct rest_metrics;
struct sbuf;

/* Takes the client's kube_observe(); k must outlive it. */
MUST_CHECK enum rc rest_metrics_new(struct rest_metrics **out, struct kube *k);
struct rest_metrics *rest_metrics_free(struct rest_metrics *m);
DEFINE_CLEANUP(struct rest_metrics *, rest_metrics_free);

/* rest_client_requests_total, rest_client_request_duration_seconds; kubevirt_rest_client_requests_total. */
void rest_metrics_print(const struct rest_metrics *m, struct sbuf *out);

#endif
