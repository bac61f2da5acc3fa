/* src/virt/launcher/move_int.h - the launcher's half of a migration: one struct for both roles.
 *
 * The phases are a table (move.c); only move_step() changes them.  What counts as permission, and who
 * may resume when, is in docs/internals/launcher.md and design decision records; in short: only the
 * source's `completed` with `postmigrate` counts, `released` is durable before anybody hears of it, and
 * after that the source never resumes.
 */
#ifndef VIRT_LAUNCHER_MOVE_INT_H
#define VIRT_LAUNCHER_MOVE_INT_H

#include "virt/launcher/launcher_int.h"
#include "virt/migration/forecast.h"

#define MOVE_PHASES(X)                         \
	X(MP_SETUP, "setup")                   \
	X(MP_DISKS, "disks")                   \
	X(MP_MEMORY, "memory")                 \
	X(MP_PRE_SWITCHOVER, "pre-switchover") \
	X(MP_SWITCHING, "switching")           \
	X(MP_POSTCOPY, "postcopy")             \
	X(MP_BROKEN, "postcopy-paused")        \
	X(MP_COMPLETED, "completed")           \
	X(MP_CANCELLING, "cancelling")         \
	X(MP_CANCELLED, "cancelled")           \
	X(MP_FAILED, "failed")                 \
	X(MP_PREPARING, "preparing")           \
	X(MP_LISTENING, "listening")           \
	X(MP_LOADING, "loading")               \
	X(MP_LOADED, "loaded")                 \
	X(MP_RESUMED, "resumed")

#define MP_ENUM(code, name) code,
enum move_phase { MOVE_PHASES(MP_ENUM) MP__MAX };
#undef MP_ENUM

struct move_disk {
	size_t index; /* in spec->disks */
	bool ready, done, failed;
	int64_t total, copied;
};

struct move {
	struct launcher *l;
	char uid[65];
	enum mig_role role;
	enum move_phase phase;
	usec_t at; /* of the phase, realtime */
	char address[64];
	int port, nbd_port;
	struct mig_tls tls;
	struct mig_options options;
	struct json *parameters; /* as QEMU shows them */
	struct mig_stats stats;
	int64_t downtime_limit_ms; /* QEMU's, at this moment; source only */
	int64_t judged_pass, remaining_before;
	usec_t pass_began;	       /* the one that is under way */
	struct written written;	       /* what the guest writes; source only */
	int64_t measured_seconds;      /* the longest measurement for this move; -1: no more */
	int64_t since_ms, since_bytes; /* of the move: from here on the link's rate counts */
	struct forecast forecast; /* at the end of the last pass, its left_ms now; source only */
	int64_t seen_bytes;	  /* of memory, and when they last grew (monotonic) */
	usec_t grew_at;
	struct move_disk disks[LAUNCH_MAX_DISKS];
	size_t n_disks;
	bool was_paused; /* the guest stood before the move */
	char fail_reason[32], fail_message[256];
	char cancel_reason[64];
	usec_t stop_at, resume_at;
	usec_t waits_at;  /* for the agent's word: source: pre-switchover; target: all is loaded */
	usec_t waited_us; /* until QEMU went on; 0: not known */
	int64_t epoch;	  /* -1: none */
	bool released, resumed;
	bool release_tried;
	bool migrate_sent;    /* source: QEMU has been told to migrate */
	bool waits_for_old;   /* source: QEMU still holds the connection of an earlier move */
	bool adopting;	      /* the recorded phase may lag behind: any step is believed */
	bool stay_paused;     /* target: the guest stood before the move, and stands on */
	bool tried_stay;      /* target: `migrate-incoming` was sent without exit-on-error */
	bool stands_told;     /* source: the agent knows that the guest stands for the switch */
	bool is_finishing;    /* source: told to end with a pause, however long that is */
	bool continue_asked;  /* continueOutgoing has come; waits for QEMU and the disks */
	bool post_copy_asked; /* source: migrate-start-postcopy was sent */
	bool is_split;	      /* post-copy has begun: memory is at both sides */
	bool is_whole;	      /* target: the last page has come */
	bool is_cut; /* target: QEMU has told that the link is lost, and not yet that it is back */
	/* requests and commands under way */
	struct ipc_call *call; /* prepareIncoming, startOutgoing, or abortIncoming of a half */
	struct ipc_call *resume_call; /* resumeIncoming or resumeSource */
	struct ipc_call *continue_call;
	struct ipc_call *recover_call; /* recoverIncoming or recoverOutgoing */
	int recover_port;
	struct qmp_seq *seq; /* setting up, or the end */
	struct qmp_seq *clean;
	struct qmp_slot *stats_slot, *migrate_slot, *recover_slot;
	struct ev_src *progress, *deadline, *poll, *old_poll, *resume_deadline;
	usec_t last_report;   /* monotonic */
	usec_t refused_since; /* target: QEMU has refused `cont` since then; 0: it has not */
	unsigned polls;
};

const char *move_phase_name(enum move_phase p);
/* False: refused. */
bool move_phase_next_is_legal(enum move_phase from, enum move_phase to);

/* move.c */
enum rc move_new(struct launcher *l, enum mig_role role, const struct json *params,
		 struct move **out, struct err *err);
void move_free(struct move *m);
void move_step(struct move *m, enum move_phase next);
/* The move that a method's params name, if this VM plays that role in it; else NULL, and call has failed. */
struct move *move_named(struct launcher *l, struct ipc_call *call, const struct json *params,
			enum mig_role role);
