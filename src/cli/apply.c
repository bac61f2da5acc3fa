/* src/cli/apply.c - apply, create, delete, wait. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/resource.h"
#include "json/json.h"

#define MAX_WAIT (60000000 * USEC_PER_SEC)

static const char LAST_APPLIED[] = "kubectl.kubernetes.io/last-applied-configuration";

struct apply_args {
	struct client_flags flags;
	const char *file;
	const char *dry_run;
	bool create_only;
};

/* Does `have` say all that `want` says?  Lists item by item: a server fills in defaults inside items. */
static bool covers(const struct json *have, const struct json *want)
{
	if (js_is_object(want)) {
		JS_FOREACH(it, want)
			if (!covers(js_get(have, it.key), it.value))
				return false;
		return js_is_object(have);
	}
	if (!js_is_array(want) || !js_is_array(have))
		return js_equal(have, want);
	if (js_len(have) != js_len(want))
		return false;
	for (size_t i = 0; i < js_len(want); i++)
		if (!covers(js_item(have, i), js_item(want, i)))
			return false;
	return true;
}

/* What must change to bring `now` to `want`, and remove what `last` had and `want` has no more: a JSON
 * merge patch.  NULL when out of memory.  Recursion follows parsed values, whose depth is bounded. */
static struct json *three_way(const struct json *last, const struct json *now,
			      const struct json *want)
{
	CLEANUP(js_unrefp) struct json *patch = js_new_object();

	if (!patch)
		return NULL;
	JS_FOREACH(it, want) {
		const struct json *have = js_get(now, it.key);

		if (js_is_object(it.value) && js_is_object(have)) {
			struct json *sub = three_way(js_get(last, it.key), have, it.value);

			if (sub && !js_len(sub))
				js_unref(sub);
			else if (js_set(patch, it.key, sub))
				return NULL;
		} else if (js_is_array(it.value) && js_equal(js_get(last, it.key), it.value) &&
			   covers(have, it.value)) {
			continue; /* the same list as last time, and it is still there */
		} else if (!js_equal(it.value, have) && js_set(patch, it.key, js_ref(it.value))) {
			return NULL;
		}
	}
	JS_FOREACH(it, last)
		if (!js_get(want, it.key) && js_get(now, it.key) &&
		    js_set(patch, it.key, js_new_null()))
			return NULL;
	return STEAL(patch);
}

/* The manifest with the annotation that remembers it. */
static enum rc with_memory(const struct json *obj, struct json **out, struct err *err)
{
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_OBJECT_BYTES);
	CLEANUP(js_unrefp) struct json *o = js_copy(obj);
	struct json *meta = js_get(o, "metadata");
	struct json *notes = meta ? js_ensure_object(meta, "annotations") : NULL;

	if (!notes)
		return err_set(err, RC_INVALID,
			       "metadata.annotations: Invalid value: must be an object");
	js_del(notes, LAST_APPLIED);
	js_print(o, &b, true);
	sbuf_addc(&b, '\n');
	enum rc rc = sbuf_take(&b, &text, NULL);

	if (!rc)
		rc = js_set(notes, LAST_APPLIED, js_new_str(text));
	if (rc)
		return err_set(err, rc, "cannot remember the manifest");
	*out = STEAL(o);
	return RC_OK;
}

static enum rc set_namespace(struct json *obj, const struct api_kind *k, struct client *c,
			     const char *flag, struct err *err)
{
	struct json *meta = js_get(obj, "metadata");
	const char *ns = js_get_str(meta, "namespace");

	if (!k->is_namespaced)
		return RC_OK;
	if (ns && flag && !str_eq(ns, flag))
		return err_set(err, RC_INVALID,
			       "the namespace from the provided object \"%s\" does not match the "
			       "namespace \"%s\". "
			       "You must pass '--namespace=%s' to perform this operation.",
			       ns, flag, ns);
	if (!ns && js_set(meta, "namespace", js_new_str(client_ns(c))))
		return err_set(err, RC_NOMEM, "out of memory");
	return RC_OK;
}

static char *with_query(const char *path, const struct apply_args *a)
{
	return mem_printf("%s?fieldValidation=Strict&fieldManager=ferry%s", path,
			  str_eq(a->dry_run, "server") ? "&dryRun=All" : "");
}

