/* ferry-controller - composition root: client, caches, and every reconciler that is not a node's. */
#include <stdio.h>

#include "api/gen/api_types.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/controllers/controllers.h"
#include "cluster/scheduler/scheduler.h"
#include "ctl/ctl.h"
#include "ctl/daemon.h"
#include "ctl/exec.h"
#include "ctl/prom_server.h"
#include "ev/ev.h"
#include "kube/kcache.h"
#include "kube/kube.h"
#include "virt/controller/evacuation/evacuation.h"
#include "virt/controller/metrics.h"
#include "virt/controller/fence/fence.h"
#include "virt/controller/fence/fence_exec.h"
#include "virt/controller/fence/witness.h"
#include "virt/controller/migration/migration.h"
#include "virt/controller/transitions.h"
#include "virt/controller/vm/vm.h"
#include "virt/controller/vmi/alloc.h"
#include "virt/controller/vmi/vmi.h"

#define HOUR (3600 * USEC_PER_SEC)

enum { MAX_DEFS = 48 };

static const char *opt_server;
static const char *opt_pki;
static const char *opt_metrics;
static const char *opt_fence_agents;
static bool opt_kubernetes;

struct controller {
	struct daemon *daemon;
	struct kube *kube;
	struct kcache *cache;
	struct ctl *ctl;
	struct virt_transitions *transitions;
	struct prom_server *https; /* NULL: not asked for */
	struct ev_src *hourly;	   /* the certificate of https is looked at */
	struct fence_exec fence_exec;
	struct fencer *fencer;
	const struct ctl_def *defs[MAX_DEFS];
	size_t n_defs;
};

static void add(struct controller *c, const struct ctl_def *def)
{
	assert(c->n_defs < MAX_DEFS);
	c->defs[c->n_defs++] = def;
}

static void choose(struct controller *c)
{
	add(c, &vm_ctl_def);
	add(c, &vmi_ctl_def);
	add(c, &mig_ctl_def);
	add(c, &alloc_ctl_def);
	add(c, &evacuation_ctl_def);
	add(c, &fence_ctl_def);
	add(c, &witness_ctl_def);
	if (opt_kubernetes)
		return; /* the site's own control plane does the rest */
	add(c, &scheduler_ctl_def);
	add(c, &endpoints_ctl_def);
	add(c, &claim_ctl_def);
	add(c, &volume_ctl_def);
	add(c, &nodelifecycle_ctl_def);
	add(c, &disruption_ctl_def);
	add(c, &account_ctl_def);
	add(c, &installation_ctl_def);
	for (size_t i = 0; gc_ctl_defs[i]; i++)
		add(c, gc_ctl_defs[i]);
}

static enum rc connect_api(struct controller *c, struct err *err)
{
	CLEANUP(mem_freep) char *ca = mem_printf("%s/ca.crt", opt_pki);
	CLEANUP(mem_freep) char *cert = mem_printf("%s/tls.crt", opt_pki);
	CLEANUP(mem_freep) char *key = mem_printf("%s/tls.key", opt_pki);
	const struct kube_config config = {
		.server = opt_server, .ca_file = ca, .cert_file = cert, .key_file = key};

	if (!ca || !cert || !key)
		return err_set(err, RC_NOMEM, "out of memory");
	return kube_new(&c->kube, daemon_loop(c->daemon), &config, err);
}

static void on_metrics(struct sbuf *out, void *arg)
{
	struct controller *c = arg;
	const struct view v = {.cache = c->cache, .now = loop_realtime(daemon_loop(c->daemon))};

	ctl_metrics(c->ctl, out);
	ctl_queue_metrics(c->ctl, "kubevirt_workqueue", out);
	virt_metrics_print(&v, kcache_is_synced(c->cache), out);
	virt_transitions_print(c->transitions, out);
}

static void on_scrape(struct sbuf *out, void *arg)
{
	struct controller *c = arg;

	daemon_print_metrics(c->daemon, out);
}

static void on_reload(void *arg)
{
	struct controller *c = arg;
	struct err err;

	if (c->https && prom_server_reload_tls(c->https, &err))
		log_warn("the certificate of /metrics stays as it is: %s", err.msg);
}

/* The API server renews it in time; whoever copies it here need not tell. */
static void on_hour(void *arg)
{
	struct controller *c = arg;

	on_reload(c);
	ev_timer_rearm(c->hourly, HOUR);
}

