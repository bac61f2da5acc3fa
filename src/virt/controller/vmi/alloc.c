#include "virt/controller/vmi/alloc.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "net/addr.h"
#include "virt/controller/kit.h"
#include "virt/controller/vmi/launcher_pod.h"
#include "virt/names.h"

#define ADDRESS_SKIP 256 /* the first addresses belong to gateways and nodes */
#define PROBES_MAX   4096
/* An owner that is not in the view may only not have arrived yet. */
#define RELEASE_AFTER (10 * USEC_PER_SEC)

struct alloc_owner alloc_owner_of(const VirtualMachineInstance *vmi)
{
	const OwnerReference *c = api_controller_of(&vmi->metadata);

	if (c && str_eq(c->kind, "VirtualMachine"))
		return (struct alloc_owner){c->kind, vmi->metadata.namespace, c->name, c->uid};
	return (struct alloc_owner){"VirtualMachineInstance", vmi->metadata.namespace,
				    vmi->metadata.name, vmi->metadata.uid};
}

void alloc_index(const struct kobj *o, kcache_emit_fn emit, void *ctx)
{
	const Allocation *a = kobj_typed(o);

	if (a->spec.owner.uid)
		emit(ctx, a->spec.owner.uid);
}

const char *alloc_held(const struct view *v, const char *owner_uid, const char *type)
{
	struct kiter it;

	view_by(v, &api_kind_Allocation, ALLOC_INDEX, owner_uid, &it);
	for (const Allocation *a; (a = view_next(&it));)
		if (str_eq(a->spec.type, type) && !a->metadata.deletionTimestamp)
			return a->spec.value;
	return NULL;
}

enum rc alloc_name(const char *type, const char *value, char **out)
{
	CLEANUP(mem_freep)
	char *name = mem_printf("%s-%s", type, value);

	if (!name)
		return RC_NOMEM;
	for (char *p = name; *p; p++)
		if (*p == '.' || *p == ':' || *p == '/')
			*p = '-';
	*out = STEAL(name);
	return RC_OK;
}

static enum rc is_free(const struct view *v, const char *type, const char *value, bool *out)
{
	CLEANUP(mem_freep)
	char *name = NULL;

	TRY(alloc_name(type, value, &name));
	*out = !view_get(v, &api_kind_Allocation, NULL, name);
	return RC_OK;
}

static enum rc fill(Allocation *a, const struct alloc_owner *o, const char *type, const char *value)
{
	TRY(alloc_name(type, value, &a->metadata.name));
	TRY(api_set_str(&a->spec.type, type));
	TRY(api_set_str(&a->spec.value, value));
	TRY(api_set_str(&a->spec.owner.kind, o->kind));
	TRY(api_set_str(&a->spec.owner.namespace, o->ns));
	TRY(api_set_str(&a->spec.owner.name, o->name));
	return api_set_str(&a->spec.owner.uid, o->uid);
}

static enum rc plan_alloc(struct plan *plan, const struct alloc_owner *o, const char *type,
			  const char *value)
{
	CLEANUP(Allocation_freep)
	Allocation *a = Allocation_new();

	if (!a)
		return RC_NOMEM;
	TRY(fill(a, o, type, value));
	return plan_create(plan, &api_kind_Allocation, STEAL(a));
}

/* ---- the pod network ---- */

struct range {
	uint32_t first; /* host order */
	uint32_t n;
};

static enum rc network_range(const struct view *v, struct range *out, struct err *err)
{
	const FerryConfigSpec *cfg = kit_ferry_config(v);
	const char *cidr = NETWORK_DEFAULT;
	struct in_addr in;
	unsigned bits;

	for (size_t i = 0; cfg && i < cfg->n_networks; i++)
		if (str_eq(cfg->networks[i].name, "default") && cfg->networks[i].cidr)
			cidr = cfg->networks[i].cidr;
	if (net_cidr_parse(cidr, &in, &bits, NULL))
		return err_set(err, RC_INVALID, "network '%s' is not a CIDR", cidr);
	if (bits < 16 || bits > 22)
		return err_set(err, RC_INVALID, "network '%s' is not an IPv4 CIDR of /16 to /22",
			       cidr);
	uint32_t size = 1u << (32 - bits);

	out->first = (ntohl(in.s_addr) & ~(size - 1)) + ADDRESS_SKIP;
	out->n = size - ADDRESS_SKIP - 1;
	return RC_OK;
}

static void address_text(uint32_t a, char out[48])
{
	struct in_addr in = {.s_addr = htonl(a)};

	inet_ntop(AF_INET, &in, out, 48);
}

static enum rc pick_address(const struct view *v, const char *owner_uid, char out[48],
			    struct err *err)
{
	uint64_t h = str_hash(owner_uid, strlen(owner_uid));
	struct range r = {0};

	TRY(network_range(v, &r, err));
	for (uint32_t i = 0; i < r.n && i < PROBES_MAX; i++) {
		uint32_t a = r.first + (uint32_t)((h + i) % r.n);
		bool ok;

		if ((a & 255) == 0 || (a & 255) == 255)
			continue; /* legal in a wide network, yet some guests refuse them */
		address_text(a, out);
		TRY(is_free(v, "address", out, &ok));
		if (ok)
			return RC_OK;
	}
	return err_set(err, RC_BUSY, "no free address in the pod network");
}

