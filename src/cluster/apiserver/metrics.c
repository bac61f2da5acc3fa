/* Prometheus text of the core and the store. */
#include "cluster/apiserver/metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/audit.h"
#include "cluster/apiserver/discovery_int.h"
#include "ev/ev.h"

/* Several times what clients in good order make.  One that tries all kinds, verbs and places makes more; what
 * is printed then stays below 10 MiB (a series of times has 26 lines, of sizes 10, of 250 bytes each). */
enum { MAX_SERIES = 4096, MAX_TIMES = 1024, MAX_SIZES = 512 };
enum { N_SERIES_LABELS = 8, N_SIZE_LABELS = 7 };

/* kube-apiserver's. */
static const struct prom_buckets seconds = {23, {0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8,
						 1,	1.25,  1.5,  2,	  3,   4,   5,	 6,
						 8,	10,    15,   20,  30,  45,  60}};
static const struct prom_buckets answer_bytes = {7, {1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}};
static const struct prom_buckets event_bytes = {
	8, {1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}};

struct metrics {
	struct prom_family requests, took, sizes;
};

enum rc metrics_new(struct metrics **out)
{
	struct metrics *m = mem_alloc(sizeof(*m));

	if (!m)
		return RC_NOMEM;
	prom_family_init(&m->requests, "apiserver_request_total",
			 "Requests that are over (code 0: the client left before the answer).",
			 NULL, MAX_SERIES);
	prom_family_init(&m->took, "apiserver_request_duration_seconds",
			 "Time to answer; of watches until they ended.", &seconds, MAX_TIMES);
	prom_family_init(&m->sizes, "apiserver_response_sizes", "Bytes of answers to reads.",
			 &answer_bytes, MAX_SIZES);
	*out = m;
	return RC_OK;
}

struct metrics *metrics_free(struct metrics *m)
{
	if (!m)
		return NULL;
	prom_family_fini(&m->requests);
	prom_family_fini(&m->took);
	prom_family_fini(&m->sizes);
	return mem_free(m);
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* What a request was, in words of our tables only. */
struct what {
	const char *verb, *dry_run, *group, *version, *resource, *sub, *scope, *component;
};

static const char *known_path(const char *path)
{
	static const char *const known[] = {"/api",	"/apis",    "/healthz",	   "/livez",
					    "/readyz",	"/metrics", "/openapi/v2", "/openapi/v3",
					    "/version", BACKUP_PATH};
	const char *best = "";

	for (size_t i = 0; path && i < ARRAY_SIZE(known); i++) {
		size_t n = strlen(known[i]);

		if (strncmp(path, known[i], n) == 0 && (!path[n] || path[n] == '/'))
			best = known[i];
	}
	return best;
}

static const char *known_sub(const struct apisrv_call *c)
{
	static const char *const known[] = {"status", "scale", "binding", "eviction",	 "finalize",
					    "log",    "exec",  "attach",  "portforward", "token"};

	for (size_t i = 0; c->status != 404 && i < ARRAY_SIZE(known); i++)
		if (strcmp(known[i], c->sub) == 0)
			return known[i];
	return "";
}

static const char *method_of(const struct apisrv_call *c)
{
	static const char *const known[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(known[i], c->method) == 0)
			return known[i];
	return "other";
}

static const char *verb_of_call(const struct apisrv_call *c)
{
	if (c->status == 101)
		return "CONNECT";
	switch (c->verb) {
	case VERB_LIST:
		return *c->sub ? "GET" : "LIST";
	case VERB_WATCH:
		return call_param_bool(c, "sendInitialEvents") ? "WATCHLIST" : "WATCH";
	case VERB_DELETECOLLECTION:
		return "DELETECOLLECTION";
	case VERB_PATCH:
		return str_eq(c->content_type, "application/apply-patch+yaml") ? "APPLY" : "PATCH";
	default:
		return method_of(c);
	}
}

static const char *scope_of(const struct apisrv_call *c)
{
	return *c->name || c->verb == VERB_CREATE ? "resource" : *c->ns ? "namespace" : "cluster";
}

static struct what what_of(const struct apisrv_call *c)
{
	struct what w = {.verb = method_of(c),
			 .dry_run = c->is_dry_run ? "All" : "",
			 .group = "",
			 .version = "",
			 .resource = "",
			 .sub = "",
			 .scope = "",
			 .component = "apiserver"};
	bool is_virtual = !c->res && !c->subres && *c->plural &&
			  discovery_is_virtual(c->group, c->version, c->plural);

