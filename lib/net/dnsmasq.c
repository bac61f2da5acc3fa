#include "net/dnsmasq.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "net/ns.h"

#define START_TIMEOUT (5 * USEC_PER_SEC)
#define CONF_MAX      (16 * KIB)

static enum rc check_dev(const char *dev, struct err *err)
{
	size_t n = dev ? strlen(dev) : 0;

	for (size_t i = 0; i < n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-", dev[i]))
			n = 0;
	if (n == 0 || n >= 16 || dev[0] == '-')
		return err_set(err, RC_INVALID, "'%.40s' cannot be dnsmasq's link", dev ? dev : "");
	return RC_OK;
}

static enum rc check_path(const char *what, const char *p, struct err *err)
{
	if (!p || p[0] != '/' || strpbrk(p, "\n\r#,\" \t\\"))
		return err_set(err, RC_INVALID, "%s: '%.80s' cannot be used by dnsmasq", what,
			       p ? p : "");
	return RC_OK;
}

static enum rc check_name(const char *what, const char *s, bool label, struct err *err)
{
	if (s && !(label ? str_is_dns_label(s) : str_is_dns_subdomain(s)))
		return err_set(err, RC_INVALID, "%s: '%.80s' is no DNS name", what, s);
	return RC_OK;
}

static enum rc dhcp_check(const struct net_dhcp *d, struct err *err)
{
	enum rc rc = check_dev(d->dev, err);

	if (!rc)
		rc = check_name("hostname", d->hostname, true, err);
	if (!rc)
		rc = check_name("domain", d->domain, false, err);
	for (size_t i = 0; i < NET_DNS_SEARCH_MAX && !rc; i++)
		rc = check_name("search domain", d->search[i], false, err);
	if (!rc && (net_mac_is_zero(d->mac) || net_ip4_is_none(d->address)))
		rc = err_set(err, RC_INVALID, "DHCP needs the client's MAC and address");
	return rc;
}

static void put_addr_option(struct sbuf *out, const char *name, struct in_addr a)
{
	char text[NET_IP4_TEXT];

	sbuf_addf(out, "dhcp-option=option:%s,%s\n", name, net_ip4_format(a, text));
}

static void put_dns(struct sbuf *out, const struct net_dhcp *d)
{
	char text[NET_IP4_TEXT];
	bool any = false;

	for (size_t i = 0; i < NET_DNS_SERVERS_MAX; i++) {
		if (net_ip4_is_none(d->dns[i]))
			continue;
		sbuf_addf(out, "%s,%s", any ? "" : "dhcp-option=option:dns-server",
			  net_ip4_format(d->dns[i], text));
		any = true;
	}
	sbuf_adds(out, any ? "\n"
			   : "dhcp-option=option:dns-server\n"); /* empty: do not offer yourself */
}

enum rc net_dhcp_render(const struct net_dhcp *d, struct sbuf *out, struct err *err)
{
	char addr[NET_IP4_TEXT], mask[NET_IP4_TEXT], mac[NET_MAC_TEXT];
	enum rc rc = dhcp_check(d, err);
	bool any = false;

	if (rc)
		return rc;
	net_ip4_format(d->address, addr);
	net_ip4_format(net_ip4_mask(d->prefix), mask);
	net_mac_format(d->mac, mac);
	sbuf_addf(out,
		  "port=0\nno-hosts\nno-resolv\nno-ping\nleasefile-ro\nuser=nobody\ngroup=nogroup\n"
		  "interface=%s\nexcept-interface=lo\nbind-interfaces\ndhcp-authoritative\nquiet-"
		  "dhcp\n",
		  d->dev);
	if (!net_ip4_is_none(d->shared))
		sbuf_addf(out, "shared-network=%s,%s\n", d->dev, addr);
	sbuf_addf(out, "dhcp-range=%s,static,%s,infinite\n", addr, mask);
	sbuf_addf(out, "dhcp-host=%s,%s,infinite%s%s\n", mac, addr, d->hostname ? "," : "",
		  d->hostname ? d->hostname : "");
	if (net_ip4_is_none(d->router))
		sbuf_adds(out, "dhcp-option=option:router\n");
	else
		put_addr_option(out, "router", d->router);
	if (d->mtu)
		sbuf_addf(out, "dhcp-option=option:mtu,%u\n", d->mtu);
	if (d->domain)
		sbuf_addf(out, "dhcp-option=option:domain-name,%s\n", d->domain);
	for (size_t i = 0; i < NET_DNS_SEARCH_MAX; i++) {
		if (!d->search[i])
			continue;
		sbuf_addf(out, "%s,%s", any ? "" : "dhcp-option=option:domain-search",
			  d->search[i]);
		any = true;
	}
	if (any)
		sbuf_addc(out, '\n');
	put_dns(out, d);
	rc = sbuf_rc(out);
	return rc ? err_set(err, rc, "dnsmasq's configuration does not fit") : RC_OK;
}

enum rc net_dns_render(const struct net_dns *d, struct sbuf *out, struct err *err)
{
	char addr[NET_IP4_TEXT];
	enum rc rc = check_dev(d->dev, err);

