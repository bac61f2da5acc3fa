/* api_bench - rates and latencies of a running ferry-apiserver over TLS.
 *
 *   api_bench --server https://127.0.0.1:6443 --pki DIR create N CLIENTS
 *   api_bench --server https://127.0.0.1:6443 --pki DIR watch EVENTS WATCHERS
 *
 * create: N ConfigMaps of 2 KiB by CLIENTS connections, each with one request in flight.
 * watch: EVENTS creates, one after the other, seen by WATCHERS watches; the time is from sending the
 * create to the frame's arrival, so the commit is in it.
 * DIR has ca.crt, tls.crt and tls.key.  Prints one line of JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/client.h"
#include "json/json.h"

enum { MAX_CLIENTS = 1024, OBJECT_BYTES = 2048 };

struct bench {
	struct loop *loop;
	const char *server;
	struct http_client_config config;
	unsigned n, done, started, failed, clients;
	char run[24]; /* names of one run do not meet another's */
	usec_t t0;
	double *ms;
	size_t n_ms;
	/* watch */
	usec_t sent;
	unsigned seen, ready;
};

struct worker {
	struct bench *b;
	struct http_client *client;
	struct http_slot *slot;
	usec_t sent;
};

static struct worker workers[MAX_CLIENTS];

static void die(const char *what, const struct err *err)
{
	fprintf(stderr, "api_bench: %s: %s\n", what, err ? err->msg : "");
	exit(1);
}

static char *target(struct bench *b, const char *more)
{
	char *t = mem_printf("%s/api/v1/namespaces/default/configmaps%s", b->server, more);

	if (!t)
		die("out of memory", NULL);
	return t;
}

static char *object(struct bench *b, unsigned i)
{
	char pad[OBJECT_BYTES - 300];

	memset(pad, 'x', sizeof(pad) - 1);
	pad[sizeof(pad) - 1] = '\0';
	return mem_printf(
		"{\"metadata\":{\"name\":\"b-%s-%u\",\"labels\":{\"bench\":\"%s\"}},\"data\":{\"a\":\"%s\"}}",
		b->run, i, b->run, pad);
}

