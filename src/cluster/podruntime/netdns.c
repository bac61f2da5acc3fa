#include "cluster/podruntime/netdns.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "net/dnsmasq.h"

#define HOSTS_MAX (4 * MIB)
#define NAME	  "dns"

static enum rc hosts_dir(const struct netdns_config *c, char out[PATH_MAX], struct err *err)
{
	if (snprintf(out, PATH_MAX, "%s/hosts", c->dir) >= PATH_MAX)
		return err_set(err, RC_INVALID, "the DNS folder's path is too long");
	return file_mkdir_p(out, 0755, err);
}

enum rc netdns_start(const struct netdns_config *c, struct err *err)
{
	char dir[PATH_MAX];
	struct sbuf text = SBUF_INIT(16 * KIB);
	struct net_dns d = {.dev = c->dev,
			    .address = c->address,
			    .hosts_dir = dir,
			    .domain = c->domain,
			    .resolv_file = c->resolv_file};
	enum rc rc = hosts_dir(c, dir, err);

	if (!rc)
		rc = net_dns_render(&d, &text, err);
	if (!rc)
		rc = net_dnsmasq_start(c->ns_fd, c->dir, NAME, sbuf_str(&text), err);
	sbuf_fini(&text);
	if (rc)
		err_prepend(err, "DNS of the cluster network");
	return rc;
}

enum rc netdns_stop(const struct netdns_config *c, struct err *err)
{
	enum rc rc = net_dnsmasq_stop(c->dir, NAME, err);

	return rc ? rc : file_remove_tree(c->dir, err);
}

enum rc netdns_update(const struct netdns_config *c, const struct services *s, struct err *err)
{
	char dir[PATH_MAX], path[PATH_MAX + 16], fresh[PATH_MAX + 16];
	CLEANUP(mem_freep) char *old = NULL;
	size_t n = 0;
	struct sbuf text = SBUF_INIT(HOSTS_MAX);
	enum rc rc = hosts_dir(c, dir, err);

	if (!rc)
		rc = services_render_hosts(s, c->domain, &text, err);
	snprintf(path, sizeof(path), "%s/services", dir);
	snprintf(fresh, sizeof(fresh), "%s/services.new", c->dir);
	if (!rc && (file_read(path, HOSTS_MAX, &old, &n, NULL) || !str_eq(old, sbuf_str(&text)))) {
		/* Made outside of the watched folder: dnsmasq must see it whole or not at all. */
		rc = file_write_durable(fresh, sbuf_str(&text), text.n, 0644, err);
		if (!rc && rename(fresh, path) < 0)
			rc = err_set_sys(err, errno, "cannot put '%s' in place", path);
	}
	sbuf_fini(&text);
	if (rc)
		err_prepend(err, "names of services");
	return rc;
}
