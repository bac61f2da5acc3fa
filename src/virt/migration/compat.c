#include "virt/migration/compat.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "virt/migration/arrivals.h"
#include "virt/names.h"

enum { NAMES_SHOWN = 8, KEY_MAX = 320, LEVEL_MAJOR = 100 };

static bool has_label(const Node *node, const char *family, const char *name, size_t n)
{
	char key[KEY_MAX];

	(void)snprintf(key, sizeof(key), "%s%.*s", family, (int)n, name);
	return api_map_has(&node->metadata.labels, key);
}

bool compat_model(const VirtualMachineInstance *vmi, const char **name, size_t *n)
{
	const char *text = vmi->status.ferry ? vmi->status.ferry->cpuModel : NULL;

	if (str_is_empty(text))
		return false;
	*name = text;
	*n = strcspn(text, ",");
	return !(*n == 3 && strncmp(text, "max", 3) == 0) &&
	       !(*n == 4 && strncmp(text, "host", 4) == 0);
}

int64_t compat_qemu_level(const char *version)
{
	int major, minor;

	if (!version || sscanf(version, "%d.%d", &major, &minor) != 2 || major < 1 || minor < 0 ||
	    minor >= LEVEL_MAJOR)
		return 0;
	return (int64_t)major * LEVEL_MAJOR + minor;
}

void compat_print_names(const char *const *names, size_t n, struct sbuf *out)
{
	for (size_t i = 0; i < n && i < NAMES_SHOWN; i++)
		sbuf_addf(out, "%s%s", i ? ", " : "", names[i]);
	if (n > NAMES_SHOWN)
		sbuf_addf(out, " and %zu more", n - NAMES_SHOWN);
}

static void PRINTF_LIKE(3, 4) find(struct compat *c, const char *reason, const char *fmt, ...)
{
	va_list ap;

	c->reason = reason;
	va_start(ap, fmt);
	(void)vsnprintf(c->message, sizeof(c->message), fmt, ap);
	va_end(ap);
}

static void check_machine(const VirtualMachineInstance *vmi, const Node *node, struct compat *c)
{
	const char *type = vmi->status.machine ? vmi->status.machine->type : NULL;

	if (!str_is_empty(type) && !has_label(node, LABEL_MACHINE_TYPE, type, strlen(type)))
		find(c, COMPAT_MACHINE, "has a QEMU without the machine type %s", type);
}

/* QEMU promises that a newer one takes the state of an older one, not the reverse. */
static void check_qemu(const VirtualMachineInstance *vmi, const Node *node, struct compat *c)
{
	const char *ours = vmi->status.ferry ? vmi->status.ferry->qemuVersion : NULL;
	const char *theirs = api_label(&node->metadata, LABEL_QEMU_VERSION);
	int64_t level = compat_qemu_level(ours);

	if (!level || compat_qemu_level(theirs) >= level)
		return;
	if (theirs)
		find(c, COMPAT_QEMU, "has QEMU %s, older than the guest's %s", theirs, ours);
	else
		find(c, COMPAT_QEMU, "does not tell which QEMU it has; the guest's is %s", ours);
}

/* Names, as many as are shown, and how many there are in all. */
static size_t missing_features(const VirtualMachineInstance *vmi, const Node *node,
			       const char *names[NAMES_SHOWN])
{
	const FerryGuestCPU *cpu = vmi->status.ferry ? vmi->status.ferry->cpu : NULL;
	size_t n = 0;

	for (size_t i = 0; cpu && i < cpu->n_features; i++) {
		const char *f = cpu->features[i];

		if (has_label(node, LABEL_CPU_FEATURE, f, strlen(f)))
			continue;
		if (n < NAMES_SHOWN)
			names[n] = f;
		n++;
	}
	return n;
}

static void check_cpu(const VirtualMachineInstance *vmi, const Node *node, struct compat *c)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);
	const char *names[NAMES_SHOWN];
	size_t n_missing = missing_features(vmi, node, names), n;
	const char *model;

	if (n_missing) {
		compat_print_names(names, n_missing, &b); /* it shows no more than names has */
		find(c, COMPAT_FEATURES, "lacks the CPU feature%s %s, which the guest has",
		     n_missing > 1 ? "s" : "", sbuf_str(&b));
	} else if (compat_model(vmi, &model, &n) &&
		   !has_label(node, LABEL_CPU_MODEL_MIGRATION, model, n) &&
		   !has_label(node, LABEL_CPU_MODEL, model, n)) {
		find(c, COMPAT_MODEL, "cannot give the CPU model %.*s", (int)n, model);
	}
}

void compat_check(const VirtualMachineInstance *vmi, const Node *node, struct compat *out)
{
	*out = (struct compat){0};
	check_machine(vmi, node, out);
	if (!out->reason)
		check_qemu(vmi, node, out);
	if (!out->reason)
		check_cpu(vmi, node, out);
}

/* In the words of lib/sched. */
static void check_selector(const VirtualMachineInstance *vmi, const Node *node, struct compat *c)
{
	const struct api_map *sel = &vmi->spec.nodeSelector;

	for (size_t i = 0; i < sel->n && !c->reason; i++) {
		const struct api_map_item *s = &sel->items[i];
		const char *has = api_label(&node->metadata, s->key);

		if (!str_eq(has, s->value))
			find(c, COMPAT_SELECTOR, "needs label %s=%s, the node has %s%s%s", s->key,
			     s->value, has ? "'" : "", has ? has : "none", has ? "'" : "");
	}
}

/* ---- what a move needs ---- */

struct compat_move compat_move_of(const char *network, const Node *source, bool brings_disks)
{
	return (struct compat_move){.network = network,
				    .source_has_network =
					    !network || !source ||
					    api_map_has(&source->metadata.labels, network),
				    .brings_disks = brings_disks};
}

/* The network is that of both sides. */
static void check_network(const struct compat_move *move, const Node *node, struct compat *c)
{
	if (!move->network)
		return;
	const char *name = move->network + strlen(LABEL_MIGRATION_NETWORK);

	if (!api_map_has(&node->metadata.labels, move->network))
		find(c, COMPAT_NETWORK, "has no address in the migration network '%s'", name);
	else if (!move->source_has_network)
		find(c, COMPAT_NETWORK,
		     "cannot be reached: the node that the guest runs on has no address in the "
		     "migration network '%s'",
		     name);
}

void compat_check_move(const struct compat_move *move, const VirtualMachineInstance *vmi,
		       const Node *node, struct compat *out)
{
	*out = (struct compat){0};
	check_network(move, node, out);
	if (!out->reason && move->brings_disks)
		arrivals_check(vmi, node, out);
}

/* ---- all of them ---- */

void compat_add(struct compat_summary *s, const struct compat_move *move,
		const VirtualMachineInstance *vmi, const Node *node)
{
	size_t n = strlen(s->text);
	struct compat c = {0};

	check_selector(vmi, node, &c);
	if (!c.reason)
		compat_check(vmi, node, &c);
	s->n_others++;
	s->n_suitable += !c.reason;
	if (!c.reason)
		compat_check_move(move, vmi, node, &c);
	s->n_fit += !c.reason;
	if (c.reason)
		(void)snprintf(s->text + n, sizeof(s->text) - n, "%s%s %s", n ? "; " : "",
			       node->metadata.name, c.message);
}