static enum rc pick_mac(const struct view *v, const char *address, const char *owner_uid,
			char out[24], struct err *err)
{
	struct in_addr in;
	uint32_t a = (uint32_t)str_hash(owner_uid, strlen(owner_uid));

	if (inet_pton(AF_INET, address, &in) == 1)
		a = ntohl(in.s_addr);
	for (uint32_t i = 0; i < PROBES_MAX; i++, a++) {
		bool ok;

		snprintf(out, 24, "0a:58:%02x:%02x:%02x:%02x", a >> 24, (a >> 16) & 255,
			 (a >> 8) & 255, a & 255);
		TRY(is_free(v, "mac", out, &ok));
		if (ok)
			return RC_OK;
	}
	return err_set(err, RC_BUSY, "no free MAC");
}

static enum rc pick_uid(const struct view *v, const char *owner_uid, int64_t *out, struct err *err)
{
	uint64_t h = str_hash(owner_uid, strlen(owner_uid));

	for (uint64_t i = 0; i < PROBES_MAX; i++) {
		char text[24];
		bool ok;

		*out = VM_UID_FIRST + (int64_t)((h + i) % VM_UID_COUNT);
		snprintf(text, sizeof(text), "%lld", (long long)*out);
		TRY(is_free(v, "uid", text, &ok));
		if (ok)
			return RC_OK;
	}
	return err_set(err, RC_BUSY, "no free unix uid");
}

/* ---- what a VMI needs ---- */

/* The interface on the pod network; NULL: none. */
static const Interface *pod_interface(const VirtualMachineInstanceSpec *spec)
{
	for (size_t i = 0; i < spec->n_networks; i++) {
		if (!spec->networks[i].pod)
			continue;
		for (size_t k = 0; k < spec->domain.devices.n_interfaces; k++)
			if (str_eq(spec->domain.devices.interfaces[k].name, spec->networks[i].name))
				return &spec->domain.devices.interfaces[k];
	}
	return NULL;
}

static enum rc take_network(const struct view *v, const Interface *iface,
			    const struct alloc_owner *o, struct plan *plan, struct vm_identity *out,
			    struct err *err)
{
	const char *held = alloc_held(v, o->uid, "address");

	out->has_network = true;
	if (held) {
		snprintf(out->address, sizeof(out->address), "%s", held);
	} else {
		TRY(pick_address(v, o->uid, out->address, err));
		TRY(plan_alloc(plan, o, "address", out->address));
	}
	held = alloc_held(v, o->uid, "mac");
	if (!str_is_empty(iface->macAddress)) {
		snprintf(out->mac, sizeof(out->mac), "%s", iface->macAddress);
	} else if (held) {
		snprintf(out->mac, sizeof(out->mac), "%s", held);
	} else {
		TRY(pick_mac(v, out->address, o->uid, out->mac, err));
		TRY(plan_alloc(plan, o, "mac", out->mac));
	}
	return RC_OK;
}

enum rc alloc_identity(const struct view *v, const VirtualMachineInstance *vmi, struct plan *plan,
		       struct vm_identity *out, struct err *err)
{
	struct alloc_owner o = alloc_owner_of(vmi);
	const Interface *iface = pod_interface(&vmi->spec);
	const char *held = alloc_held(v, o.uid, "uid");

	memset(out, 0, sizeof(*out));
	if (iface)
		TRY(take_network(v, iface, &o, plan, out, err));
	if (held)
		return str_to_i64(held, 0, INT32_MAX, &out->uid, err);
	TRY(pick_uid(v, o.uid, &out->uid, err));
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)out->uid);
	return plan_alloc(plan, &o, "uid", text);
}

/* ---- release ---- */

/* Releases a value whose owner is gone. Values of other kinds of owners are not ours. */
static enum rc alloc_reconcile(const struct view *v, const char *ns, const char *name,
			       struct plan *out, struct err *err)
{
	const Allocation *a = view_get(v, &api_kind_Allocation, ns, name);
	const struct api_kind *kind = NULL;

	(void)err;
	if (!a || a->metadata.deletionTimestamp)
		return RC_OK;
	if (str_eq(a->spec.owner.kind, "VirtualMachine"))
		kind = &api_kind_VirtualMachine;
	else if (str_eq(a->spec.owner.kind, "VirtualMachineInstance"))
		kind = &api_kind_VirtualMachineInstance;
	else
		return RC_OK;
	const struct kobj *owner =
		kcache_get(v->cache, kind, a->spec.owner.namespace, a->spec.owner.name);

	if (owner && str_eq(kobj_uid(owner), a->spec.owner.uid))
		return RC_OK;
	usec_t age = kit_age(v->now, a->metadata.creationTimestamp);

	if (age < RELEASE_AFTER)
		return plan_requeue_after(out, RELEASE_AFTER - age);
	return plan_delete(out, &api_kind_Allocation, NULL, name, a->metadata.uid, -1, NULL);
}

static void map_owner(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	view_by(v, &api_kind_Allocation, ALLOC_INDEX, kobj_uid(obj), &it);
	for (const Allocation *a; (a = view_next(&it));)
		emit(ctx, NULL, a->metadata.name);
}

static const struct ctl_map maps[] = {
	{&api_kind_VirtualMachine, map_owner},
	{&api_kind_VirtualMachineInstance, map_owner},
	{NULL, NULL},
};

static const struct ctl_index indexes[] = {
	{&api_kind_Allocation, ALLOC_INDEX, alloc_index},
	{NULL, NULL, NULL},
};

const struct ctl_def alloc_ctl_def = {
	.name = "allocation",
	.primary = &api_kind_Allocation,
	.reconcile = alloc_reconcile,
	.maps = maps,
	.indexes = indexes,
};
