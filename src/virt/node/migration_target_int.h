/* src/virt/node/migration_target_int.h - the target's side of a move, for the files that make it up. */
#ifndef NODE_MIGRATION_TARGET_INT_H
#define NODE_MIGRATION_TARGET_INT_H

#include "virt/node/migration_int.h"

struct mig_target {
	struct vm *vm; /* NULL: it has gone, the last job frees this */
	struct vmhost *host;
	enum dst_state state;
	char *uid, *source_node, *failure;
	bool has_tls;
	char key[MIG_KEY_HEX];
	struct mig_net net;
	struct in_addr address; /* that QEMU is reached at */
	bool is_open;		/* the way through the firewall */
	bool has_left; /* its pod has ended, or the VM comes anew: the network is not this move's any more */
	bool is_alone;	       /* the source's pod is over: nobody is left to give the permission */
	bool is_found_running; /* the agent before this one used the permission */
	int64_t port, nbd_port;
	struct json *disks; /* names of those that its QEMU waits for; NULL: not known */
	bool is_prepared; /* the launcher listens; what the devices offer may still be asked for */
	int64_t epoch;
	bool has_binding; /* the PortBinding leads here, or this plan writes it; or there is none to be written */
	usec_t stop_at, resume_at;
	usec_t waited_us;	   /* from all being loaded until it ran; 0: not known */
	struct json *final;	   /* what the source said last */
	bool is_split, is_whole;   /* post-copy: its guest runs, pages are still to come */
	bool is_broken;		   /* the link is lost */
	bool is_checking;	   /* the source's pod has gone: QEMU is asked what it has */
	bool is_lost;		   /* the pages at the source are gone for good */
	bool is_half_asked;	   /* the launcher is asked whether they are */
	struct ev_src *look_timer; /* …again, until they are or come */
	usec_t look_wait;	   /* grows */
	unsigned n_recover;
	struct mig_proof *proof; /* of shared claims; the key waits for it */
	char *flows;		 /* that came with the request of the key */
	mig_answer_fn answer, recover_answer;
	void *arg, *recover_arg;
	unsigned jobs;
};

/* migration_target.c */
void mig_target_step(struct mig_target *t, enum dst_event e);
void mig_target_failed(struct mig_target *t, const char *why);

/* migration_postcopy.c */
/* What the launcher says while memory is at both sides. */
void mig_target_phase_split(struct mig_target *t, const char *phase);
/* A request of the source: the link was lost, listen anew. */
void mig_target_recover(struct mig_target *t, mig_answer_fn fn, void *arg);
/* The source's copy has gone while pages were still there: the guest here cannot go on. */
void mig_target_end_half(struct mig_target *t);

#endif