static enum rc create_object(struct client *c, const struct api_kind *k, const struct json *obj,
			     const struct apply_args *a, struct json **out, struct err *err)
{
	CLEANUP(mem_freep)
	char *base = resource_path(k, js_str(js_at(obj, "metadata", "namespace", NULL)), NULL);
	CLEANUP(mem_freep) char *path = base ? with_query(base, a) : NULL;

	return path ? client_send(c, "POST", path, NULL, obj, out, err)
		    : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc patch_object(struct client *c, const char *path, const struct json *now,
			    const struct json *want, const struct apply_args *a, const char **verb,
			    struct err *err)
{
	CLEANUP(js_unrefp) struct json *last = NULL;
	const char *memory = js_str(js_at(now, "metadata", "annotations", LAST_APPLIED, NULL));

	if (memory && js_parse(memory, strlen(memory), &last, NULL))
		last = NULL; /* somebody edited it: then nothing is removed */
	CLEANUP(js_unrefp) struct json *patch = three_way(last, now, want);

	if (!patch)
		return err_set(err, RC_NOMEM, "out of memory");
	js_del(patch, "status");
	if (!js_len(patch)) {
		*verb = "unchanged";
		return RC_OK;
	}
	CLEANUP(mem_freep) char *full = with_query(path, a);

	*verb = "configured";
	return full ? client_send(c, "PATCH", full, "application/merge-patch+json", patch, NULL,
				  err)
		    : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc apply_object(struct client *c, const struct json *obj, const struct apply_args *a,
			    struct err *err)
{
	const struct api_kind *k = api_kind_of_json(obj);
	CLEANUP(js_unrefp) struct json *want = NULL;
	CLEANUP(js_unrefp) struct json *now = NULL;
	CLEANUP(js_unrefp) struct json *made = NULL;
	const char *name = js_str(js_at(obj, "metadata", "name", NULL));
	const char *verb = "created";
	enum rc rc;

	if (!k)
		return err_set(err, RC_NOT_FOUND, "no matches for kind \"%s\" in version \"%s\"",
			       js_get_str(obj, "kind"), js_get_str(obj, "apiVersion"));
	if (a->create_only) {
		want = js_copy(obj);
		rc = want ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
	} else if (!name) {
		return err_set(err, RC_INVALID, "cannot use generate name with apply");
	} else {
		rc = with_memory(obj, &want, err);
	}
	if (!rc)
		rc = set_namespace(want, k, c, a->flags.ns, err);
	if (!rc && a->create_only) {
		rc = create_object(c, k, want, a, &made, err);
	} else if (!rc) {
		CLEANUP(mem_freep)
		char *path =
			resource_path(k, js_str(js_at(want, "metadata", "namespace", NULL)), name);

		rc = client_get(c, path, &now, err);
		if (rc == RC_NOT_FOUND)
			rc = create_object(c, k, want, a, &made, err);
		else if (!rc)
			rc = patch_object(c, path, now, want, a, &verb, err);
	}
	if (rc)
		return rc;
	CLEANUP(mem_freep)
	char *title =
		resource_title(k, made ? js_str(js_at(made, "metadata", "name", NULL)) : name);

	printf("%s %s%s\n", title ? title : "", verb, *a->dry_run ? " (server dry run)" : "");
	return RC_OK;
}

static int apply_run(const struct cmd *c, int argc, char **argv)
{
	struct apply_args a = {.dry_run = "", .create_only = str_eq(c->name, "create")};
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &a.flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &a.flags.ns},
		{.name = "--filename", .letter = 'f', .value = &a.file},
		{.name = "--dry-run", .value = &a.dry_run},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(js_unrefp) struct json *objs = NULL;
	struct err err = {0};
	int n, failed = 0;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (!a.file || n)
		return cmd_usage(c, "-f FILE is needed ('-' reads standard input)");
	if (*a.dry_run && !str_eq(a.dry_run, "server"))
		return cmd_usage(c, "--dry-run takes 'server' (the server checks everything and "
				    "keeps nothing)");
	enum rc rc = resource_load(a.file, &objs, &err);

	if (!rc)
		rc = client_open(&client, &a.flags, &err);
	if (rc)
		return cmd_fail(&err);
	for (size_t i = 0; i < js_len(objs); i++) {
		if (apply_object(client, js_item(objs, i), &a, &err)) {
			fprintf(stderr, "Error from server (%s): error when applying \"%s\": %s\n",
				rc_reason(err.rc), a.file, err.msg);
			failed++;
		}
	}
	return failed ? EXIT_FAIL : EXIT_OK;
}

const struct cmd cmd_apply = {
	.name = "apply",
	.args = "-f FILE|FOLDER|- [-n NS] [--dry-run=server]",
	.summary = "Bring objects to what a manifest says; applying twice changes nothing.",
	.run = apply_run,
};

const struct cmd cmd_create = {
	.name = "create",
	.args = "-f FILE|FOLDER|- [-n NS] [--dry-run=server]",
	.summary = "Make the objects of a manifest.",
	.run = apply_run,
};

/* Waiting for something to be so */

struct goal {
	const char *condition; /* NULL: not this */
	const char *status;
	const char *path; /* "status.phase"; NULL: not this */
	const char *value;
	bool deleted;
	const char *uid;
	bool met;
};

static const struct json *at_path(const struct json *o, const char *path)
{
	struct str rest = str_of(path);

	while (rest.p && o) {
		struct str part = str_split(&rest, '.');
		char key[64];

		if (!part.n)
			continue; /* a leading dot */
		if (part.n >= sizeof(key))
			return NULL;
		memcpy(key, part.p, part.n);
		key[part.n] = '\0';
		o = js_get(o, key);
	}
	return o;
}

static bool goal_is_met(const struct goal *g, const struct json *o)
{
	const struct json *conds = js_at(o, "status", "conditions", NULL);

	if (g->condition)
		for (size_t i = 0; i < js_len(conds); i++)
			if (str_eq(js_get_str(js_item(conds, i), "type"), g->condition) &&
			    str_eq(js_get_str(js_item(conds, i), "status"), g->status))
				return true;
	if (g->path) {
		const struct json *v = at_path(o, g->path);
		CLEANUP(mem_freep) char *text = v ? js_to_text(v) : NULL;

		return v && (str_eq(js_str(v), g->value) || str_eq(text, g->value));
	}
	return false;
}

static bool on_goal(const char *type, const struct json *o, void *arg)
{
	struct goal *g = arg;

	if (g->deleted)
		g->met = str_eq(type, "DELETED");
	else
		g->met = !str_eq(type, "DELETED") && goal_is_met(g, o);
	return !g->met;
}

/* Gets once, then watches from that version: no change can be missed between the two. */
static enum rc wait_goal(struct client *c, const struct api_kind *k, const char *ns,
			 const char *name, struct goal *g, usec_t timeout, struct err *err)
{
	CLEANUP(mem_freep) char *path = resource_path(k, ns, name);
	CLEANUP(mem_freep) char *all = resource_path(k, ns, NULL);
	CLEANUP(js_unrefp) struct json *now = NULL;
	enum rc rc = path && all ? client_get(c, path, &now, err)
				 : err_set(err, RC_NOMEM, "out of memory");

	if (rc == RC_NOT_FOUND && g->deleted)
		return RC_OK;
	if (rc && rc != RC_NOT_FOUND) /* what is not there yet may come */
		return rc;
	if (!rc && goal_is_met(g, now))
		return RC_OK;
	if (g->deleted && g->uid && !str_eq(g->uid, js_str(js_at(now, "metadata", "uid", NULL))))
		return RC_OK; /* another object of that name */
	const char *rv = js_str(js_at(now, "metadata", "resourceVersion", NULL));
	CLEANUP(mem_freep)
	char *watch = mem_printf("%s?watch=true&fieldSelector=metadata.name%%3D%s%s%s", all, name,
				 rv ? "&resourceVersion=" : "", rv ? rv : "");

	rc = client_watch(c, watch, timeout, on_goal, g, err);
	if (g->met)
		return RC_OK;
	return err_set(err, rc ? rc : RC_TIMEOUT, "timed out waiting for the condition on %s/%s",
		       k->plural, name);
}

static enum rc parse_goal(char *text, struct goal *g, struct err *err)
{
	char *eq;

	if (str_eq(text, "delete")) {
		g->deleted = true;
		return RC_OK;
	}
	if (str_has_prefix(text, "condition=")) {
		g->condition = text + strlen("condition=");
		g->status = "True";
		eq = strchr(g->condition, '=');
		if (eq) {
			*eq = '\0';
			g->status = eq + 1;
		}
		return RC_OK;
	}
	if (str_has_prefix(text, "jsonpath=")) {
		char *p = text + strlen("jsonpath=");

		if (*p == '\'' || *p == '{')
			p += 1 + (*p == '\'' && p[1] == '{');
		eq = strchr(p, '=');
		if (eq) {
			*eq = '\0';
			g->value = eq + 1;
			p[strcspn(p, "}'")] = '\0';
			g->path = p;
			return RC_OK;
		}
	}
	return err_set(
		err, RC_INVALID,
		"--for takes delete, condition=TYPE[=STATUS] or jsonpath={.path}=VALUE, not '%s'",
		text);
}

static int wait_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	const char *what = NULL, *timeout = "30s";
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &flags.ns},
		{.name = "--for", .value = &what},
		{.name = "--timeout", .value = &timeout},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(mem_freep) char *goal_text = NULL;
	struct resource_args ra;
	struct goal g = {0};
	struct err err = {0};
	usec_t limit = 0;
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (!what)
		return cmd_usage(c, "--for is needed");
	goal_text = mem_strdup(what);
	enum rc rc = goal_text ? parse_goal(goal_text, &g, &err) : RC_NOMEM;

	if (!rc)
		rc = cmd_duration(timeout, MAX_WAIT, &limit, &err);
	if (!rc)
		rc = resource_parse_args(&ra, n, argv, &err);
	if (rc)
		return cmd_usage(c, "%s", err.msg);
	if (!ra.n_names)
		return cmd_usage(c, "a name is needed");
	rc = client_open(&client, &flags, &err);
	for (size_t i = 0; i < ra.n_names && !rc; i++) {
		CLEANUP(mem_freep) char *title = resource_title(ra.kind, ra.names[i]);

		rc = wait_goal(client, ra.kind, client_ns(client), ra.names[i], &g, limit, &err);
		if (!rc)
			printf("%s %s\n", title ? title : "",
			       g.deleted ? "deleted" : "condition met");
	}
	return rc ? cmd_fail(&err) : EXIT_OK;
}

