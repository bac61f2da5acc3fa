/* ferry-node: runs the pods of one machine, and the VMs in them.
 *
 * Composition only: options, then the API client and its caches, the CPU probe, the node's network, the
 * pod runtime with VMs as its workload, and the HTTPS port.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/failpoint.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/podruntime/netsync.h"
#include "cluster/podruntime/nodecert.h"
#include "cluster/podruntime/nodereg.h"
#include "cluster/podruntime/podnet.h"
#include "cluster/podruntime/podruntime.h"
#include "virt/node/pvdata.h"
#include "virt/node/volwork.h"
#include "ctl/daemon.h"
#include "ctl/exec.h"
#include "ev/ev.h"
#include "http/client.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "kube/kube.h"
#include "node_pods.h"
#include "virt/launcher/kvm_probe.h"
#include "virt/migration/fencing.h"
#include "virt/names.h"
#include "virt/node/agent_http.h"
#include "virt/node/arrivals_look.h"
#include "virt/node/cpulabels.h"
#include "virt/node/cpuprobe.h"
#include "virt/node/images.h"
#include "virt/node/imgunpack.h"
#include "virt/node/vm.h"
#include "virt/node/volumes.h"
#include "virt/node/witness.h"

#define PROBE_DEADLINE	(30 * USEC_PER_SEC)
#define PULL_DEADLINE	(30 * 60 * USEC_PER_SEC)
#define IMAGE_BYTES_MAX ((uint64_t)1 << 40)
#define DEVICES		"1000"

/* Queues of the pool: 16 and up are images', 64 and up those of volumes' storages. */
enum { NET_QUEUE = 1, POD_QUEUE, POD_REMOVE_QUEUE };
enum { WORDS_MAX = 32, SERVICE_DNS = 10 };

static const char *opt_name, *opt_server, *opt_pki, *opt_state = "/var/lib/ferry",
						    *opt_run = "/run/ferry";
static const char *opt_shared, *opt_address, *opt_qemu = "/usr/bin/qemu-system-x86_64",
					     *opt_launcher;
static const char *opt_agent_port = "8186", *opt_accel = "auto", *opt_oci_root = "/";
static const char *opt_cpu_without, *opt_migration_network;
static const char *opt_insecure, *opt_registries, *opt_service_cidr = "10.96.0.0/16";

struct node {
	struct daemon *daemon;
	struct loop *loop;
	char *ca, *cert, *key, *launcher, *self, *images_dir, *probe_file, *kvm_file, *netns_dir,
		*dns_dir, *local_dir;
	const char *insecure[WORDS_MAX], *registries[WORDS_MAX];
	char *insecure_text, *registries_text;
	struct kvm_verdict kvm;
	const char *accel;
	struct image_store images;
	struct in_addr underlay, services, dns;
	char *migration_name;	  /* of the migration network; NULL: it has none */
	struct in_addr migration; /* its address in it */
	unsigned service_prefix;
	struct in_addr network, gateway; /* of the cluster network: FerryConfig.spec.networks */
	unsigned prefix;
	uint32_t vni;
	uint16_t agent_port;
	struct kube *kube;
	struct http_client *http;
	struct kcache *cache;
	struct kcache_handler *on_config;
	struct exec *pod_exec, *vm_exec;
	struct cpuprobe *cpuprobe;
	struct json *probe;
	struct nodereg *reg;
	struct nodecert *nodecert;
	struct podnet *net;
	struct podnet_config net_cfg;
	struct netsync *netsync;
	struct volwork *volwork;
	struct vmhost *vms;
	struct podrt *pods;
	struct pvdata *pvdata;
	struct arrivals_look *arrivals;
	struct witness *witness;
	struct agent_http *https;
	unsigned lease_seconds; /* UINT_MAX: as long as usual */
	bool has_network, is_synced, is_net_up;
	enum rc net_rc;
	struct err net_err;
};

/* --- VMs as the pod runtime sees them --- */

static const char *wl_refuse(const Pod *pod, void *arg)
{
	(void)arg;
	if (!str_eq(api_label(&pod->metadata, LABEL_ROLE), ROLE_LAUNCHER) ||
	    !api_label(&pod->metadata, LABEL_CREATED_BY))
		return "this node runs virt-launcher pods only: ordinary containers need a kubelet";
	if (!api_annotation(&pod->metadata, ANN_UID))
		return "the pod has no annotation " ANN_UID ", so there is no user to run it as";
	return NULL;
}

