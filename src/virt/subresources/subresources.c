#include <stdarg.h>
#include <stdio.h>

#include "api/gen/api_types.h"
#include "base/mem.h"
#include "http/client.h"
#include "http/uri.h"
#include "virt/subresources/subres_int.h"

/* What each is - path, method, bodies - stands in api/schema/subresources.yaml. */
const struct subres_hook virt_subres[] = {
	{&api_sub_post_pods_eviction, pod_evict},

	{&api_sub_put_virtualmachines_start, vm_start},
	{&api_sub_put_virtualmachines_stop, vm_stop},
	{&api_sub_put_virtualmachines_restart, vm_restart},
	{&api_sub_put_virtualmachines_migrate, vm_migrate},
	{&api_sub_get_virtualmachines_expand_spec, vm_expand_spec},
	{&api_sub_put_virtualmachines_evacuate_cancel, vm_evacuate_cancel},
	{&api_sub_get_virtualmachines_objectgraph, vm_not_yet},
	{&api_sub_put_virtualmachines_addvolume, vm_add_volume},
	{&api_sub_put_virtualmachines_removevolume, vm_remove_volume},
	{&api_sub_put_virtualmachines_memorydump, vm_memory_dump},
	{&api_sub_put_virtualmachines_removememorydump, vm_not_yet},
	{&api_sub_get_virtualmachines_portforward, vm_port_forward},

	{&api_sub_get_virtualmachineinstances_console, vmi_console},
	{&api_sub_put_virtualmachineinstances_pause, vmi_pause},
	{&api_sub_put_virtualmachineinstances_unpause, vmi_unpause},
	{&api_sub_get_virtualmachineinstances_portforward, vmi_port_forward},
	{&api_sub_get_virtualmachineinstances_vnc, vmi_vnc},
	{&api_sub_get_virtualmachineinstances_vnc_screenshot, vmi_screenshot},
	{&api_sub_get_virtualmachineinstances_guestosinfo, vmi_guest_os_info},
	{&api_sub_get_virtualmachineinstances_userlist, vmi_user_list},
	{&api_sub_get_virtualmachineinstances_filesystemlist, vmi_filesystem_list},
	{&api_sub_put_virtualmachineinstances_freeze, vmi_freeze},
	{&api_sub_put_virtualmachineinstances_unfreeze, vmi_unfreeze},
	{&api_sub_put_virtualmachineinstances_reset, vmi_reset},
	{&api_sub_put_virtualmachineinstances_softreboot, vmi_soft_reboot},
	{&api_sub_put_virtualmachineinstances_addvolume, vmi_add_volume},
	{&api_sub_put_virtualmachineinstances_removevolume, vmi_remove_volume},
	{&api_sub_put_virtualmachineinstances_evacuate_cancel, vmi_evacuate_cancel},
	{&api_sub_put_virtualmachineinstances_backup, vmi_handler_not_yet},
	{&api_sub_put_virtualmachineinstances_redefine_checkpoint, vmi_handler_not_yet},
	{&api_sub_get_virtualmachineinstances_sev_fetchcertchain, vmi_handler_not_yet},
	{&api_sub_get_virtualmachineinstances_sev_querylaunchmeasurement, vmi_handler_not_yet},
	{&api_sub_put_virtualmachineinstances_sev_setupsession, vmi_handler_not_yet},
	{&api_sub_put_virtualmachineinstances_sev_injectlaunchsecret, vmi_handler_not_yet},
	{&api_sub_get_virtualmachineinstances_objectgraph, vmi_not_yet},
	{&api_sub_get_virtualmachineinstances_usbredir, vmi_no_usb},
	{&api_sub_get_virtualmachineinstances_vsock, vmi_no_vsock},

	{&api_sub_put_expand_vm_spec, ns_expand_vm_spec},

	{&api_sub_get_version, get_version},
	{&api_sub_get_healthz, get_healthz},
	{&api_sub_get_guestfs, refuse_unsupported},
	{&api_sub_get_start_cluster_profiler, refuse_unsupported},
	{&api_sub_get_stop_cluster_profiler, refuse_unsupported},
	{&api_sub_get_dump_cluster_profiler, refuse_unsupported},
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
