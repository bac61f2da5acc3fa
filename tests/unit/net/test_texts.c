#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/podruntime/podnet_int.h"
#include "cluster/podruntime/services.h"
#include "lib/torture.h"
#include "virt/node/vmnet_int.h"

/* Golden files: what is given to nft. GOLDEN_UPDATE=1 writes them anew: read the difference
 * before committing it. */
static void golden(const char *name, struct sbuf *got)
{
	CLEANUP(mem_freep) char *want = NULL;
	char path[512];
	size_t n;

	snprintf(path, sizeof(path), "%s/%s.nft", GOLDEN_DIR, name);
	if (getenv("GOLDEN_UPDATE"))
		assert_int_equal(file_write_durable(path, got->p, got->n, 0644, NULL), RC_OK);
	assert_int_equal(file_read(path, 1 << 20, &want, &n, NULL), RC_OK);
	assert_string_equal(sbuf_str(got), want);
	sbuf_fini(got);
}

static struct in_addr ip(const char *s)
{
	struct in_addr a = {0};

	assert_int_equal(net_ip4_parse(s, &a, NULL), RC_OK);
	return a;
}

static struct vmnet_config vm_config(void)
{
	struct in_addr a = ip("10.244.1.10");

	return (struct vmnet_config){.pod_if = "eth0",
				     .address = a,
				     .prefix = 16,
				     .gateway = ip("10.244.0.1"),
				     .mac = net_mac_of_ip4(a),
				     .vm_network = ip("10.0.2.0"),
				     .vm_prefix = 24,
				     .mtu = 1450};
}

static void masquerade_texts_are_as_recorded(void **state)
{
	static const struct vmnet_port ports[] = {
		{VMNET_TCP, 22}, {VMNET_TCP, 80}, {VMNET_UDP, 53}, {VMNET_SCTP, 9}};
	struct sbuf out = SBUF_INIT(65536);
	struct vmnet_config c = vm_config();
	struct err err = {0};

	(void)state;
	assert_int_equal(vmnet_render(&c, &out, &err), RC_OK);
	golden("masquerade", &out);
	c.ports = ports;
	c.n_ports = ARRAY_SIZE(ports);
	assert_int_equal(vmnet_render(&c, &out, &err), RC_OK);
	golden("masquerade-ports", &out);
	c.is_incoming = true;
	c.vm_network = ip("192.168.100.0");
	c.vm_prefix = 29;
	assert_int_equal(vmnet_render(&c, &out, &err), RC_OK);
	golden("masquerade-incoming", &out);
}

static void bridge_text_is_as_recorded(void **state)
{
	struct sbuf out = SBUF_INIT(65536);
	struct vmnet_config c = vm_config();

	(void)state;
	c.binding = VMNET_BRIDGE;
	assert_int_equal(vmnet_render(&c, &out, NULL), RC_OK);
	golden("bridge", &out);
}

static void impossible_vm_networks_are_refused_with_a_reason(void **state)
{
	struct sbuf out = SBUF_INIT(65536);
	struct err err = {0};
	struct vmnet_config c = vm_config();
	struct vmnet_port zero = {VMNET_TCP, 0};

	(void)state;
	c.vm_prefix = 31;
	assert_int_equal(vmnet_render(&c, &out, &err), RC_INVALID);
	assert_non_null(strstr(
		err.msg, "VM CIDR subnet is too small, at least 2 host addresses are required"));
	c = vm_config();
	c.vm_network = ip("10.244.1.0");
	assert_int_equal(vmnet_render(&c, &out, &err), RC_INVALID);
	assert_non_null(strstr(err.msg, "overlaps"));
	c = vm_config();
	c.ports = &zero;
	c.n_ports = 1;
	assert_int_equal(vmnet_render(&c, &out, &err), RC_INVALID);
	c = vm_config();
	c.binding = VMNET_BRIDGE;
	c.guest_mac = (struct net_mac){{2, 0, 0, 0, 0, 9}};
	assert_int_equal(vmnet_render(&c, &out, &err), RC_INVALID);
	c = vm_config();
	c.mtu = 100;
	assert_int_equal(vmnet_render(&c, &out, &err), RC_INVALID);
	sbuf_fini(&out);
}

static struct podnet_config node_config(bool is_gateway)
{
	return (struct podnet_config){.underlay = ip("172.30.77.11"),
				      .segment = ip("10.244.0.10"),
				      .network = ip("10.244.0.0"),
				      .prefix = 16,
				      .gateway = ip("10.244.0.1"),
				      .service_network = ip("10.96.0.0"),
				      .service_prefix = 16,
				      .is_gateway = is_gateway};
}

static void node_texts_are_as_recorded(void **state)
{
	struct sbuf out = SBUF_INIT(65536);
	struct podnet_config c = node_config(false);

	(void)state;
	assert_int_equal(podnet_render(&c, &out, NULL), RC_OK);
	golden("node", &out);
	c.is_gateway = true;
	assert_int_equal(podnet_render(&c, &out, NULL), RC_OK);
	golden("node-gateway", &out);
	assert_int_equal(podnet_mig_render(&c, &out, NULL), RC_OK);
	golden("node-migration", &out);
	c.migration = ip("10.99.0.1");
	assert_int_equal(podnet_mig_render(&c, &out, NULL), RC_OK);
	golden("node-migration-network", &out);
}

static struct svc_endpoint three[3];
static struct svc_port web[2], dns[1], none[1], head[2];
static struct service items[6];

