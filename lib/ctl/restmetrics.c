#include "ctl/restmetrics.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "ctl/prom.h"
#include "kube/kube.h"

/* Of one server's codes for the kinds that one process asks for. */
enum { MAX_SERIES = 1024 };

static const struct prom_buckets seconds = {12,
					    {0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}};

struct rest_metrics {
	struct kube *k;
	struct prom_family requests, took; /* client-go's */
	struct prom_family by_resource;	   /* KubeVirt's */
};

static void on_seen(const struct kube_seen *seen, void *arg)
{
	struct rest_metrics *m = arg;
	const char *host = kube_server(m->k);
	char code[16] = "<error>";

	if (seen->status)
		snprintf(code, sizeof(code), "%d", seen->status);
	const struct prom_label labels[] = {{"code", code},
					    {"host", host},
					    {"method", seen->method},
					    {"resource", seen->resource},
					    {"verb", seen->verb}};

	prom_family_add(&m->requests, labels, 3, 1);
	prom_family_add(&m->by_resource, labels, ARRAY_SIZE(labels), 1);
	const struct prom_label verb[] = {{"host", host}, {"verb", seen->method}};

	if (strcmp(seen->verb, "watch") != 0) /* silent for as long as nothing happens */
		prom_family_add(&m->took, verb, ARRAY_SIZE(verb), (double)seen->took / 1e6);
}

enum rc rest_metrics_new(struct rest_metrics **out, struct kube *k)
{
	struct rest_metrics *m = mem_alloc(sizeof(*m));

	if (!m)
		return RC_NOMEM;
	m->k = k;
	prom_family_init(&m->requests, "rest_client_requests_total",
			 "Requests to the API server by code (<error>: no answer) and method.",
			 NULL, MAX_SERIES);
	prom_family_init(&m->took, "rest_client_request_duration_seconds",
			 "Time until the answer; without watches.", &seconds, MAX_SERIES);
	prom_family_init(&m->by_resource, "kubevirt_rest_client_requests_total",
			 "The same requests by resource and verb too.", NULL, MAX_SERIES);
	kube_observe(k, on_seen, m);
	*out = m;
	return RC_OK;
}

struct rest_metrics *rest_metrics_free(struct rest_metrics *m)
{
	if (!m)
		return NULL;
	kube_observe(m->k, NULL, NULL);
	prom_family_fini(&m->requests);
	prom_family_fini(&m->took);
	prom_family_fini(&m->by_resource);
	return mem_free(m);
}

void rest_metrics_print(const struct rest_metrics *m, struct sbuf *out)
{
	prom_family_print(&m->requests, out);
	prom_family_print(&m->took, out);
	prom_family_print(&m->by_resource, out);
}