	if (c->subres) {
		w.group = c->subres->at->group;
		w.version = c->version; /* subres_find() knows them */
		w.resource = c->subres->at->resource;
		w.sub = c->subres->at->path;
	} else if (c->res) {
		const struct api_kind *k = c->alias ? c->alias : c->res->kind;

		w.group = k->group;
		w.version = k->version;
		w.resource = k->plural;
		w.sub = known_sub(c);
	} else if (is_virtual) {
		w.group = c->group;
		w.version = c->version;
		w.resource = c->plural;
	} else {
		w.sub = known_path(c->uri.path);
		if (is_public_path(w.sub) && strcmp(w.sub, "/version") != 0)
			w.component = "";
		return w;
	}
	w.verb = verb_of_call(c);
	w.scope = scope_of(c);
	return w;
}

/* The labels of apiserver_request_total but for its code, in kube-apiserver's order. */
static void labels_of(const struct what *w, struct prom_label labels[N_SERIES_LABELS])
{
	const struct prom_label all[N_SERIES_LABELS] = {
		{"verb", w->verb},	 {"dry_run", w->dry_run},    {"group", w->group},
		{"version", w->version}, {"resource", w->resource},  {"subresource", w->sub},
		{"scope", w->scope},	 {"component", w->component}};

	memcpy(labels, all, sizeof(all));
}

void metrics_count(struct metrics *m, const struct apisrv_call *c, usec_t took)
{
	struct prom_label labels[N_SERIES_LABELS + 1];
	struct what w = what_of(c);
	char code[8];

	snprintf(code, sizeof(code), "%d", c->status);
	labels_of(&w, labels);
	labels[N_SERIES_LABELS] = (struct prom_label){"code", code};
	prom_family_add(&m->requests, labels, N_SERIES_LABELS + 1, 1);
	prom_family_add(&m->took, labels, N_SERIES_LABELS, (double)took / 1e6);
	if (*w.resource && c->status && (str_eq(w.verb, "GET") || str_eq(w.verb, "LIST"))) {
		/* Without dry_run: what is left of it moves up. */
		memmove(&labels[1], &labels[2], (N_SIZE_LABELS - 1) * sizeof(labels[0]));
		prom_family_add(&m->sizes, labels, N_SIZE_LABELS, (double)c->n_answer);
	}
}

void metrics_count_event(const struct resource *res, size_t bytes)
{
	res->watched->events++;
	prom_hist_add(&res->watched->sizes, &event_bytes, (double)bytes);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Requests and watches as they stand; nothing is counted while they come and go. */
static void print_present(const struct apisrv *s, struct sbuf *out)
{
	struct prom_family watches;
	unsigned mutating = 0, reading = 0;

	prom_family_init(&watches, "apiserver_longrunning_requests", "", NULL, MAX_SERIES);
	LIST_FOREACH(it, &s->calls) {
		const struct apisrv_call *c = LIST_ENTRY(it, struct apisrv_call, link);
		struct prom_label labels[N_SERIES_LABELS];
		struct what w;

		if (!c->watch) {
			*(strcmp(c->method, "GET") == 0 ? &reading : &mutating) += 1;
			continue;
		}
		w = what_of(c);
		labels_of(&w, labels);
		memmove(&labels[1], &labels[2], (N_SIZE_LABELS - 1) * sizeof(labels[0]));
		prom_family_add(&watches, labels, N_SIZE_LABELS, 1);
	}
	prom_head(out, watches.name, "gauge", "Watches that are open.");
	MAP_FOREACH(it, &watches.series)
		sbuf_addf(out, "%s{%s} %llu\n", watches.name, it->key,
			  (unsigned long long)*(uint64_t *)it->value);
	prom_family_fini(&watches);
	prom_head(out, "apiserver_current_inflight_requests", "gauge",
		  "Requests that wait for their answer, without watches; this one is among them.");
	prom_sample(out, "apiserver_current_inflight_requests",
		    &(struct prom_label){"request_kind", "mutating"}, 1, NULL, mutating);
	prom_sample(out, "apiserver_current_inflight_requests",
		    &(struct prom_label){"request_kind", "readOnly"}, 1, NULL, reading);
}

static void print_watches(const struct apisrv *s, struct sbuf *out)
{
	prom_one(out, "apiserver_registered_watchers", "gauge", "Open watches.",
		 (double)s->n_watchers);
	prom_head(out, "apiserver_watch_events_total", "counter", "Events sent to watchers.");
	for (size_t i = 0; i < s->n_resources; i++) {
		const struct api_kind *k = s->resources[i].kind;
		const struct prom_label labels[] = {
			{"group", k->group}, {"version", k->version}, {"kind", k->kind}};

		if (s->resources[i].watched->events)
			prom_sample(out, "apiserver_watch_events_total", labels, 3, NULL,
				    (double)s->resources[i].watched->events);
	}
	prom_head(out, "apiserver_watch_events_sizes", "histogram", "Bytes of these events.");
	for (size_t i = 0; i < s->n_resources; i++) {
		const struct api_kind *k = s->resources[i].kind;
		CLEANUP(sbuf_fini) struct sbuf labels = SBUF_INIT(1024);

		prom_label_add(&labels, "group", k->group);
		prom_label_add(&labels, "version", k->version);
		prom_label_add(&labels, "kind", k->kind);
		if (s->resources[i].watched->events)
			prom_hist_print(out, "apiserver_watch_events_sizes", &labels, &event_bytes,
					&s->resources[i].watched->sizes);
	}
	prom_head(out, "apiserver_terminated_watchers_total", "counter",
		  "Watches ended because the reader was too slow.");
	for (size_t i = 0; i < s->n_resources; i++)
		if (s->resources[i].watched->slow)
			prom_sample(out, "apiserver_terminated_watchers_total",
				    &(struct prom_label){"resource", s->resources[i].table}, 1,
				    NULL, (double)s->resources[i].watched->slow);
}

static void print_store(const struct apisrv *s, struct sbuf *out)
{
	struct store_stats st;

	store_get_stats(s->store, &st);
	prom_head(out, "apiserver_storage_objects", "gauge", "Stored objects by resource.");
	for (size_t i = 0; i < s->n_resources; i++)
		prom_sample(out, "apiserver_storage_objects",
			    &(struct prom_label){"resource", s->resources[i].table}, 1, NULL,
			    (double)store_count(s->store, s->resources[i].table));
	prom_one(out, "ferry_store_commits_total", "counter", "Commits.", (double)st.commits);
	prom_one(out, "ferry_store_writes_total", "counter", "Objects written.", (double)st.writes);
	prom_one(out, "ferry_store_write_failures_total", "counter", "Writes refused by the disk.",
		 (double)st.failed);
	prom_head(out, "ferry_store_commit_seconds", "histogram",
		  "Time of commits, from their first write on.");
	prom_hist_print(out, "ferry_store_commit_seconds", NULL, &store_commit_buckets,
			&st.commit_seconds);
	prom_one(out, "ferry_store_longest_commit_seconds", "gauge", "Longest commit.",
		 (double)st.commit_max / 1e6);
	prom_one(out, "ferry_store_waiting_writes", "gauge", "Writes that wait for a commit.",
		 (double)st.waiting);
	prom_one(out, "ferry_store_checkpoints_total", "counter", "Checkpoints.",
		 (double)st.checkpoints);
	prom_one(out, "ferry_store_checkpoint_failures_total", "counter",
		 "Checkpoints that failed: the log grows.", (double)st.checkpoint_failures);
	prom_one(out, "ferry_store_wal_pages", "gauge",
		 "Pages of the log that a checkpoint has to write.", (double)st.wal_pages);
	prom_one(out, "ferry_store_log_rows", "gauge", "Rows of the revision log.",
		 (double)st.log_rows);
	prom_one(out, "ferry_store_text_bytes", "gauge",
		 "Bytes of the objects in memory, with those of the revisions that are kept.",
		 (double)st.text_bytes);
	prom_one(out, "ferry_store_revision", "gauge", "Newest resourceVersion.",
		 (double)store_rev(s->store));
}

void apisrv_metrics(struct apisrv *s, struct sbuf *out)
{
	prom_family_print(&s->metrics->requests, out);
	prom_family_print(&s->metrics->took, out);
	prom_family_print(&s->metrics->sizes, out);
	print_present(s, out);
	print_watches(s, out);
	print_store(s, out);
	flow_metrics(s->flow, out);
	if (s->audit)
		audit_metrics(s->audit, out);
	if (s->listener_metrics)
		s->listener_metrics(out, s->listener_arg);
}

void apisrv_on_metrics(struct apisrv *s, void (*fn)(struct sbuf *out, void *arg), void *arg)
{
	s->listener_metrics = fn;
	s->listener_arg = arg;
}
