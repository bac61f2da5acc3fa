#include "virt/node/agent_answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "http/server.h"
#include "json/json.h"

void agent_answer(struct http_req *req, int status, const char *reason, const char *fmt, ...)
{
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:s, s:s, s:{}, s:s, s:s, s:s, s:i}", "kind", "Status",
				 "apiVersion", "v1", "metadata", "status", "Failure", "message",
				 text, "reason", reason, "code", status);
	char *body = j ? js_to_text(j) : NULL;

	if (body)
		http_respond_take(req, status, "application/json", body, strlen(body), NULL, 0);
	else
		http_respond(req, status, NULL, "", 0, NULL, 0);
}

void agent_answer_rc(struct http_req *req, enum rc rc, const char *text)
{
	agent_answer(req, rc_http(rc), rc_reason(rc), "%s", text ? text : rc_name(rc));
}
