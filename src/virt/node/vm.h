/* src/virt/node/vm.h - the VMs of one node: what the pod runtime runs.
 *
 * Loop thread only.  For each launcher pod one VM: its volumes, its launcher, what its VMI says.
 * docs/internals/vmsync.md.
 */
#ifndef NODE_VM_H
#define NODE_VM_H

#include "base/err.h"
#include "net/addr.h"
#include "virt/node/images.h"

struct exec;
struct http_client;
struct json;
struct kcache;
struct kobj;
struct kube;
struct loop;
struct podrt_pod;
struct sbuf;
struct vm;
struct vmhost;
struct volwork;

/* What the pod runtime's workload is made of is composed by the daemon: see vmhost_* below, which take
 * the pod runtime's calls.  This module knows pods only through this table. */
struct vm_pod_net {
	const char *ns_name;	    /* in <run>/netns */
	const char *host_if;	    /* node's end of eth0 */
	struct in_addr mig_address; /* of the pod's migration link; none: it has none */
};

/* The node's network, as far as moves need it.  Blocking; pool, on queue net_queue. */
struct vm_net_ops {
	enum rc (*mig_listen)(struct in_addr pod, struct in_addr peer, const uint16_t *ports,
			      size_t n, void *arg, struct err *err);
	enum rc (*mig_connect)(struct in_addr pod, struct in_addr peer, const uint16_t *ports,
			       size_t n, void *arg, struct err *err);
	enum rc (*mig_close)(struct in_addr pod, void *arg, struct err *err);
	enum rc (*place)(struct net_mac mac, struct in_addr underlay, int64_t epoch, void *arg,
			 struct err *err);
	void *arg;
	const char *bridge, *vxlan; /* names of links */
};

struct vm_pod_ops {
	const char *(*ns)(const struct podrt_pod *p);
	const char *(*name)(const struct podrt_pod *p);
	const char *(*uid)(const struct podrt_pod *p);
	const char *(*label)(const struct podrt_pod *p, const char *key);
	const char *(*annotation)(const struct podrt_pod *p, const char *key);
	const char *(*image_of)(const struct podrt_pod *p, const char *volume); /* NULL: none */
	int64_t (*memory_limit)(const struct podrt_pod *p);
	const char *(*state_dir)(const struct podrt_pod *p);
	const char *(*run_dir)(const struct podrt_pod *p);
	void (*net)(const struct podrt_pod *p, struct vm_pod_net *out);
	bool (*is_deleted)(const struct podrt_pod *p);
	struct vm *(*get)(struct podrt_pod *p);
	void (*set)(struct podrt_pod *p, struct vm *vm);
	/* Answers and reports. */
	void (*prepared)(struct podrt_pod *p, enum rc rc, bool is_final, const char *reason,
			 const char *msg);
	void (*started)(struct podrt_pod *p, enum rc rc, const char *reason, const char *msg);
	void (*exited)(struct podrt_pod *p, int code, const char *reason, const char *msg);
	void (*cleaned)(struct podrt_pod *p, enum rc rc, const char *msg);
	void (*retry)(struct podrt_pod *p);			 /* the cleanup, if it waits */
	void (*unpaused)(struct podrt_pod *p, bool is_unpaused); /* readiness gate; reports */
	void (*image)(struct podrt_pod *p, const char *name, const char *image, const char *id);
};

struct vmhost_config {
	struct loop *loop;
	struct kube *kube;
	struct kcache *
		cache; /* has VMIs, PortBindings, Nodes, Namespaces, PersistentVolumes, KubeVirt, FerryConfig,
			* policies */
	struct exec *exec;	  /* component virt-handler */
	struct http_client *http; /* to other agents */
	const struct vm_pod_ops *pods;
	const char *node_name;
	const char *state_dir, *run_dir;
	const char *shared_dir; /* NULL: no class "shared" */
	struct volwork *volwork;
	const char *launcher; /* path of ferry-launcher */
	const char *qemu;     /* given to it */
	const char *kvm_file; /* given to it: the KVM proof */
	const struct image_store *images;
	const struct json *probe; /* cpulabels.h */
	const char *accel;	  /* "kvm", "tcg" */
	const char *accel_reason;
	struct vm_net_ops net;
	unsigned net_queue;
	unsigned mtu;
	struct in_addr underlay;
	struct in_addr segment_net; /* 10.244.0.0 */
	unsigned segment_prefix;
	struct in_addr gateway;
	uint16_t agent_port;
};

MUST_CHECK enum rc vmhost_new(struct vmhost **out, const struct vmhost_config *config,
			      struct err *err);
struct vmhost *vmhost_free(struct vmhost *h);
DEFINE_CLEANUP(struct vmhost *, vmhost_free);
void vmhost_metrics(struct vmhost *h, struct sbuf *out);

/* The pod runtime's steps. */
void vmhost_prepare(struct vmhost *h, struct podrt_pod *p);
void vmhost_start(struct vmhost *h, struct podrt_pod *p);
void vmhost_adopt(struct vmhost *h, struct podrt_pod *p);
void vmhost_stop(struct vmhost *h, struct podrt_pod *p, int64_t grace);
void vmhost_cleanup(struct vmhost *h, struct podrt_pod *p);
void vmhost_forget(struct vmhost *h, struct podrt_pod *p);
/* Blocking: ends launcher and QEMU of a pod that is not in the API any more. */
MUST_CHECK enum rc vmhost_sweep(const char *run_dir, struct err *err);
/* Then what a move was bringing it is removed, which takes as long as its storage does.  fn runs once, from the loop. */
typedef void (*vmhost_swept_fn)(enum rc rc, const char *why, void *arg);
MUST_CHECK enum rc vmhost_sweep_disks(struct vmhost *h, const char *pod_uid, vmhost_swept_fn fn,
				      void *arg, struct err *err);

/* The VM of this VMI that runs here (not a target of a move); NULL: none. */
struct vm *vmhost_find(const struct vmhost *h, const char *ns, const char *name);
/* Of its pod, and so of its guest; NULL: it has none.  Borrowed. */
const char *vm_address(const struct vm *vm);
/* The target of a move of this VMI; NULL: none. */
struct vm *vmhost_find_target(const struct vmhost *h, const char *vmi_uid);

/* What the launcher answered: its result (borrowed; NULL with an rc), and the descriptor that came with it, which is
 * the receiver's (a stream of "console"); -1: none. */
typedef void (*vm_answer_fn)(enum rc rc, const char *message, const struct json *result, int fd,
			     void *arg);
/* One of the launcher's methods (docs/internals/launcher.md) for somebody outside.  params is consumed; NULL: none.
 * timeout 0: that of every call. */
MUST_CHECK enum rc vm_command(struct vm *vm, const char *method, struct json *params,
			      usec_t timeout, vm_answer_fn fn, void *arg, struct err *err);

typedef void (*vm_done_fn)(enum rc rc, const char *message, int fd, void *arg);
/* A session of QEMU's VNC server: fd is a connected stream socket (the receiver's), whose first bytes are the
 * server's greeting.  RC_NOT_FOUND: the VM has no graphics card. */
MUST_CHECK enum rc vm_display_open(struct vm *vm, vm_done_fn fn, void *arg, struct err *err);
/* fd is a file with the picture of the screen (PNG), at most LIMIT_PICTURE_BYTES; the receiver's.  move_cursor: the
 * pointer is moved before, which wakes a screen, and half a second goes by. */
MUST_CHECK enum rc vm_screenshot(struct vm *vm, bool move_cursor, vm_done_fn fn, void *arg,
				 struct err *err);

#endif