const struct cmd cmd_wait = {
	.name = "wait",
	.args = "TYPE NAME... --for delete|condition=TYPE|jsonpath={.path}=VALUE [--timeout 30s]",
	.summary = "Wait until something is so, or fail after a time.",
	.run = wait_run,
};

/* delete */

/* What was told to go: all of a manifest's objects are deleted before the first is waited for, because
 * some go only after others (a volume after its claim, a claim after its VM). */
struct doomed {
	const struct api_kind *kind;
	char *ns, *name, *uid;
};

struct delete_args {
	struct client_flags flags;
	const char *file;
	const char *grace;
	const char *cascade;
	const char *timeout;
	bool no_wait;
	bool ignore_missing;
	bool all;
	struct doomed *doomed;
	size_t n_doomed, cap_doomed;
};

static enum rc doomed_add(struct delete_args *a, const struct api_kind *k, const char *ns,
			  const char *name, const struct json *got, struct err *err)
{
	const char *uid = js_str(js_at(got, "metadata", "uid", NULL));

	if (!uid)
		uid = js_str(js_at(got, "details", "uid", NULL));
	if (!mem_grow((void **)&a->doomed, &a->cap_doomed, a->n_doomed + 1, sizeof(*a->doomed)))
		return err_set(err, RC_NOMEM, "out of memory");
	struct doomed *d = &a->doomed[a->n_doomed++];

	*d = (struct doomed){
		.kind = k, .ns = mem_strdup(ns), .name = mem_strdup(name), .uid = mem_strdup(uid)};
	return d->name && !ns == !d->ns && !uid == !d->uid
		       ? RC_OK
		       : err_set(err, RC_NOMEM, "out of memory");
}

