/* tests/sim/sim.h - a whole cluster in one process on virtual time, with seeded faults.
 *
 * Real: the API server's core with its store in memory, the informers, the executor, the controller
 * runner, every reconciler.  Simulated: the network between them, the machines with their guests, the
 * node agents' timing, the people.  docs/internals/sim.md draws it.
 *
 * One seed, one run: all randomness comes from struct sim, time from the virtual loop.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "base/err.h"
#include "base/list.h"

struct apisrv;
struct ctl;
struct fence_ops;
struct fencer;
struct kcache;
struct kube;
struct kube_transport;
struct loop;
struct machine;
struct agent;
struct net;
struct store;
struct user;
struct vollock;
struct checker;
struct events;

enum { SIM_NODES = 3 };

/* Chances in per mille. */
struct faults {
	unsigned lose_request; /* the server never sees it */
	unsigned lose_answer;  /* the server did it, the client hears nothing or "closed" */
	unsigned duplicate;    /* the server gets it twice */
	unsigned slow;	       /* takes up to slow_max one way */
	unsigned stale_list; /* a list answer that arrives up to stale_max later than it was made */
	unsigned cut_watch;  /* per event: the stream breaks, the event is lost */
	usec_t slow_max;
	usec_t stale_max;
	unsigned crash_controller; /* per second */
	unsigned crash_agent;	   /* per second and node */
	unsigned restart_server;   /* per second: all streams end, all requests fail for a moment */
	unsigned fail_move;	   /* per move: the source reports a failure */
	unsigned
		lose_agent; /* per second and node: away for up to half an hour, the guests run on */
	unsigned reboot;    /* per second and node: all its guests are gone */
	unsigned lose_machine; /* the same, and away for up to twenty minutes */
};

struct sim_opts {
	uint64_t seed;
	const char *scenario; /* NULL: drawn from the seed */
	bool trace;
	bool no_faults;
	bool fencing;		 /* nodes are lost, and fenced by an agent */
	bool lying_fence;	 /* which says that a node is off although it is not */
	bool storage_lock;	 /* nodes are lost, and told by the locks of disks */
	bool lying_lock;	 /* which are given away although they are held */
	uint64_t crash_at_write; /* the controllers crash after this write of theirs; 0: not */
	uint64_t cut_at_event;	 /* the controllers' streams break at this event; 0: not */
	/* The controllers crash after write travel_at, and are served the state after write travel_to for a
	 * while, as by another API server that lags behind; 0: not. */
	uint64_t travel_at, travel_to;
	usec_t fault_time; /* how long people and faults are at work; 0: 60 s */
};

struct sim_result {
	bool ok;
	char why[512];
	uint64_t writes; /* of controllers */
	uint64_t events; /* that reached the controllers */
	uint64_t steps;
	uint64_t starts;	   /* guests that came to run */
	uint64_t moved, not_moved; /* migrations by their end */
	uint64_t crashes;	   /* of controllers and agents */
	uint64_t fenced;	   /* nodes that were said to be off */
	uint64_t taken;		   /* locks of disks that another node has got */
	usec_t time;		   /* virtual */
};

struct sim {
	struct sim_opts opts;
	struct faults faults; /* zero when the fault window is over */
	uint64_t rand;
	struct loop *loop;
	struct store *store;
	struct apisrv *api;
	struct virt_subres *subres;
	struct net *net;
	struct machine *machines[SIM_NODES];
	struct agent *agents[SIM_NODES];
	struct user *user;
	struct checker *checker;

	/* The controller process. */
	struct net_client *ctl_client;
	struct kube *ctl_kube;
	struct kcache *ctl_cache;
	struct ctl *ctl;
	struct ev_src *ctl_restart; /* armed while it is down */
	struct ev_src *chaos;	    /* once a second */
	struct fencer *fencer;	    /* of the controller process */
	unsigned silence;	    /* FerryConfig's silenceSeconds; 0: no agent fences */
	struct list bolts;	    /* fence.c: what is under way at the plugs */
	struct list msgs;	    /* between agents: move.c */
	int64_t old_rev;	    /* what the controllers are served… */
	usec_t old_until;	    /* …until then; loop time */
	bool crash_pending;
	struct ev_src *crash;
	usec_t chaos_end;

