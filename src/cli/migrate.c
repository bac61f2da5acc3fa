/* src/cli/migrate.c - move a VM and show how it goes: stage, percent, rate, pause. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/finish.h"
#include "cli/migrate.h"
#include "cli/progress.h"
#include "json/json.h"
#include "virt/names.h"

#define VMI_PATH  "/apis/kubevirt.io/v1/namespaces/%s/virtualmachineinstances"
#define VMIM_PATH "/apis/kubevirt.io/v1/namespaces/%s/virtualmachineinstancemigrations"

struct move {
	bool tty;
	bool line_open;
	bool ended;
	bool failed;
	char phase[40];
	struct json *last;
};

static void print_progress(struct move *m, const struct json *vmim)
{
	CLEANUP(sbuf_fini) struct sbuf line = SBUF_INIT(1024);
	const char *phase = progress_phase(vmim);

	if (!m->tty) {
		if (!str_eq(phase, m->phase))
			printf("%s\n", phase);
	} else {
		progress_print(vmim, &line);
		printf("\r\033[K%s", sbuf_str(&line));
		m->line_open = true;
	}
	fflush(stdout);
	(void)snprintf(m->phase, sizeof(m->phase), "%s", phase);
}

static bool on_vmim(const char *type, const struct json *vmim, void *arg)
{
	struct move *m = arg;
	const char *phase = js_str(js_at(vmim, "status", "phase", NULL));

	if (str_eq(type, "DELETED")) {
		m->ended = m->failed = true;
		return false;
	}
	js_unref(m->last);
	m->last = js_ref(vmim);
	print_progress(m, vmim);
	m->failed = str_eq(phase, "Failed");
	m->ended = m->failed || str_eq(phase, "Succeeded");
	return !m->ended;
}

static void print_end(const struct move *m, const char *vm)
{
	const struct json *st = js_at(m->last, "status", "migrationState", NULL);
	const struct json *f = js_at(m->last, "status", "ferry", NULL);

	if (m->line_open)
		printf("\r\033[K");
	if (m->failed) {
		const char *why = js_get_str(st, "failureReason");

		fprintf(stderr, "VM %s did not move: %s\n", vm,
			why ? why : "the migration was deleted");
		const struct json *nodes = js_get(f, "placement");

		for (size_t i = 0; i < js_len(nodes); i++)
			fprintf(stderr, "  %-16s %s\n", js_get_str(js_item(nodes, i), "node") ?: "",
				js_get_str(js_item(nodes, i), "message") ?: "could take it");
		return;
	}
	printf("VM %s moved from %s to %s", vm, js_get_str(st, "sourceNode") ?: "?",
	       js_get_str(st, "targetNode") ?: "?");
	if (js_get(f, "pauseMs"))
		printf(", guest paused for %lld ms (QEMU says %lld ms)",
		       (long long)js_get_int(f, "pauseMs", 0),
		       (long long)js_get_int(f, "qemuDowntimeMs", 0));
	printf("\n");
}

/* The seconds of user time that a look takes are bounded by the watch; Ctrl-C leaves the move going. */
static enum rc follow(struct client *c, const char *name, const char *rv, const char *vm,
		      usec_t timeout, struct err *err)
{
	struct move m = {.tty = isatty(STDOUT_FILENO)};
	CLEANUP(mem_freep)
	char *path = mem_printf(VMIM_PATH
				"?watch=true&fieldSelector=metadata.name%%3D%s&resourceVersion=%s",
				client_ns(c), name, rv ? rv : "0");
	enum rc rc = path ? client_watch(c, path, timeout, on_vmim, &m, err) : RC_NOMEM;

	if (m.ended) {
		print_end(&m, vm);
		rc = m.failed ? err_set(err, RC_IO, "migration %s failed", name) : RC_OK;
	} else if (!rc) {
		rc = err_set(err, RC_CLOSED, "the watch of migration %s ended before the move",
			     name);
	}
	js_unref(m.last);
	return rc;
}

static enum rc parse_selector(const char *text, struct json *spec, struct err *err)
{
	struct json *map = js_ensure_object(spec, "addedNodeSelector");
	struct str rest = str_of(text);

