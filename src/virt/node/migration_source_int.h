/* src/virt/node/migration_source_int.h - the source's side of a move, for the files that make it up. */
#ifndef NODE_MIGRATION_SOURCE_INT_H
#define NODE_MIGRATION_SOURCE_INT_H

#include "virt/node/migration_int.h"

struct mig_source {
	struct vm *vm; /* NULL: it has gone */
	struct vmhost *host;
	enum src_state state;
	char *uid, *target_node, *failure;
	char *reason,
		*detail; /* of the failure: a word for programs, a sentence beyond KubeVirt's text */
	char agent_url[64];
	struct mig_net net;
	char target_ip[NET_IP4_TEXT];
	int64_t port, nbd_port;
	char *user, *key;
	int64_t epoch;
	bool is_open; /* the way through the firewall */
	bool has_key, net_ready, is_written, cancel_asked, cancel_sent, resume_asked;
	const char *cancel_reason; /* a constant */
	bool is_aborted_by_user;
	usec_t finish_by; /* realtime; 0: not told to finish. The guest stands, the rest goes over */
	usec_t begun_at;  /* realtime */
	usec_t stop_at;
	struct json *last; /* the launcher's last word on the move */
	char *flows;
	bool flows_pending;
	struct http_slot *http;
	struct ev_src *timer;
	usec_t backoff;
	usec_t unknown_since; /* the target's agent does not know the move */
	struct ev_src *watch;
	int64_t best_left;
	usec_t best_at;
	bool shows_progress; /* the move takes long enough */
	unsigned jobs;
};

#endif
