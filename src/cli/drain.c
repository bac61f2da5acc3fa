/* src/cli/drain.c - cordon, uncordon, and drain: empty a node of VMs, and end with a verdict. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/drain_plan.h"
#include "cli/migrate.h"
#include "cli/progress.h"
#include "json/json.h"
#include "virt/names.h"

#define VMIMS "/apis/kubevirt.io/v1/virtualmachineinstancemigrations"

static const usec_t LOOK_EVERY = 1 * USEC_PER_SEC; /* at least; a change of a migration wakes it */
static const usec_t ASK_EVERY =
	10 * USEC_PER_SEC; /* where a VM could go that was not asked to leave */

/* ---- cordon, uncordon ---- */

static enum rc set_cordon(struct client *c, const char *node, bool on, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("/api/v1/nodes/%s", node);
	CLEANUP(js_unrefp) struct json *obj = NULL;
	CLEANUP(js_unrefp)
	struct json *body = on ? js_pack("{s:{s:b}}", "spec", "unschedulable", true)
			       : js_pack("{s:{s:n}}", "spec", "unschedulable");
	const char *word = on ? "cordoned" : "uncordoned";
	enum rc rc = path && body ? client_get(c, path, &obj, err)
				  : err_set(err, RC_NOMEM, "out of memory");

	if (rc)
		return rc;
	if (js_bool(js_at(obj, "spec", "unschedulable", NULL), false) == on) {
		printf("node/%s already %s\n", node, word);
		return RC_OK;
	}
	rc = client_send(c, "PATCH", path, "application/merge-patch+json", body, NULL, err);
	if (!rc)
		printf("node/%s %s\n", node, word);
	return rc;
}

/* An eviction's mark stays: those VMs would still leave. */
static enum rc tell_marked(struct client *c, const char *node, struct err *err)
{
	CLEANUP(js_unrefp) struct json *list = NULL;
	enum rc rc = client_get(c, "/apis/kubevirt.io/v1/virtualmachineinstances", &list, err);
	const struct json *items = js_get(list, "items");
	size_t n = 0;

	for (size_t i = 0; i < js_len(items); i++)
		n += str_eq(js_str(js_at(js_item(items, i), "status", "evacuationNodeName", NULL)),
			    node);
	if (n)
		printf("%zu VM%s still asked to leave it: 'ferry evacuate-cancel node %s' lets %s "
		       "stay\n",
		       n, n == 1 ? " is" : "s are", node, n == 1 ? "it" : "them");
	return rc;
}

static int cordon_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	const struct opt opts[] = {{.name = "--kubeconfig", .value = &flags.kubeconfig}, {0}};
	bool on = str_eq(c->name, "cordon"), help;
	CLEANUP(client_freep) struct client *client = NULL;
	struct err err = {0};
	int n;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 1 || !str_is_dns_subdomain(argv[0]))
		return cmd_usage(c, "one node is needed");
	enum rc rc = client_open(&client, &flags, &err);

	if (!rc)
		rc = set_cordon(client, argv[0], on, &err);
	if (!rc && !on)
		rc = tell_marked(client, argv[0], &err);
	return rc ? cmd_fail(&err) : EXIT_OK;
}

/* ---- drain: what is on the node ---- */

/* One pod of a VM on the node. */
struct guest {
	char *ns, *name, *pod;
	struct json *answer; /* of the dry run; NULL: not asked, or refused */
	char *refusal;
	usec_t answered_at;
	bool was_asked;	    /* the eviction marked it */
	char *ended_before; /* uid of its last migration then; NULL: none */
	bool was_stopped;   /* the eviction was granted */
	bool is_seen;
	char said[600]; /* the last line about it */
};

struct drain {
	struct client *client;
	const char *node;
	bool force, dry_run, tty;
	size_t n_lines; /* of the block on the screen */
	size_t n, cap, cap_rows;
	struct guest *guests;
	struct drain_row *rows; /* one per guest */
	size_t n_moved, n_stopped;
	struct json *pods, *vmis, *vmims;
};