static void doomed_fini(struct delete_args *a)
{
	for (size_t i = 0; i < a->n_doomed; i++) {
		mem_free(a->doomed[i].ns);
		mem_free(a->doomed[i].name);
		mem_free(a->doomed[i].uid);
	}
	a->doomed = mem_free(a->doomed);
}

static enum rc doomed_wait(struct client *c, const struct delete_args *a, usec_t limit,
			   struct err *err)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < a->n_doomed && !rc; i++) {
		const struct doomed *d = &a->doomed[i];
		struct goal g = {.deleted = true, .uid = d->uid};

		rc = wait_goal(c, d->kind, d->ns, d->name, &g, limit ? limit : 600 * USEC_PER_SEC,
			       err);
	}
	return rc;
}

static enum rc delete_one(struct client *c, const struct api_kind *k, const char *ns,
			  const char *name, struct delete_args *a, struct err *err)
{
	CLEANUP(mem_freep) char *path = resource_path(k, ns, name);
	CLEANUP(mem_freep) char *title = resource_title(k, name);
	CLEANUP(js_unrefp)
	struct json *body = js_pack("{s:s,s:s}", "apiVersion", "v1", "kind", "DeleteOptions");
	CLEANUP(js_unrefp) struct json *got = NULL;
	int64_t grace = 0;
	enum rc rc = body && path && title ? RC_OK : err_set(err, RC_NOMEM, "out of memory");

	if (!rc && a->grace) {
		rc = str_to_i64(a->grace, 0, 1000000, &grace, err);
		if (!rc)
			rc = js_set(body, "gracePeriodSeconds", js_new_int(grace));
	}
	if (!rc)
		rc = js_set(body, "propagationPolicy",
			    js_new_str(str_eq(a->cascade, "orphan")	  ? "Orphan"
				       : str_eq(a->cascade, "foreground") ? "Foreground"
									  : "Background"));
	if (!rc)
		rc = client_send(c, "DELETE", path, NULL, body, &got, err);
	if (rc == RC_NOT_FOUND && a->ignore_missing)
		return RC_OK;
	if (rc)
		return rc;
	printf("%s \"%s\" deleted\n", *k->group ? title : k->singular, name);
	return a->no_wait ? RC_OK : doomed_add(a, k, ns, name, got, err);
}