	if (!rc)
		rc = check_name("domain", d->domain, false, err);
	if (!rc)
		rc = check_path("hosts folder", d->hosts_dir, err);
	if (!rc && d->resolv_file)
		rc = check_path("resolver file", d->resolv_file, err);
	if (rc)
		return rc;
	/* No cache of its own to speak of: the kernel's and the guests' are nearer, and memory
	 * is bounded. */
	sbuf_addf(out,
		  "no-hosts\ncache-size=150\nlocal-ttl=5\nuser=nobody\ngroup=nogroup\n"
		  "interface=%s\nexcept-interface=lo\nbind-interfaces\nlisten-address=%s\nno-dhcp-"
		  "interface=%s\n"
		  "hostsdir=%s\nlocal=/%s/\n",
		  d->dev, net_ip4_format(d->address, addr), d->dev, d->hosts_dir, d->domain);
	if (d->resolv_file)
		sbuf_addf(out, "resolv-file=%s\n", d->resolv_file);
	else
		sbuf_adds(out, "no-resolv\n");
	rc = sbuf_rc(out);
	return rc ? err_set(err, rc, "dnsmasq's configuration does not fit") : RC_OK;
}

/* ---- the process ---- */

struct files {
	char conf[PATH_MAX];
	char pid[PATH_MAX];
};

static enum rc files_of(const char *dir, const char *name, struct files *f, struct err *err)
{
	if (!str_is_dns_label(name) ||
	    snprintf(f->conf, sizeof(f->conf), "%s/%s.conf", dir, name) >= (int)sizeof(f->conf) ||
	    snprintf(f->pid, sizeof(f->pid), "%s/%s.pid", dir, name) >= (int)sizeof(f->pid))
		return err_set(err, RC_INVALID, "'%.40s' cannot name a dnsmasq", name);
	return RC_OK;
}

/* The process that the pid file names, if it is a dnsmasq that runs from our file: a pid may be
 * somebody else's by now.  The descriptor pins it. */
static int dnsmasq_pidfd(const struct files *f)
{
	CLEANUP(mem_freep)
	char *text = NULL;
	CLEANUP(mem_freep)
	char *cmd = NULL;
	CLEANUP(fd_closep)
	int fd = -1;
	char path[64];
	int64_t pid;
	size_t n = 0;

	if (file_read(f->pid, 64, &text, &n, NULL))
		return -1;
	text[strcspn(text, "\n")] = '\0';
	if (str_to_i64(text, 2, INT_MAX, &pid, NULL))
		return -1;
	fd = pidfd_open((pid_t)pid, 0);
	if (fd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	if (file_read(path, 8192, &cmd, &n, NULL))
		return -1;
	for (size_t i = 0; i < n; i++)
		if (cmd[i] == '\0')
			cmd[i] = '\n';
	return strstr(cmd, f->conf) ? STEAL_FD(fd) : -1;
}

bool net_dnsmasq_is_running(const char *dir, const char *name)
{
	struct files f;

	if (files_of(dir, name, &f, NULL))
		return false;

	CLEANUP(fd_closep)
	int fd = dnsmasq_pidfd(&f);

	return fd >= 0;
}

static bool ends_within(int pidfd, int ms)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static void dnsmasq_end(const struct files *f)
{
	CLEANUP(fd_closep)
	int fd = dnsmasq_pidfd(f);

	if (fd < 0)
		return;
	if (pidfd_send_signal(fd, SIGTERM, NULL, 0) == 0 && ends_within(fd, 1000))
		return;
	if (pidfd_send_signal(fd, SIGKILL, NULL, 0) == 0)
		ends_within(fd, 1000);
}

/* Not durable: after a crash of the machine the process is gone as well, and the text is made anew. */
static enum rc conf_write(const char *path, const char *text, struct err *err)
{
	CLEANUP(fd_closep)
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0)
		return err_set_sys(err, errno, "cannot write '%s'", path);
	return file_write_all(fd, text, strlen(text), err);
}

enum rc net_dnsmasq_start(int ns_fd, const char *dir, const char *name, const char *text,
			  struct err *err)
{
	struct files f;
	char conf_arg[PATH_MAX + 32], pid_arg[PATH_MAX + 32];
	CLEANUP(mem_freep)
	char *old = NULL;
	size_t n = 0;
	enum rc rc = files_of(dir, name, &f, err);

	if (!rc)
		rc = file_mkdir_p(dir, 0755, err);
	if (rc)
		return rc;
	if (net_dnsmasq_is_running(dir, name) && !file_read(f.conf, CONF_MAX, &old, &n, NULL) &&
	    str_eq(old, text))
		return RC_OK;
	dnsmasq_end(&f);
	rc = conf_write(f.conf, text, err);
	if (rc)
		return rc;
	snprintf(conf_arg, sizeof(conf_arg), "--conf-file=%s", f.conf);
	snprintf(pid_arg, sizeof(pid_arg), "--pid-file=%s", f.pid);

	/* It goes into the background by itself, and its first process ends when it serves. */
	const char *const argv[] = {"dnsmasq", conf_arg, pid_arg, "--log-facility=/dev/null", NULL};

	rc = net_ns_run(ns_fd, argv, START_TIMEOUT, err);
	if (rc)
		err_prepend(err, "cannot start DHCP or DNS");
	return rc;
}

enum rc net_dnsmasq_stop(const char *dir, const char *name, struct err *err)
{
	struct files f;
	enum rc rc = files_of(dir, name, &f, err);

	if (rc)
		return rc;
	dnsmasq_end(&f);
	if ((unlink(f.pid) < 0 && errno != ENOENT) || (unlink(f.conf) < 0 && errno != ENOENT))
		return err_set_sys(err, errno, "cannot remove dnsmasq's files in '%s'", dir);
	return RC_OK;
}