static void guest_fini(struct guest *g)
{
	mem_free(g->ns);
	mem_free(g->name);
	mem_free(g->pod);
	mem_free(g->refusal);
	mem_free(g->ended_before);
	js_unref(g->answer);
	*g = (struct guest){0};
}

static void drop_lists(struct drain *d)
{
	d->pods = js_unref(d->pods);
	d->vmis = js_unref(d->vmis);
	d->vmims = js_unref(d->vmims);
}

static void drain_fini(struct drain *d)
{
	drop_lists(d);
	for (size_t i = 0; i < d->n; i++)
		guest_fini(&d->guests[i]);
	mem_free(d->guests);
	mem_free(d->rows);
}

static enum rc load(struct drain *d, struct err *err)
{
	CLEANUP(mem_freep)
	char *pods = mem_printf("/api/v1/pods?labelSelector=" LABEL_ROLE "%%3D" ROLE_LAUNCHER
				"&fieldSelector=spec.nodeName%%3D%s",
				d->node);
	enum rc rc = pods ? RC_OK : err_set(err, RC_NOMEM, "out of memory");

	drop_lists(d);
	if (!rc)
		rc = client_get(d->client, VMIMS, &d->vmims, err);
	if (!rc)
		rc = client_get(d->client, "/apis/kubevirt.io/v1/virtualmachineinstances", &d->vmis,
				err);
	return rc ? rc : client_get(d->client, pods, &d->pods, err);
}

static const char *meta(const struct json *obj, const char *key)
{
	return js_str(js_at(obj, "metadata", key, NULL));
}

static const struct json *find(const struct json *list, const char *ns, const char *name)
{
	const struct json *items = js_get(list, "items");

	for (size_t i = 0; i < js_len(items); i++)
		if (str_eq(meta(js_item(items, i), "name"), name) &&
		    str_eq(meta(js_item(items, i), "namespace"), ns))
			return js_item(items, i);
	return NULL;
}

static bool is_newer(const struct json *a, const struct json *b)
{
	const char *x = meta(a, "creationTimestamp"), *y = meta(b, "creationTimestamp");

	return !b || strcmp(x ? x : "", y ? y : "") > 0;
}

static void find_migrations(const struct drain *d, const struct guest *g, struct drain_facts *f)
{
	const struct json *items = js_get(d->vmims, "items");

	for (size_t i = 0; i < js_len(items); i++) {
		const struct json *m = js_item(items, i);
		const char *phase = progress_phase(m);

		if (!str_eq(meta(m, "namespace"), g->ns) ||
		    !str_eq(js_str(js_at(m, "spec", "vmiName", NULL)), g->name))
			continue;
		if (!str_eq(phase, "Succeeded") && !str_eq(phase, "Failed"))
			f->open = m;
		else if (is_newer(m, f->ended))
			f->ended = m;
	}
}

static struct drain_facts facts_of(const struct drain *d, const struct guest *g)
{
	struct drain_facts f = {
		.node = d->node,
		.pod = find(d->pods, g->ns, g->pod),
		.vmi = find(d->vmis, g->ns, g->name),
		.answer = g->answer,
		.refusal = g->refusal,
		.was_asked = g->was_asked,
		.ended_before = g->ended_before,
	};

	find_migrations(d, g, &f);
	return f;
}

static enum rc add_guest(struct drain *d, const struct json *pod)
{
	const char *name = js_str(js_at(pod, "metadata", "annotations", ANN_DOMAIN, NULL));
	const char *phase = js_str(js_at(pod, "status", "phase", NULL));
	struct guest *g;

