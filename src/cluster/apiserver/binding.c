/* pods/binding: the scheduler's word, which is a write of the Pod. */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"

static enum rc bind_pod(struct json *pod, const struct json *binding, const char *node, usec_t now)
{
	struct json *spec = js_ensure_object(pod, "spec"),
		    *status = js_ensure_object(pod, "status");
	const struct json *notes = js_at(binding, "metadata", "annotations", NULL);
	char time[32];

	if (!spec || !status || js_set(spec, "nodeName", js_new_str(node)))
		return RC_NOMEM;
	JS_FOREACH(it, notes)
		if (js_set(js_ensure_object(js_get(pod, "metadata"), "annotations"), it.key,
			   js_ref(it.value)))
			return RC_NOMEM;
	time_rfc3339(now, time);
	struct json *conds = js_get(status, "conditions");

	if (!js_is_array(conds)) {
		conds = js_new_array();
		if (js_set(status, "conditions", conds))
			return RC_NOMEM;
	}
	for (size_t i = js_len(conds); i-- > 0;)
		if (str_eq(js_get_str(js_item(conds, i), "type"), "PodScheduled"))
			js_del_item(conds, i);
	return js_append(conds, js_pack("{s:s, s:s, s:n, s:s}", "type", "PodScheduled", "status",
					"True", "lastProbeTime", "lastTransitionTime", time));
}

void serve_binding(struct apisrv_call *c)
{
	CLEANUP(change_fini)
	struct change ch = {.c = c, .res = c->res, .op = HOOK_UPDATE, .ns = c->ns, .name = c->name};
	const char *node = js_str(js_at(c->json, "target", "name", NULL));

	if (str_is_empty(node)) {
		call_fail(c, 422, "Invalid", NULL,
			  "Binding \"%s\" is invalid: target.name: Required value", c->name);
		return;
	}
	if (!call_check_options(c, "CreateOptions") || !change_load(&ch))
		return;
	const char *uid = js_str(js_at(c->json, "metadata", "uid", NULL));
	const char *at = js_str(js_at(ch.old, "spec", "nodeName", NULL));
	char why[LIMIT_NAME_BYTES * 2 + 100];

	if (is_deleting(ch.old)) {
		snprintf(why, sizeof(why), "pod %s is being deleted, cannot be assigned to a host",
			 c->name);
		call_conflict(c, c->res, c->name, why);
		return;
	}
	if (!str_is_empty(at)) {
		snprintf(why, sizeof(why), "pod %s is already assigned to node \"%.253s\"", c->name,
			 at);
		call_conflict(c, c->res, c->name, why);
		return;
	}
	if (!str_is_empty(uid) && !str_eq(uid, js_str(js_at(ch.old, "metadata", "uid", NULL)))) {
		call_conflict(c, c->res, c->name,
			      "Precondition failed: UID in precondition differs");
		return;
	}
	ch.obj = js_copy(ch.old);
	if (!ch.obj || bind_pod(ch.obj, c->json, node, loop_realtime(c->srv->loop))) {
		call_nomem(c);
		return;
	}
	change_commit(&ch, STORE_UPDATE, 201,
		      js_pack("{s:s, s:s, s:{}, s:s, s:i}", "kind", "Status", "apiVersion", "v1",
			      "metadata", "status", "Success", "code", 201));
}
