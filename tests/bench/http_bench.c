/* tests/bench/http_bench.c - what lib/http costs: requests over kept-alive TLS connections, and one event
 * to many watchers.  The server is a process of its own, as the API server is.
 *
 *   http_bench [SECONDS]
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/client.h"
#include "http/server.h"
#include "pki/pki.h"

enum { LANES_MAX = 32, WATCHERS = 100, SAMPLES_MAX = 1 << 20 };

static char dir[] = "/tmp/ferry-http-bench-XXXXXX";
static char crt[64], key[64], ca[64], user_crt[64], user_key[64];
static uint16_t port;

static void die(const struct err *err)
{
	fprintf(stderr, "http_bench: %s\n", err->msg);
	exit(1);
}

static void make_certificates(usec_t now)
{
	static const char *const sans[] = {"127.0.0.1"};
	CLEANUP(pki_pair_fini) struct pki_pair root = {0}, p = {0}, u = {0};
	struct pki_request req = {.cn = "bench",
				  .sans = sans,
				  .n_sans = 1,
				  .use = PKI_SERVER | PKI_CLIENT,
				  .validity = 3600 * USEC_PER_SEC};
	struct err err = {0};

	if (!mkdtemp(dir) || pki_ca_new(&root, "bench", now, 3600 * USEC_PER_SEC, &err) ||
	    pki_issue(&p, &root, &req, now, &err) || pki_save(&root, dir, "ca", &err) ||
	    pki_save(&p, dir, "server", &err) || pki_issue(&u, &root, &req, now, &err) ||
	    pki_save(&u, dir, "user", &err))
		die(&err);
	snprintf(crt, sizeof(crt), "%s/server.crt", dir);
	snprintf(key, sizeof(key), "%s/server.key", dir);
	snprintf(ca, sizeof(ca), "%s/ca.crt", dir);
	snprintf(user_crt, sizeof(user_crt), "%s/user.crt", dir);
	snprintf(user_key, sizeof(user_key), "%s/user.key", dir);
}

/* The server: answers, keeps watches, and sends an event to all of them when asked. */

static struct http_req *watches[WATCHERS];
static size_t n_watches;

static void serve(struct http_req *r, void *arg)
{
	static char body[1024];

	(void)arg;
	if (str_eq(http_req_path(r), "/watch") && n_watches < WATCHERS) {
		watches[n_watches++] = r;
		http_stream_begin(r, 200, "application/json", 1 << 20, NULL, 0);
		return;
	}
	if (str_eq(http_req_path(r), "/event"))
		for (size_t i = 0; i < n_watches; i++)
			if (http_stream_write(watches[i], "{\"type\":\"ADDED\"}\n", 17))
				exit(1);
	memset(body, 'x', sizeof(body));
	http_respond(r, 200, "application/json", body, sizeof(body), NULL, 0);
}

static pid_t start_server(void)
{
	int pipefd[2];
	pid_t pid;

	if (pipe(pipefd))
		exit(1);
	pid = fork();
	if (pid == 0) {
		struct http_server_config config = {.address = "127.0.0.1",
						    .cert_file = crt,
						    .key_file = key,
						    .ca_file = ca,
						    .handler = serve};
		struct http_server *s = NULL;
		struct loop *l = NULL;
		struct err err = {0};

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (loop_new(&l, LOOP_REAL, &err) || http_server_new(&s, l, &config, &err))
			die(&err);
		port = http_server_port(s);
		if (write(pipefd[1], &port, sizeof(port)) != sizeof(port))
			exit(1);
		exit(loop_run(l, NULL, &err));
	}
	close(pipefd[1]);
	if (read(pipefd[0], &port, sizeof(port)) != sizeof(port))
		exit(1);
	close(pipefd[0]);
	return pid;
}

/* Lanes: each asks again as soon as it is answered. */

struct lane {
	struct http_client *c;
	struct http_slot *slot;
	usec_t start;
};

static struct loop *loop;
static struct lane lanes[LANES_MAX];
static uint32_t *samples;
static size_t n_samples;
static bool stopping;
static unsigned running;

static void ask(struct lane *lane);

static void on_answer(const struct http_result *r, void *arg)
{
	struct lane *lane = arg;

	if (r->rc || r->status != 200)
		die(r->err ? r->err : &(struct err){.msg = "bad status"});
	if (n_samples < SAMPLES_MAX)
		samples[n_samples++] = (uint32_t)(loop_now(loop) - lane->start);
	lane->slot = http_slot_free(lane->slot);
	if (stopping)
		running--;
	else
		ask(lane);
}