void move_report(struct move *m); /* the `migration` event */
/* QEMU has gone on at `until` (its own stamp, realtime): what waits_at began has ended. */
void move_waited(struct move *m, usec_t until);
struct json *move_json(const struct move *m);
struct json *move_describe(const struct launcher *l);	  /* NULL: none so far */
enum rc move_save(const struct move *m, struct err *err); /* durable when it says released */
void move_load(struct launcher *l);
/* No pause is too long for this move any more, up to this time from the guest's stop to the end. */
void move_set_finishing(struct move *m, int64_t switchover_timeout_ms);
/* This host's processor computes AES-GCM itself. */
bool move_has_fast_aes(void);
enum rc move_write_key(struct move *m, char dir_in_jail[80], struct err *err);
void move_remove_key(struct move *m);
void move_set_failure(struct move *m, const char *reason, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool move_is_over(const struct move *m);
void move_clean(struct move *m); /* removes from QEMU what the move has left in it */
struct move_names {
	char job[24], node[24], export[24]; /* of one disk's copy, in QEMU; its own for each move */
};
struct move_names move_disk_names(const struct move *m, const struct move_disk *d);

/* what vm*.c tells and asks */
void move_event(struct launcher *l, const char *name, const struct json *data, usec_t at);
bool move_owns_stop(struct launcher *l);
bool move_owns_resume(struct launcher *l);
/* A move whose first pass is under way, and what the guest writes is measured for it. */
bool move_is_measured(const struct launcher *l);
struct move_writes {
	int64_t seconds, bytes; /* 0 seconds: the measurement failed */
	bool was_asked;		/* by the move; else it had begun before */
};
void move_measured(struct launcher *l, const struct move_writes *w);
bool move_is_waiting_target(const struct launcher *l);
void move_adopt(struct launcher *l, const char *run_state);
void move_monitor_lost(struct launcher *l);
void move_qemu_gone(struct launcher *l);

/* move_out.c, move_in.c */
void out_event(struct move *m, const char *name, const struct json *data, usec_t at);
void out_adopt(struct move *m, const struct json *query, const char *run_state);

/* move_end.c: how a move ends at its source */
void out_arm(struct move *m, usec_t delay); /* the deadline of the phase, from now */
void out_disarm(struct move *m);
void out_fail(struct move *m, const char *reason,
	      const char *message); /* before `migrate` was accepted */
void out_finish(struct move *m,
		bool stands);	      /* failed or cancelled; stands: the guest does not run here */
void out_ended_badly(struct move *m); /* QEMU said failed or cancelled: asks for the rest */
void out_stands(struct move *m);      /* QEMU has stopped the guest for the switch */
void out_release_early(
	struct move *m);	   /* QEMU said completed: released while it is asked about it */
void out_ask_completed(void *arg); /* QEMU said completed: until it says postmigrate */
/* Longer than the declared limit (maxPauseMs), if there is one; then that is the move's failure. */
bool out_stood_too_long(struct move *m, const char *when);
void out_cancel(struct move *m); /* the end comes as QEMU's event, or by yank */
/* Fails *slot's call, if there is one. */
void move_fail_call(struct ipc_call **slot, enum rc rc, const char *why);

/* move_postcopy.c: memory at both sides, and a link between them that may break and be mended */
bool move_is_split(const struct move *m); /* in one of post-copy's two phases */
void pc_start(struct move *m);		  /* source: migrate-start-postcopy, unless it was sent */
void pc_ask_split(void *arg);		  /* source: until QEMU cannot fall back any more */
bool pc_out_event(struct move *m, enum mig_status status); /* false: not of post-copy */
bool pc_out_stats(struct move *m); /* source: after query-migrate; true: it was post-copy's */
void pc_out_adopt(struct move *m);
bool pc_in_event(struct move *m, enum mig_status status);
void pc_monitor_lost(struct move *m);
void pc_end_half(struct move *m, struct ipc_call *call); /* target: the source has gone for good */
void move_start_post_copy(struct launcher *l, struct ipc_call *call, const struct json *params);
void move_recover_incoming(struct launcher *l, struct ipc_call *call, const struct json *params);
void move_recover_outgoing(struct launcher *l, struct ipc_call *call, const struct json *params);

void out_start_progress(struct move *m);
struct forecast_in out_forecast_in(const struct move *m);
void in_loaded(struct move *m);
void in_fail(struct move *m, const char *reason, const char *message);
void in_completed(struct move *m); /* target: the last page has come to a guest that runs here */
void in_event(struct move *m, const char *name, const struct json *data, usec_t at);
void in_adopt(struct move *m, const struct json *query, const char *run_state);
/* methods */
void move_start_outgoing(struct launcher *l, struct ipc_call *call, const struct json *params);
void move_continue(struct launcher *l, struct ipc_call *call, const struct json *params);
void move_cancel(struct launcher *l, struct ipc_call *call, const struct json *params);
/* However long the guest has to stand for it: the rest goes over now. */
void move_finish(struct launcher *l, struct ipc_call *call, const struct json *params);
void move_release(struct launcher *l, struct ipc_call *call, const struct json *params);
void move_resume_source(struct launcher *l, struct ipc_call *call, const struct json *params);
void move_prepare_incoming(struct launcher *l, struct ipc_call *call, const struct json *params);
void move_resume_incoming(struct launcher *l, struct ipc_call *call, const struct json *params);
void move_abort_incoming(struct launcher *l, struct ipc_call *call, const struct json *params);

#endif
