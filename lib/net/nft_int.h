/* lib/net/nft_int.h - nftables messages of our own (libnftnl), for the files of this folder. */
#ifndef NET_NFT_INT_H
#define NET_NFT_INT_H

#include <libmnl/libmnl.h>

#include "base/err.h"

struct nft_sock {
	int fd;
	uint32_t seq;
};
struct nft_batch {
	struct mnl_nlmsg_batch *batch;
};

MUST_CHECK enum rc net_nft_family(const char *name, uint8_t *out, struct err *err);
MUST_CHECK enum rc net_nft_open(int ns_fd, struct nft_sock *s, struct err *err);
void net_nft_close(struct nft_sock *s);

/* begin, one net_nft_begin() and payload per message, end; then head and size are what is to be
 * sent. */
MUST_CHECK enum rc net_nft_batch_start(struct nft_batch *b, char *buf, size_t size,
				       struct err *err);
struct nlmsghdr *net_nft_begin(struct nft_batch *b, uint8_t family, uint16_t type, uint16_t flags);
void net_nft_batch_end(struct nft_batch *b);
/* Numbers the messages, sends them in one system call, waits for the verdict. */
MUST_CHECK enum rc net_nft_send(struct nft_sock *s, void *buf, size_t len, struct err *err);

#endif
