/* src/virt/subresources/subres_int.h - what the handlers share. */
#ifndef VIRT_SUBRES_INT_H
#define VIRT_SUBRES_INT_H

#include "base/list.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/subresources/subresources.h"

struct http_client;
struct http_result;

struct virt_subres {
	struct loop *loop;
	struct http_client *agents;
	struct list streams;
	struct list pending; /* what nodes are being asked (node_ask.c) */
};

#define VM_RESOURCE  "virtualmachines.kubevirt.io"
#define VMI_RESOURCE "virtualmachineinstances.kubevirt.io"

/* What a call remembers between its steps. */
struct op {
	unsigned tries;
	bool grace_done; /* the VMI's grace period was patched */
	bool had_grace;
	int64_t old_grace;
};

/* The call's memory, made on first use; NULL: out of memory, and the call has been answered. */
struct op *op_of(struct hook_call *call);
void op_drop(struct hook_call *call); /* what answers the call by other means does it first */

/* Answers.  Each ends the call. */
void reply_empty(struct hook_call *call, int status);
void fail_not_found(struct hook_call *call, const char *kind, const char *name);
void fail_conflict(struct hook_call *call, const char *kind, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
void fail_bad_request(struct hook_call *call, const char *fmt, ...) PRINTF_LIKE(2, 3);
void fail_internal(struct hook_call *call, const char *fmt, ...) PRINTF_LIKE(2, 3);
void reply_as_is(struct hook_call *call, int status, const struct json *obj);
/* "not supported by Ferry yet" */
void refuse_unsupported(struct hook_call *call);

/* The objects; NULL: absent. */
const struct json *get_vm(struct hook_call *call);
const struct json *get_vmi(struct hook_call *call);
const struct json *condition_of(const struct json *obj, const char *type);
bool condition_is_true(const struct json *obj, const char *type);
bool vmi_is_final(const struct json *vmi);
bool vmi_is_running(const struct json *vmi);
/* A move from that node goes on: its guest has left that, or is about to. */
bool vmi_is_leaving(const struct json *vmi, const char *node);

/* The body as an object ({} when empty).  False: not JSON, and the call has been answered. */
bool read_options(struct hook_call *call, struct json **out);
bool is_dry_run(const struct json *options); /* dryRun: ["All"] */

/* PATCH of kubevirt.io/v1 "<resource>/<name>[/<sub>]" in the call's namespace; body is consumed.
 * A request that cannot be made answers the call. */
void patch(struct hook_call *call, const char *resource, const char *sub, bool dry_run,
	   struct json *merge, hook_then_fn then);
/* The same with the operations of a JSON patch, an array. */
void json_patch(struct hook_call *call, const char *resource, bool dry_run, struct json *operations,
		hook_then_fn then);
void create(struct hook_call *call, const char *resource, bool dry_run, struct json *obj,
	    hook_then_fn then);

/* vm.c, vmi.c, guest.c, console.c, vnc.c, budget.c, eviction.c, evacuate.c */
void vm_start(struct hook_call *call);
void vm_stop(struct hook_call *call);
void vm_restart(struct hook_call *call);
void vm_migrate(struct hook_call *call);
void vm_expand_spec(struct hook_call *call);
void ns_expand_vm_spec(struct hook_call *call);
void vm_evacuate_cancel(struct hook_call *call);
void vmi_evacuate_cancel(struct hook_call *call);
void vmi_pause(struct hook_call *call);
void vmi_unpause(struct hook_call *call);
void vmi_console(struct hook_call *call);
void vmi_vnc(struct hook_call *call);
void vmi_screenshot(struct hook_call *call);
/* portforward.c */
void vm_port_forward(struct hook_call *call);
void vmi_port_forward(struct hook_call *call);
/* not_yet.c: what KubeVirt looks at first, then 501. */
void vm_add_volume(struct hook_call *call);
void vm_remove_volume(struct hook_call *call);
void vm_memory_dump(struct hook_call *call);
void vm_not_yet(struct hook_call *call);
void vmi_add_volume(struct hook_call *call);
void vmi_remove_volume(struct hook_call *call);
void vmi_not_yet(struct hook_call *call);
void vmi_handler_not_yet(struct hook_call *call);
void vmi_reset(struct hook_call *call);
void vmi_soft_reboot(struct hook_call *call);
void vmi_guest_os_info(struct hook_call *call);
void vmi_user_list(struct hook_call *call);
void vmi_filesystem_list(struct hook_call *call);
void vmi_freeze(struct hook_call *call);
void vmi_unfreeze(struct hook_call *call);
void vmi_no_usb(struct hook_call *call);
void vmi_no_vsock(struct hook_call *call);
void pod_evict(struct hook_call *call);
/* eviction.c: the deletion behind an eviction that is granted; the answer to the call. */
void pod_delete_evicted(struct hook_call *call);
bool pod_eviction_is_dry(struct hook_call *call);
/* budget.c: the same, if the PodDisruptionBudgets of the namespace allow it. */
void pod_evict_within_budget(struct hook_call *call);
void get_version(struct hook_call *call);
void get_healthz(struct hook_call *call);

/* node_ask.c: what the agent of the VMI's node is asked.  Answers the call, now or later. */
struct node_ask {
	const char *what;   /* path below the VMI */
	const char *method; /* NULL: PUT */
	usec_t timeout;	    /* of everything; 0: 20 s */
	size_t answer_max;  /* bytes; 0: as in struct http_call */
	/* A 2xx answer; NULL: 200 and no body. */
	void (*done)(struct hook_call *call, const struct http_result *r);
	/* status 0: there was no answer.  NULL: node_ask_failed(). */
	void (*failed)(struct hook_call *call, int status, const char *why);
};
/* body is consumed; NULL: none. */
void node_ask(struct hook_call *call, const struct node_ask *ask, struct json *body);
void node_ask_failed(struct hook_call *call, int status, const char *why);

/* stream.c: a websocket of the client joined with one of the VMI's node.  The VMI runs.  Answers the call. */
#define STREAM_CONSOLES "kubevirt_console_active_connections"
#define STREAM_DISPLAYS "kubevirt_vnc_active_connections"
#define STREAM_PORTS	"kubevirt_portforward_active_tunnels"
struct stream_kind {
	const char *name;      /* for people; static */
	const char *family;    /* STREAM_...: as what it is counted */
	const char *path;      /* below the VMI at its agent, with a query; copied */
	bool follows;	       /* goes on at the target when the VMI moves */
	bool is_told_by_agent; /* a failure's text is the agent's alone */
};
void stream_open(struct hook_call *call, const struct json *vmi, const struct stream_kind *kind);

/* "https://<address>:<port>/v1/namespaces/<ns>/virtualmachineinstances/<name>/<what>" of the node where
 * the VMI runs; RC_CLOSED when its agent's address is not known. */
MUST_CHECK enum rc agent_url(struct hook_env *env, const struct json *vmi, const char *what,
			     char **out, struct err *err);

#endif
