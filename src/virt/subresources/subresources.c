#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "http/client.h"
#include "http/uri.h"
#include "virt/subresources/subres_int.h"

#define VM(path_, method_, handle_)                                                   \
	{                                                                             \
		.scope = SUBRES_OBJECT, .resource = "virtualmachines", .path = path_, \
		.method = method_, .handle = handle_                                  \
	}
#define VMI(path_, method_, handle_)                                                          \
	{                                                                                     \
		.scope = SUBRES_OBJECT, .resource = "virtualmachineinstances", .path = path_, \
		.method = method_, .handle = handle_                                          \
	}
#define VMI_PREFIX(path_, handle_)                                                            \
	{                                                                                     \
		.scope = SUBRES_OBJECT, .resource = "virtualmachineinstances", .path = path_, \
		.is_prefix = true, .method = "GET", .handle = handle_                         \
	}
#define HIDDEN(resource_, path_, method_, handle_)                                               \
	{                                                                                        \
		.scope = SUBRES_OBJECT, .resource = resource_, .path = path_, .is_hidden = true, \
		.method = method_, .handle = handle_                                             \
	}
#define CLUSTER(path_, handle_)                                                               \
	{                                                                                     \
		.scope = SUBRES_CLUSTER, .path = path_, .is_public = true, .is_hidden = true, \
		.method = "GET", .handle = handle_                                            \
	}

const struct subres_hook virt_subres[] = {
	{.group = "",
	 .resource = "pods",
	 .path = "eviction",
	 .method = "POST",
	 .handle = pod_evict},

	VM("start", "PUT", vm_start),
	VM("stop", "PUT", vm_stop),
	VM("restart", "PUT", vm_restart),
	VM("migrate", "PUT", vm_migrate),
	VM("expand-spec", "GET", vm_expand_spec),
	VM("evacuate/cancel", "PUT", vm_evacuate_cancel),
	VM("objectgraph", "GET", vm_not_yet),
	HIDDEN("virtualmachines", "addvolume", "PUT", vm_add_volume),
	HIDDEN("virtualmachines", "removevolume", "PUT", vm_remove_volume),
	HIDDEN("virtualmachines", "memorydump", "PUT", vm_memory_dump),
	HIDDEN("virtualmachines", "removememorydump", "PUT", vm_not_yet),
	{.scope = SUBRES_OBJECT,
	 .resource = "virtualmachines",
	 .path = "portforward",
	 .is_prefix = true,
	 .is_hidden = true,
	 .method = "GET",
	 .handle = vm_port_forward},

	VMI("console", "GET", vmi_console),
	VMI("pause", "PUT", vmi_pause),
	VMI("unpause", "PUT", vmi_unpause),
	VMI_PREFIX("portforward", vmi_port_forward),
	VMI("vnc", "GET", vmi_vnc),
	VMI("vnc/screenshot", "GET", vmi_screenshot),
	VMI("guestosinfo", "GET", vmi_guest_os_info),
	VMI("userlist", "GET", vmi_user_list),
	VMI("filesystemlist", "GET", vmi_filesystem_list),
	VMI("freeze", "PUT", vmi_freeze),
	VMI("unfreeze", "PUT", vmi_unfreeze),
	VMI("reset", "PUT", vmi_reset),
	VMI("softreboot", "PUT", vmi_soft_reboot),
	VMI("addvolume", "PUT", vmi_add_volume),
	VMI("removevolume", "PUT", vmi_remove_volume),
	VMI("evacuate/cancel", "PUT", vmi_evacuate_cancel),
	VMI("backup", "PUT", vmi_handler_not_yet),
	VMI("redefine-checkpoint", "PUT", vmi_handler_not_yet),
	VMI("sev/fetchcertchain", "GET", vmi_handler_not_yet),
	VMI("sev/querylaunchmeasurement", "GET", vmi_handler_not_yet),
	VMI("sev/setupsession", "PUT", vmi_handler_not_yet),
	VMI("sev/injectlaunchsecret", "PUT", vmi_handler_not_yet),
	VMI("objectgraph", "GET", vmi_not_yet),
	HIDDEN("virtualmachineinstances", "usbredir", "GET", vmi_no_usb),
	HIDDEN("virtualmachineinstances", "vsock", "GET", vmi_no_vsock),

	{.scope = SUBRES_NAMESPACE,
	 .path = "expand-vm-spec",
	 .method = "PUT",
	 .handle = ns_expand_vm_spec},

	CLUSTER("version", get_version),
	CLUSTER("healthz", get_healthz),
	CLUSTER("guestfs", refuse_unsupported),
	CLUSTER("start-cluster-profiler", refuse_unsupported),
	CLUSTER("stop-cluster-profiler", refuse_unsupported),
	CLUSTER("dump-cluster-profiler", refuse_unsupported),
};
const size_t n_virt_subres = ARRAY_SIZE(virt_subres);

