#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "http/client.h"
#include "http/uri.h"
#include "virt/subresources/subres_int.h"

/* Subresources of a VirtualMachineInstance that its node answers. */

#define AGENT_PORT "ferry.dev/agent-port"
static const usec_t COMMAND_TIMEOUT = 20 * USEC_PER_SEC;

static const char *internal_ip(const struct json *node)
{
	const struct json *list = js_at(node, "status", "addresses", NULL);

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "type"), "InternalIP"))
			return js_get_str(js_item(list, i), "address");
	return NULL;
}

enum rc agent_url(struct hook_env *env, const struct json *vmi, const char *what, char **out,
		  struct err *err)
{
	const char *name = js_str(js_at(vmi, "status", "nodeName", NULL));
	const struct json *node = name ? hook_get(env, "nodes", NULL, name) : NULL;
	const char *address = internal_ip(node);
	const char *port = js_str(js_at(node, "metadata", "annotations", AGENT_PORT, NULL));
	bool is_v6 = address && strchr(address, ':');
	struct sbuf url = SBUF_INIT(2048);
	size_t n;

	if (!address)
		return err_set(err, RC_CLOSED, "the address of node '%s' is not known",
			       name ? name : "");
	sbuf_addf(&url, "https://%s%s%s:%s/v1/namespaces/", is_v6 ? "[" : "", address,
		  is_v6 ? "]" : "", port ? port : "8186");
	http_uri_escape(&url, js_str(js_at(vmi, "metadata", "namespace", NULL)));
	sbuf_adds(&url, "/virtualmachineinstances/");
	http_uri_escape(&url, js_str(js_at(vmi, "metadata", "name", NULL)));
	sbuf_addf(&url, "/%s", what);
	enum rc rc = sbuf_take(&url, out, &n);

	return rc ? err_set(err, rc, "cannot allocate a URL") : RC_OK;
}

/* A command on its way to a node. */
struct pending {
	struct list link;
	struct hook_call *call;
	struct http_slot *slot;
	agent_then_fn then; /* NULL: that it was done is all there is to say */
};

static struct pending *pending_free(struct pending *p)
{
	list_remove(&p->link);
	http_slot_free(p->slot);
	return mem_free(p);
}

static void on_cancel(struct hook_call *call)
{
	pending_free(hook_call_data(call));
	hook_call_set_data(call, NULL);
}

static void on_answer(const struct http_result *r, void *arg)
{
	struct pending *p = arg;
	struct hook_call *call = p->call;
	CLEANUP(js_unrefp) struct json *status = NULL;
	const char *text;

	hook_call_on_cancel(call, NULL);
	hook_call_set_data(call, NULL);
	if (!r->rc && r->status / 100 == 2 && p->then) {
		p->then(call, r);
	} else if (!r->rc && r->status / 100 == 2) {
		reply_empty(call, 200);
	} else if (r->rc) {
		fail_internal(call, "the node's agent does not answer: %s", r->err->msg);
	} else {
		ignore_rc(js_parse(r->body, r->n, &status, NULL)); /* no text then */
		text = js_get_str(status, "message");
		if (r->status == 409)
			fail_conflict(call, "virtualmachineinstance", "%s",
				      text ? text : "refused");
		else if (p->then)
			hook_call_fail(call, rc_from_http(r->status, js_get_str(status, "reason")),
				       "%s", text ? text : "the node's agent refused");
		else
			fail_internal(call, "%s", text ? text : "the node's agent refused");
	}
	pending_free(p);
}