static void wl_prepare(struct podrt_pod *p, void *arg)
{
	vmhost_prepare(((struct node *)arg)->vms, p);
}

static void wl_start(struct podrt_pod *p, void *arg)
{
	vmhost_start(((struct node *)arg)->vms, p);
}

static void wl_adopt(struct podrt_pod *p, void *arg)
{
	vmhost_adopt(((struct node *)arg)->vms, p);
}

static void wl_stop(struct podrt_pod *p, int64_t grace, void *arg)
{
	vmhost_stop(((struct node *)arg)->vms, p, grace);
}

static void wl_cleanup(struct podrt_pod *p, void *arg)
{
	vmhost_cleanup(((struct node *)arg)->vms, p);
}

static void wl_forget(struct podrt_pod *p, void *arg)
{
	vmhost_forget(((struct node *)arg)->vms, p);
}

static enum rc wl_sweep(const char *uid, const char *run_dir, void *arg, struct err *err)
{
	(void)uid;
	(void)arg;
	return vmhost_sweep(run_dir, err);
}

static void on_disks_swept(enum rc rc, const char *why, void *arg)
{
	podrt_swept(arg, rc, why);
}

static enum rc wl_sweep_disks(struct podrt_gone *g, const char *uid, void *arg, struct err *err)
{
	return vmhost_sweep_disks(((struct node *)arg)->vms, uid, on_disks_swept, g, err);
}

static enum rc wl_on_storage(bool is_removal, pool_fn work, pool_fn after, void *job, void *arg,
			     struct err *err)
{
	const struct node *n = arg;

	/* Not POOL_SLOW: no pod waits for images that are fetched, nor for others' storage that hangs. */
	return pool_run_ordered(n->loop, is_removal ? POD_REMOVE_QUEUE : POD_QUEUE, work, after,
				job, err);
}

static const struct podrt_workload workload = {
	.refuse = wl_refuse,
	.prepare = wl_prepare,
	.start = wl_start,
	.adopt = wl_adopt,
	.stop = wl_stop,
	.cleanup = wl_cleanup,
	.forget = wl_forget,
	.sweep = wl_sweep,
	.sweep_disks = wl_sweep_disks,
	.on_storage = wl_on_storage,
};

/* --- the migration link, as the VM side sees it --- */

static enum rc net_listen(struct in_addr pod, struct in_addr peer, const uint16_t *ports, size_t n,
			  void *arg, struct err *err)
{
	return podnet_mig_listen(((struct node *)arg)->net, pod, peer, ports, n, err);
}

static enum rc net_connect(struct in_addr pod, struct in_addr peer, const uint16_t *ports, size_t n,
			   void *arg, struct err *err)
{
	return podnet_mig_connect(((struct node *)arg)->net, pod, peer, ports, n, err);
}

static enum rc net_close(struct in_addr pod, void *arg, struct err *err)
{
	return podnet_mig_close(((struct node *)arg)->net, pod, err);
}

static enum rc net_place(struct net_mac mac, struct in_addr underlay, int64_t epoch, void *arg,
			 struct err *err)
{
	return podnet_place(((struct node *)arg)->net, mac, underlay, epoch, err);
}

/* --- start-up --- */

static void give_up(struct node *n, const struct err *err)
{
	log_error("%s", err->msg);
	daemon_quit(n->daemon, 1);
}

static void on_arrivals(const struct api_map *facts, void *arg)
{
	nodereg_set_facts(((struct node *)arg)->reg, facts);
}

static enum rc make_arrivals(struct node *n, struct err *err)
{
	const struct arrivals_look_config ac = {.loop = n->loop,
						.cache = n->cache,
						.volwork = n->volwork,
						.node_name = opt_name,
						.state_dir = opt_state,
						.shared_dir = opt_shared,
						.local_dir = n->local_dir,
						.publish = on_arrivals,
						.arg = n};

	return arrivals_look_new(&n->arrivals, &ac, err);
}