	if (!name || str_eq(phase, "Succeeded") || str_eq(phase, "Failed"))
		return RC_OK;
	for (size_t i = 0; i < d->n; i++) {
		g = &d->guests[i];
		if (str_eq(g->ns, meta(pod, "namespace")) && str_eq(g->pod, meta(pod, "name"))) {
			g->is_seen = true;
			return RC_OK;
		}
	}
	if (!mem_grow((void **)&d->guests, &d->cap, d->n, sizeof(*d->guests)) ||
	    !mem_grow((void **)&d->rows, &d->cap_rows, d->n, sizeof(*d->rows)))
		return RC_NOMEM;
	g = &d->guests[d->n++];
	*g = (struct guest){
		.ns = mem_strdup(meta(pod, "namespace")),
		.name = mem_strdup(name),
		.pod = mem_strdup(meta(pod, "name")),
		.is_seen = true,
	};
	return g->ns && g->name && g->pod ? RC_OK : RC_NOMEM;
}

/* ---- drain: what is said ---- */

static void clear_block(struct drain *d)
{
	if (d->n_lines)
		printf("\033[%zuA\033[J", d->n_lines);
	d->n_lines = 0;
}

static void tell_gone(struct drain *d, const struct guest *g, enum drain_verdict last)
{
	const struct json *vmi = find(d->vmis, g->ns, g->name);
	const char *to = js_str(js_at(vmi, "status", "nodeName", NULL));

	clear_block(d);
	if (last == DRAIN_ARRIVES) {
		printf("%s/%s did not come\n", g->ns, g->name);
	} else if (!g->was_stopped && !str_is_empty(to) && !str_eq(to, d->node)) {
		d->n_moved++;
		printf("%s/%s runs on %s now\n", g->ns, g->name, to);
	} else {
		d->n_stopped++;
		printf("%s/%s is shut down\n", g->ns, g->name);
	}
}

static void drop_gone(struct drain *d)
{
	size_t kept = 0;

	for (size_t i = 0; i < d->n; i++) {
		if (d->guests[i].is_seen) {
			d->guests[kept++] = d->guests[i];
			continue;
		}
		tell_gone(d, &d->guests[i], d->rows[i].verdict);
		guest_fini(&d->guests[i]);
	}
	d->n = kept;
}

static struct winsize screen_size(void)
{
	struct winsize size = {0};

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col || !size.ws_row)
		size = (struct winsize){.ws_col = 80, .ws_row = 24};
	return size;
}

static void describe(const struct drain *d, size_t i, struct sbuf *out)
{
	const struct drain_row *row = &d->rows[i];
	struct drain_facts f = facts_of(d, &d->guests[i]);
	bool moves = f.open && row->verdict == DRAIN_MOVES;

	if (moves && d->tty)
		progress_print(f.open, out);
	else if (moves)
		sbuf_adds(out, progress_phase(f.open));
	else
		sbuf_addf(out, "%-16s %s", drain_verdict_name(row->verdict), row->reason);
}

/* A line per VM that the table did not settle: redrawn on a terminal, where each has one line and the
 * block fits; else printed when the step is another one. */
static void tell_progress(struct drain *d)
{
	struct winsize screen = screen_size();
	int width = (int)drain_width(d->rows, d->n);

	clear_block(d);
	for (size_t i = 0; i < d->n; i++) {
		CLEANUP(sbuf_fini) struct sbuf line = SBUF_INIT(2048);
		struct guest *g = &d->guests[i];

		if (!drain_can_go(&d->rows[i], d->force) && !g->was_asked)
			continue;
		describe(d, i, &line);
		CLEANUP(mem_freep) char *title = mem_printf("%s/%s", g->ns, g->name);
		CLEANUP(mem_freep)
		char *text = mem_printf("%-*s   %s", width, title ? title : "", sbuf_str(&line));

		if (!text || (!d->tty && str_eq(g->said, sbuf_str(&line))))
			continue;
		(void)snprintf(g->said, sizeof(g->said), "%s", sbuf_str(&line));
		if (!d->tty) {
			printf("%s\n", text);
		} else if (d->n_lines + 2 < screen.ws_row) {
			printf("%.*s\n", screen.ws_col, text);
			d->n_lines++;
		}
	}
	fflush(stdout);
}

