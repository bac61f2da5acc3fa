/* lib/net/net_int.h - the rtnetlink socket behind struct net, for the files of this folder. */
#ifndef NET_NET_INT_H
#define NET_NET_INT_H

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>

#include "net/link.h"

#define NET_MSG_BYTES  2048		   /* one request; ours stay below 500 */
#define NET_RECV_BYTES ((size_t)64 * 1024) /* one dump datagram; the kernel sends at most 32 KiB */

struct net {
	int fd;
	uint32_t seq;
	char *recv_buf;
};

/* One request in caller's memory. */
struct net_msg {
	char buf[NET_MSG_BYTES];
	struct nlmsghdr *nlh;
};

/* A handle for another part of netlink than routes. */
MUST_CHECK enum rc net_open_protocol(struct net **out, int ns_fd, int protocol, struct err *err);
/* A request with its family header, ready for attributes; returns the family header. */
void *net_msg_init(struct net_msg *m, uint16_t type, uint16_t flags, size_t header_bytes);
/* Sends it and waits for the kernel's verdict. RC_* by errno, with the kernel's own words; the
 * text says only that, callers prepend what they asked. */
MUST_CHECK enum rc net_talk(struct net *n, struct net_msg *m, struct err *err);
/* The same for a dump: fn for each answer. */
typedef enum rc (*net_answer_fn)(const struct nlmsghdr *h, void *arg, struct err *err);
MUST_CHECK enum rc net_dump(struct net *n, struct net_msg *m, net_answer_fn fn, void *arg,
			    struct err *err);
/* A request that is answered by one message and an acknowledgement. */
MUST_CHECK enum rc net_ask(struct net *n, struct net_msg *m, net_answer_fn fn, void *arg,
			   struct err *err);

MUST_CHECK enum rc net_ifindex(struct net *n, const char *name, int *out, struct err *err);
void net_put_addr(struct net_msg *m, uint16_t type, struct in_addr a);
void net_put_mac(struct net_msg *m, uint16_t type, struct net_mac mac);
/* Keeps rc whatever err is; prepends. */
enum rc net_fail(enum rc rc, struct err *err, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Builders shared by single calls and batches. */
MUST_CHECK enum rc net_fdb_build(struct net *n, const struct net_fdb *f, bool add,
				 struct net_msg *m, struct err *err);
MUST_CHECK enum rc net_port_build(struct net *n, const char *name, const struct net_port_set *s,
				  struct net_msg *m, struct err *err);

/* A bare netlink socket of this protocol in the namespace, with 10 s receive timeout. */
MUST_CHECK enum rc net_netlink_socket(int ns_fd, int protocol, int *fd, struct err *err);

#endif