/* Both the cache and the network are there: pods may be taken up. */
static void start_pods(struct node *n)
{
	struct err err;

	if (!n->is_synced || !n->is_net_up)
		return;
	if (podrt_start(n->pods, &err) || make_arrivals(n, &err)) {
		give_up(n, &err);
		return;
	}
	nodereg_set_ready(n->reg, true, "FerryReady", "ferry-node is ready");
	daemon_set_unready(n->daemon, NULL);
}

static void on_net_ready(void *arg)
{
	struct node *n = arg;

	n->is_net_up = true;
	start_pods(n);
}

static enum rc make_vms(struct node *n, struct err *err)
{
	struct vmhost_config vc = {.loop = n->loop,
				   .kube = n->kube,
				   .cache = n->cache,
				   .exec = n->vm_exec,
				   .http = n->http,
				   .pods = &node_pod_ops,
				   .node_name = opt_name,
				   .state_dir = opt_state,
				   .run_dir = opt_run,
				   .shared_dir = opt_shared,
				   .launcher = n->launcher,
				   .qemu = opt_qemu,
				   .kvm_file = n->kvm_file,
				   .images = &n->images,
				   .probe = n->probe,
				   .accel = n->accel,
				   .accel_reason = n->kvm.reason,
				   .net = {net_listen, net_connect, net_close, net_place, n,
					   PODNET_BRIDGE, PODNET_VXLAN},
				   .net_queue = NET_QUEUE,
				   .mtu = podnet_mtu(n->net),
				   .underlay = n->underlay,
				   .segment_net = n->network,
				   .segment_prefix = n->prefix,
				   .gateway = n->gateway,
				   .agent_port = n->agent_port};
	struct podrt_config pc = {.loop = n->loop,
				  .exec = n->pod_exec,
				  .cache = n->cache,
				  .node_name = opt_name,
				  .host_ip = opt_address,
				  .state_dir = opt_state,
				  .run_dir = opt_run,
				  .net = n->net,
				  .net_queue = NET_QUEUE,
				  .workload = &workload,
				  .arg = n};

	const struct volwork_config wc = {.loop = n->loop,
					  .node_name = opt_name,
					  .shared_dir = opt_shared,
					  .local_dir = n->local_dir};

	TRY(volwork_new(&n->volwork, &wc, err));
	vc.volwork = n->volwork;
	TRY(vmhost_new(&n->vms, &vc, err));
	return podrt_new(&n->pods, &pc, err);
}

static void on_metrics(struct sbuf *out, void *arg)
{
	struct node *n = arg;

	if (n->pods)
		podrt_metrics(n->pods, out);
	if (n->vms)
		vmhost_metrics(n->vms, out);
	exec_metrics(n->pod_exec, out);
}

static enum rc make_https(struct node *n, struct err *err)
{
	struct agent_http_config hc = {.loop = n->loop,
				       .host = n->vms,
				       .address = opt_address,
				       .port = n->agent_port,
				       .cert_file = n->cert,
				       .key_file = n->key,
				       .ca_file = n->ca,
				       .metrics = on_metrics,
				       .arg = n};

	return agent_http_new(&n->https, &hc, err);
}

static enum rc make_netsync(struct node *n, struct err *err)
{
	struct netsync_config sc = {.loop = n->loop,
				    .cache = n->cache,
				    .net = n->net,
				    .queue = NET_QUEUE,
				    .node_name = opt_name,
				    .network = n->network,
				    .gateway = n->gateway,
				    .service_network = n->services,
				    .dns = n->dns,
				    .prefix = n->prefix,
				    .service_prefix = n->service_prefix,
				    .dns_dir = n->dns_dir,
				    .dns_dev = PODNET_GATEWAY_IF,
				    .on_ready = on_net_ready,
				    .arg = n};

	return netsync_new(&n->netsync, &sc, err);
}

static enum rc make_pvdata(struct node *n, struct err *err)
{
	struct pvdata_config pc = {.loop = n->loop,
				   .cache = n->cache,
				   .exec = n->pod_exec,
				   .node_name = opt_name,
				   .shared_dir = opt_shared,
				   .local_dir = n->local_dir,
				   .volwork = n->volwork};

	return pvdata_new(&n->pvdata, &pc, err);
}

