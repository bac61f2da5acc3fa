/* api_bench - rates and latencies of an API server, or of etcd, over TLS.
 *
 *   api_bench URL PKI each N CLIENTS METHOD PATH [CONTENT-TYPE BODY-FILE]
 *   api_bench URL PKI watch EVENTS WATCHERS
 *   api_bench URL PKI hold
 *   api_bench URL PKI etcd N CLIENTS BYTES
 *
 * each:  N requests by CLIENTS connections, each with one in flight.  In PATH and in the body, @ is the request's number and
 *        % a word that is another in each run.
 * watch: EVENTS creates of 2 KiB, one after the other, seen by WATCHERS watches; the time is from sending the create to
 *        the frame's arrival, so the commit is in it.
 * hold:  one watch of the same objects, until somebody ends it.
 * etcd:  N creates of values of so many BYTES, as kube-apiserver makes them: one transaction that first looks whether the key
 *        is there (rpc.proto, KV.Txn), over gRPC.
 *
 * PKI has ca.crt, tls.crt and tls.key.  All connections are made before the clock starts.  Prints one line of JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/client.h"
#include "json/json.h"

enum { MAX_CLIENTS = 1024, OPENING = 100, OBJECT_BYTES = 2048, BODY_MAX = 1 << 20, KEY_BYTES = 64 };

struct bench {
	struct loop *loop;
	const char *server;
	struct http_client_config config;
	unsigned n, done, started, failed, clients, warm;
	char run[24]; /* names of one run do not meet another's */
	usec_t t0;
	double *ms;
	size_t n_ms;
	/* each */
	const char *method, *path, *type;
	char *body;
	/* etcd */
	size_t value;
	/* watch */
	usec_t sent;
	unsigned seen, ready, asked;
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

static void *must(void *p)
{
	if (!p)
		die("out of memory", NULL);
	return p;
}

/* Written into one buffer per process: it is sent, and copied, before the next one is made. */
static const char *filled(const struct bench *b, const char *text, unsigned i)
{
	static char room[BODY_MAX + 4096];
	size_t n = 0;

	for (const char *p = text; *p && n < sizeof(room) - 32; p++)
		if (*p == '@')
			n += (size_t)snprintf(room + n, 16, "%u", i);
		else if (*p == '%')
			n += (size_t)snprintf(room + n, 32, "%s", b->run);
		else
			room[n++] = *p;
	room[n] = '\0';
	return room;
}