static void add_sample(struct bench *b, usec_t since)
{
	b->ms[b->n_ms++] = (double)(loop_now(b->loop) - since) / 1000;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void report(struct bench *b, const char *what, usec_t took)
{
	qsort(b->ms, b->n_ms, sizeof(double), by_value);
	printf("{\"what\":\"%s\",\"n\":%u,\"clients\":%u,\"failed\":%u,\"per_second\":%.0f,\"p50_ms\":%.2f,"
	       "\"p99_ms\":%.2f,\"p999_ms\":%.2f,\"max_ms\":%.2f}\n",
	       what, b->n, b->clients, b->failed, b->n / ((double)took / 1e6), b->ms[b->n_ms / 2],
	       b->ms[b->n_ms * 99 / 100], b->ms[b->n_ms * 999 / 1000], b->ms[b->n_ms - 1]);
}

static void send_create(struct worker *w, http_done_fn done)
{
	struct bench *b = w->b;
	CLEANUP(mem_freep) char *url = target(b, "");
	CLEANUP(mem_freep) char *body = object(b, b->started++);
	struct err err = {0};

	if (!body)
		die("out of memory", NULL);
	const struct http_call call = {.method = "POST",
				       .url = url,
				       .content_type = "application/json",
				       .body = body,
				       .n_body = strlen(body),
				       .done = done,
				       .arg = w};

	w->slot = http_slot_free(w->slot);
	w->sent = loop_now(b->loop);
	if (http_call(w->client, &w->slot, &call, &err))
		die("cannot send", &err);
}

static void make_client(struct worker *w, struct bench *b)
{
	struct err err = {0};

	w->b = b;
	if (http_client_new(&w->client, b->loop, &b->config, &err))
		die("cannot make a client", &err);
}

/* ---- create --------------------------------------------------------------------------------------------- */

static void on_created(const struct http_result *r, void *arg)
{
	struct worker *w = arg;
	struct bench *b = w->b;

	add_sample(b, w->sent);
	if (r->rc || r->status != 201)
		b->failed++;
	if (++b->done == b->n)
		loop_quit(b->loop, 0);
	else if (b->started < b->n)
		send_create(w, on_created);
}

static void run_loop(struct bench *b)
{
	struct err err = {0};
	int code;

	if (loop_run(b->loop, &code, &err))
		die("loop", &err);
}

static void bench_create(struct bench *b)
{
	for (unsigned i = 0; i < b->clients; i++)
		make_client(&workers[i], b);
	b->t0 = loop_now(b->loop);
	for (unsigned i = 0; i < b->clients && b->started < b->n; i++)
		send_create(&workers[i], on_created);
	run_loop(b);
	report(b, "create", loop_now(b->loop) - b->t0);
}

/* ---- watch ---------------------------------------------------------------------------------------------- */

static void on_made(const struct http_result *r, void *arg);

static void next_event(struct bench *b)
{
	b->seen = 0;
	b->sent = loop_now(b->loop);
	send_create(&workers[MAX_CLIENTS - 1], on_made);
}

static void step(struct bench *b)
{
	/* All have seen it, and the writer has its answer. */
	if (b->seen < b->clients || b->done < b->started)
		return;
	if (b->done == b->n)
		loop_quit(b->loop, 0);
	else
		next_event(b);
}

static void on_made(const struct http_result *r, void *arg)
{
	struct worker *w = arg;

	if (r->rc || r->status != 201)
		w->b->failed++;
	w->b->done++;
	step(w->b);
}

/* Frames are counted by their newlines. */
static void on_frames(const void *bytes, size_t n, void *arg)
{
	struct worker *w = arg;
	struct bench *b = w->b;
	const char *p = bytes, *end = p + n;

	while ((p = memchr(p, '\n', (size_t)(end - p)))) {
		p++;
		if (!b->started) {
			b->ready++; /* bookmark: the watch stands */
			continue;
		}
		add_sample(b, b->sent);
		b->seen++;
	}
	if (!b->started && b->ready == b->clients)
		next_event(b);
	else if (b->started)
		step(b);
}

static void on_watch_end(const struct http_result *r, void *arg)
{
	(void)arg;
	fprintf(stderr, "api_bench: a watch ended: %d %s\n", r->status,
		r->err ? r->err->msg : r->body);
	exit(1);
}

static void bench_watch(struct bench *b)
{
	CLEANUP(mem_freep)
	char *more = mem_printf("?watch=1&allowWatchBookmarks=true&sendInitialEvents=true"
				"&resourceVersionMatch=NotOlderThan&labelSelector=bench%%3D%s",
				b->run);
	CLEANUP(mem_freep) char *url = more ? target(b, more) : NULL;
	struct err err = {0};

	make_client(&workers[MAX_CLIENTS - 1], b);
	for (unsigned i = 0; i < b->clients; i++) {
		const struct http_call call = {.url = url,
					       .timeout = USEC_INFINITY,
					       .on_data = on_frames,
					       .done = on_watch_end,
					       .arg = &workers[i]};

		make_client(&workers[i], b);
		if (http_call(workers[i].client, &workers[i].slot, &call, &err))
			die("cannot watch", &err);
	}
	b->t0 = loop_now(b->loop);
	run_loop(b);
	report(b, "watch", loop_now(b->loop) - b->t0);
}

int main(int argc, char **argv)
{
	struct bench b = {0};
	uint64_t n, clients;
	struct err err = {0};

	js_use_mem();
	if (argc != 8 || strcmp(argv[1], "--server") || strcmp(argv[3], "--pki") ||
	    str_to_u64(argv[6], 10000000, &n, NULL) ||
	    str_to_u64(argv[7], MAX_CLIENTS - 1, &clients, NULL) || !n || !clients) {
		fprintf(stderr, "usage: api_bench --server URL --pki DIR create|watch N CLIENTS\n");
		return 2;
	}
	b.server = argv[2];
	b.n = (unsigned)n;
	b.clients = (unsigned)clients;
	b.config.ca_file = mem_printf("%s/ca.crt", argv[4]);
	b.config.cert_file = mem_printf("%s/tls.crt", argv[4]);
	b.config.key_file = mem_printf("%s/tls.key", argv[4]);
	b.config.connect_timeout = 120 * USEC_PER_SEC; /* a thousand handshakes at once */
	b.ms = mem_calloc(strcmp(argv[5], "watch") ? n : n * clients, sizeof(double));
	if (!b.ms || loop_new(&b.loop, LOOP_REAL, &err))
		die("out of memory", &err);
	snprintf(b.run, sizeof(b.run), "%llx",
		 (unsigned long long)loop_realtime(b.loop) & 0xffffffffffULL);
	if (strcmp(argv[5], "watch") == 0)
		bench_watch(&b);
	else
		bench_create(&b);
	return b.failed ? 1 : 0;
}
