#include "net/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>

#include "base/str.h"

enum rc net_mac_parse(const char *s, struct net_mac *out, struct err *err)
{
	struct net_mac m = {0};

	if (!s || strlen(s) != 17)
		return err_set(err, RC_INVALID, "'%.40s' is not a MAC address", s ? s : "");
	for (size_t i = 0; i < 6; i++) {
		int hi = str_hex_digit(s[3 * i]), lo = str_hex_digit(s[3 * i + 1]);
		char sep = s[3 * i + 2];

		if (hi < 0 || lo < 0 || (i < 5 && sep != ':' && sep != '-'))
			return err_set(err, RC_INVALID, "'%s' is not a MAC address", s);
		m.b[i] = (uint8_t)(hi << 4 | lo);
	}
	*out = m;
	return RC_OK;
}

char *net_mac_format(struct net_mac m, char out[NET_MAC_TEXT])
{
	snprintf(out, NET_MAC_TEXT, "%02x:%02x:%02x:%02x:%02x:%02x", m.b[0], m.b[1], m.b[2], m.b[3],
		 m.b[4], m.b[5]);
	return out;
}

bool net_mac_is_zero(struct net_mac m)
{
	return net_mac_equal(m, (struct net_mac){0});
}

bool net_mac_equal(struct net_mac a, struct net_mac b)
{
	return memcmp(a.b, b.b, 6) == 0;
}

struct net_mac net_mac_of_ip4(struct in_addr a)
{
	struct net_mac m = {{0x0a, 0x58}};

	memcpy(m.b + 2, &a.s_addr, 4);
	return m;
}

enum rc net_ip4_parse(const char *s, struct in_addr *out, struct err *err)
{
	struct in_addr a;

	if (s && strchr(s, ':'))
		return err_set(err, RC_INVALID,
			       "'%.60s' is an IPv6 address, which Ferry does not support yet", s);
	if (!s || inet_pton(AF_INET, s, &a) != 1)
		return err_set(err, RC_INVALID, "'%.60s' is not an IPv4 address", s ? s : "");
	*out = a;
	return RC_OK;
}

enum rc net_cidr_parse(const char *s, struct in_addr *addr, unsigned *prefix, struct err *err)
{
	char text[NET_IP4_TEXT];
	const char *slash = s ? strchr(s, '/') : NULL;
	uint64_t bits;

	if (s && strchr(s, ':'))
		return err_set(err, RC_INVALID,
			       "'%.60s' is an IPv6 network, which Ferry does not support yet", s);
	if (!slash || (size_t)(slash - s) >= sizeof(text))
		return err_set(err, RC_INVALID, "'%.60s' is not an IPv4 network", s ? s : "");
	memcpy(text, s, (size_t)(slash - s));
	text[slash - s] = '\0';

	enum rc rc = net_ip4_parse(text, addr, err);

	if (!rc)
		rc = str_to_u64(slash + 1, 32, &bits, err);
	if (rc)
		return err_set(err, RC_INVALID, "'%.60s' is not an IPv4 network", s);
	*prefix = (unsigned)bits;
	return RC_OK;
}

char *net_ip4_format(struct in_addr a, char out[NET_IP4_TEXT])
{
	inet_ntop(AF_INET, &a, out, NET_IP4_TEXT);
	return out;
}

struct in_addr net_ip4_mask(unsigned prefix)
{
	uint32_t m = prefix == 0 ? 0 : prefix >= 32 ? UINT32_MAX : ~(UINT32_MAX >> prefix);

	return (struct in_addr){htonl(m)};
}

struct in_addr net_ip4_nth(struct in_addr network, unsigned prefix, uint32_t n)
{
	uint32_t base = ntohl(network.s_addr) & ntohl(net_ip4_mask(prefix).s_addr);

	return (struct in_addr){htonl(base + n)};
}

bool net_ip4_in(struct in_addr a, struct in_addr network, unsigned prefix)
{
	return ((a.s_addr ^ network.s_addr) & net_ip4_mask(prefix).s_addr) == 0;
}

enum rc net_ip4_local_in(struct in_addr network, unsigned prefix, struct in_addr *out,
			 struct err *err)
{
	char text[NET_IP4_TEXT];
	struct ifaddrs *list;

	if (getifaddrs(&list) < 0)
		return err_set_sys(err, errno, "cannot list this host's addresses");
	const struct ifaddrs *i = list;
	struct sockaddr_in a = {0};

	for (; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy(&a, i->ifa_addr, sizeof(a));
		if (net_ip4_in(a.sin_addr, network, prefix))
			break;
	}
	bool found = i != NULL;

	freeifaddrs(list);
	if (!found)
		return err_set(err, RC_NOT_FOUND, "this host has no address in %s/%u",
			       net_ip4_format(network, text), prefix);
	*out = a.sin_addr;
	return RC_OK;
}