static void add_sample(struct bench *b, usec_t since)
{
	b->ms[b->n_ms++] = (double)(clock_monotonic() - since) / 1000;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void report(struct bench *b)
{
	double took = (double)(clock_monotonic() - b->t0) / 1e6;

	qsort(b->ms, b->n_ms, sizeof(double), by_value);
	printf("{\"n\":%u,\"clients\":%u,\"failed\":%u,\"seconds\":%.3f,\"rate\":%.1f,\"p50\":%.3f,"
	       "\"p99\":%.3f,\"p999\":%.3f,\"max\":%.3f}\n",
	       b->n, b->clients, b->failed, took, b->n / took, b->ms[b->n_ms / 2],
	       b->ms[b->n_ms * 99 / 100], b->ms[b->n_ms * 999 / 1000], b->ms[b->n_ms - 1]);
}

static void run_loop(struct bench *b)
{
	struct err err = {0};
	int code;

	if (loop_run(b->loop, &code, &err))
		die("loop", &err);
}

static void make_client(struct worker *w, struct bench *b)
{
	struct err err = {0};

	w->b = b;
	if (http_client_new(&w->client, b->loop, &b->config, &err))
		die("cannot make a client", &err);
}

static void request(struct worker *w, const struct http_call *call)
{
	struct err err = {0};

	w->slot = http_slot_free(w->slot);
	w->sent = clock_monotonic();
	if (http_call(w->client, &w->slot, call, &err))
		die("cannot send", &err);
}

/* ---- many requests -------------------------------------------------------------------------------------- */

static void next(struct worker *w);

static void fail(struct bench *b, const struct http_result *r)
{
	if (!b->failed++) /* one is enough to see what is wrong */
		fprintf(stderr, "api_bench: %d %s %.300s\n", r->status, r->err ? r->err->msg : "",
			r->body);
}

static void advance(struct worker *w)
{
	struct bench *b = w->b;

	if (++b->done == b->n)
		loop_quit(b->loop, 0);
	else if (b->started < b->n)
		next(w);
}

static void on_answer(const struct http_result *r, void *arg)
{
	struct worker *w = arg;

	add_sample(w->b, w->sent);
	if (r->rc || r->status / 100 != 2)
		fail(w->b, r);
	advance(w);
}

static size_t put_varint(char *to, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		to[n++] = (char)(v | 0x80);
	to[n++] = (char)v;
	return n;
}

/* A field of bytes; from may be to's own place behind. */
static size_t put_bytes(char *to, unsigned field, const char *from, size_t n)
{
	size_t at = put_varint(to, field << 3 | 2);

	at += put_varint(to + at, n);
	memcpy(to + at, from, n);
	return at + n;
}

/* TxnResponse: header = 1, succeeded = 2, responses = 3; behind gRPC's five bytes. */
static bool txn_succeeded(const char *p, size_t n)
{
	const char *end = p + n;

	for (p += 5; p + 2 <= end;) {
		if (*p == 0x10)
			return p[1] == 1;
		if ((*p & 7) != 2 || (unsigned char)p[1] >= 0x80)
			return false;
		p += 2 + p[1];
	}
	return false;
}

static void on_txn(const struct http_result *r, void *arg)
{
	struct worker *w = arg;

	add_sample(w->b, w->sent);
	if (r->rc || r->status != 200 || !txn_succeeded(r->body, r->n))
		fail(w->b, r);
	advance(w);
}

/* Compare: result = 1 (EQUAL 0), target = 2 (CREATE 1), key = 3, create_revision = 5.  TxnRequest: compare = 1,
 * success = 2 (RequestOp: request_put = 2 (PutRequest: key = 1, value = 2)). */
static size_t make_txn(const struct bench *b, unsigned i, char *out)
{
	static char put[BODY_MAX], op[BODY_MAX], value[BODY_MAX / 2];
	char key[KEY_BYTES], compare[KEY_BYTES + 16];
	size_t k = (size_t)snprintf(key, sizeof(key), "/registry/configmaps/default/b-%s-%u",
				    b->run, i);
	size_t c = 0, p, o, n = 5;

	compare[c++] = 0x10;
	compare[c++] = 1;
	c += put_bytes(compare + c, 3, key, k);
	compare[c++] = 0x28;
	compare[c++] = 0;
	memset(value, 'x', b->value);
	p = put_bytes(put, 1, key, k);
	p += put_bytes(put + p, 2, value, b->value);
	o = put_bytes(op, 2, put, p);
	n += put_bytes(out + n, 1, compare, c);
	n += put_bytes(out + n, 2, op, o);
	out[0] = 0;
	for (size_t at = 1, shift = 24; at < 5; at++, shift -= 8)
		out[at] = (char)((n - 5) >> shift);
	return n;
}

static void next_txn(struct worker *w)
{
	static const char *const te[] = {"TE: trailers", NULL};
	static char body[BODY_MAX];
	struct bench *b = w->b;
	CLEANUP(mem_freep) char *url = must(mem_printf("%s/etcdserverpb.KV/Txn", b->server));
	size_t n = make_txn(b, b->started++, body);

	request(w, &(struct http_call){.method = "POST",
				       .url = url,
				       .content_type = "application/grpc",
				       .headers = te,
				       .body = body,
				       .n_body = n,
				       .done = on_txn,
				       .arg = w});
}

static void next(struct worker *w)
{
	struct bench *b = w->b;
	unsigned i;

	if (b->value) {
		next_txn(w);
		return;
	}
	i = b->started++;
	CLEANUP(mem_freep)
	char *url = must(mem_printf("%s%s", b->server, filled(b, b->path, i)));
	const char *body = b->body ? filled(b, b->body, i) : NULL;

	request(w, &(struct http_call){.method = b->method,
				       .url = url,
				       .content_type = b->type,
				       .body = body,
				       .n_body = body ? strlen(body) : 0,
				       .response_max = 512u << 20,
				       .done = on_answer,
				       .arg = w});
}

static void on_warm(const struct http_result *r, void *arg)
{
	struct worker *w = arg;
	struct bench *b = w->b;

	if (r->rc || r->status != 200)
		die("no connection", r->err);
	if (++b->warm < b->clients)
		return;
	b->t0 = clock_monotonic();
	for (unsigned i = 0; i < b->clients && b->started < b->n; i++)
		next(&workers[i]);
}

static void bench_each(struct bench *b)
{
	CLEANUP(mem_freep) char *url = must(mem_printf("%s/version", b->server));

	for (unsigned i = 0; i < b->clients; i++) {
		make_client(&workers[i], b);
		request(&workers[i],
			&(struct http_call){.url = url, .done = on_warm, .arg = &workers[i]});
	}
	run_loop(b);
	report(b);
}

/* ---- watch ---------------------------------------------------------------------------------------------- */

static const char create_path[] = "/api/v1/namespaces/default/configmaps";

static void on_made(const struct http_result *r, void *arg);

static void next_event(struct bench *b)
{
	static char pad[OBJECT_BYTES - 300];
	struct worker *w = &workers[MAX_CLIENTS - 1];
	CLEANUP(mem_freep) char *url = must(mem_printf("%s%s", b->server, create_path));

	memset(pad, 'x', sizeof(pad) - 1);
	CLEANUP(mem_freep)
	char *body = must(
		mem_printf("{\"metadata\":{\"name\":\"w-%s-%u\",\"labels\":{\"bench\":\"watched\","
			   "\"run\":\"%s\"}},"
			   "\"data\":{\"a\":\"%s\"}}",
			   b->run, b->started, b->run, pad));

	b->started++;
	b->seen = 0;
	request(w, &(struct http_call){.method = "POST",
				       .url = url,
				       .content_type = "application/json",
				       .body = body,
				       .n_body = strlen(body),
				       .done = on_made,
				       .arg = w});
	b->sent = w->sent;
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
		fail(w->b, r);
	w->b->done++;
	step(w->b);
}

static void next_watch(struct bench *b);

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
			next_watch(b);
			continue;
		}
		add_sample(b, b->sent);
		b->seen++;
	}
	if (!b->started && b->ready == b->clients) {
		b->t0 = clock_monotonic();
		next_event(b);
	} else if (b->started) {
		step(b);
	}
}

