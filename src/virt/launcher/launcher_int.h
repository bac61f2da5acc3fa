/* src/virt/launcher/launcher_int.h - the launcher's insides, shared by its files.  Loop thread only. */
#ifndef VIRT_LAUNCHER_LAUNCHER_INT_H
#define VIRT_LAUNCHER_LAUNCHER_INT_H

#include <sys/types.h>

#include "base/list.h"
#include "ev/ev.h"
#include "ipc/ipc.h"
#include "json/json.h"
#include "qmp/qmp.h"
#include "virt/launcher/jail.h"
#include "virt/launcher/kvm_probe.h"
#include "virt/launcher/launch_spec.h"
#include "virt/launcher/launcher.h"
#include "virt/launcher/meter.h"
#include "virt/launcher/qemu_cmdline.h"
#include "virt/launcher/qmp_seq.h"
#include "virt/launcher/vmstate.h"
#include "virt/migration/mig_qemu.h"

enum { LAUNCHER_PROTOCOL = 1, MAX_PUT_FDS = 128, PATH_LEN = 200 };

#define QMP_TIMEOUT   (10 * USEC_PER_SEC)
#define START_TIMEOUT (30 * USEC_PER_SEC)

struct console; /* console.c */
struct guest_agent;
struct guest_cpu; /* guest_cpu.c */
struct guest_devices;
struct move; /* move_int.h */
struct usage;

/* A process, and proof that the pid still means it. */
struct proc {
	pid_t pid;
	uint64_t start; /* clock ticks since boot, /proc/<pid>/stat field 22 */
	int pidfd;	/* -1: none */
};

struct launcher {
	struct loop *loop;
	struct launcher_config config;
	struct ipc_server *server;
	struct json *hello;
	/* what was asked for */
	struct launch_spec *spec;
	enum qemu_mode mode;
	struct qemu_fd fds[MAX_PUT_FDS];
	size_t n_fds;
	int cgroup_fd;
	/* what is */
	enum vm_state state;
	char reason[32];
	usec_t since; /* realtime */
	char accel[8], accel_reason[160], machine[64];
	int version[3];
	bool cgroup;
	struct proc reaper, qemu;
	struct ev_src *reaper_io;
	struct json *exit; /* NULL while QEMU lives */
	struct jail_start *jail;
	/* QMP */
	struct qmp *qmp;
	unsigned qmp_index; /* which socket */
	struct ev_src *qmp_retry;
	bool adopting;
	struct qmp_seq *seq; /* query after connecting */
	struct guest_cpu *asking_cpu;
	struct guest_devices *asking_devices;
	struct usage *asking_usage;
	int64_t usage_commands; /* that QEMU got for it, over this monitor */
	struct json
		*vcpu_threads; /* by vCPU, as QEMU's pid namespace numbers them; NULL: not known */
	struct meter *meter;   /* NULL: QEMU has not answered yet */
	struct json *cpu; /* {"model", "features": [names that the guest sees]}; NULL: not known */
	/* requests that wait */
	struct ipc_call *start_call, *pause_call, *unpause_call;
	struct qmp_slot *pause_slot, *unpause_slot;
	struct ev_src *start_deadline;
	bool io_error; /* the next STOP is QEMU's, after a failed read or write */
	/* shutdown */
	usec_t grace_end; /* monotonic; 0: no shutdown asked */
	struct ev_src *grace_timer, *kill_timer;
	bool killed;
	char kill_reason[24];
	/* a soft reboot (reboot.c) */
	enum { REBOOT_NONE, REBOOT_PRESSED, REBOOT_RESETTING } reboot;
	struct ev_src *reboot_deadline;
	/* the rest */
	usec_t last_stop, last_resume; /* QEMU's timestamps, realtime */
	struct console *console;
	struct list displays; /* sessions and pictures on their way (display.c) */
	unsigned n_displays;
	struct guest_agent
		*agent; /* NULL: this VM has no channel to one, or QEMU has not answered yet */
	struct ev_src *log_timer;
	int serial_log_fd;
	struct move *move; /* the last or current migration; NULL: none so far */
	struct ev_src *exit_defer, *idle_timer;
	struct list waiting; /* requests, until an adopted VM's state is known (methods.c) */
	unsigned n_waiting;
};

/* launcher.c: nothing to look after and nobody to tell: after a while the launcher ends. */
void launcher_check_idle(struct launcher *l);

/* vm.c: life of the VM */
void vm_move(struct launcher *l, enum vm_event e, const char *reason);
void vm_start(struct launcher *l, struct ipc_call *call, const struct json *params,
	      struct ipc_fds *fds);
void vm_adopt(struct launcher *l);
void vm_kill(struct launcher *l, const char *reason, usec_t after); /* SIGTERM now, SIGKILL after */
void vm_close_fds(struct launcher *l);
struct json *vm_describe(const struct launcher *l); /* query's answer */
void vm_guest_event(struct launcher *l, const char *what, const char *detail);
bool vm_is_alive(const struct launcher *l);
void vm_start_failed(struct launcher *l, enum rc rc, const char *why);

