#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "sched/snapshot.h"
#include "virt/controller/migration/mig_int.h"
#include "virt/migration/compat.h"
#include "virt/names.h"

struct asked {
	size_t n_others;   /* nodes that are not the source */
	size_t n_possible; /* of them: fit, or might fit after waiting */
	size_t n_added;	   /* of them: match addedNodeSelector */
	bool source_is_added;
	struct sbuf text;
	struct compat_move move;
	char *network; /* what move has of it; owned */
};

static FerryMigrationStatus *ferry(struct mig *m)
{
	return api_ensure(&api_type_FerryMigrationStatus, &m->next->status.ferry);
}

/* reason NULL: the node can take it. */
static enum rc note(struct mig *m, const char *node, bool is_lasting, const char *reason,
		    const char *message)
{
	FerryMigrationStatus *f = ferry(m);
	FerryPlacement *p = f ? api_append(&f->placement, &f->n_placement, sizeof(*p)) : NULL;

	if (!p)
		return RC_NOMEM;
	TRY(api_set_str(&p->node, node));
	API_SET(p, allowed, !reason);
	if (is_lasting)
		API_SET(p, lasting, true);
	TRY(api_set_str(&p->reason, reason));
	return api_set_str(&p->message, message);
}

static bool matches_added(const struct mig *m, const Node *node)
{
	const struct api_map *sel = &m->old->spec.addedNodeSelector;

	for (size_t i = 0; i < sel->n; i++)
		if (!str_eq(api_label(&node->metadata, sel->items[i].key), sel->items[i].value))
			return false;
	return sel->n > 0;
}

/* A lasting reason tells more than one that may pass. */
static const struct sched_reason *pick(const struct sched_verdict *v)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->reasons[i].is_lasting)
			return &v->reasons[i];
	return v->n ? &v->reasons[0] : NULL;
}

static enum rc find_move(struct mig *m, const Pod *pod, struct asked *a)
{
	const Node *from = view_get(m->v, &api_kind_Node, NULL, m->vmi->status.nodeName);

	TRY(mig_network_label(m->v, &a->network));
	a->move = compat_move_of(a->network, from, mig_brings_disks(pod));
	return RC_OK;
}

static void refuse(struct asked *a, const char *node, const char *why)
{
	sbuf_addf(&a->text, "%s%s: %s", a->text.n ? "; " : "", node, why);
}

static enum rc ask_node(struct mig *m, const struct sched_cluster *c, const struct sched_node *n,
			const Pod *pod, const struct sched_volume *vols, size_t n_vols,
			struct asked *a)
{
	const char *name = n->node->metadata.name;
	bool is_source = str_eq(name, m->vmi->status.nodeName);
	struct sched_verdict verdict;
	struct compat compat;

	if (is_source) {
		a->source_is_added = matches_added(m, n->node);
		return note(m, name, true, "Source", "the virtual machine runs there");
	}
	compat_check(m->vmi, n->node, &compat);
	if (!compat.reason)
		compat_check_move(&a->move, m->vmi, n->node, &compat);
	a->n_others++;
	a->n_added += matches_added(m, n->node);
	if (compat.reason && !compat.may_pass) { /* the pod asks for the same, but one at a time */
		refuse(a, name, compat.message);
		return note(m, name, true, compat.reason, compat.message);
	}
	TRY(sched_check(c, n, pod, vols, n_vols, SCHED_ALL, &verdict, m->err));
	const struct sched_reason *why = pick(&verdict);

	if (!why || !why->is_lasting)
		a->n_possible++;
	else
		refuse(a, name, why->detail);
	if (!why && compat.reason)
		return note(m, name, false, compat.reason, compat.message);
	return note(m, name, why && why->is_lasting, why ? why->plugin : NULL,
		    why ? why->detail : NULL);
}

static enum rc ask_all(struct mig *m, const Pod *pod, struct sched_cluster *c, struct asked *a)
{
	CLEANUP(mem_freep)
	struct sched_volume *vols = NULL;
	size_t n_vols;

	TRY(find_move(m, pod, a));
	TRY(sched_snapshot(m->v, c));
	TRY(sched_pod_volumes(m->v, pod, &vols, &n_vols));
	for (size_t i = 0; i < c->n_nodes; i++)
		TRY(ask_node(m, c, &c->nodes[i], pod, vols, n_vols, a));
	return sbuf_rc(&a->text) == RC_NOMEM ? RC_NOMEM : RC_OK;
}

static void judge(const struct asked *a, struct mig_placement *out)
{
	out->is_hopeless = a->n_possible == 0;
	if (!out->is_hopeless)
		return;
	if (!a->n_others) {
		out->reason = "OnlyOneNode";
		snprintf(out->message, sizeof(out->message), "there is no other node");
	} else if (a->source_is_added && !a->n_added) {
		out->reason = "TargetIsSource";
		snprintf(
			out->message, sizeof(out->message),
			"addedNodeSelector selects only the node that the virtual machine runs on");
	} else {
		out->reason = "NoCandidate";
		snprintf(out->message, sizeof(out->message),
			 "no node can ever take the virtual machine: %s", sbuf_str(&a->text));
	}
}

enum rc mig_place(struct mig *m, const Pod *pod, struct mig_placement *out)
{
	FerryMigrationStatus *f = ferry(m);
	struct asked a = {.text = SBUF_INIT(4096)};
	struct sched_cluster c = {0};

	if (!f)
		return RC_NOMEM;
	while (f->n_placement)
		api_remove(&api_type_FerryPlacement, &f->placement, &f->n_placement,
			   f->n_placement - 1);
	memset(out, 0, sizeof(*out));
	enum rc rc = ask_all(m, pod, &c, &a);

	if (!rc)
		judge(&a, out);
	sched_cluster_fini(&c);
	sbuf_fini(&a.text);
	mem_free(a.network);
	return rc;
}
