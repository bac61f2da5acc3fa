/* What a peer node sends as its guest's flows, and the texts of addresses. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fuzz.h"
#include "virt/node/vmnet_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(mem_freep) char *text = mem_strndup((const char *)data, size);
	struct net_mac mac;
	struct in_addr a;
	unsigned prefix = 0;

	if (!text)
		return 0;
	for (enum vmnet_flow_set s = 0; s < VMNET_FLOW_SET__MAX; s++) {
		CLEANUP(mem_freep) struct net_nft_elem *e = NULL;
		size_t n = 0;

		if (vmnet_flows_parse(text, s, &e, &n, NULL))
			continue;
		for (size_t i = 0; i < n; i++)
			if (e[i].n_key > NET_NFT_KEY || e[i].timeout_ms > VMNET_FLOW_MS)
				abort();
	}
	if (!net_mac_parse(text, &mac, NULL)) {
		char again[NET_MAC_TEXT];
		struct net_mac same;

		if (net_mac_parse(net_mac_format(mac, again), &same, NULL) ||
		    !net_mac_equal(mac, same))
			abort();
	}
	if (!net_cidr_parse(text, &a, &prefix, NULL) && prefix > 32)
		abort();
	return 0;
}