static enum rc make_witness(struct node *n, struct err *err)
{
	const struct witness_config wc = {.loop = n->loop,
					  .kube = n->kube,
					  .cache = n->cache,
					  .node_name = opt_name,
					  .shared_dir = opt_shared,
					  .volwork = n->volwork};

	return witness_new(&n->witness, &wc, err);
}

static void net_work(void *arg)
{
	struct node *n = arg;

	n->net_rc = podnet_up(&n->net, &n->net_cfg, &n->net_err);
}

static void net_after(void *arg)
{
	struct node *n = arg;
	struct err err = {0};

	if (n->net_rc) {
		give_up(n, &n->net_err);
		return;
	}
	enum rc rc = make_vms(n, &err);

	if (!rc)
		rc = make_https(n, &err);
	if (!rc)
		rc = make_netsync(n, &err);
	if (!rc)
		rc = make_pvdata(n, &err);
	if (!rc)
		rc = make_witness(n, &err);
	if (rc)
		give_up(n, &err);
}

/* The node's address on the segment is known. */
/* Clients read the files for each new connection; the port is told. */
static void read_certificate(void *arg)
{
	struct node *n = arg;
	struct err err = {0};

	if (n->https && agent_http_reload_tls(n->https, &err))
		log_warn("the certificates stay as they are: %s", err.msg);
}

/* Once the Node object is there, which says that the node may have one. */
static void keep_certificate(struct node *n)
{
	const struct nodecert_config cc = {.loop = n->loop,
					   .kube = n->kube,
					   .name = opt_name,
					   .dir = opt_pki,
					   .changed = read_certificate,
					   .arg = n};
	struct err err = {0};

	if (!n->nodecert && nodecert_new(&n->nodecert, &cc, &err))
		log_warn("the certificate of this node is not renewed: %s", err.msg);
}

static void on_registered(struct in_addr segment, void *arg)
{
	struct node *n = arg;
	struct err err;

	n->net_cfg = (struct podnet_config){.ns_fd = -1,
					    .pod_ns_dir = n->netns_dir,
					    .underlay = n->underlay,
					    .migration = n->migration,
					    .segment = segment,
					    .network = n->network,
					    .prefix = n->prefix,
					    .gateway = n->gateway,
					    .vni = n->vni,
					    .service_network = n->services,
					    .service_prefix = n->service_prefix};
	keep_certificate(n);
	if (pool_run_ordered(n->loop, NET_QUEUE, net_work, net_after, n, &err))
		give_up(n, &err);
}

static enum rc list_resources(const struct node *n, struct api_map *out)
{
	if (n->kvm.works)
		TRY(api_map_set(out, "devices.kubevirt.io/kvm", DEVICES));
	if (access("/dev/net/tun", F_OK) == 0)
		TRY(api_map_set(out, "devices.kubevirt.io/tun", DEVICES));
	if (access("/dev/vhost-net", F_OK) == 0)
		TRY(api_map_set(out, "devices.kubevirt.io/vhost-net", DEVICES));
	return RC_OK;
}

static bool label_is_ours(const char *key)
{
	return cpu_label_is_ours(key) || str_has_prefix(key, LABEL_MIGRATION_NETWORK);
}

static enum rc add_migration_network(const struct node *n, struct api_map *labels)
{
	char ip[NET_IP4_TEXT];

	if (net_ip4_is_none(n->migration))
		return RC_OK;
	CLEANUP(mem_freep)
	char *key = mem_printf(LABEL_MIGRATION_NETWORK "%s", n->migration_name);

	return key ? api_map_set(labels, key, net_ip4_format(n->migration, ip)) : RC_NOMEM;
}

static enum rc register_node(struct node *n, struct err *err)
{
	CLEANUP(api_map_fini) struct api_map labels = {0};
	CLEANUP(api_map_fini) struct api_map resources = {0};
	struct nodereg_config rc = {.loop = n->loop,
				    .kube = n->kube,
				    .name = opt_name,
				    .address = opt_address,
				    .agent_port = n->agent_port,
				    .labels = &labels,
				    .owns_label = label_is_ours,
				    .facts = ANN_ARRIVALS,
				    .resources = &resources,
				    .segment_net = n->network,
				    .segment_prefix = n->prefix};