static void ask(struct lane *lane)
{
	char url[64];
	struct http_call call = {.url = url, .done = on_answer, .arg = lane};
	struct err err = {0};

	snprintf(url, sizeof(url), "https://127.0.0.1:%u/x", port);
	lane->start = loop_now(loop);
	if (http_call(lane->c, &lane->slot, &call, &err))
		die(&err);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void report(const char *what, double seconds)
{
	if (!n_samples)
		return;
	qsort(samples, n_samples, sizeof(*samples), by_value);
	printf("%-34s %8.0f /s   median %u us, p99 %u us, worst %u us\n", what,
	       seconds > 0 ? (double)n_samples / seconds : 0, samples[n_samples / 2],
	       samples[n_samples * 99 / 100], samples[n_samples - 1]);
}

static void bench_requests(struct http_client *c, unsigned n, double seconds)
{
	usec_t start = loop_now(loop), end = start + (usec_t)(seconds * 1e6);
	char text[64];

	n_samples = 0;
	stopping = false;
	running = n;
	for (unsigned i = 0; i < n; i++) {
		lanes[i].c = c;
		ask(&lanes[i]);
	}
	while (running) {
		stopping = loop_now(loop) >= end;
		if (loop_step(loop, USEC_PER_SEC, NULL, NULL))
			exit(1);
	}
	snprintf(text, sizeof(text), "GET 1 KiB, %u at a time", n);
	report(text, (double)(loop_now(loop) - start) / 1e6);
}

static unsigned n_events;
static usec_t event_start;

static void on_event(const void *bytes, size_t n, void *arg)
{
	(void)bytes;
	(void)n;
	(void)arg;
	n_events++;
	if (n_samples < SAMPLES_MAX)
		samples[n_samples++] = (uint32_t)(loop_now(loop) - event_start);
}

static void on_watch_end(const struct http_result *r, void *arg)
{
	(void)r;
	(void)arg;
	exit(1);
}

static void bench_watches(struct http_client *c)
{
	static struct http_slot *slots[WATCHERS];
	char url[64];
	struct http_call call = {
		.url = url, .timeout = USEC_INFINITY, .on_data = on_event, .done = on_watch_end};
	struct err err = {0};

	snprintf(url, sizeof(url), "https://127.0.0.1:%u/watch", port);
	for (size_t i = 0; i < WATCHERS; i++)
		if (http_call(c, &slots[i], &call, &err))
			die(&err);
	for (usec_t end = loop_now(loop) + USEC_PER_SEC; loop_now(loop) < end;)
		if (loop_step(loop, 10000, NULL, NULL))
			exit(1);
	n_samples = 0;
	for (int round = 0; round < 20; round++) {
		struct http_call event = {.url = url, .done = on_answer, .arg = &lanes[0]};

		snprintf(url, sizeof(url), "https://127.0.0.1:%u/event", port);
		n_events = 0;
		stopping = true;
		running = 1;
		size_t before = n_samples;

		event_start = lanes[0].start = loop_now(loop);
		if (http_call(c, &lanes[0].slot, &event, &err))
			die(&err);
		while (running || n_events < WATCHERS)
			if (loop_step(loop, USEC_PER_SEC, NULL, NULL))
				exit(1);
		(void)before;
	}
	report("event to 100 watchers", 0);
	for (size_t i = 0; i < WATCHERS; i++)
		http_slot_free(slots[i]);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 2;
	struct http_client_config config = {
		.ca_file = ca, .cert_file = user_crt, .key_file = user_key};
	struct http_client *c = NULL;
	struct err err = {0};
	pid_t pid;

	if (loop_new(&loop, LOOP_REAL, &err))
		die(&err);
	make_certificates(loop_realtime(loop));
	pid = start_server();
	samples = mem_calloc(SAMPLES_MAX, sizeof(*samples));
	if (!samples || http_client_new(&c, loop, &config, &err))
		die(&err);
	bench_requests(c, 1, seconds);
	bench_requests(c, 8, seconds);
	bench_requests(c, 32, seconds);
	bench_watches(c);
	http_client_free(c);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	mem_free(samples);
	loop_free(loop);
	return file_remove_tree(dir, &err) ? 1 : 0;
}
