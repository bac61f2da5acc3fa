/* lib/net/nft.h - nftables: whole rule sets as text, and the few things that text cannot say or
 * cannot say fast enough.
 *
 * Blocking; pool threads.  A text is applied as one transaction: all of it or nothing.
 */
#ifndef NET_NFT_H
#define NET_NFT_H

#include "net/addr.h"

/* Runs nft's own language in the namespace (ns_fd -1: the thread's).  Nothing of a tenant may
 * reach the text but through the generators of lib/net (numbers, addresses).  nft's message is
 * in err. */
MUST_CHECK enum rc net_nft_run(int ns_fd, const char *text, struct err *err);
/* Takes a whole table away; a missing one is fine.  family: "ip", "bridge", "netdev". */
MUST_CHECK enum rc net_nft_del_table(int ns_fd, const char *family, const char *table,
				     struct err *err);

/* Appends to a chain of an "ip" table the rule that text cannot express: overwrite the 32 bits
 * at `offset` of the transport header with `value`, and correct the Internet checksum at
 * `csum_offset` of the transport header for it.  With the header inside an ICMP error (offsets
 * 8+12 or 8+16, checksum 8+10) the two changes cancel out, so that the error's own checksum
 * stays right. */
MUST_CHECK enum rc net_nft_add_inner_rewrite(int ns_fd, const char *table, const char *chain,
					     unsigned offset, struct in_addr value,
					     unsigned csum_offset, struct err *err);

/* ---- sets whose content matters ---- */

/* One element: the key as the kernel stores it (each part padded to 4 bytes), and how long it
 * still lives (0: for ever). */
#define NET_NFT_KEY 64
struct net_nft_elem {
	uint8_t key[NET_NFT_KEY];
	size_t n_key;
	uint64_t timeout_ms; /* 0: the set's own */
	uint64_t expires_ms; /* 0: as timeout */
};
typedef enum rc (*net_nft_elem_fn)(const struct net_nft_elem *e, void *arg, struct err *err);
MUST_CHECK enum rc net_nft_set_list(int ns_fd, const char *family, const char *table,
				    const char *set, net_nft_elem_fn fn, void *arg,
				    struct err *err);
MUST_CHECK enum rc net_nft_set_add(int ns_fd, const char *family, const char *table,
				   const char *set, const struct net_nft_elem *elems, size_t n,
				   struct err *err);

#endif
