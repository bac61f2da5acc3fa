#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "virt/launcher/launcher_int.h"

/* The CPU that the guest really sees.
 *
 * What was asked for is not what there is: QEMU drops silently what the accelerator cannot do.  So the
 * expansion of the model gives the candidates, and the vCPU itself is the judge: when QEMU says that it dropped
 * something ("filtered-features"), each candidate is looked up on the vCPU.
 *
 *   query-cpus-fast -> expansion of the model -> filtered-features -> [qom-get of each] -> event "cpu"
 *
 * A QEMU that does not tell leaves the CPU unknown: nothing that runs depends on it. */

struct guest_cpu {
	struct launcher *l;
	struct qmp_slot *slot;
	char *path;	   /* of the first vCPU */
	struct json *want; /* names, in QEMU's order */
	struct json *have;
	size_t next;
};

static void ask(struct guest_cpu *g, const char *command, struct json *args, qmp_reply_fn fn);

struct guest_cpu *guest_cpu_free(struct guest_cpu *g)
{
	if (!g)
		return NULL;
	g->slot = qmp_slot_free(g->slot);
	js_unref(g->want);
	js_unref(g->have);
	mem_free(g->path);
	return mem_free(g);
}

static void give_up(struct guest_cpu *g, const char *why)
{
	struct launcher *l = g->l;

	log_warn("vm: what CPU the guest sees is not known: %s", why);
	l->asking_cpu = guest_cpu_free(g);
	ipc_server_event(l->server, "cpu", js_new_object());
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, so that two hosts tell the same CPU in the same words. */
static struct json *sorted(const struct json *names)
{
	size_t n = js_len(names);
	CLEANUP(mem_freep) const char **list = mem_calloc(n + 1, sizeof(*list));
	struct json *out = list ? js_new_array() : NULL;

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i++)
		list[i] = js_str(js_item(names, i));
	qsort(list, n, sizeof(*list), by_name);
	for (size_t i = 0; i < n; i++)
		if (js_append(out, js_new_str(list[i])))
			return js_unref(out);
	return out;
}

static void done(struct guest_cpu *g, const struct json *names)
{
	struct launcher *l = g->l;
	struct json *cpu =
		js_pack("{s:s, s:o}", "model", l->spec->cpu_model, "features", sorted(names));

	if (!cpu) {
		give_up(g, "out of memory");
		return;
	}
	js_unref(l->cpu);
	l->cpu = cpu;
	l->asking_cpu = guest_cpu_free(g);
	ipc_server_event(l->server, "cpu", js_pack("{s:O}", "cpu", l->cpu));
}

static bool take_reply(struct guest_cpu *g, const struct qmp_reply *r)
{
	g->slot = qmp_slot_free(g->slot);
	if (!r->rc)
		return true;
	give_up(g, r->desc);
	return false;
}

/* --- one by one, when QEMU dropped something --- */

static void ask_next(struct guest_cpu *g);

static void on_feature(const struct qmp_reply *r, void *arg)
{
	struct guest_cpu *g = arg;

	if (!take_reply(g, r))
		return;
	if (js_bool(r->value, false) && js_append(g->have, js_ref(js_item(g->want, g->next)))) {
		give_up(g, "out of memory");
		return;
	}
	g->next++;
	ask_next(g);
}

static void ask_next(struct guest_cpu *g)
{
	const char *name = js_str(js_item(g->want, g->next));

	if (!name)
		done(g, g->have);
	else
		ask(g, "qom-get", js_pack("{s:s, s:s}", "path", g->path, "property", name),
		    on_feature);
}

static void on_filtered(const struct qmp_reply *r, void *arg)
{
	struct guest_cpu *g = arg;
	bool dropped = false;

	if (!take_reply(g, r))
		return;
	for (size_t i = 0; i < js_len(r->value); i++)
		dropped |= js_get_int(js_item(r->value, i), "features", 0) != 0;
	if (dropped)
		ask_next(g);
	else
		done(g, g->want);
}

/* --- the model, expanded --- */

static void on_expanded(const struct qmp_reply *r, void *arg)
{
	struct guest_cpu *g = arg;

	if (!take_reply(g, r))
		return;
	JS_FOREACH(it, js_at(r->value, "model", "props", NULL)) {
		if (js_type(it.value) != JS_BOOL || !js_bool(it.value, false))
			continue;
		if (js_append(g->want, js_new_str(it.key))) {
			give_up(g, "out of memory");
			return;
		}
	}
	ask(g, "qom-get", js_pack("{s:s, s:s}", "path", g->path, "property", "filtered-features"),
	    on_filtered);
}

static struct json *expansion(const struct launch_spec *s)
{
	struct json *props = js_new_object();

	for (size_t i = 0; props && i < s->n_features; i++)
		if (js_set(props, s->features[i].name, js_new_bool(s->features[i].on)))
			props = js_unref(props);
	return js_pack("{s:s, s:{s:s, s:o}}", "type", "static", "model", "name", s->cpu_model,
		       "props", props);
}

static void on_cpus(const struct qmp_reply *r, void *arg)
{
	struct guest_cpu *g = arg;

	if (!take_reply(g, r))
		return;
	usage_take_vcpus(g->l, r->value);
	g->path = mem_strdup(js_get_str(js_item(r->value, 0), "qom-path"));
	if (g->path)
		ask(g, "query-cpu-model-expansion", expansion(g->l->spec), on_expanded);
	else
		give_up(g, "QEMU names no vCPU");
}

static void ask(struct guest_cpu *g, const char *command, struct json *args, qmp_reply_fn fn)
{
	struct qmp_call c = {
		.command = command, .args = args, .timeout = QMP_TIMEOUT, .fn = fn, .arg = g};
	struct err err = {0};

	if (qmp_invoke(g->l->qmp, &g->slot, &c, &err))
		give_up(g, err.msg);
}

void guest_cpu_ask(struct launcher *l)
{
	struct guest_cpu *g;

	if (l->cpu || l->asking_cpu || !qmp_is_ready(l->qmp))
		return;
	g = mem_alloc(sizeof(*g));
	if (!g) {
		log_warn("vm: what CPU the guest sees is not known: out of memory");
		return;
	}
	g->l = l;
	g->want = js_new_array();
	g->have = js_new_array();
	l->asking_cpu = g;
	if (g->want && g->have)
		ask(g, "query-cpus-fast", NULL, on_cpus);
	else
		give_up(g, "out of memory");
}