/* vm_start.c */
void vm_watch(struct launcher *l);
void path_in(const struct launcher *l, const char *name, char out[PATH_LEN]);

/* vm_qmp.c: connecting, run states, events */
void vm_connect(struct launcher *l);
void vm_pause(struct launcher *l, struct ipc_call *call);
void vm_unpause(struct launcher *l, struct ipc_call *call);
void vm_powered_off(struct launcher *l, const char *reason); /* the guest did: QEMU ends */
void vm_powerdown(struct launcher *l, usec_t grace);
void vm_fail_waiting(struct launcher *l, enum rc rc, const char *why);

/* reboot.c */
void vm_reset(struct launcher *l, struct ipc_call *call);
void vm_soft_reboot(struct launcher *l, struct ipc_call *call);
void reboot_forget(struct launcher *l);
/* The guest has shut down.  True: as a soft reboot wants it, it is reset and goes on. */
bool reboot_takes_shutdown(struct launcher *l);
/* True: this STOP or RESUME belongs to a soft reboot. */
bool reboot_owns_run_state(struct launcher *l, bool runs);

/* The same without the agent. */
void vm_press_to_reboot(struct launcher *l, struct ipc_call *call);

/* guest_agent.c */
#define GUEST_AGENT_SOCKET "agent0.sock"
void guest_agent_start(struct launcher *l); /* QEMU answers */
void guest_agent_free(struct launcher *l);
void guest_agent_monitor_lost(struct launcher *l);
void guest_agent_event(struct launcher *l, const struct json *data); /* VSERPORT_CHANGE */
void guest_agent_state(struct launcher *l);		 /* after each change of l->state */
struct json *guest_agent_json(const struct launcher *l); /* as in its event; NULL: not known */
bool guest_agent_is_connected(const struct launcher *l);
/* Each answers the call. */
void guest_agent_info(struct launcher *l, struct ipc_call *call);
void guest_agent_users(struct launcher *l, struct ipc_call *call);
void guest_agent_filesystems(struct launcher *l, struct ipc_call *call);
void guest_agent_freeze(struct launcher *l, struct ipc_call *call, const struct json *params);
void guest_agent_thaw(struct launcher *l, struct ipc_call *call);
void guest_agent_thaw_at(struct launcher *l, struct ipc_call *call, const struct json *params);
void guest_agent_reboot(struct launcher *l, struct ipc_call *call);

/* guest_cpu.c: asks QEMU, unless it is known; then l->cpu is there and the event "cpu" was sent. */
void guest_cpu_ask(struct launcher *l);
struct guest_cpu *guest_cpu_free(struct guest_cpu *g);

/* guest_devices.c: answers the call. */
void guest_devices_ask(struct launcher *l, struct ipc_call *call);
struct guest_devices *guest_devices_free(struct guest_devices *g);

/* usage.c: answers the call. */
void usage_ask(struct launcher *l, struct ipc_call *call);
struct usage *usage_free(struct usage *u);
/* What query-cpus-fast has said. */
void usage_take_vcpus(struct launcher *l, const struct json *cpus);

/* record.c */
MUST_CHECK enum rc record_save(const struct launcher *l, struct err *err);
/* RC_NOT_FOUND: no VM was ever started here. */
MUST_CHECK enum rc record_load(struct launcher *l, struct err *err);
MUST_CHECK enum rc record_write(const struct launcher *l, const char *name, const struct json *j,
				bool durable, struct err *err);
MUST_CHECK enum rc record_swap(const char *path, const char *text, size_t n, mode_t mode,
			       struct err *err);
MUST_CHECK enum rc record_read(const struct launcher *l, const char *name, struct json **out,
			       struct err *err);
/* Opens the pidfd; RC_NOT_FOUND when the process is gone, or is another one by now. */
MUST_CHECK enum rc proc_open(struct proc *p, struct err *err);
void proc_close(struct proc *p);
/* Fills start from /proc; false: gone. */
bool proc_identify(struct proc *p);

/* console.c */
void console_open(struct launcher *l, struct ipc_call *call);
void console_free(struct launcher *l);
void console_watch_log(struct launcher *l);

/* display.c: each answers the call, with a descriptor: the session's socket, the file with the picture (PNG). */
void display_vnc(struct launcher *l, struct ipc_call *call);
void display_screenshot(struct launcher *l, struct ipc_call *call, const struct json *params);
void display_end(struct launcher *l, const char *why); /* what is on its way is refused */

/* methods.c */
extern const struct ipc_server_ops launcher_methods;
void methods_go_on(struct launcher *l); /* the state is known: what waited is done */
void methods_end(struct launcher *l);	/* what waits is refused */

#endif
