/* src/virt/node/agent_http.h - what the node answers over HTTPS (mutual TLS): consoles and commands for
 * the API server, messages of moves for other nodes.
 *
 * Loop thread only.  Every path but /healthz needs a certificate of the cluster's authority:
 *
 *   GET  /healthz
 *   GET  /metrics                                                            system:masters
 *   GET  /v1/namespaces/NS/virtualmachineinstances/NAME/console (websocket)  system:masters
 *   GET  /v1/namespaces/NS/virtualmachineinstances/NAME/vnc (websocket), .../vnc/screenshot; agent_display.h
 *   GET  /v1/namespaces/NS/virtualmachineinstances/NAME/portforward/PORT/PROTOCOL (websocket); agent_forward.h
 *   GET, PUT /v1/namespaces/NS/virtualmachineinstances/NAME/{pause,reset,...}: the table of verbs; system:masters
 *   POST /v1/moves/VMI-UID/{key,permission}                                  system:nodes
 *
 * A second console session of one VM replaces the first.  Errors are Kubernetes' Status objects.
 */
#ifndef NODE_AGENT_HTTP_H
#define NODE_AGENT_HTTP_H

#include "base/err.h"

struct agent_http;
struct loop;
struct sbuf;
struct vmhost;

struct agent_http_config {
	struct loop *loop;
	struct vmhost *host;
	const char *address;
	uint16_t port;
	const char *cert_file, *key_file, *ca_file;
	void (*metrics)(struct sbuf *out, void *arg);
	void *arg;
};

MUST_CHECK enum rc agent_http_new(struct agent_http **out, const struct agent_http_config *config,
				  struct err *err);
struct agent_http *agent_http_free(struct agent_http *a);
DEFINE_CLEANUP(struct agent_http *, agent_http_free);
MUST_CHECK enum rc agent_http_reload_tls(struct agent_http *a, struct err *err);

#endif