static enum rc delete_files(struct client *c, struct delete_args *a, struct err *err)
{
	CLEANUP(js_unrefp) struct json *objs = NULL;
	enum rc rc = resource_load(a->file, &objs, err);

	for (size_t i = 0; i < js_len(objs) && !rc; i++) {
		const struct json *o = js_item(objs, i);
		const struct api_kind *k = api_kind_of_json(o);
		const char *ns = js_str(js_at(o, "metadata", "namespace", NULL));

		if (!k)
			return err_set(err, RC_NOT_FOUND,
				       "no matches for kind \"%s\" in version \"%s\"",
				       js_get_str(o, "kind"), js_get_str(o, "apiVersion"));
		rc = delete_one(c, k, ns ? ns : client_ns(c),
				js_str(js_at(o, "metadata", "name", NULL)), a, err);
	}
	return rc;
}

static enum rc delete_all(struct client *c, const struct api_kind *k, struct delete_args *a,
			  struct err *err)
{
	CLEANUP(mem_freep) char *path = resource_path(k, client_ns(c), NULL);
	CLEANUP(js_unrefp) struct json *list = NULL;
	enum rc rc =
		path ? client_get(c, path, &list, err) : err_set(err, RC_NOMEM, "out of memory");
	const struct json *items = js_get(list, "items");

	for (size_t i = 0; i < js_len(items) && !rc; i++)
		rc = delete_one(c, k, client_ns(c),
				js_str(js_at(js_item(items, i), "metadata", "name", NULL)), a, err);
	return rc;
}

static int delete_run(const struct cmd *c, int argc, char **argv)
{
	struct delete_args a = {.timeout = "0", .cascade = "background"};
	const char *wait = "true";
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &a.flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &a.flags.ns},
		{.name = "--filename", .letter = 'f', .value = &a.file},
		{.name = "--grace-period", .value = &a.grace},
		{.name = "--cascade", .value = &a.cascade},
		{.name = "--timeout", .value = &a.timeout},
		{.name = "--wait", .value = &wait},
		{.name = "--ignore-not-found", .is_flag = true, .flag = &a.ignore_missing},
		{.name = "--all", .is_flag = true, .flag = &a.all},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	struct resource_args ra = {0};
	struct err err = {0};
	int n;
	bool help;
	enum rc rc = RC_OK;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	a.no_wait = str_eq(wait, "false");
	if (!a.file) {
		rc = resource_parse_args(&ra, n, argv, &err);
		if (rc)
			return cmd_usage(c, "%s", err.msg);
		if (!ra.n_names && !a.all)
			return cmd_usage(c, "a name, -f FILE or --all is needed");
	}
	usec_t limit = 0;

	rc = cmd_duration(a.timeout, MAX_WAIT, &limit, &err);
	if (!rc)
		rc = client_open(&client, &a.flags, &err);
	if (!rc && a.file)
		rc = delete_files(client, &a, &err);
	else if (!rc && a.all)
		rc = delete_all(client, ra.kind, &a, &err);
	for (size_t i = 0; i < ra.n_names && !rc && !a.file; i++)
		rc = delete_one(client, ra.kind, client_ns(client), ra.names[i], &a, &err);
	if (!rc)
		rc = doomed_wait(client, &a, limit, &err);
	doomed_fini(&a);
	if (rc) {
		fprintf(stderr, "Error from server (%s): %s\n", rc_reason(err.rc), err.msg);
		return EXIT_FAIL;
	}
	return EXIT_OK;
}

const struct cmd cmd_delete = {
	.name = "delete",
	.args = "(TYPE NAME... | -f FILE | TYPE --all) [-n NS] [--wait=false] [--grace-period S]",
	.summary = "Remove objects, and wait until they are gone.",
	.run = delete_run,
};
