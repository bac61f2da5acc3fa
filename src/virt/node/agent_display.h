/* src/virt/node/agent_display.h - the display of a guest over the agent's HTTPS: RFB sessions and pictures.
 *
 * Loop thread only.  The caller has let the peer in (system:masters).
 *
 *   GET /v1/namespaces/NS/virtualmachineinstances/NAME/vnc[?preserveSession=true] (websocket)
 *   GET /v1/namespaces/NS/virtualmachineinstances/NAME/vnc/screenshot[?moveCursor=true]
 *
 * A second session of one VM replaces the first; with preserveSession it is refused while there is one (503), as
 * virt-handler does.  Bytes are passed on as they are: this never looks into RFB.  Nothing is lost to a slow side, the
 * other one waits.
 */
#ifndef NODE_AGENT_DISPLAY_H
#define NODE_AGENT_DISPLAY_H

#include "base/err.h"

struct agent_display;
struct http_req;
struct vm;

/* NULL: out of memory. */
struct agent_display *agent_display_new(void);
struct agent_display *agent_display_free(struct agent_display *d);
DEFINE_CLEANUP(struct agent_display *, agent_display_free);

/* vm runs here; it is "ns/name".  The request is answered, now or later. */
void agent_display_vnc(struct agent_display *d, struct http_req *req, struct vm *vm,
		       const char *vm_name);
void agent_display_screenshot(struct agent_display *d, struct http_req *req, struct vm *vm,
			      const char *vm_name);

/* An RFB session on an open descriptor, which is taken over: the part of agent_display_vnc() after QEMU has answered. */
void agent_display_attach(struct agent_display *d, struct http_req *req, const char *vm_name,
			  int fd, bool preserves);
/* The picture in an open file as an answer; fd is taken over. */
void agent_display_picture(struct http_req *req, int fd);

#endif
