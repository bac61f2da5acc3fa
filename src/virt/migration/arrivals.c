#include "virt/migration/arrivals.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/migration/compat.h"
#include "virt/names.h"

#define LOOKS ANN_ARRIVALS "looks" /* no uid */

static const char *const names[ARRIVAL__MAX] = {"yes", "later", "no"};

enum rc arrivals_note(struct api_map *facts, const char *vmi_uid, enum arrival a, const char *text)
{
	CLEANUP(mem_freep) char *key = mem_printf(ANN_ARRIVALS "%s", vmi_uid);

	if (!key)
		return RC_NOMEM;
	return a == ARRIVAL_YES ? api_map_set(facts, key, names[a])
				: api_map_setf(facts, key, "%s: %s", names[a], text);
}

enum rc arrivals_note_looks(struct api_map *facts)
{
	return api_map_set(facts, LOOKS, "true");
}

static bool has_all(const struct api_map *a, const struct api_map *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (str_has_prefix(b->items[i].key, ANN_ARRIVALS) &&
		    !str_eq(api_map_get(a, b->items[i].key), b->items[i].value))
			return false;
	return true;
}

bool arrivals_equal(const Node *a, const Node *b)
{
	return has_all(&a->metadata.annotations, &b->metadata.annotations) &&
	       has_all(&b->metadata.annotations, &a->metadata.annotations);
}

static const char *answer_of(const VirtualMachineInstance *vmi, const Node *node)
{
	char key[128];

	(void)snprintf(key, sizeof(key), ANN_ARRIVALS "%s",
		       vmi->metadata.uid ? vmi->metadata.uid : "");
	return api_annotation(&node->metadata, key);
}

/* "no: phrase" -> the phrase; NULL: another answer. */
static const char *phrase(const char *answer, enum arrival a)
{
	size_t n = strlen(names[a]);

	return strncmp(answer, names[a], n) == 0 && strncmp(answer + n, ": ", 2) == 0
		       ? answer + n + 2
		       : NULL;
}

#define DISKS "the disks that go along"

static void tell(struct compat *c, bool may_pass, const char *what, const char *more)
{
	c->reason = COMPAT_DISKS;
	c->may_pass = may_pass;
	(void)snprintf(c->message, sizeof(c->message), "%s%s", what, more);
}

void arrivals_check(const VirtualMachineInstance *vmi, const Node *node, struct compat *out)
{
	const char *answer = answer_of(vmi, node), *why;

	if (!api_annotation(&node->metadata, LOOKS))
		return;
	if (!API_COND_IS(&node->status, NodeCondition, "Ready", "True"))
		tell(out, true,
		     "is not ready, so that it is not known whether it has a place for " DISKS, "");
	else if (!answer)
		tell(out, true, "has not told yet whether it has a place for " DISKS, "");
	else if ((why = phrase(answer, ARRIVAL_NO)))
		tell(out, false, "has no place for " DISKS ": ", why);
	else if ((why = phrase(answer, ARRIVAL_LATER)))
		tell(out, true, "has no place yet for " DISKS ": ", why);
}

uint64_t arrivals_bytes(const VirtualMachineInstance *vmi, const char *volume)
{
	for (size_t i = 0; i < vmi->status.n_volumeStatus; i++)
		if (str_eq(vmi->status.volumeStatus[i].name, volume))
			return (uint64_t)API_GET(&vmi->status.volumeStatus[i], size, 0);
	return 0;
}