static void on_watch_end(const struct http_result *r, void *arg)
{
	(void)arg;
	fprintf(stderr, "api_bench: a watch ended: %d %s\n", r->status,
		r->err ? r->err->msg : r->body);
	exit(1);
}

static void on_held(const void *bytes, size_t n, void *arg)
{
	(void)arg;
	if (memchr(bytes, '\n', n)) {
		puts("holds");
		fflush(stdout);
	}
}

/* The first line of each is a bookmark, or an object that was there. */
static void watch(struct bench *b, unsigned i, const char *label, const char *value,
		  http_data_fn fn)
{
	CLEANUP(mem_freep)
	char *url = must(mem_printf("%s%s?watch=1&allowWatchBookmarks=true&sendInitialEvents=true"
				    "&resourceVersionMatch=NotOlderThan&labelSelector=%s%%3D%s",
				    b->server, create_path, label, value));

	/* One client for all: each is a source of the loop, which a thousand of them would slow down. */
	if (i)
		workers[i] = (struct worker){.b = b, .client = workers[0].client};
	else
		make_client(&workers[0], b);
	request(&workers[i], &(struct http_call){.url = url,
						 .timeout = USEC_INFINITY,
						 .on_data = fn,
						 .done = on_watch_end,
						 .arg = &workers[i]});
}

/* Not all at once: of one user so many requests do not wait (flow.h). */
static void next_watch(struct bench *b)
{
	if (b->asked < b->clients)
		watch(b, b->asked++, "run", b->run, on_frames);
}

static void bench_watch(struct bench *b)
{
	make_client(&workers[MAX_CLIENTS - 1], b);
	for (unsigned i = 0; i < OPENING; i++)
		next_watch(b);
	run_loop(b);
	report(b);
}

/* ---- */

static int usage(void)
{
	fprintf(stderr,
		"usage: api_bench URL PKI each N CLIENTS METHOD PATH [CONTENT-TYPE BODY-FILE]\n"
		"       api_bench URL PKI watch EVENTS WATCHERS\n"
		"       api_bench URL PKI hold\n"
		"       api_bench URL PKI etcd N CLIENTS BYTES\n");
	return 2;
}

/* What is behind N and CLIENTS.  False: it makes no sense. */
static bool read_rest(struct bench *b, const char *mode, int n, char **args)
{
	struct err err = {0};
	uint64_t bytes;
	size_t size;

	if (str_eq(mode, "watch"))
		return n == 0;
	if (str_eq(mode, "etcd")) {
		if (n != 1 || str_to_u64(args[0], BODY_MAX / 2 - 4096, &bytes, NULL))
			return false;
		b->value = bytes;
		return true;
	}
	if (!str_eq(mode, "each") || (n != 2 && n != 4))
		return false;
	b->method = args[0];
	b->path = args[1];
	b->type = n == 4 ? args[2] : NULL;
	if (n == 4 && file_read(args[3], BODY_MAX, &b->body, &size, &err))
		die(args[3], &err);
	return true;
}

int main(int argc, char **argv)
{
	struct bench b = {0};
	uint64_t n = 0, clients = 0;
	struct err err = {0};

	js_use_mem();
	if (argc < 4)
		return usage();
	bool holds = argc == 4 && str_eq(argv[3], "hold");
	if (!holds && (argc < 6 || str_to_u64(argv[4], 10000000, &n, NULL) ||
		       str_to_u64(argv[5], MAX_CLIENTS - 1, &clients, NULL) || !n || !clients ||
		       !read_rest(&b, argv[3], argc - 6, argv + 6)))
		return usage();
	b.server = argv[1];
	b.n = (unsigned)n;
	b.clients = (unsigned)clients;
	b.config.ca_file = must(mem_printf("%s/ca.crt", argv[2]));
	b.config.cert_file = must(mem_printf("%s/tls.crt", argv[2]));
	b.config.key_file = must(mem_printf("%s/tls.key", argv[2]));
	b.config.connect_timeout = 120 * USEC_PER_SEC; /* a thousand handshakes at once */
	b.ms = must(
		mem_calloc(MAX(n * (str_eq(argv[3], "watch") ? clients : 1), 1), sizeof(double)));
	if (loop_new(&b.loop, LOOP_REAL, &err))
		die("loop", &err);
	snprintf(b.run, sizeof(b.run), "%llx",
		 (unsigned long long)loop_realtime(b.loop) & 0xffffffffffULL);
	if (holds) {
		watch(&b, 0, "bench", "watched", on_held);
		run_loop(&b);
	} else if (str_eq(argv[3], "watch")) {
		bench_watch(&b);
	} else {
		bench_each(&b);
	}
	return b.failed ? 1 : 0;
}