enum rc virt_subres_new(struct virt_subres **out, struct loop *loop, const char *ca_file,
			const char *cert_file, const char *key_file, struct err *err)
{
	struct http_client_config config = {
		.ca_file = ca_file, .cert_file = cert_file, .key_file = key_file};
	struct virt_subres *s = mem_alloc(sizeof(*s));
	enum rc rc;

	if (!s)
		return err_set(err, RC_NOMEM, "cannot allocate the subresources");
	s->loop = loop;
	list_init(&s->streams);
	list_init(&s->pending);
	rc = http_client_new(&s->agents, loop, &config, err);
	if (rc)
		mem_free(s);
	else
		*out = s;
	return rc;
}

/* Answers */

void op_drop(struct hook_call *call)
{
	hook_call_on_cancel(call, NULL);
	mem_free(hook_call_data(call));
	hook_call_set_data(call, NULL);
}

static void on_op_cancel(struct hook_call *call)
{
	op_drop(call);
}

struct op *op_of(struct hook_call *call)
{
	struct op *op = hook_call_data(call);

	if (op)
		return op;
	op = mem_alloc(sizeof(*op));
	if (!op) {
		fail_internal(call, "out of memory");
		return NULL;
	}
	hook_call_set_data(call, op);
	hook_call_on_cancel(call, on_op_cancel);
	return op;
}

void reply_empty(struct hook_call *call, int status)
{
	op_drop(call);
	hook_call_reply(call, status, NULL);
}

void reply_as_is(struct hook_call *call, int status, const struct json *obj)
{
	op_drop(call);
	hook_call_reply_status(call, status, obj);
}

void fail_not_found(struct hook_call *call, const char *kind, const char *name)
{
	char text[512];

	snprintf(text, sizeof(text), "%s.kubevirt.io \"%s\" not found", kind, name);
	op_drop(call);
	hook_call_fail_details(call, RC_NOT_FOUND, "kubevirt.io", kind, name, text);
}

static void format(char *text, size_t n, const char *fmt, va_list ap) PRINTF_LIKE(3, 0);
static void format(char *text, size_t n, const char *fmt, va_list ap)
{
	vsnprintf(text, n, fmt, ap);
}

void fail_conflict(struct hook_call *call, const char *kind, const char *fmt, ...)
{
	char why[512], text[1024];
	va_list ap;

	va_start(ap, fmt);
	format(why, sizeof(why), fmt, ap);
	va_end(ap);
	snprintf(text, sizeof(text), "Operation cannot be fulfilled on %s.kubevirt.io \"%s\": %s",
		 kind, hook_call_name(call), why);
	op_drop(call);
	hook_call_fail_details(call, RC_CONFLICT, "kubevirt.io", kind, hook_call_name(call), text);
}

void fail_bad_request(struct hook_call *call, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	format(text, sizeof(text), fmt, ap);
	va_end(ap);
	op_drop(call);
	hook_call_fail(call, RC_BAD_REQUEST, "%s", text);
}

void fail_internal(struct hook_call *call, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	format(text, sizeof(text), fmt, ap);
	va_end(ap);
	op_drop(call);
	hook_call_fail(call, RC_IO, "Internal error occurred: %s", text);
}

void refuse_unsupported(struct hook_call *call)
{
	op_drop(call);
	hook_call_fail(call, RC_UNSUPPORTED, "this subresource is not supported by Ferry yet");
}

/* Objects */

