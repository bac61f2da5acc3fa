#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "net/addr.h"
#include "virt/admission/admission_int.h"

/* FerryConfig: one in the cluster, and a network that every node can be part of. */

#define THE_ONE "ferry"

/* What a cluster network may be: the nodes' addresses are its 10th to 255th, VMs have the rest, and the
 * migration link repeats the last 16 bits of a VM's address. */
enum { PREFIX_MIN = 16, PREFIX_MAX = 22, GATEWAY_LAST = 9 };

struct range {
	uint32_t first, last; /* host order */
};

/* The network's addresses; false: cidr is none that Ferry can use, which why then says. */
static bool parse_cidr(const char *cidr, struct range *out, const char **why)
{
	struct in_addr in;
	unsigned prefix;

	*why = "must be an IPv4 network of /16 to /22, as in 10.244.0.0/16";
	if (net_cidr_parse(cidr, &in, &prefix, NULL) || prefix < PREFIX_MIN || prefix > PREFIX_MAX)
		return false;
	uint32_t first = ntohl(in.s_addr), size = 1u << (32 - prefix);

	*why = "must not have bits set beyond its prefix";
	*out = (struct range){first, first + size - 1};
	return (first & (size - 1)) == 0;
}

static bool is_gateway_of(const char *text, const struct range *r)
{
	struct in_addr in;

	return !net_ip4_parse(text, &in, NULL) && ntohl(in.s_addr) > r->first &&
	       ntohl(in.s_addr) <= r->first + GATEWAY_LAST;
}

static void check_overlap(const struct range *r, const char *path, const char *cidr,
			  struct field_errs *fe)
{
	static const struct {
		const char *what;
		struct range range;
	} taken[] = {
		{"the Services' network 10.96.0.0/16", {0x0a600000, 0x0a60ffff}},
		{"the migration network 198.18.0.0/16", {0xc6120000, 0xc612ffff}},
		{"link-local addresses 169.254.0.0/16", {0xa9fe0000, 0xa9feffff}},
		{"loopback addresses 127.0.0.0/8", {0x7f000000, 0x7fffffff}},
		{"multicast and reserved addresses", {0xe0000000, 0xffffffff}},
		{"addresses that name no network", {0, 0x00ffffff}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
		if (r->first <= taken[i].range.last && taken[i].range.first <= r->last)
			fe_cause(fe, INVALID, path, "%s '%s': must not overlap %s", path, cidr,
				 taken[i].what);
}

static void check_network_of(const FerryNetwork *n, size_t i, struct field_errs *fe)
{
	char path[64];
	const char *why;
	struct range r;

	(void)snprintf(path, sizeof(path), "spec.networks[%zu].name", i);
	if (!str_eq(n->name, "default"))
		fe_cause(fe, NOT_SUPPORTED, path,
			 "%s '%s': not supported by Ferry yet; the one network is named 'default'",
			 path, n->name);
	(void)snprintf(path, sizeof(path), "spec.networks[%zu].cidr", i);
	if (str_is_empty(n->cidr))
		return; /* the schema has said so */
	if (!parse_cidr(n->cidr, &r, &why)) {
		fe_cause(fe, INVALID, path, "%s '%s': %s", path, n->cidr, why);
		return;
	}
	check_overlap(&r, path, n->cidr, fe);
	(void)snprintf(path, sizeof(path), "spec.networks[%zu].gateway", i);
	if (n->gateway && !is_gateway_of(n->gateway, &r))
		fe_cause(fe, INVALID, path, "%s '%s': must be one of the first %d addresses of %s",
			 path, n->gateway, GATEWAY_LAST, n->cidr);
}

static bool is_same_network(const FerryConfigSpec *a, const FerryConfigSpec *b)
{
	if (a->n_networks != b->n_networks)
		return false;
	for (size_t i = 0; i < a->n_networks; i++) {
		const FerryNetwork *x = &a->networks[i], *y = &b->networks[i];

		if (!str_eq(x->name, y->name) || !str_eq(x->cidr, y->cidr) ||
		    !str_eq(x->gateway, y->gateway) || API_GET(x, vni, 0) != API_GET(y, vni, 0))
			return false;
	}
	return true;
}

static void check_baseline(struct hook_ctx *ctx, const char *model, struct field_errs *fe)
{
	static const char *const stand_ins[] = {"host-model", "host-passthrough", "host", "max",
						NULL};

	if (!model)
		return;
	if (is_one_of(model, stand_ins))
		fe_cause(fe, INVALID, "spec.cpuBaseline",
			 "spec.cpuBaseline '%s': must be a named CPU model, the same on every node",
			 model);
	else
		adm_check_cpu_model(ctx->env, "spec.cpuBaseline", model, fe);
}

/* A name of a file and nothing else: the API chooses among the programs of the controller's host. */
static bool is_program_name(const char *s)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

	return s && *s != '.' && *s != '-' && s[strspn(s, letters)] == '\0';
}

static void check_fencing(const FerryConfigSpec *s, struct field_errs *fe)
{
	if (str_eq(s->fencing, FencingPolicy_Agent) && !s->fenceAgent)
		fe_cause(fe, REQUIRED, "spec.fenceAgent",
			 "spec.fenceAgent: fencing Agent needs the program that fences");
	if (s->fenceAgent && !is_program_name(s->fenceAgent->program))
		fe_cause(
			fe, INVALID, "spec.fenceAgent.program",
			"spec.fenceAgent.program '%s': must be the name of a file in the folder of "
			"fence agents: letters, digits, '.', '_', '-', and not a path",
			s->fenceAgent->program ? s->fenceAgent->program : "");
}

static void check_host_disk_paths(const FerryConfigSpec *s, struct field_errs *fe)
{
	char path[64];

	for (size_t i = 0; i < s->n_hostDiskPaths; i++) {
		(void)snprintf(path, sizeof(path), "spec.hostDiskPaths[%zu]", i);
		if (!str_is_plain_path(s->hostDiskPaths[i]))
			fe_cause(fe, INVALID, path,
				 "%s '%s': must be the absolute path of a folder other than the "
				 "root, without '.', '..' and doubled or trailing slashes",
				 path, s->hostDiskPaths[i]);
	}
}

enum rc ferryconfig_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			     struct field_errs *fe, struct err *err)
{
	const FerryConfig *cfg = obj, *was = old;
	bool has_nodes = adm_any(ctx, "nodes");

	if (ctx->op == HOOK_DELETE)
		return has_nodes ? err_set(err, RC_BAD_REQUEST,
					   "the cluster has nodes, and they need its settings: "
					   "change the FerryConfig instead")
				 : RC_OK;
	if (*ctx->subresource)
		return RC_OK;
	if (!str_eq(cfg->metadata.name, THE_ONE))
		fe_cause(fe, INVALID, "metadata.name",
			 "metadata.name '%s': there is one FerryConfig, and it is named '" THE_ONE
			 "'",
			 cfg->metadata.name);
	for (size_t i = 0; i < cfg->spec.n_networks; i++)
		check_network_of(&cfg->spec.networks[i], i, fe);
	if (was && has_nodes && !is_same_network(&cfg->spec, &was->spec))
		fe_cause(fe, INVALID, "spec.networks",
			 "spec.networks: field is immutable while the cluster has nodes");
	check_fencing(&cfg->spec, fe);
	check_host_disk_paths(&cfg->spec, fe);
	if (!was || !str_eq(was->spec.cpuBaseline, cfg->spec.cpuBaseline))
		check_baseline(ctx, cfg->spec.cpuBaseline, fe);
	return RC_OK;
}