	TRY(cpu_labels(n->probe, &labels, err));
	if (list_resources(n, &resources) || add_migration_network(n, &labels))
		return err_set(err, RC_NOMEM, "out of memory");
	TRY(nodereg_new(&n->reg, &rc, on_registered, n, err));
	nodereg_set_lease(n->reg, n->lease_seconds);
	return RC_OK;
}

static void on_probe(enum rc rc, const struct json *probe, const struct err *why, void *arg)
{
	struct node *n = arg;
	struct err err = {0};

	if (rc) {
		give_up(n, why);
		return;
	}
	n->probe = js_ref(probe);
	if (n->has_network && register_node(n, &err))
		give_up(n, &err);
}

/* What FerryConfig leaves out has its default. */
static enum rc take_network(struct node *n, const FerryConfigSpec *cfg, struct err *err)
{
	const FerryNetwork *net = NULL;

	for (size_t i = 0; i < cfg->n_networks && !net; i++)
		if (str_eq(cfg->networks[i].name, "default"))
			net = &cfg->networks[i];
	TRY(net_cidr_parse(net && net->cidr ? net->cidr : NETWORK_DEFAULT, &n->network, &n->prefix,
			   err));
	n->gateway = net_ip4_nth(n->network, n->prefix, 1);
	if (net && net->gateway)
		TRY(net_ip4_parse(net->gateway, &n->gateway, err));
	n->vni = net ? (uint32_t)API_GET(net, vni, 0) : 0;
	n->has_network = true;
	return RC_OK;
}

/* Where nodes are fenced, their silence has to be told from their pace. */
static unsigned lease_seconds(const FerryConfigSpec *cfg)
{
	int64_t seconds = fencing_silence_seconds(cfg);

	return seconds ? (unsigned)seconds : UINT_MAX;
}

/* The cluster's settings are there.  Of later changes only the pace of the lease concerns a node: the
 * network stays as long as there are nodes (admission sees to it). */
static void on_config(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct node *n = arg;
	const FerryConfig *cfg = kobj_typed(new);
	struct err err = {0};

	(void)old;
	if (!cfg)
		return;
	n->lease_seconds = lease_seconds(&cfg->spec);
	if (n->reg)
		nodereg_set_lease(n->reg, n->lease_seconds);
	if (n->has_network)
		return;
	enum rc rc = take_network(n, &cfg->spec, &err);

	if (!rc && n->probe)
		rc = register_node(n, &err);
	if (rc)
		give_up(n, &err);
}

static void on_synced(void *arg)
{
	struct node *n = arg;

	n->is_synced = true;
	start_pods(n);
}

static enum rc make_cache(struct node *n, struct err *err)
{
	char mine[300], own[300];
	const struct kcache_source sources[] = {
		{.kind = &api_kind_Pod, .field_selector = mine},
		{.kind = &api_kind_VirtualMachineInstance},
		{.kind = &api_kind_PortBinding},
		{.kind = &api_kind_Node},
		{.kind = &api_kind_Service},
		{.kind = &api_kind_EndpointSlice},
		{.kind = &api_kind_PersistentVolume},
		{.kind = &api_kind_Handover},
		{.kind = &api_kind_KubeVirt},
		{.kind = &api_kind_FerryConfig},
		{.kind = &api_kind_MigrationPolicy},
		{.kind = &api_kind_Namespace},
		{.kind = &api_kind_NodeFence, .field_selector = own},
		{.kind = &api_kind_DiskWitness},
	};

	(void)snprintf(mine, sizeof(mine), "spec.nodeName=%s", opt_name);
	(void)snprintf(own, sizeof(own), "metadata.name=%s", opt_name);
	TRY(kcache_new(&n->cache, n->loop, n->kube, NULL, err));
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		TRY(kcache_add(n->cache, &sources[i], err));
	TRY(pvdata_index(n->cache, err));
	TRY(kcache_on(n->cache, &n->on_config, &api_kind_FerryConfig, on_config, n, err));
	kcache_on_synced(n->cache, on_synced, n);
	return kcache_start(n->cache, err);
}

static enum rc make_clients(struct node *n, struct err *err)
{
	struct kube_config kc = {
		.server = opt_server, .ca_file = n->ca, .cert_file = n->cert, .key_file = n->key};
	struct http_client_config hc = {.ca_file = n->ca, .cert_file = n->cert, .key_file = n->key};
	struct exec_opts po = {.component = "ferry-node", .host = opt_name};
	struct exec_opts vo = {.component = "virt-handler", .host = opt_name};