	struct sim_result *result;
};

/* Runs one simulation; false: an invariant broke or something failed (result->why). */
bool sim_run(const struct sim_opts *opts, struct sim_result *result);

/* The first failure counts; the run ends at the next step. */
void sim_fail(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sim_trace(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);

uint64_t sim_rand(struct sim *s);
bool sim_chance(struct sim *s, unsigned per_mille);
usec_t sim_between(struct sim *s, usec_t low, usec_t high); /* both included */

void sim_crash_controller(struct sim *s, const char *why); /* from the loop, soon */
bool sim_is_calm(const struct sim *s);			   /* the fault window is over */

/* net.c: clients of the API server behind a network. */
enum net_quality { NET_FAULTY, NET_GOOD, NET_PERFECT /* no delay at all */ };
struct net_client;
MUST_CHECK enum rc net_new(struct net **out, struct sim *s);
struct net *net_free(struct net *n);
/* A transport's ctx; freed by kube_free().  groups: one, or NULL. */
struct net_client *net_client_new(struct net *n, const char *name, const char *group,
				  enum net_quality quality);
extern const struct kube_transport net_transport;
/* All streams of all clients end, requests fail until then + down. */
void net_restart_server(struct net *n, usec_t down);
uint64_t net_client_writes(const struct net_client *c);
/* Called after each write of this client that the server has answered. */
void net_client_on_write(struct net_client *c, void (*fn)(struct sim *s));

/* machine.c: what really runs where, untouched by crashes of agents. */
enum guest_state {
	G_POD_STARTING, /* the pod's namespaces and containers are being made */
	G_POD_RUNNING,	/* the launcher runs, no QEMU yet */
	G_BOOTING,
	G_RUNNING,
	G_INCOMING, /* a target that waits for memory */
	G_MOVING,   /* a source: runs and sends */
	G_STANDS,   /* a source at pre-switchover: stands, may go on */
	G_RELEASED, /* a source after the release: stopped for good, the permission is on its way */
	G_ENDED,    /* QEMU is gone; exit code and reason are known */
	G__MAX
};

enum move_result { MOVE_NONE, MOVE_RUNNING, MOVE_DONE, MOVE_FAILED, MOVE_ABORTED };

struct guest {
	struct list link;
	struct machine *machine;
	char *pod_uid, *ns, *pod_name;
	char *vmi_uid, *vmi_name; /* NULL: an ordinary pod */
	char *migration_uid;	  /* target pods */
	bool is_target;		  /* has not taken over (yet) */
	bool took_over;
	enum guest_state state;
	bool is_stopping;
	int exit_code;
	const char *reason;
	bool moved_away; /* G_ENDED because it released */
	usec_t seen_at, started_at;
	char *move_uid; /* of the last move it was the source of */
	usec_t move_began;
	enum move_result move;
	bool outruns; /* it writes faster than its memory goes over: that ends by nothing but a word from outside */
	int src, dst; /* enum src_state, dst_state of virt/migration/handoff.h */
	struct ev_src *timer;
	usec_t deadline; /* of the stop; loop time */
};

MUST_CHECK enum rc machine_new(struct machine **out, struct sim *s, unsigned index);
struct machine *machine_free(struct machine *m);
const char *machine_name(const struct machine *m);
struct list *machine_guests(struct machine *m);
/* Power fails: every guest is gone but for what is durable (a commit); comes back after down. */
void machine_reboot(struct machine *m, usec_t down);
usec_t machine_last_reboot(const struct sim *s); /* of any of them; loop time, 0: never */
bool machine_is_down(const struct machine *m);
bool machine_has_agent(const struct machine *m);
struct sim *machine_sim(const struct machine *m);
void machine_set_agent(struct machine *m, struct agent *a);

struct guest *guest_new(struct machine *m, const char *ns, const char *pod, const char *pod_uid);
void guest_free(struct guest *g);
struct guest *guest_find(struct machine *m, const char *pod_uid);
const char *guest_state_name(enum guest_state s);
bool guest_executes(const struct guest *g); /* its vCPUs run */
/* The pod was started before the machine went down: there is nothing of it any more. */
void guest_found_dead(struct guest *g);
void guest_start_pod(struct guest *g);
void guest_boot(struct guest *g);
void guest_stop(struct guest *g, usec_t grace);
void guest_kill(struct guest *g);
void guest_end(struct guest *g, int code, const char *reason); /* by itself */
/* How the last move of a source ended; kept over an agent's crash, as the real one is on disk. */
void guest_set(struct guest *g, enum guest_state to,
	       const char *why);			    /* the only writer of state */
void guest_after(struct guest *g, usec_t low, usec_t high); /* its next step */
enum move_result guest_move_result(const struct guest *g, const char *migration_uid);

/* move.c: a move between two machines, by the real tables. */
void move_begin(struct guest *g, const char *migration_uid);
void move_cancel(struct guest *g);
void move_finish(struct guest *g); /* it may stand for as long as it takes */
void move_timer(struct guest *g);  /* of a guest in G_MOVING, G_STANDS or G_RELEASED */
void move_listen(struct guest *g);
void move_written(struct guest *g); /* VMI and PortBinding name the target */
void moves_free(struct sim *s);

/* fence.c: the fence agent; ctx is the sim. */
extern const struct fence_ops sim_fence_ops;
void bolts_free(struct sim *s);

/* locks.c: QEMU's locks on disks that all nodes see, as witness.h asks for them; arg is the sim. */
enum rc sim_ask_lock(const struct vollock *d, bool takes, bool *is_held, void *arg,
		     struct err *err);

/* agent.c: kubelet and virt-handler of one node. */
MUST_CHECK enum rc agent_new(struct agent **out, struct sim *s, struct machine *m);
struct agent *agent_free(struct agent *a);
/* down: at least for so long. */
void agent_crash(struct agent *a, usec_t down);
bool agent_is_up(const struct agent *a);
/* Something happened on the machine to this pod. */
void agent_wake(struct agent *a, const char *ns, const char *pod);

/* user.c: what people do. */
MUST_CHECK enum rc user_new(struct user **out, struct sim *s);
struct user *user_free(struct user *u);
void user_settle(struct user *u); /* the last wishes: from now on only waiting */
bool user_is_idle(const struct user *u);
/* What a VM's spec must be, by the people's own calls; NULL: they did not make it. */
struct json;
const struct json *user_spec_of(const struct user *u, const char *vm);
/* NULL: whatever it asked for has come true, by the truth; else what has not. */
const char *user_unfulfilled(const struct user *u, const struct kcache *truth);
/* Since (realtime), somebody did what may end the guest of this VM. */
bool user_asked_to_stop(const struct user *u, const char *vm, usec_t since);

/* check.c: the truth, seen without delay, and what must hold in it. */
MUST_CHECK enum rc checker_new(struct checker **out, struct sim *s);
struct checker *checker_free(struct checker *c);
void checker_guests(struct checker *c); /* after anything happened on a machine */
/* The source of this migration is committed. */
void checker_moved(struct checker *c, const char *migration_uid, const char *vmi_uid);
void checker_guest_lost(struct checker *c, const struct guest *g, const char *how);
struct kcache *checker_truth(struct checker *c);
usec_t checker_last_change(const struct checker *c); /* loop time of the last real change */
/* A migration that has not ended: one that backs off is quiet for minutes, and not over. */
bool checker_has_open_move(const struct checker *c);
/* At the end, when all is quiet. */
void checker_final(struct checker *c);

#endif
