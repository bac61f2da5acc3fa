/* src/virt/node/migration_source_int.h - the source's side of a move, for the files that make it up. */
#ifndef NODE_MIGRATION_SOURCE_INT_H
#define NODE_MIGRATION_SOURCE_INT_H

#include "virt/migration/progress.h"
#include "virt/node/migration_int.h"

struct mig_source {
	struct vm *vm; /* NULL: it has gone */
	struct vmhost *host;
	enum src_state state;
	char *uid, *target_node, *failure;
	char *reason,
		*detail; /* of the failure: a word for programs, a sentence beyond KubeVirt's text */
	char agent_url[64];
	struct mig_net net;
	char target_ip[NET_IP4_TEXT];
	int64_t port, nbd_port;
	char *user, *key;
	struct json *disks;  /* that the target waits for; NULL: it does not say */
	struct json *claims; /* that the target has to see as they are; NULL: not known yet */
	struct mig_proof *proof;
	bool is_proven;	   /* the tokens are written, or none is needed */
	bool may_have_run; /* lost, but not by a clear no: the target may have run the guest */
	int64_t epoch;
	bool is_open; /* the way through the firewall */
	bool has_key, net_ready, is_written, cancel_asked, cancel_sent, resume_asked;
	const char *cancel_reason; /* a constant */
	usec_t cancel_at;	   /* when that was asked for first; 0: it was not */
	bool is_cut;		   /* its way was closed, because that had no effect */
	bool is_aborted_by_user;
	usec_t finish_by;  /* 0: not told to finish. The guest stands, the rest goes over */
	bool finish_asked; /* by somebody who accepts the pause */
	bool said_finish;  /* there was nothing to do for that, and they were told */
	usec_t begun_at; /* realtime: for the VMI. Limits are kept by the loop's time, which no clock turns */
	usec_t since; /* the same moment, by the loop */
	usec_t stop_at;
	struct json *last; /* the launcher's last word on the move… */
	usec_t last_at;	   /* …and when it came, by the loop */
	char *flows;
	bool flows_pending;
	struct http_slot *http;
	struct ev_src *timer;
	usec_t backoff;
	usec_t unknown_since; /* the target's agent does not know the move */
	struct ev_src *watch, *end_timer;
	struct mig_progress progress;
	struct mig_rate disk_rate;
	int64_t disk_bytes; /* of the disks that go along; a launcher that came later does not know */
	bool shows_progress; /* the move takes long enough */
	bool post_copy_asked, said_split, cannot_split;
	usec_t broken_since; /* monotonic; 0: the link holds */
	unsigned jobs;
};

/* migration_source.c */
bool mig_source_step(struct mig_source *m, enum src_event e); /* false: not in this state */
/* Nothing goes over any more: the kernel ends connections that wait for the other side.  Only while it is cancelled. */
void mig_source_cut(struct mig_source *m);
/* A request to the target's agent; frees body. */
MUST_CHECK enum rc mig_source_post(struct mig_source *m, const char *what, struct json *body,
				   usec_t timeout, http_done_fn done, struct err *err);
void mig_source_answer_text(const struct http_result *r, char *out, size_t n);
void mig_source_given(struct mig_source *m, enum src_event why);
void mig_source_lost(struct mig_source *m, enum src_event event, const char *why);

/* migration_watch.c */
/* The launcher has said something: noted, and looked at each second from now on. */
void mig_source_watch(struct mig_source *m);
/* The launcher is asked to cancel; reason is a constant. */
void mig_source_ask_cancel(struct mig_source *m, const char *reason);
/* Somebody accepts a pause: the launcher is told as soon as memory is copied, unless it is too late. */
void mig_source_finish(struct mig_source *m);
/* The release could not be written down: nothing was given away, so the guest goes on here. */
void mig_source_ask_back(struct mig_source *m);
bool mig_source_is_unreleased(
	const struct json *data); /* a launcher's word: completed, and not released */

/* migration_pause.c: a declared limit that no pause between these nodes can keep is told before the move. */
void mig_pause_warn(struct mig_source *m);
/* The guest went on at the target at this instant: learn from it, and tell an overrun. */
void mig_pause_measured(struct mig_source *m, usec_t resume_at);

/* migration_postcopy.c */
bool mig_source_is_split(const struct mig_source *m); /* the launcher's last word is of post-copy */
/* What the launcher says while memory is at both sides; false: it is not of that. */
bool mig_source_phase_split(struct mig_source *m);
/* What the VMI says while memory is at both sides; true: that was the end. */
bool mig_source_kick_split(struct mig_source *m, const VirtualMachineInstanceMigrationState *s);
/* An event when post-copy is allowed and this move cannot. */
void mig_source_say_mode(struct mig_source *m);
/* Post-copy, where it is allowed and this move can; false: not. */
bool mig_source_ask_split(struct mig_source *m, const char *why);

#endif