	TRY(kube_new(&n->kube, n->loop, &kc, err));
	TRY(http_client_new(&n->http, n->loop, &hc, err));
	TRY(make_cache(n, err));
	TRY(exec_new(&n->pod_exec, n->loop, n->kube, n->cache, &po, err));
	return exec_new(&n->vm_exec, n->loop, n->kube, n->cache, &vo, err);
}

static enum rc choose_accel(struct node *n, struct err *err)
{
	if (str_eq(opt_accel, "tcg")) {
		(void)snprintf(n->kvm.reason, sizeof(n->kvm.reason),
			       "emulation was chosen for this node");
	} else if (str_eq(opt_accel, "auto") || str_eq(opt_accel, "kvm")) {
		kvm_probe_cached(n->kvm_file, &n->kvm);
	} else {
		return err_set(err, RC_INVALID, "--accel is auto, kvm or tcg");
	}
	if (str_eq(opt_accel, "kvm") && !n->kvm.works)
		return err_set(err, RC_UNSUPPORTED, "KVM does not work here: %s", n->kvm.reason);
	n->accel = n->kvm.works ? "kvm" : "tcg";
	log_info("accelerator: %s (%s)", n->accel, n->kvm.reason);
	return RC_OK;
}

static void split_words(char *text, const char *out[WORDS_MAX])
{
	size_t n = 0;

	out[0] = NULL;
	if (!text)
		return;
	for (char *save = NULL, *w = strtok_r(text, ",", &save); w && n + 1 < WORDS_MAX;
	     w = strtok_r(NULL, ",", &save))
		out[n++] = w;
	out[n] = NULL;
}

/* The launcher lies beside this program unless told otherwise. */
static enum rc find_programs(struct node *n, struct err *err)
{
	char self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (len < 0)
		return err_set_sys(err, errno, "cannot find this program's file");
	self[len] = '\0';
	n->self = mem_strdup(self);
	*strrchr(self, '/') = '\0';
	n->launcher =
		opt_launcher ? mem_strdup(opt_launcher) : mem_printf("%s/ferry-launcher", self);
	if (!n->self || !n->launcher)
		return err_set(err, RC_NOMEM, "out of memory");
	if (access(n->launcher, X_OK) < 0)
		return err_set_sys(err, errno, "cannot run '%s' (--launcher)", n->launcher);
	if (access(opt_qemu, X_OK) < 0)
		return err_set_sys(err, errno, "cannot run '%s': install qemu-system-x86",
				   opt_qemu);
	return RC_OK;
}

static enum rc make_paths(struct node *n, struct err *err)
{
	n->ca = mem_printf("%s/ca.crt", opt_pki);
	n->cert = mem_printf("%s/tls.crt", opt_pki);
	n->key = mem_printf("%s/tls.key", opt_pki);
	n->images_dir = mem_printf("%s/images", opt_state);
	n->probe_file = mem_printf("%s/cpu-probe.json", opt_state);
	n->kvm_file = mem_printf("%s/kvm-probe.json", opt_state);
	n->local_dir = mem_printf("%s/local", opt_state);
	n->netns_dir = mem_printf("%s/netns", opt_run);
	n->dns_dir = mem_printf("%s/dns", opt_run);
	n->insecure_text = mem_strdup(opt_insecure);
	n->registries_text = mem_strdup(opt_registries);
	if (!n->ca || !n->cert || !n->key || !n->images_dir || !n->probe_file || !n->kvm_file ||
	    !n->local_dir || !n->netns_dir || !n->dns_dir)
		return err_set(err, RC_NOMEM, "out of memory");
	split_words(n->insecure_text, n->insecure);
	split_words(n->registries_text, n->registries);
	TRY(file_mkdir_p(opt_state, 0711, err));
	TRY(file_mkdir_p(opt_run, 0755, err));
	TRY(nodecert_recover(opt_pki, err));
	return find_programs(n, err);
}

/* Of "NAME=CIDR".  A node that has no address there is a node like others, only no target of moves over that
 * network, so that is no reason to end. */
