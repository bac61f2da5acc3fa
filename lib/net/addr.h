/* lib/net/addr.h - MAC and IPv4 addresses as values, and their text.
 *
 * No state; any thread.  IPv4 addresses are struct in_addr in network order; 0.0.0.0 means "none"
 * wherever an address is optional.  IPv6 is not spoken yet: it is refused by name where it is met.
 */
#ifndef NET_ADDR_H
#define NET_ADDR_H

#include <netinet/in.h>

#include "base/err.h"

#define NET_MAC_TEXT 18 /* "0a:58:0a:f4:00:01" and a NUL */
#define NET_IP4_TEXT 16 /* "255.255.255.255" and a NUL */

struct net_mac {
	uint8_t b[6];
};

/* Six pairs of hex digits, ':' or '-' between them.  RC_INVALID with the text quoted. */
MUST_CHECK enum rc net_mac_parse(const char *s, struct net_mac *out, struct err *err);
/* Lower case with colons; returns out. */
char *net_mac_format(struct net_mac m, char out[NET_MAC_TEXT]);
bool net_mac_is_zero(struct net_mac m);
bool net_mac_equal(struct net_mac a, struct net_mac b);
/* 0a:58 and the four bytes of the address: locally administered, unique where the address is. */
struct net_mac net_mac_of_ip4(struct in_addr a);

/* Dotted quad.  RC_INVALID with the text quoted (an IPv6 address is named as such). */
MUST_CHECK enum rc net_ip4_parse(const char *s, struct in_addr *out, struct err *err);
/* "10.244.0.0/16": the prefix must be there and host bits may be set. */
MUST_CHECK enum rc net_cidr_parse(const char *s, struct in_addr *addr, unsigned *prefix,
				  struct err *err);
char *net_ip4_format(struct in_addr a, char out[NET_IP4_TEXT]);
static inline bool net_ip4_is_none(struct in_addr a)
{
	return a.s_addr == 0;
}
/* An address of this host (in the network namespace of the caller) that lies in the network; of several the first that
 * the kernel names.  RC_NOT_FOUND. */
MUST_CHECK enum rc net_ip4_local_in(struct in_addr network, unsigned prefix, struct in_addr *out,
				    struct err *err);
/* The nth address of a network (0 is the network itself). */
struct in_addr net_ip4_nth(struct in_addr network, unsigned prefix, uint32_t n);
bool net_ip4_in(struct in_addr a, struct in_addr network, unsigned prefix);
struct in_addr net_ip4_mask(unsigned prefix);

#endif
