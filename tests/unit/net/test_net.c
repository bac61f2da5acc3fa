#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "lib/torture.h"
#include "net/addr.h"
#include "net/dnsmasq.h"

static void macs_are_read_whole_or_refused(void **state)
{
	static const char *const bad[] = {"",
					  "0a:58",
					  "0a:58:00:00:00:0g",
					  "0a:58:00:00:00:01:02",
					  "0a58.0000.0001",
					  "0a:58:00:00:00:0",
					  " a:58:00:00:00:01",
					  NULL};
	struct net_mac m;
	char text[NET_MAC_TEXT];
	struct err err = {0};

	(void)state;
	assert_int_equal(net_mac_parse("0A-58-0a:F4:00:01", &m, &err), RC_OK);
	assert_string_equal(net_mac_format(m, text), "0a:58:0a:f4:00:01");
	for (size_t i = 0; bad[i]; i++)
		assert_int_equal(net_mac_parse(bad[i], &m, &err), RC_INVALID);
	assert_int_equal(net_mac_parse(NULL, &m, NULL), RC_INVALID);
}

static void ipv6_is_refused_by_name(void **state)
{
	struct in_addr a;
	unsigned prefix;
	struct err err = {0};

	(void)state;
	assert_int_equal(net_ip4_parse("fd10::2", &a, &err), RC_INVALID);
	assert_non_null(strstr(err.msg, "IPv6"));
	assert_int_equal(net_cidr_parse("fd10::/64", &a, &prefix, &err), RC_INVALID);
	assert_non_null(strstr(err.msg, "IPv6"));
}

static void networks_are_read_and_counted(void **state)
{
	static const char *const bad[] = {"10.0.2.0",
					  "10.0.2.0/",
					  "10.0.2.0/33",
					  "10.0.2/24",
					  "10.0.2.0/24x",
					  "/24",
					  "1000.1000.1000.1000/24",
					  NULL};
	struct in_addr net;
	unsigned prefix = 0;
	char text[NET_IP4_TEXT];
	struct err err = {0};

	(void)state;
	assert_int_equal(net_cidr_parse("10.0.2.7/24", &net, &prefix, &err), RC_OK);
	assert_int_equal(prefix, 24);
	assert_string_equal(net_ip4_format(net_ip4_nth(net, prefix, 2), text), "10.0.2.2");
	assert_true(net_ip4_in(net, net_ip4_nth(net, prefix, 0), prefix));
	assert_false(net_ip4_in((struct in_addr){htonl(0x0a000302)}, net, prefix));
	assert_string_equal(net_ip4_format(net_ip4_mask(0), text), "0.0.0.0");
	assert_string_equal(net_ip4_format(net_ip4_mask(32), text), "255.255.255.255");
	assert_string_equal(net_ip4_format(net_ip4_mask(16), text), "255.255.0.0");
	for (size_t i = 0; bad[i]; i++)
		assert_int_equal(net_cidr_parse(bad[i], &net, &prefix, &err), RC_INVALID);
	/* of this host's addresses: the loopback's, and none of what nobody has */
	assert_int_equal(net_cidr_parse("127.0.0.0/8", &net, &prefix, NULL), RC_OK);
	assert_int_equal(net_ip4_local_in(net, prefix, &net, NULL), RC_OK);
	assert_string_equal(net_ip4_format(net, text), "127.0.0.1");
	assert_int_equal(net_cidr_parse("203.0.113.0/24", &net, &prefix, NULL), RC_OK);
	assert_int_equal(net_ip4_local_in(net, prefix, &net, NULL), RC_NOT_FOUND);
}

static struct net_dhcp good_dhcp(void)
{
	return (struct net_dhcp){.dev = "tap0",
				 .mac = {{2, 0, 0, 0, 0, 1}},
				 .address = {htonl(0x0a000202)},
				 .prefix = 24,
				 .router = {htonl(0x0a000201)},
				 .mtu = 1450,
				 .hostname = "vm1"};
}

static void no_tenant_text_gets_into_dnsmasq(void **state)
{
	static const char *const evil[] = {
		"a\nconf-file=/etc/shadow", "a,b", "a b", "-a", "a..b", "A", "a#b"};
	struct net_dhcp d = good_dhcp();
	struct sbuf out = SBUF_INIT(16384);
	struct err err = {0};

	(void)state;
	assert_int_equal(net_dhcp_render(&d, &out, &err), RC_OK);
	for (size_t i = 0; i < ARRAY_SIZE(evil); i++) {
		d = good_dhcp();
		d.hostname = evil[i];
		assert_int_equal(net_dhcp_render(&d, &out, &err), RC_INVALID);
		d = good_dhcp();
		d.domain = evil[i];
		assert_int_equal(net_dhcp_render(&d, &out, &err), RC_INVALID);
		d = good_dhcp();
		d.search[1] = evil[i];
		assert_int_equal(net_dhcp_render(&d, &out, &err), RC_INVALID);
		d = good_dhcp();
		d.dev = evil[i];
		assert_int_equal(net_dhcp_render(&d, &out, &err), RC_INVALID);

		struct net_dns n = {.dev = "fgw0", .hosts_dir = evil[i], .domain = "cluster.local"};

		assert_int_equal(net_dns_render(&n, &out, &err), RC_INVALID);
	}
	sbuf_fini(&out);
}

static enum rc render_once(void)
{
	struct net_dhcp d = good_dhcp();
	struct sbuf out = SBUF_INIT(16384);
	enum rc rc = net_dhcp_render(&d, &out, NULL);

	sbuf_fini(&out);
	return rc;
}

static void rendering_survives_every_failed_allocation(void **state)
{
	(void)state;
	torture(render_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(macs_are_read_whole_or_refused),
		cmocka_unit_test(ipv6_is_refused_by_name),
		cmocka_unit_test(networks_are_read_and_counted),
		cmocka_unit_test(no_tenant_text_gets_into_dnsmasq),
		cmocka_unit_test(rendering_survives_every_failed_allocation),
	};

	return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