	while (rest.p && map) {
		struct str part = str_split(&rest, ',');
		const char *eq = memchr(part.p, '=', part.n);
		char key[LIMIT_NAME_BYTES + 64];

		if (!eq || (size_t)(eq - part.p) >= sizeof(key))
			return err_set(err, RC_INVALID, "--addedNodeSelector takes KEY=VALUE,...");
		memcpy(key, part.p, (size_t)(eq - part.p));
		key[eq - part.p] = '\0';
		if (js_set(map, key, js_new_strn(eq + 1, part.n - (size_t)(eq + 1 - part.p))))
			return err_set(err, RC_INVALID, "--addedNodeSelector is not valid text");
	}
	return map ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

enum rc migrate_create(struct client *c, const struct move_request *r, struct json **out,
		       struct err *err)
{
	CLEANUP(mem_freep)
	char *path = mem_printf(VMIM_PATH "%s", r->ns ? r->ns : client_ns(c),
				r->dry_run ? "?dryRun=All" : "");
	CLEANUP(js_unrefp)
	struct json *body =
		js_pack("{s:s,s:s,s:{s:s},s:{s:s}}", "apiVersion", "kubevirt.io/v1", "kind",
			"VirtualMachineInstanceMigration", "metadata", "generateName",
			"kubevirt-migrate-vm-", "spec", "vmiName", r->vm);
	enum rc rc = path && body ? RC_OK : err_set(err, RC_NOMEM, "out of memory");

	if (!rc && r->selector)
		rc = parse_selector(r->selector, js_get(body, "spec"), err);
	if (!rc && r->to) {
		struct json *map = js_ensure_object(js_get(body, "spec"), "addedNodeSelector");

		rc = map ? js_set(map, "kubernetes.io/hostname", js_new_str(r->to)) : RC_NOMEM;
	}
	return rc ? rc : client_send(c, "POST", path, NULL, body, out, err);
}

/* The VM's move that has not ended; what for stands in the refusal.  Owned by the caller. */
static enum rc find_move(struct client *c, const char *vm, const char *what, struct json **out,
			 struct err *err)
{
	CLEANUP(mem_freep)
	char *path =
		mem_printf(VMIM_PATH "?labelSelector=kubevirt.io/vmi-name%%3D%s", client_ns(c), vm);
	CLEANUP(js_unrefp) struct json *list = NULL;
	enum rc rc =
		path ? client_get(c, path, &list, err) : err_set(err, RC_NOMEM, "out of memory");
	const struct json *items = js_get(list, "items");

	for (size_t i = 0; i < js_len(items) && !rc; i++) {
		const char *phase = js_str(js_at(js_item(items, i), "status", "phase", NULL));

		if (str_eq(phase, "Succeeded") || str_eq(phase, "Failed"))
			continue;
		*out = js_ref(js_item(items, i));
		return RC_OK;
	}
	if (rc)
		return rc;
	return js_len(items)
		       ? err_set(err, RC_NOT_FOUND,
				 "Found no migration to %s for %s: its moves are over", what, vm)
		       : err_set(err, RC_NOT_FOUND, "Found no migration to %s for %s", what, vm);
}

static enum rc cancel_move(struct client *c, const char *vm, struct err *err)
{
	CLEANUP(js_unrefp) struct json *vmim = NULL;
	enum rc rc = find_move(c, vm, "cancel", &vmim, err);

	if (rc)
		return rc;
	CLEANUP(mem_freep)
	char *path = mem_printf(VMIM_PATH "/%s", client_ns(c),
				js_str(js_at(vmim, "metadata", "name", NULL)));