static struct services some_services(void)
{
	for (unsigned i = 0; i < 3; i++)
		three[i] = (struct svc_endpoint){net_ip4_nth(ip("10.244.1.0"), 24, 10 + i), 8080};
	web[0] = (struct svc_port){SVC_TCP, 80, 30080, three, 3};
	web[1] = (struct svc_port){SVC_TCP, 443, 0, three, 1};
	dns[0] = (struct svc_port){SVC_UDP, 53, 30053, three, 2};
	none[0] = (struct svc_port){SVC_TCP, 80, 30099, NULL, 0};
	head[0] = (struct svc_port){SVC_TCP, 80, 0, three, 3};
	head[1] = (struct svc_port){SVC_TCP, 81, 0, three, 3};
	items[0] = (struct service){"default", "web", ip("10.96.0.1"), web, 2, 0};
	items[1] = (struct service){"default", "sticky", ip("10.96.0.2"), dns, 1, 10800};
	items[2] = (struct service){"other", "empty", ip("10.96.0.3"), none, 1, 0};
	items[3] = (struct service){"other", "headless", {0}, head, 2, 0};
	items[4] = (struct service){"other", "claims-the-same", ip("10.96.0.1"), web, 2, 0};
	return (struct services){.items = items,
				 .n = 5,
				 .network = ip("10.244.0.0"),
				 .prefix = 16,
				 .gateway = ip("10.244.0.1"),
				 .service_network = ip("10.96.0.0"),
				 .service_prefix = 16,
				 .dns = ip("10.96.0.10")};
}

static void services_text_is_as_recorded(void **state)
{
	struct services s = some_services();
	struct sbuf out = SBUF_INIT(65536);

	(void)state;
	assert_int_equal(services_render(&s, &out, NULL), RC_OK);
	golden("services", &out);
	assert_int_equal(services_render_hosts(&s, "cluster.local", &out, NULL), RC_OK);
	golden("services-hosts", &out);
	s.n = 0;
	assert_int_equal(services_render(&s, &out, NULL), RC_OK);
	golden("services-none", &out);
}

static void bad_services_are_refused_by_name(void **state)
{
	struct services s = some_services();
	struct sbuf out = SBUF_INIT(65536);
	struct err err = {0};

	(void)state;
	items[1].name = "a b\n}";
	assert_int_equal(services_render(&s, &out, &err), RC_INVALID);
	assert_int_equal(services_render_hosts(&s, "cluster.local", &out, &err), RC_INVALID);
	s = some_services();
	web[0].port = 0;
	assert_int_equal(services_render(&s, &out, &err), RC_INVALID);
	assert_non_null(strstr(err.msg, "default/web"));
	s = some_services();
	assert_int_equal(services_render_hosts(&s, "a b", &out, &err), RC_INVALID);
	sbuf_fini(&out);
}

static void flows_of_a_peer_are_read_whole_or_refused(void **state)
{
	static const char good[] = "flows 11000000aabbccdd0035000012340000 180000 171234\n"
				   "peers 2f0000000a000001 180000 1\n";
	static const char *const bad[] = {"flows 11 1 1",
					  "flows 11000000aabbccdd003500001234000x 1 1",
					  "flows 11000000aabbccdd0035000012340000 1",
					  "flows 11000000aabbccdd0035000012340000 1 1 1",
					  "flows 11000000aabbccdd0035000012340000 180001 1",
					  "flows 11000000aabbccdd00350000123400001 1 1"};
	struct net_nft_elem *e = NULL;
	size_t n = 0;
	struct err err = {0};

	(void)state;
	assert_int_equal(vmnet_flows_parse(good, VMNET_FLOWS, &e, &n, &err), RC_OK);
	assert_int_equal(n, 1);
	assert_int_equal(e[0].n_key, VMNET_FLOW_KEY);
	assert_int_equal(e[0].key[4], 0xaa);
	assert_int_equal(e[0].expires_ms, 171234);
	e = mem_free(e);
	assert_int_equal(vmnet_flows_parse(good, VMNET_PEERS, &e, &n, &err), RC_OK);
	assert_int_equal(n, 1);
	e = mem_free(e);
	assert_int_equal(vmnet_flows_parse("", VMNET_FLOWS, &e, &n, &err), RC_OK);
	assert_int_equal(n, 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(vmnet_flows_parse(bad[i], VMNET_FLOWS, &e, &n, &err),
				 RC_BAD_REQUEST);
}

static enum rc render_all(void)
{
	struct services s = some_services();
	struct vmnet_config c = vm_config();
	struct sbuf out = SBUF_INIT(65536);
	enum rc rc = services_render(&s, &out, NULL);

	if (!rc)
		rc = vmnet_render(&c, &out, NULL);
	sbuf_fini(&out);
	return rc;
}

static void rendering_survives_every_failed_allocation(void **state)
{
	(void)state;
	torture(render_all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(masquerade_texts_are_as_recorded),
		cmocka_unit_test(bridge_text_is_as_recorded),
		cmocka_unit_test(impossible_vm_networks_are_refused_with_a_reason),
		cmocka_unit_test(node_texts_are_as_recorded),
		cmocka_unit_test(services_text_is_as_recorded),
		cmocka_unit_test(bad_services_are_refused_by_name),
		cmocka_unit_test(flows_of_a_peer_are_read_whole_or_refused),
		cmocka_unit_test(rendering_survives_every_failed_allocation),
	};

	return cmocka_run_group_tests_name("net_texts", tests, NULL, NULL);
}