static void print_table(const struct drain *d, FILE *to)
{
	CLEANUP(sbuf_fini) struct sbuf table = SBUF_INIT(LIMIT_RESPONSE_BYTES);

	drain_print(d->rows, d->n, d->force, &table);
	fputs(sbuf_rc(&table) ? "(the table is too large)\n" : sbuf_str(&table), to);
	fprintf(to, "\n");
	fflush(to);
}

static int tell_blocked(struct drain *d, bool in_time)
{
	bool is_asked = false;

	clear_block(d);
	fflush(stdout);
	for (size_t i = 0; i < d->n; i++)
		is_asked = is_asked || d->guests[i].was_asked;
	fprintf(stderr, "Blocked: %zu VM%s left on %s%s\n", d->n, d->n == 1 ? " is" : "s are",
		d->node, in_time ? "" : " when the time was over");
	print_table(d, stderr);
	fprintf(stderr, "%s stays cordoned.  Undo: ferry uncordon %s\n", d->node, d->node);
	if (is_asked)
		fprintf(stderr,
			"What was asked to leave is still tried.  Undo: ferry evacuate-cancel node %s\n",
			d->node);
	return EXIT_FAIL;
}

static int tell_empty(const struct drain *d)
{
	printf("%s has no VM", d->node);
	if (d->n_moved || d->n_stopped)
		printf(" any more: %zu moved, %zu shut down", d->n_moved, d->n_stopped);
	printf(".  It stays cordoned until 'ferry uncordon %s'.\n", d->node);
	return EXIT_OK;
}

/* ---- drain: one look ---- */

static enum rc ask_where(struct drain *d, struct guest *g, struct err *err)
{
	const struct move_request move = {.ns = g->ns, .vm = g->name, .dry_run = true};
	struct err why = {0};
	enum rc rc;

	if (g->answered_at && clock_monotonic() < g->answered_at + ASK_EVERY)
		return RC_OK;
	g->answer = js_unref(g->answer);
	g->refusal = mem_free(g->refusal);
	g->answered_at = clock_monotonic();
	rc = migrate_create(d->client, &move, &g->answer, &why);
	if (!rc || rc == RC_NOT_FOUND)
		return RC_OK;
	if (rc != RC_BAD_REQUEST && rc != RC_INVALID && rc != RC_FORBIDDEN && rc != RC_CONFLICT)
		return err_copy(err, &why);
	g->refusal = mem_strdup(why.msg);
	return g->refusal ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc look(struct drain *d, struct err *err)
{
	enum rc rc = load(d, err);
	const struct json *pods = js_get(d->pods, "items");

	for (size_t i = 0; i < d->n; i++)
		d->guests[i].is_seen = false;
	for (size_t i = 0; i < js_len(pods) && !rc; i++)
		if (add_guest(d, js_item(pods, i)))
			rc = err_set(err, RC_NOMEM, "out of memory");
	if (rc)
		return rc;
	drop_gone(d);
	for (size_t i = 0; i < d->n && !rc; i++) {
		struct guest *g = &d->guests[i];
		struct drain_facts f = facts_of(d, g);

		if (drain_wants_answer(&f))
			rc = ask_where(d, g, err);
		f.answer = g->answer;
		f.refusal = g->refusal;
		d->rows[i] = (struct drain_row){.ns = g->ns, .name = g->name};
		drain_judge(&f, &d->rows[i]);
	}
	return rc;
}

/* 429 is said for three things: on its way, no at the moment, never. */
static enum rc evict(struct drain *d, struct guest *g, struct drain_row *row, struct err *err)
{
	CLEANUP(mem_freep)
	char *path = mem_printf("/api/v1/namespaces/%s/pods/%s/eviction", g->ns, g->pod);
	CLEANUP(js_unrefp)
	struct json *body = js_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion", "policy/v1", "kind",
				    "Eviction", "metadata", "name", g->pod, "namespace", g->ns);
	struct err why = {0};
	enum rc rc = path && body ? client_send(d->client, "POST", path, NULL, body, NULL, &why)
				  : err_set(&why, RC_NOMEM, "out of memory");
	const char *text = strstr(why.msg, "denied the request: ");