static enum rc find_migration_network(struct node *n, struct err *err)
{
	const char *cidr = strchr(opt_migration_network, '=');
	struct in_addr network;
	struct err why;
	unsigned prefix;

	n->migration_name =
		cidr ? mem_strndup(opt_migration_network, (size_t)(cidr - opt_migration_network))
		     : NULL;
	if (!n->migration_name || !str_is_dns_label(n->migration_name))
		return err_set(err, RC_INVALID,
			       "--migration-network '%s' must be NAME=CIDR, as in fast=10.9.0.0/24",
			       opt_migration_network);
	TRY(net_cidr_parse(cidr + 1, &network, &prefix, err));
	if (net_ip4_local_in(network, prefix, &n->migration, &why))
		log_warn("no move over the migration network '%s' reaches this node: %s",
			 n->migration_name, why.msg);
	return RC_OK;
}

static enum rc make_addresses(struct node *n, struct err *err)
{
	int64_t port;

	TRY(str_to_i64(opt_agent_port, 1, 65535, &port, err));
	n->agent_port = (uint16_t)port;
	TRY(net_ip4_parse(opt_address, &n->underlay, err));
	TRY(net_cidr_parse(opt_service_cidr, &n->services, &n->service_prefix, err));
	if (n->service_prefix < 8 || n->service_prefix > 28)
		return err_set(err, RC_INVALID,
			       "--service-cidr '%s' must be a network of /8 to /28",
			       opt_service_cidr);
	n->dns = net_ip4_nth(n->services, n->service_prefix, SERVICE_DNS);
	return opt_migration_network ? find_migration_network(n, err) : RC_OK;
}

static enum rc start(struct node *n, struct err *err)
{
	if (geteuid() != 0)
		return err_set(err, RC_FORBIDDEN,
			       "ferry-node must run as root: it makes namespaces and links");
	if (!str_is_dns_subdomain(opt_name))
		return err_set(err, RC_INVALID, "--name '%s' is not a node's name", opt_name);
	umask(022);
	TRY(failpoint_setup(err));
	if (failpoint_is_on)
		log_warn("failpoints are on: for tests only");
	TRY(make_paths(n, err));
	TRY(make_addresses(n, err));
	TRY(choose_accel(n, err));
	n->images = (struct image_store){.dir = n->images_dir,
					 .self_exe = n->self,
					 .oci_root = (char *)opt_oci_root,
					 .insecure = n->insecure,
					 .allowed = opt_registries ? n->registries : NULL,
					 .bytes_max = IMAGE_BYTES_MAX,
					 .timeout = PULL_DEADLINE};
	TRY(image_store_open(&n->images, err));
	struct cpuprobe_config pc = {.qemu = opt_qemu,
				     .accel = n->accel,
				     .cache_file = n->probe_file,
				     .without = opt_cpu_without,
				     .timeout = PROBE_DEADLINE};

	TRY(cpuprobe_start(&n->cpuprobe, n->loop, &pc, on_probe, n, err));
	return make_clients(n, err);
}

static void on_deregistered(void *arg)
{
	daemon_quit(((struct node *)arg)->daemon, 0);
}

/* VMs go on: the next agent finds them. */
static void on_stop(void *arg)
{
	struct node *n = arg;

	if (n->reg)
		nodereg_stop(n->reg, on_deregistered, n);
	else
		daemon_quit(n->daemon, 0);
}

static void fini(struct node *n)
{
	/* Work under way uses what is freed here, and nothing new may begin: what belongs to a move stays in the
	 * kernel for the agent that comes after. */
	pool_end(n->loop);
	n->https = agent_http_free(n->https);
	n->arrivals = arrivals_look_free(n->arrivals);
	n->witness = witness_free(n->witness);
	n->pvdata = pvdata_free(n->pvdata);
	n->pods = podrt_free(n->pods);
	n->vms = vmhost_free(n->vms);
	n->volwork = volwork_free(n->volwork);
	n->netsync = netsync_free(n->netsync);
	n->net = podnet_free(n->net);
	n->nodecert = nodecert_free(n->nodecert);
	n->reg = nodereg_free(n->reg);
	n->cpuprobe = cpuprobe_free(n->cpuprobe);
	n->pod_exec = exec_free(n->pod_exec);
	n->vm_exec = exec_free(n->vm_exec);
	n->on_config = kcache_handler_free(n->on_config);
	n->cache = kcache_free(n->cache);
	n->kube = kube_free(n->kube);
	n->http = http_client_free(n->http);
	n->probe = js_unref(n->probe);
	char **texts[] = {&n->ca,
			  &n->cert,
			  &n->key,
			  &n->launcher,
			  &n->self,
			  &n->images_dir,
			  &n->probe_file,
			  &n->kvm_file,
			  &n->netns_dir,
			  &n->dns_dir,
			  &n->local_dir,
			  &n->insecure_text,
			  &n->migration_name,
			  &n->registries_text};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		*texts[i] = mem_free(*texts[i]);
}

