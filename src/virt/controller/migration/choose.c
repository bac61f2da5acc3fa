/* How the memory of a move goes over: what is known of the VM, its settings and both nodes, for method.h. */
#include "api/api.h"
#include "api/meta.h"
#include "api/quantity.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/migration/mig_int.h"
#include "virt/controller/vmi/resources.h"
#include "virt/migration/method.h"
#include "virt/names.h"

static bool has_label(const Node *n, const char *label)
{
	return n && str_eq(api_label(&n->metadata, label), "true");
}

static int64_t cpus_of(const Node *n)
{
	return n ? api_quantity_bytes(api_map_get(&n->status.capacity, "cpu"), 0) : 0;
}

static enum method_wish wish_of(const VMIMConfigurationOptions *c)
{
	const char *text = c->experimental ? c->experimental->compression : NULL;

	if (str_eq(text, MigrationCompression_zstd))
		return METHOD_WISH_ZSTD;
	return str_eq(text, MigrationCompression_none) ? METHOD_WISH_PLAIN : METHOD_WISH_NONE;
}

static struct method_facts facts_of(const struct mig *m, const VMIMConfigurationOptions *c)
{
	const VirtualMachineInstanceSpec *spec = &m->vmi->spec;
	const ResourceRequirements *r = spec->domain.resources;
	const Node *from = view_get(m->v, &api_kind_Node, NULL, m->vmi->status.nodeName);
	const Node *to = view_get(m->v, &api_kind_Node, NULL, m->target->spec.nodeName);

	return (struct method_facts){
		.post_copy = API_GET(c, allowPostCopy, false) &&
			     API_GET(c, allowWorkloadDisruption, true),
		.has_cpu_limit = r && api_map_has(&r->limits, "cpu"),
		.compression = wish_of(c),
		.bandwidth = api_quantity_bytes(c->bandwidthPerMigration, 0),
		.memory = vmi_guest_memory(spec),
		.cpus = MIN(cpus_of(from), cpus_of(to)),
		.knows_multifd =
			has_label(from, LABEL_QEMU_MULTIFD) && has_label(to, LABEL_QEMU_MULTIFD),
		.knows_zstd = has_label(from, LABEL_QEMU_ZSTD) && has_label(to, LABEL_QEMU_ZSTD),
		.knows_xbzrle =
			has_label(from, LABEL_QEMU_XBZRLE) && has_label(to, LABEL_QEMU_XBZRLE),
	};
}

enum rc mig_choose_method(const struct mig *m, const VMIMConfigurationOptions *c,
			  FerryMigrationMethod **out)
{
	struct method_facts facts = facts_of(m, c);
	struct method w = method_choose(&facts);
	FerryMigrationMethod *f = api_ensure(&api_type_FerryMigrationMethod, out);

	if (!f)
		return RC_NOMEM;
	TRY(api_set_str(&f->migrationUID, m->old->metadata.uid));
	TRY(api_set_str(&f->reason, w.reason));
	TRY(api_set_str(&f->message, w.message));
	API_SET(f, channels, w.channels);
	API_SET(f, bandwidthBytes, w.bandwidth);
	API_SET(f, xbzrleCacheBytes, w.xbzrle);
	return api_set_str(&f->compression, w.zstd ? "zstd" : "none");
}