	text = text ? strchr(text, ':') + 2 : why.msg;
	if (!rc) {
		g->was_stopped = true;
		row->verdict = DRAIN_LEAVES;
		(void)snprintf(row->reason, sizeof(row->reason), "it is being shut down");
	} else if (rc == RC_BUSY && strstr(text, "Eviction triggered evacuation")) {
		g->was_asked = true;
		if (row->verdict == DRAIN_MOVES)
			(void)snprintf(row->reason, sizeof(row->reason), "it was asked to leave");
	} else if (rc == RC_BUSY) {
		row->verdict = DRAIN_WAITS;
		(void)snprintf(row->reason, sizeof(row->reason), "%s", text);
	} else if (rc != RC_NOT_FOUND) {
		return err_copy(err, &why);
	}
	return RC_OK;
}

static enum rc evict_all(struct drain *d, struct err *err)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < d->n && !rc; i++) {
		struct drain_facts f = facts_of(d, &d->guests[i]);

		if (!drain_may_evict(&f, &d->rows[i], d->force))
			continue;
		mem_free(d->guests[i].ended_before);
		d->guests[i].ended_before = mem_strdup(meta(f.ended, "uid"));
		if (f.ended && !d->guests[i].ended_before)
			return err_set(err, RC_NOMEM, "out of memory");
		rc = evict(d, &d->guests[i], &d->rows[i], err);
	}
	return rc;
}

/* ---- drain: until it is over ---- */

static bool on_change(const char *type, const struct json *vmim, void *arg)
{
	(void)type;
	(void)vmim;
	(void)arg;
	return false;
}

/* Until a migration says something new, for LOOK_EVERY at most. */
static void wait_for_news(struct drain *d)
{
	const char *rv = js_str(js_at(d->vmims, "metadata", "resourceVersion", NULL));
	CLEANUP(mem_freep)
	char *path = mem_printf(VMIMS "?watch=true&resourceVersion=%s", rv ? rv : "0");
	usec_t begin = clock_monotonic();
	struct err err = {0};
	enum rc rc =
		path ? client_watch(d->client, path, LOOK_EVERY, on_change, NULL, &err) : RC_NOMEM;

	/* The next look tells what is wrong, if anything; it only must not come at once. */
	if (rc != RC_TIMEOUT && clock_monotonic() - begin < LOOK_EVERY)
		(void)poll(NULL, 0, rc ? (int)(LOOK_EVERY / USEC_PER_MSEC) : 200);
}

static char interrupt_text[1024];

static void on_interrupt(int sig)
{
	ssize_t n = write(STDERR_FILENO, interrupt_text, strlen(interrupt_text));

	(void)n;
	_exit(128 + sig);
}

static void catch_interrupt(const char *node)
{
	struct sigaction sa = {.sa_handler = on_interrupt};

	(void)snprintf(
		interrupt_text, sizeof(interrupt_text),
		"\nInterrupted: %s stays cordoned, and VMs that were asked to leave still do.\n"
		"Undo: ferry uncordon %s; let VMs stay: ferry evacuate-cancel node %s\n",
		node, node, node);
	(void)sigaction(SIGINT, &sa, NULL);
	(void)sigaction(SIGTERM, &sa, NULL);
}

static enum rc empty_node(struct drain *d, usec_t timeout, int *status, struct err *err)
{
	usec_t deadline = clock_monotonic() + timeout;
	enum rc rc = RC_OK;

	while (!rc) {
		rc = evict_all(d, err);
		if (rc)
			break;
		enum drain_end end = drain_end_of(d->rows, d->n, d->force);

		if (end == DRAIN_EMPTY)
			*status = tell_empty(d);
		else if (end == DRAIN_BLOCKED || clock_monotonic() >= deadline)
			*status = tell_blocked(d, end == DRAIN_BLOCKED);
		if (*status >= 0)
			break;
		tell_progress(d);
		wait_for_news(d);
		rc = look(d, err);
	}
	if (rc)
		err_prepend(err, "%s stays cordoned (undo: ferry uncordon %s), not all is known",
			    d->node, d->node);
	return rc;
}