void agent_ask(struct hook_call *call, const struct json *vmi, const char *method, const char *what,
	       size_t response_max, usec_t timeout, agent_then_fn then)
{
	struct virt_subres *s = hook_arg(hook_call_env(call));
	CLEANUP(mem_freep) char *url = NULL;
	struct pending *p = s ? mem_alloc(sizeof(*p)) : NULL;
	struct http_call http = {.method = method,
				 .timeout = timeout,
				 .response_max = response_max,
				 .done = on_answer,
				 .arg = p};
	struct err err = {0};
	enum rc rc;

	if (!p) {
		fail_internal(call, s ? "out of memory" : "this server has no connection to nodes");
		return;
	}
	rc = agent_url(hook_call_env(call), vmi, what, &url, &err);
	http.url = url;
	if (!rc)
		rc = http_call(s->agents, &p->slot, &http, &err);
	if (rc) {
		mem_free(p);
		fail_internal(call, "%s", err.msg);
		return;
	}
	p->call = call;
	p->then = then;
	list_push_tail(&s->pending, &p->link);
	hook_call_set_data(call, p);
	hook_call_on_cancel(call, on_cancel);
}

static void command(struct hook_call *call, const struct json *vmi, const char *what)
{
	agent_ask(call, vmi, "PUT", what, 0, COMMAND_TIMEOUT, NULL);
}

static bool is_paused(const struct json *vmi)
{
	return condition_is_true(vmi, "Paused");
}

void vmi_pause(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *options = NULL;
	const struct json *vmi = get_vmi(call);
	const struct json *probe = js_at(vmi, "spec", "livenessProbe", NULL);
	char text[512];

	if (!vmi) {
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	} else if (!vmi_is_running(vmi)) {
		fail_conflict(call, "virtualmachineinstance", "VMI is not running");
	} else if (probe && !js_get(probe, "guestAgentPing")) {
		snprintf(text, sizeof(text),
			 "virtualmachineinstance.kubevirt.io \"%s\" is forbidden: Pausing VMIs "
			 "with a "
			 "non-GuestAgentPing LivenessProbe is not supported",
			 hook_call_name(call));
		hook_call_fail_details(call, RC_FORBIDDEN, "kubevirt.io", "virtualmachineinstance",
				       hook_call_name(call), text);
	} else if (is_paused(vmi)) {
		fail_conflict(call, "virtualmachineinstance", "VMI is already paused");
	} else if (read_options(call, &options)) {
		if (is_dry_run(options))
			reply_empty(call, 200);
		else
			command(call, vmi, "pause");
	}
}

void vmi_unpause(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *options = NULL;
	const struct json *vmi = get_vmi(call);

	if (!vmi) {
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	} else if (!vmi_is_running(vmi)) {
		fail_conflict(call, "virtualmachineinstance", "VMI is not running");
	} else if (!is_paused(vmi)) {
		fail_conflict(call, "virtualmachineinstance", "VMI is not paused");
	} else if (read_options(call, &options)) {
		if (is_dry_run(options))
			reply_empty(call, 200);
		else
			command(call, vmi, "unpause");
	}
}

/* Devices and channels that no VMI of Ferry has yet: KubeVirt's answers for a VMI without them. */

static bool has_vmi(struct hook_call *call)
{
	if (get_vmi(call))
		return true;
	fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	return false;
}

void vmi_no_agent(struct hook_call *call)
{
	if (has_vmi(call))
		fail_conflict(call, "virtualmachineinstance",
			      "VMI does not have guest agent connected");
}

void vmi_no_usb(struct hook_call *call)
{
	if (has_vmi(call))
		fail_bad_request(call, "Not configured with USB Redirection");
}

void vmi_no_vsock(struct hook_call *call)
{
	if (has_vmi(call))
		fail_bad_request(call, "VSOCK is not attached.");
}

/* Cluster paths */

#define KUBEVIRT_VERSION "v1.9.0+ferry." FERRY_VERSION

void get_version(struct hook_call *call)
{
	hook_call_reply(call, 200,
			js_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "gitVersion",
				KUBEVIRT_VERSION, "gitCommit", "", "gitTreeState", "clean",
				"buildDate", "", "goVersion", "", "compiler", "gcc", "platform",
				"linux/amd64"));
}

void get_healthz(struct hook_call *call)
{
	/* Served by the API server itself: that it answers is the connectivity. */
	hook_call_reply(call, 200,
			js_pack("{s:{s:s, s:s}}", "apiserver", "connectivity", "ok", "version",
				KUBEVIRT_VERSION));
}
