/* lib/net/dnsmasq.h - dnsmasq as a DHCP server for one guest, or as a network's DNS.
 *
 * The configuration is generated from checked values (addresses, DNS names): nothing a tenant wrote
 * reaches it as text.  The process runs in the given namespace, without a shell, detached from its
 * starter, and is found again by its pid file.  Blocking; pool threads.
 */
#ifndef NET_DNSMASQ_H
#define NET_DNSMASQ_H

#include <sys/types.h>

#include "base/sbuf.h"
#include "net/addr.h"

#define NET_DNS_SEARCH_MAX  6
#define NET_DNS_SERVERS_MAX 3

struct net_dhcp {
	const char *dev;	/* link of the namespace to answer on */
	struct net_mac mac;	/* the only client that gets an answer */
	struct in_addr address; /* its address, for ever */
	unsigned prefix;
	struct in_addr router; /* none: no router option */
	struct in_addr
		shared; /* dev's own address when it is not in the client's network; none: it is */
	unsigned mtu;	/* 0: not said */
	const char *hostname; /* DNS label or NULL */
	const char *domain;   /* DNS subdomain or NULL */
	const char *search[NET_DNS_SEARCH_MAX];
	struct in_addr dns[NET_DNS_SERVERS_MAX];
};

struct net_dns {
	const char *dev;	 /* link to answer on */
	struct in_addr address;	 /* listening address */
	const char *hosts_dir;	 /* folder of hosts files, watched by dnsmasq */
	const char *domain;	 /* "cluster.local": never asked for elsewhere */
	const char *resolv_file; /* resolvers for everything else; NULL: nothing is forwarded */
};

/* Pure; RC_INVALID with the field for a value that is not what it should be. */
MUST_CHECK enum rc net_dhcp_render(const struct net_dhcp *d, struct sbuf *out, struct err *err);
MUST_CHECK enum rc net_dns_render(const struct net_dns *d, struct sbuf *out, struct err *err);

/* Writes the text to <dir>/<name>.conf and starts dnsmasq on it; <dir>/<name>.pid is its pid
 * file.  One that runs already from the same text is left alone; from another text: restarted.
 * dir belongs to root. */
MUST_CHECK enum rc net_dnsmasq_start(int ns_fd, const char *dir, const char *name, const char *text,
				     struct err *err);
/* Ends it (SIGTERM, then SIGKILL after a second) and removes the files; not running is fine. */
MUST_CHECK enum rc net_dnsmasq_stop(const char *dir, const char *name, struct err *err);
bool net_dnsmasq_is_running(const char *dir, const char *name);

#endif