static enum rc drain_node(struct drain *d, usec_t timeout, int *status, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("/api/v1/nodes/%s", d->node);
	enum rc rc = path ? client_get(d->client, path, NULL, err)
			  : err_set(err, RC_NOMEM, "out of memory");

	if (!rc && !d->dry_run) {
		rc = set_cordon(d->client, d->node, true, err);
		catch_interrupt(d->node);
	}
	if (!rc)
		rc = look(d, err);
	if (rc)
		return rc;
	if (d->n)
		print_table(d, stdout);
	if (!d->dry_run)
		return empty_node(d, timeout, status, err);
	*status = drain_all_can_go(d->rows, d->n, d->force) ? EXIT_OK : EXIT_FAIL;
	printf(*status ? "Not all could go now; nothing was changed.\n"
	       : d->n  ? "All could go; nothing was changed.\n"
		       : "It has no VM; nothing was changed.\n");
	return RC_OK;
}

static int drain_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	struct drain d = {.tty = isatty(STDOUT_FILENO)};
	const char *timeout = "3600";
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{.name = "--timeout", .value = &timeout},
		{.name = "--dry-run", .is_flag = true, .flag = &d.dry_run},
		{.name = "--force", .is_flag = true, .flag = &d.force},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	struct err err = {0};
	usec_t limit = 0;
	int n, status = -1;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 1 || !str_is_dns_subdomain(argv[0]))
		return cmd_usage(c, "one node is needed");
	enum rc rc = cmd_duration(timeout, 1000000 * USEC_PER_SEC, &limit, &err);

	if (rc)
		return cmd_usage(c, "--timeout: %s", err.msg);
	rc = client_open(&client, &flags, &err);
	if (!rc) {
		client_set_quiet(client, true); /* the table says what the warnings would */
		d.client = client;
		d.node = argv[0];
		rc = drain_node(&d, limit, &status, &err);
	}
	drain_fini(&d);
	return rc ? cmd_fail(&err) : status;
}

const struct cmd cmd_cordon = {
	.name = "cordon",
	.args = "NODE",
	.summary = "Let nothing new start on a node; what runs there stays.",
	.run = cordon_run,
};
const struct cmd cmd_uncordon = {
	.name = "uncordon",
	.args = "NODE",
	.summary = "Let pods start on a node again.",
	.help = "VMs that an eviction asked to leave the node still do: ferry evacuate-cancel node NODE.\n",
	.run = cordon_run,
};
const struct cmd cmd_drain = {
	.name = "drain",
	.args = "NODE [--dry-run] [--timeout D] [--force]",
	.summary = "Empty a node of virtual machines: move them away while they run.",
	.help = "  --dry-run      only tell what would become of each VM; nothing changes\n"
		"  --timeout D    end after this long: 90, 5m; default 3600\n"
		"  --force        also evict VMs that an eviction shuts down\n\n"
		"The node is cordoned, and stays so.  WHAT is one of\n"
		"  Moves      it moves while it runs\n"
		"  Waits      no node can take it at the moment; it is asked to leave and moves when one can\n"
		"  ShutDown   its evictionStrategy has it shut down; left alone without --force\n"
		"  Stays      it cannot go, and no waiting helps; it is left alone\n"
		"  Leaves     it is going away already\n"
		"  Arrives    a move that began before brings it here; it is asked when it is there\n\n"
		"A move that fails is tried again by the cluster, with growing pauses.  The exit code is 0\n"
		"when no VM is left on the node (with --dry-run: when all could go now), 1 when some are\n"
		"left (Blocked: each with its reason), 2 for wrong arguments.\n",
	.run = drain_run,
};
