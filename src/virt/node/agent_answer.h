/* src/virt/node/agent_answer.h - refusals of the node's HTTPS server, as Kubernetes' Status objects. */
#ifndef NODE_AGENT_ANSWER_H
#define NODE_AGENT_ANSWER_H

#include "base/err.h"

struct http_req;

/* Answers req: HTTP status, Kubernetes' reason ("NotFound"), a sentence (cut at 600 bytes). */
void agent_answer(struct http_req *req, int status, const char *reason, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
/* The same with the status and reason that rc stands for.  text NULL: rc's name. */
void agent_answer_rc(struct http_req *req, enum rc rc, const char *text);

#endif
