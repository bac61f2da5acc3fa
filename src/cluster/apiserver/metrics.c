/* Prometheus text of the core and the store. */
#include "cluster/apiserver/apisrv_int.h"
#include "cluster/apiserver/audit.h"

static void request_metrics(const struct apisrv *s, struct sbuf *out)
{
	sbuf_adds(out, "# HELP apiserver_request_total Requests by verb and class of status code.\n"
		       "# TYPE apiserver_request_total counter\n");
	for (int v = 0; v < VERB__MAX; v++)
		for (int k = 1; k < 6; k++)
			if (s->requests[v][k])
				sbuf_addf(
					out,
					"apiserver_request_total{verb=\"%s\",code=\"%dxx\"} %llu\n",
					verb_name(v), k, (unsigned long long)s->requests[v][k]);
	sbuf_adds(out, "# HELP apiserver_request_duration_seconds_sum Time to answer, summed.\n"
		       "# TYPE apiserver_request_duration_seconds_sum counter\n");
	for (int v = 0; v < VERB__MAX; v++)
		sbuf_addf(out, "apiserver_request_duration_seconds_sum{verb=\"%s\"} %.6f\n",
			  verb_name(v), (double)s->latency_sum[v] / 1e6);
}

static void one_metric(struct sbuf *out, const char *name, const char *type, const char *help,
		       double v)
{
	sbuf_addf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name, v);
}

void apisrv_metrics(struct apisrv *s, struct sbuf *out)
{
	struct store_stats st;

	request_metrics(s, out);
	store_get_stats(s->store, &st);
	sbuf_adds(out, "# HELP apiserver_storage_objects Stored objects by resource.\n"
		       "# TYPE apiserver_storage_objects gauge\n");
	for (size_t i = 0; i < s->n_resources; i++)
		sbuf_addf(out, "apiserver_storage_objects{resource=\"%s\"} %zu\n",
			  s->resources[i].table, store_count(s->store, s->resources[i].table));
	one_metric(out, "apiserver_registered_watchers", "gauge", "Open watches.",
		   (double)s->n_watchers);
	one_metric(out, "apiserver_watch_events_total", "counter", "Events sent to watchers.",
		   (double)s->watch_events);
	one_metric(out, "apiserver_terminated_watchers_total", "counter",
		   "Watches ended because the reader was too slow.", (double)s->watch_closed);
	if (s->audit)
		audit_metrics(s->audit, out);
	one_metric(out, "ferry_store_commits_total", "counter", "Commits.", (double)st.commits);
	one_metric(out, "ferry_store_writes_total", "counter", "Objects written.",
		   (double)st.writes);
	one_metric(out, "ferry_store_write_failures_total", "counter",
		   "Writes refused by the disk.", (double)st.failed);
	one_metric(out, "ferry_store_commit_seconds_sum", "counter", "Time in commits, summed.",
		   (double)st.commit_usec / 1e6);
	one_metric(out, "ferry_store_commit_seconds_max", "gauge", "Longest commit.",
		   (double)st.commit_max / 1e6);
	one_metric(out, "ferry_store_checkpoints_total", "counter", "Checkpoints.",
		   (double)st.checkpoints);
	one_metric(out, "ferry_store_checkpoint_failures_total", "counter",
		   "Checkpoints that failed: the log grows.", (double)st.checkpoint_failures);
	one_metric(out, "ferry_store_wal_pages", "gauge",
		   "Pages of the log that a checkpoint has to write.", (double)st.wal_pages);
	one_metric(out, "ferry_store_log_rows", "gauge", "Rows of the revision log.",
		   (double)st.log_rows);
	one_metric(out, "ferry_store_revision", "gauge", "Newest resourceVersion.",
		   (double)store_rev(s->store));
	flow_metrics(s->flow, out);
	if (s->more_metrics)
		s->more_metrics(out, s->more_metrics_arg);
}

void apisrv_on_metrics(struct apisrv *s, void (*fn)(struct sbuf *out, void *arg), void *arg)
{
	s->more_metrics = fn;
	s->more_metrics_arg = arg;
}