static const struct daemon_option options[] = {
	{"name", "NAME", "name of this node", .text = &opt_name, .is_required = true},
	{"server", "URL", "address of the API server", .text = &opt_server, .is_required = true},
	{"pki", "DIR", "ca.crt, tls.crt and tls.key of this node", .text = &opt_pki,
	 .is_required = true},
	{"address", "IP", "this node's address; other nodes and the API server reach it there",
	 .text = &opt_address, .is_required = true},
	{"state", "DIR", "what outlives a reboot (default /var/lib/ferry)", .text = &opt_state},
	{"run", "DIR", "sockets, namespaces (default /run/ferry)", .text = &opt_run},
	{"shared", "DIR", "folder of the storage class 'shared': the same on every node",
	 .text = &opt_shared},
	{"agent-port", "PORT", "HTTPS port of this node (default 8186)", .text = &opt_agent_port},
	{"service-cidr", "CIDR",
	 "addresses of Services, as the API server has it (default 10.96.0.0/16)",
	 .text = &opt_service_cidr},
	{"accel", "KIND", "auto, kvm or tcg (default auto: kvm once a guest program has run)",
	 .text = &opt_accel},
	{"cpu-without", "FEATURES",
	 "CPU features that no guest of this node gets, comma-separated, by QEMU's names: makes "
	 "nodes of one site alike",
	 .text = &opt_cpu_without},
	{"migration-network", "NAME=CIDR",
	 "memory and disks of moves reach this node at its address in that network, where the KubeVirt "
	 "object's migrations.network names it",
	 .text = &opt_migration_network},
	{"qemu", "FILE", "QEMU's system emulator (default /usr/bin/qemu-system-x86_64)",
	 .text = &opt_qemu},
	{"launcher", "FILE", "ferry-launcher (default: beside this program)",
	 .text = &opt_launcher},
	{"oci-root", "DIR",
	 "'oci:' images must lie below it (default /); they are read without following "
	 "links and checked against their digests",
	 .text = &opt_oci_root},
	{"registries", "HOSTS",
	 "registries that images may come from, comma-separated (default: all)",
	 .text = &opt_registries},
	{"insecure-registry", "HOSTS",
	 "registries that need no TLS, comma-separated (default: none)", .text = &opt_insecure},
	{NULL},
};

static const struct daemon_def def = {
	"ferry-node",
	"runs the pods of one machine, and the VMs in them",
	options,
	.health = "none",
	.more = "Ending it ends no VM: the next ferry-node with the same --state and --run finds "
		"them.\n",
};

int main(int argc, char **argv)
{
	struct node n = {0};
	struct err err = {0};

	if (argc > 1 && strcmp(argv[1], IMAGE_UNPACK_ARG) == 0) {
		js_use_mem();
		return imgunpack_main(argc - 1, argv + 1);
	}
	if (argc > 1 && strcmp(argv[1], "probe-qemu") == 0) {
		js_use_mem();
		return cpuprobe_main(argc - 1, argv + 1);
	}
	int code = daemon_new(&n.daemon, &def, argc, argv);

	if (!n.daemon)
		return code;
	n.loop = daemon_loop(n.daemon);
	daemon_set_unready(n.daemon, "starting");
	daemon_on_stop(n.daemon, on_stop, &n);
	daemon_on_reload(n.daemon, read_certificate, &n);
	daemon_on_metrics(n.daemon, on_metrics, &n);
	code = start(&n, &err) ? daemon_fail(&err) : daemon_run(n.daemon);
	fini(&n);
	daemon_free(n.daemon);
	return code;
}