	rc = path ? client_send(c, "DELETE", path, NULL, NULL, NULL, err)
		  : err_set(err, RC_NOMEM, "out of memory");
	if (!rc)
		printf("VM %s was scheduled to migrate-cancel\n", vm);
	return rc;
}

static enum rc ask_finish(struct client *c, const char *name, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf(VMIM_PATH "/%s", client_ns(c), name);
	CLEANUP(js_unrefp)
	struct json *body =
		js_pack("{s:{s:{s:s}}}", "metadata", "annotations", ANN_FINISH, FINISH_PAUSE);

	return path && body ? client_send(c, "PATCH", path, "application/merge-patch+json", body,
					  NULL, err)
			    : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc finish_move(struct client *c, const char *vm, struct json **vmim, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf text = SBUF_INIT(1024);
	CLEANUP(mem_freep) char *path = mem_printf(VMI_PATH "/%s", client_ns(c), vm);
	CLEANUP(js_unrefp) struct json *vmi = NULL;
	enum rc rc = find_move(c, vm, "finish", vmim, err);

	if (!rc)
		rc = path ? client_get(c, path, &vmi, err)
			  : err_set(err, RC_NOMEM, "out of memory");
	if (rc)
		return rc;
	rc = finish_look(*vmim, vmi, &text);
	if (rc == RC_OK)
		rc = ask_finish(c, js_str(js_at(*vmim, "metadata", "name", NULL)), err);
	else if (rc == RC_EXISTS)
		rc = RC_OK;
	else
		return err_set(err, rc, "%s: %s", vm, sbuf_str(&text));
	if (!rc)
		printf("VM %s: %s\n", vm, sbuf_str(&text));
	return rc;
}

/* What is wanted: a move, or an end of the one that is under way. */
struct wish {
	struct move_request move;
	bool no_watch, watch, cancel, finish;
};

/* `migrate finish VM` is `migrate VM --finish`; what is alone is a VM, whatever its name. */
static void take_verb(int *n, char **argv, struct wish *w)
{
	if (*n != 2 || (!str_eq(argv[0], "cancel") && !str_eq(argv[0], "finish")))
		return;
	*(str_eq(argv[0], "cancel") ? &w->cancel : &w->finish) = true;
	argv[0] = argv[1];
	*n = 1;
}

static bool is_for_a_new_move(const struct wish *w)
{
	return w->move.to || w->move.selector || w->move.dry_run;
}

/* *follow: what became of it is to be shown. */
static enum rc do_wish(struct client *c, const struct wish *w, struct json **vmim, bool *follow,
		       struct err *err)
{
	const char *vm = w->move.vm;

	*follow = !w->no_watch && !w->move.dry_run;
	if (w->cancel) {
		*follow = false;
		return cancel_move(c, vm, err);
	}
	if (w->finish) {
		*follow &= w->watch;
		return finish_move(c, vm, vmim, err);
	}
	enum rc rc = migrate_create(c, &w->move, vmim, err);

	if (!rc)
		printf("VM %s was scheduled to migrate\n", vm);
	return rc;
}

static int migrate_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	struct wish w = {0};
	const char *timeout = "3600";
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &flags.ns},
		{.name = "--addedNodeSelector", .value = &w.move.selector},
		{.name = "--to", .value = &w.move.to},
		{.name = "--timeout", .value = &timeout},
		{.name = "--no-watch", .is_flag = true, .flag = &w.no_watch},
		{.name = "--watch", .is_flag = true, .flag = &w.watch},
		{.name = "--dry-run", .is_flag = true, .flag = &w.move.dry_run},
		{.name = "--cancel", .is_flag = true, .flag = &w.cancel},
		{.name = "--finish", .is_flag = true, .flag = &w.finish},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(js_unrefp) struct json *vmim = NULL;
	struct err err = {0};
	usec_t limit = 0;
	bool help, wants_more;
	int n;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	take_verb(&n, argv, &w);
	if (n != 1)
		return cmd_usage(c, "one VM is needed");
	if (w.cancel && w.finish)
		return cmd_usage(c, "a move is canceled or finished, not both");
	if ((w.cancel || w.finish) && is_for_a_new_move(&w))
		return cmd_usage(c, "--to, --addedNodeSelector and --dry-run are for a new move");
	if (cmd_duration(timeout, 1000000 * USEC_PER_SEC, &limit, &err))
		return cmd_usage(c, "--timeout: %s", err.msg);
	w.move.vm = argv[0];
	enum rc rc = client_open(&client, &flags, &err);

	if (!rc)
		rc = do_wish(client, &w, &vmim, &wants_more, &err);
	if (rc) {
		fprintf(stderr, "Error migrating VirtualMachine %s\n", err.msg);
		return EXIT_FAIL;
	}
	fflush(stdout);
	if (!wants_more)
		return EXIT_OK;
	rc = follow(client, js_str(js_at(vmim, "metadata", "name", NULL)), "0", argv[0], limit,
		    &err);
	return rc ? cmd_fail(&err) : EXIT_OK;
}

const struct cmd cmd_migrate = {
	.name = "migrate",
	.args = "[cancel | finish] VM [--to NODE] [--addedNodeSelector K=V,...] [--watch | --no-watch] "
		"[--dry-run]",
	.summary = "Move a running virtual machine to another node, and show how it goes.",
	.help = "  cancel VM      cancel the move that is under way (also --cancel)\n"
		"  finish VM      finish it now, and accept that the guest is paused while the rest of\n"
		"                 its memory goes over (also --finish); --watch shows how that goes\n"
		"  --to NODE      only to this node\n"
		"  --no-watch     return as soon as the move is accepted\n"
		"  --timeout D    stop watching after this long (the move goes on): 90, 5m; default 3600\n\n"
		"The exit code is 0 only when the VM runs on another node; that of cancel and of finish\n"
		"when it was asked for, or when there is nothing left to ask for.\n",
	.run = migrate_run,
};