static enum rc serve_metrics(struct controller *c, struct err *err)
{
	CLEANUP(mem_freep) char *ca = mem_printf("%s/ca.crt", opt_pki);
	CLEANUP(mem_freep) char *cert = mem_printf("%s/tls.crt", opt_pki);
	CLEANUP(mem_freep) char *key = mem_printf("%s/tls.key", opt_pki);
	const struct prom_server_config config = {.listen = opt_metrics,
						  .cert_file = cert,
						  .key_file = key,
						  .ca_file = ca,
						  .print = on_scrape,
						  .arg = c};

	if (!opt_metrics)
		return RC_OK;
	if (!ca || !cert || !key)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = prom_server_new(&c->https, daemon_loop(c->daemon), &config, err);

	if (rc)
		return err_prepend(err, "--metrics"), rc;
	return ev_timer_after(daemon_loop(c->daemon), &c->hourly, HOUR, on_hour, c, err);
}

static bool is_round(unsigned n)
{
	return (n & (n - 1)) == 0; /* 1, 2, 4, 8…: a key that keeps failing does not fill the log */
}

static void on_failure(const struct ctl_def *def, const char *ns, const char *name,
		       const struct err *err, unsigned in_a_row, void *arg)
{
	(void)arg;
	if (is_round(in_a_row))
		log_warn("%s %s%s%s: %s, trying again (failure %u)", def->name, ns, *ns ? "/" : "",
			 name, err ? err->msg : "failed", in_a_row);
}

static void on_synced(void *arg)
{
	struct controller *c = arg;

	daemon_set_unready(c->daemon, NULL);
}

static enum rc start(struct controller *c, struct err *err)
{
	struct loop *loop = daemon_loop(c->daemon);
	enum rc rc = connect_api(c, err);

	if (!rc)
		rc = kcache_new(&c->cache, loop, c->kube, NULL, err);
	choose(c);
	if (!rc) {
		const struct ctl_opts opts = {.component = "virtualmachine-controller",
					      .on_failure = on_failure,
					      .on_synced = on_synced,
					      .arg = c};

		rc = ctl_new(&c->ctl, loop, c->kube, c->cache, c->defs, c->n_defs, &opts, err);
	}
	if (!rc)
		rc = virt_transitions_new(&c->transitions, c->cache, err);
	if (!rc)
		rc = ctl_start(c->ctl, err);
	c->fence_exec = (struct fence_exec){.loop = loop, .folder = opt_fence_agents};
	if (!rc)
		rc = fencer_new(&c->fencer, loop, c->kube, c->cache, &fence_exec_ops,
				&c->fence_exec, err);
	if (!rc && !opt_kubernetes)
		rc = ctl_wake(c->ctl, installation_ctl_def.name, INSTALLATION_NS, INSTALLATION_NAME,
			      err);
	if (!rc)
		rc = serve_metrics(c, err);
	if (rc)
		return rc;
	daemon_on_metrics(c->daemon, on_metrics, c);
	daemon_on_reload(c->daemon, on_reload, c);
	daemon_set_unready(c->daemon, "the caches are being filled");
	log_info("%zu controllers on %s", c->n_defs, opt_server);
	return RC_OK;
}

int main(int argc, char **argv)
{
	static const struct daemon_option options[] = {
		{"server", "URL", "address of the API server", .text = &opt_server,
		 .is_required = true},
		{"pki", "DIR", "folder with ca.crt, tls.crt and tls.key", .text = &opt_pki,
		 .is_required = true},
		{"metrics", "ADDRESS:PORT",
		 "serve /metrics over HTTPS to administrators (default: only --health has it)",
		 .text = &opt_metrics},
		{"fence-agents", "DIR",
		 "folder of the programs that FerryConfig may name to switch a silent node off; none: "
		 "no node is fenced",
		 .text = &opt_fence_agents},
		{"kubernetes", NULL,
		 "a Kubernetes control plane schedules, collects, binds volumes and lists "
		 "endpoints: run only "
		 "the controllers of virtual machines",
		 .flag = &opt_kubernetes},
		{NULL},
	};
	static const struct daemon_def def = {
		"ferry-controller", "runs the controllers of virtual machines and of the cluster",
		options};
	struct controller c = {0};
	struct err err = {0};
	int code = daemon_new(&c.daemon, &def, argc, argv);

	if (!c.daemon)
		return code;
	code = start(&c, &err) ? daemon_fail(&err) : daemon_run(c.daemon);
	ev_src_free(c.hourly);
	prom_server_free(c.https);
	virt_transitions_free(c.transitions);
	fencer_free(c.fencer);
	ctl_free(c.ctl);
	kcache_free(c.cache);
	kube_free(c.kube);
	daemon_free(c.daemon);
	return code;
}