const struct json *get_vm(struct hook_call *call)
{
	return hook_get(hook_call_env(call), VM_RESOURCE, hook_call_ns(call), hook_call_name(call));
}

const struct json *get_vmi(struct hook_call *call)
{
	return hook_get(hook_call_env(call), VMI_RESOURCE, hook_call_ns(call),
			hook_call_name(call));
}

const struct json *condition_of(const struct json *obj, const char *type)
{
	const struct json *list = js_at(obj, "status", "conditions", NULL);

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "type"), type))
			return js_item(list, i);
	return NULL;
}

bool condition_is_true(const struct json *obj, const char *type)
{
	return str_eq(js_get_str(condition_of(obj, type), "status"), "True");
}

static const char *phase_of(const struct json *vmi)
{
	const char *p = js_str(js_at(vmi, "status", "phase", NULL));

	return p ? p : "";
}

bool vmi_is_final(const struct json *vmi)
{
	return str_eq(phase_of(vmi), "Succeeded") || str_eq(phase_of(vmi), "Failed");
}

bool vmi_is_running(const struct json *vmi)
{
	return str_eq(phase_of(vmi), "Running");
}

bool vmi_is_leaving(const struct json *vmi, const char *node)
{
	const struct json *m = js_at(vmi, "status", "migrationState", NULL);

	return str_eq(js_get_str(m, "sourceNode"), node) && !js_get_bool(m, "completed", false) &&
	       !js_get_bool(m, "failed", false);
}

/* Options */

bool read_options(struct hook_call *call, struct json **out)
{
	size_t n = 0;
	const char *body = hook_call_body(call, &n);
	struct str text = str_trim((struct str){body, n});
	struct err err = {0};

	*out = NULL;
	if (text.n == 0) {
		*out = js_new_object();
		if (!*out)
			fail_internal(call, "out of memory");
		return *out != NULL;
	}
	if (js_parse(text.p, text.n, out, &err) == RC_OK && js_is_object(*out))
		return true;
	*out = js_unref(*out);
	fail_bad_request(call, "Can not unmarshal Request body to struct, error: %s",
			 err.rc ? err.msg : "not an object");
	return false;
}

bool is_dry_run(const struct json *options)
{
	const struct json *list = js_get(options, "dryRun");

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_str(js_item(list, i)), "All"))
			return true;
	return false;
}

/* Requests to the API server itself */

static void request(struct hook_call *call, const char *method, const char *content_type,
		    const char *resource, const char *name, const char *sub, bool dry_run,
		    struct json *body, hook_then_fn then)
{
	struct sbuf target = SBUF_INIT(4096);
	struct err err = {0};
	enum rc rc;

	sbuf_adds(&target, "/apis/kubevirt.io/v1/namespaces/");
	http_uri_escape(&target, hook_call_ns(call));
	sbuf_addf(&target, "/%s", resource);
	if (name) {
		sbuf_addc(&target, '/');
		http_uri_escape(&target, name);
	}
	if (sub)
		sbuf_addf(&target, "/%s", sub);
	if (dry_run)
		sbuf_adds(&target, "?dryRun=All");
	if (sbuf_rc(&target) || !body) {
		js_unref(body);
		rc = err_set(&err, RC_NOMEM, "out of memory");
	} else {
		rc = hook_call_request(call, HOOK_AS_COMPONENT, method, sbuf_str(&target),
				       content_type, body, then, &err);
	}
	sbuf_fini(&target);
	if (rc)
		fail_internal(call, "%s", err.msg);
}

void patch(struct hook_call *call, const char *resource, const char *sub, bool dry_run,
	   struct json *merge, hook_then_fn then)
{
	request(call, "PATCH", "application/merge-patch+json", resource, hook_call_name(call), sub,
		dry_run, merge, then);
}

void json_patch(struct hook_call *call, const char *resource, bool dry_run, struct json *operations,
		hook_then_fn then)
{
	request(call, "PATCH", "application/json-patch+json", resource, hook_call_name(call), NULL,
		dry_run, operations, then);
}

void create(struct hook_call *call, const char *resource, bool dry_run, struct json *obj,
	    hook_then_fn then)
{
	request(call, "POST", NULL, resource, NULL, NULL, dry_run, obj, then);
}
