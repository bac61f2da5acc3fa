/* The hand-over of a running guest (pre-copy), as src/virt/node/migration_*.c and src/virt/launcher/move*.c
 * do it.  docs/internals/handoff.md says what is modelled, what is not, and what each mutant shows.
 *
 * The agents' states move only through src_step() and dst_step(), whose tables (src_next, dst_next)
 * tests/model/tables.c prints from the code's own.  Everything else here stands for the code that its comment names.  Each M_... is a
 * mutant: with -DM_... one guard of the code is missing, and a property must fail.
 *
 * Time: none.  A deadline may pass at any moment at which the code lets it decide something; one that only
 * asks again is left out, since asking again is always possible.  So each step below makes progress, no
 * run goes round in circles, and a run that gets stuck shows itself by being stuck. */
#include "tables.inc"

#ifndef FAULTS
#define FAULTS 2
#endif

/* --- what there is --- */

/* The source's QEMU: runs; runs and copies; stands before the switch; told to go on; all is sent, its disks
 * are inactive; completed (postmigrate); runs again after a move that failed or was cancelled; dead. */
#define Q_RUN 0
#define Q_COPY 1
#define Q_PRE 2
#define Q_DEVICE 3
#define Q_SENT 4
#define Q_POST 5
#define Q_BACK 6
#define Q_DEAD 7
byte qs = Q_RUN;
bit q_cancel;			/* migrate_cancel or yank was asked for */
bit link = 1;
bit q_converges;		/* some guests write faster than the link takes it */
#define SRC_RUNS   (qs == Q_RUN || qs == Q_COPY || qs == Q_BACK)
#define SRC_WRITES (qs != Q_SENT && qs != Q_POST && qs != Q_DEAD)	/* its disks are active */

/* The target's QEMU: waits (-S), has loaded all, runs (disks active), could not load, dead. */
#define D_WAIT 0
#define D_LOADED 1
#define D_RUN 2
#define D_BAD 3
#define D_DEAD 4
byte qd = D_WAIT;
bit d_cont;			/* `cont` is on its way to it */
bit d_refuses;			/* it cannot go on: an image lock, an I/O error */
#define DST_RUNS (qd == D_RUN)

/* The source's launcher: move.c's phases, and migration.json.  Up: 0 no, 1 it has read its record and takes
 * requests, 2 it has asked QEMU (out_adopt). */
#define LP_NONE 0
#define LP_SETUP 1
#define LP_COPY 2
#define LP_PRE 3
#define LP_SWITCH 4
#define LP_CANCEL 5
#define LP_DONE 6		/* completed */
#define LP_OVER 7		/* failed or cancelled: the guest is here */
byte ls_up = 2, lp;
bit l_epoch, l_rel, l_sent, l_saving;	/* epoch known, released, `migrate` sent, the release is being written */
bit l_told;			/* the agent sees `released` */
bit l_stands, l_cont;		/* QEMU's STOP was told on; continueOutgoing has come before QEMU's pre-switchover */
bit l_timer;			/* out_arm: a deadline runs */
byte r_phase;			/* the record */
bit r_epoch, r_rel;

/* The target's launcher. */
#define TP_NONE 0
#define TP_LISTEN 1
#define TP_LOADED 2
#define TP_RESUMED 3
#define TP_FAILED 4
byte tp;
bit tl_up = 1, t_seq;		/* `cont` was sent, no answer yet */
byte t_call;			/* resumeIncoming under way: 1 of this agent, 2 of one that is dead */
byte rt_phase;			/* the record */
bit rt_resumed;

/* The agents: their states, and what they keep in memory. */
byte s = SRC_IDLE, d = DST_IDLE;
bit key_asked, has_key, cancel_sent, perm_asked, d_asked;

/* Requests of an agent to its launcher (a socket: lost only with the launcher), and the answers. */
bit rq_start, rq_cont, rq_cancel, rq_resume, rq_prepare, rq_permit;
bit ev_pre;			/* the preSwitchover event */
#define YES 1
#define NO 2
#define LATER 3
byte a_start, a_permit, a_prepare;

/* Between the agents.  What was sent stays deliverable for ever, again and again, unless it is lost. */
bit m_key, m_perm;
byte m_key_answer, m_perm_answer;

/* The VMI's status.migrationState, and its phase. */
bit published, started, abort_asked, failed, completed, vmi_failed;
bit target_gone;		/* its pod was deleted */
bit may_abort = 1, may_take_back = 1, may_resume = 1;	/* whether somebody asks for it is open */

/* Only the properties look at these. */
bit g_released;			/* QEMU has completed and the source's launcher has decided: no way back */
bit g_told;			/* the source's agent has heard of the release */
bit g_old;			/* a permission of another epoch was taken */
bit g_died;			/* the QEMU that had the only copy that could run has died by a fault */
bit g_said_no;			/* after the release the target's QEMU could not go on */
byte faults = FAULTS;

#define src_on(e) (src_next(s, e) != SRC_NO)
#define dst_on(e) (dst_next(d, e) != DST_NO)
#define src_step(e) if :: src_on(e) -> s = src_next(s, e); g_told = g_told || s == SRC_RELEASED :: else fi
#define dst_step(e) if :: dst_on(e) -> d = dst_next(d, e) :: else fi
#define OVER	 (failed || completed)
#define SRC_OVER (s == SRC_GIVEN || s == SRC_FAILED || s == SRC_LOST)

/* --- the two QEMUs --- */

active proctype source_qemu()
{
end:	do
	:: atomic { qs == Q_COPY && q_converges && link && qd == D_WAIT -> qs = Q_PRE }
	:: atomic { qs == Q_COPY && (!link || qd != D_WAIT) -> qs = Q_BACK }
	   /* At Q_PRE it does not notice a dead target. */
	:: atomic { qs == Q_DEVICE && link && qd == D_WAIT -> qs = Q_SENT; qd = D_LOADED }
	:: atomic { qs == Q_DEVICE && (!link || qd != D_WAIT) -> qs = Q_BACK }
	   /* It resumes by itself, and the target still says `completed`. */
	:: atomic { qs == Q_SENT && (!link || qd != D_LOADED) -> qs = Q_BACK }
	:: atomic { qs == Q_SENT && link && qd == D_LOADED -> qs = Q_POST }
	:: atomic { q_cancel && qs >= Q_COPY && qs <= Q_SENT -> qs = Q_BACK; q_cancel = 0 }
	:: atomic { q_cancel && (qs == Q_POST || qs >= Q_BACK) -> q_cancel = 0 }
	od
}

active proctype target_qemu()
{
end:	do
	:: atomic { d_cont && !d_refuses ->
		d_cont = 0;
		if :: qd == D_LOADED -> qd = D_RUN :: else fi }
	od
}

/* --- the source's launcher --- */

inline l_ask_cancel() { lp = LP_CANCEL; q_cancel = 1; l_timer = 0; l_stands = 0; l_cont = 0 }	/* out_cancel; it yanks in the end */
inline l_over() { lp = LP_OVER; r_phase = LP_OVER; l_timer = 0; l_stands = 0; l_cont = 0 }	/* out_finish */

/* move_end.c completed(): the record first, then everybody may know. */
inline l_complete() {
	if
	:: !l_epoch -> lp = LP_DONE
#ifdef M_NO_DURABLE_RELEASE
	:: l_epoch -> lp = LP_DONE; l_rel = 1; l_told = 1; l_saving = 1; g_released = 1
#else
	:: l_epoch -> r_rel = 1; l_saving = 1; g_released = 1
#endif
	fi
}

active proctype source_launcher()
{
end:	do
	/* move_load: the record.  A release that stands there was a completed move. */
	:: atomic { ls_up == 0 ->
		lp = r_phase; l_epoch = r_epoch; l_rel = r_rel; l_told = r_rel; ls_up = 1;
#ifndef M_RELEASE_NOT_COMPLETED
		if :: r_rel -> lp = LP_DONE; g_released = 1 :: else fi;
#endif
#ifdef M_CANCEL_BEFORE_ADOPTED
		l_sent = 0
#else
		l_sent = 1
#endif
		}
	/* out_adopt: what QEMU says now decides. */
	:: atomic { ls_up == 1 ->
		ls_up = 2;
		if
		:: r_phase == LP_NONE || r_phase == LP_OVER || lp == LP_DONE
		:: else ->
			if
			:: qs == Q_RUN || qs == Q_BACK || qs == Q_DEAD -> l_over()
			:: qs == Q_COPY -> lp = LP_COPY
			:: qs == Q_PRE ->
#ifdef M_LAUNCHER_WAITS_AT_PRESWITCHOVER
				lp = LP_PRE
#else
				l_ask_cancel()
#endif
			:: qs == Q_DEVICE || qs == Q_SENT -> lp = LP_SWITCH; l_timer = 1
			:: qs == Q_POST -> lp = LP_SWITCH	/* out_ask_completed: below */
			fi
		fi }
	/* move_start_outgoing: record, then `migrate`. */
	:: atomic { ls_up && rq_start ->
		rq_start = 0;
		if
		:: lp == LP_NONE && qs == Q_RUN -> lp = LP_SETUP; r_phase = LP_SETUP; l_sent = 0
		:: else -> a_start = NO
		fi }
	:: atomic { ls_up == 2 && lp == LP_SETUP ->
		if :: qs == Q_RUN -> qs = Q_COPY; lp = LP_COPY; l_sent = 1; a_start = YES
		   :: else -> l_over(); a_start = NO fi }
	/* out_stands: QEMU has stopped the guest, and is not in pre-switchover yet */
	:: atomic { ls_up == 2 && lp == LP_COPY && qs == Q_COPY && q_converges && !l_stands ->
		l_stands = 1; l_timer = 1; ev_pre = 1 }
	/* pre_switchover() */
	:: atomic { ls_up == 2 && lp == LP_COPY && qs == Q_PRE ->
		l_timer = 1;
		if :: l_cont -> lp = LP_SWITCH; qs = Q_DEVICE
		   :: else -> lp = LP_PRE; if :: !l_stands -> ev_pre = 1 :: else fi
		fi;
		l_stands = 0; l_cont = 0 }
	/* move_continue: the epoch stands in the record before QEMU goes on. */
	:: atomic { ls_up && rq_cont ->
		rq_cont = 0;
		if
		:: lp == LP_PRE ->
#ifndef M_EPOCH_NOT_RECORDED
			r_epoch = 1;
#endif
			l_epoch = 1; r_phase = LP_PRE; lp = LP_SWITCH;
			if :: qs == Q_PRE -> qs = Q_DEVICE :: else fi
		:: lp == LP_COPY && l_stands && !l_cont ->
#ifndef M_EPOCH_NOT_RECORDED
			r_epoch = 1;
#endif
			l_epoch = 1; l_cont = 1
		:: else
		fi }
	/* on_deadline: nobody let it go on, or the last bytes were not taken (yank). */
	:: atomic { ls_up == 2 && l_timer && !q_cancel && lp >= LP_COPY && lp <= LP_SWITCH && qs < Q_POST ->
		if :: lp != LP_SWITCH -> l_ask_cancel() :: else -> q_cancel = 1 fi; l_timer = 0 }
	/* move_cancel, out_cancel */
	:: atomic { ls_up && rq_cancel ->
		rq_cancel = 0;
		if
		:: lp == LP_NONE || lp == LP_DONE || lp == LP_OVER || lp == LP_CANCEL || l_saving
		:: else -> if :: l_sent -> l_ask_cancel() :: else -> l_over() fi
		fi }
	/* out_ended_badly; move_qemu_gone */
	:: atomic { ls_up == 2 && lp >= LP_SETUP && lp <= LP_CANCEL && (qs == Q_BACK || qs == Q_DEAD) && !l_saving -> l_over() }
	/* completed and postmigrate */
	:: atomic { ls_up == 2 && lp >= LP_COPY && lp <= LP_CANCEL && qs == Q_POST && !l_saving -> l_complete() }
	:: atomic { ls_up && l_saving -> l_saving = 0; lp = LP_DONE; l_rel = 1; l_told = 1; r_rel = 1; l_timer = 0 }
	/* move_resume_source.  Nobody asks for it in a good move; somebody may. */
	:: atomic { ls_up == 2 && rq_resume ->
		rq_resume = 0;
		if
#ifdef M_RESUME_AFTER_RELEASE
		:: lp == LP_DONE && qs == Q_POST ->
#else
		:: !l_rel && lp == LP_DONE && qs == Q_POST ->
#endif
			r_rel = 0; qs = Q_BACK; l_over()
		:: else
		fi }
	od
}

/* --- the source's agent --- */

/* The copy here ends.  Nobody repeats the permission any more: it may be under way still, or not. */
inline src_end() { qs = Q_DEAD; if :: m_perm = 0 :: true fi }

active proctype source_agent()
{
end:	do
	/* mig_source_kick, is_due, begin */
	:: atomic { s == SRC_IDLE && ls_up && lp == LP_NONE && qs == Q_RUN && published && !started && !OVER ->
		src_step(SRCEV_BEGIN) }
	/* end_orphan: an agent before this one wrote the start, QEMU has not begun */
	:: atomic { s == SRC_IDLE && ls_up && lp == LP_NONE && qs == Q_RUN && started && !OVER ->
		src_step(SRCEV_ENDED) }
	/* take_up_again: the launcher knows how far the move got */
	:: atomic { s == SRC_IDLE && ls_up && lp != LP_NONE && !OVER ->
		src_step(SRCEV_BEGIN); src_step(SRCEV_READY); src_step(SRCEV_ACCEPTED);
		ev_pre = 0;
		if :: lp == LP_PRE -> src_step(SRCEV_STANDS); rq_cont = 1
		   :: lp == LP_DONE && l_told -> src_step(SRCEV_RELEASED)
		   :: lp == LP_OVER -> src_step(SRCEV_ENDED)
		   :: else fi }
	/* publish_begin: written only while the move has not been taken back */
	:: atomic { s == SRC_PREPARING && !started && !failed -> started = 1; may_take_back = 0 }
	:: atomic { s == SRC_PREPARING && (failed || abort_asked) -> src_step(SRCEV_ENDED) }
	:: atomic { s == SRC_PREPARING && !key_asked -> key_asked = 1; m_key = 1 }
	:: atomic { s == SRC_PREPARING && key_asked && m_key_answer == YES && !has_key -> has_key = 1 }
	/* refused, lost, late: on_key() ends the move */
	:: atomic { s == SRC_PREPARING && key_asked && !has_key && (m_key_answer == NO || !m_key) ->
		src_step(SRCEV_ENDED) }
	/* begin_if_ready */
#ifdef M_BEGIN_BEFORE_WRITTEN
	:: atomic { s == SRC_PREPARING && has_key -> src_step(SRCEV_READY); rq_start = 1 }
#else
	:: atomic { s == SRC_PREPARING && has_key && started -> src_step(SRCEV_READY); rq_start = 1 }
#endif
	/* on_accepted */
	:: atomic { s == SRC_STARTING && a_start == YES -> a_start = 0; src_step(SRCEV_ACCEPTED) }
	:: atomic { s == SRC_STARTING && a_start == NO -> a_start = 0; src_step(SRCEV_ENDED) }
	/* switch_now */
	:: atomic { ev_pre && ls_up && (s == SRC_STARTING || s == SRC_MOVING) ->
		ev_pre = 0; src_step(SRCEV_STANDS); rq_cont = 1 }
	/* the same again: a new launcher, which has not heard the answer */
	:: atomic { ev_pre && ls_up && s == SRC_SWITCHING -> ev_pre = 0; rq_cont = 1 }
	/* kick_move: abortRequested; give_up: the limits on time and progress */
	:: atomic { (abort_asked || !q_converges) && !cancel_sent && (s == SRC_MOVING || s == SRC_SWITCHING) ->
		cancel_sent = 1; src_step(SRCEV_CANCEL);
		if :: ls_up -> rq_cancel = 1 :: else fi }	/* else: vm_call() fails */
#ifndef M_CANCEL_ONCE
	/* on_phase: the launcher does not cancel although it was asked to: it has changed */
	:: atomic { s == SRC_CANCELLING && ls_up == 2 && lp >= LP_SETUP && lp < LP_CANCEL && !rq_cancel &&
		    !q_cancel && qs <= Q_SENT && cancel_sent -> rq_cancel = 1 }
#endif
	/* on_phase */
	:: atomic { ls_up && lp == LP_DONE && l_told && src_on(SRCEV_RELEASED) -> src_step(SRCEV_RELEASED) }
#ifndef M_UNRELEASED_STANDS
	/* completed, but the release could not be written: nothing is given away, the guest goes on here */
	:: atomic { ls_up == 2 && lp == LP_DONE && !l_told && qs == Q_POST && !rq_resume &&
		    src_on(SRCEV_RELEASED) -> rq_resume = 1 }
#endif
	:: atomic { ls_up && lp == LP_OVER && s != SRC_IDLE && src_on(SRCEV_ENDED) -> src_step(SRCEV_ENDED) }
	/* give_permission: asked again for as long as it takes */
#ifdef M_PERMISSION_ONCE
	:: atomic { s == SRC_RELEASED && !m_perm && !perm_asked -> perm_asked = 1; m_perm = 1 }
#else
	:: atomic { s == SRC_RELEASED && !m_perm -> m_perm = 1 }
#endif
	/* on_permission.  given() and lost() end the copy here. */
	:: atomic { s == SRC_RELEASED && m_perm_answer == YES -> src_step(SRCEV_TAKEN); src_end() }
	:: atomic { s == SRC_RELEASED && m_perm_answer == NO -> src_step(SRCEV_REFUSED); src_end() }
#ifndef M_COMPLETED_UNHEARD
	/* kick_move: the target's agent is another one by now, knows no move, but the VMI says it all */
	:: atomic { s == SRC_RELEASED && completed -> src_step(SRCEV_TAKEN); src_end() }
#endif
	/* 404 for 30 s: the target's pod has gone */
	:: atomic { s == SRC_RELEASED && target_gone -> src_step(SRCEV_REFUSED); src_end() }
	/* publish_end */
	:: atomic { (s == SRC_FAILED || s == SRC_LOST) && !OVER -> failed = 1 }
	/* vmsync_phase: this QEMU has ended, and the guest has not moved away.  Of the move's end the launcher
	 * has told before. */
	:: atomic { qs == Q_DEAD && ls_up == 2 && !completed && !vmi_failed && s != SRC_GIVEN &&
#ifndef M_DEAD_SOURCE_SPEAKS
		    s != SRC_RELEASED &&
#endif
		    (s != SRC_IDLE || lp == LP_NONE || failed) && !l_saving &&
		    (lp == LP_NONE || lp == LP_OVER || (lp == LP_DONE && !(l_told && src_on(SRCEV_RELEASED)))) ->
		vmi_failed = 1 }
	od
}

/* --- the target's launcher --- */

inline t_answer(what) { if :: t_call == 1 -> a_permit = what :: else fi; t_call = 0 }

active proctype target_launcher()
{
end:	do
	/* move_load, in_adopt */
	:: atomic { !tl_up ->
		tl_up = 1;
		if
		:: rt_phase == TP_NONE || rt_phase == TP_RESUMED -> tp = rt_phase
		:: else ->
			if
			:: rt_resumed && qd == D_RUN -> tp = TP_RESUMED
			:: !(rt_resumed && qd == D_RUN) && (qd == D_LOADED || qd == D_RUN) -> tp = TP_LOADED
			:: qd == D_WAIT -> tp = TP_LISTEN
			:: qd == D_BAD || qd == D_DEAD -> tp = TP_FAILED
			fi
		fi }
	/* move_prepare_incoming */
	:: atomic { tl_up && rq_prepare ->
		rq_prepare = 0;
		if :: tp <= TP_LISTEN && qd == D_WAIT -> tp = TP_LISTEN; rt_phase = TP_LISTEN; a_prepare = YES
		   :: else -> a_prepare = NO fi }
	/* in_event; move_qemu_gone */
	:: atomic { tl_up && tp == TP_LISTEN && qd == D_LOADED ->
		tp = TP_LOADED;
#ifdef M_TARGET_COMPLETED_COUNTS
		d_cont = 1
#endif
		}
	:: atomic { tl_up && (tp == TP_LISTEN || tp == TP_LOADED) && (qd == D_BAD || qd == D_DEAD) ->
		tp = TP_FAILED; t_seq = 0; t_answer(NO) }
	/* move_resume_incoming.  One that is under way is no refusal: it may still end well. */
	:: atomic { tl_up && rq_permit ->
		rq_permit = 0;
		if
		:: tp == TP_RESUMED -> a_permit = YES
		:: tp == TP_FAILED || tp == TP_NONE -> a_permit = NO
		:: (tp == TP_LISTEN || tp == TP_LOADED) && (t_call || t_seq) ->
#ifdef M_UNDER_WAY_REFUSES
			a_permit = NO
#else
			a_permit = LATER
#endif
		:: (tp == TP_LISTEN || tp == TP_LOADED) && !t_call && !t_seq -> t_call = 1
		fi }
	/* resume(): written, then done */
	:: atomic { tl_up && t_call && tp == TP_LOADED && !t_seq ->
#ifndef M_RESUMED_NOT_RECORDED
		rt_resumed = 1;
#endif
		t_seq = 1 }
	:: atomic { tl_up && t_seq && qd == D_LOADED && !d_cont -> d_cont = 1 }
	:: atomic { tl_up && t_seq && qd == D_RUN ->
#ifndef M_RESUMED_NOT_RECORDED
		rt_phase = TP_RESUMED;
#endif
		t_seq = 0; tp = TP_RESUMED; t_answer(YES) }
	/* `cont` failed */
	:: atomic { tl_up && t_seq && d_cont && d_refuses -> t_seq = 0; d_cont = 0; g_said_no = 1; t_answer(NO) }
	od
}

/* --- the target's agent --- */

active proctype target_agent()
{
end:	do
	/* mig_target_kick */
	:: atomic { !target_gone && d == DST_IDLE && tl_up && tp == TP_NONE && !OVER ->
		dst_step(DSTEV_BEGIN); rq_prepare = 1; a_prepare = 0 }
	/* take_up_again: the key is gone, the permission can still come, or has been used already */
	:: atomic { !target_gone && d == DST_IDLE && tl_up && tp != TP_NONE && !OVER ->
		dst_step(DSTEV_BEGIN); dst_step(DSTEV_LISTENS); dst_step(DSTEV_KEY);
		if :: tp == TP_RESUMED -> dst_step(DSTEV_PERMISSION); dst_step(DSTEV_RESUMED) :: else fi }
	/* on_prepared, publish */
	:: atomic { d == DST_PREPARING && a_prepare == YES -> dst_step(DSTEV_LISTENS) }
	:: atomic { d == DST_PREPARING && a_prepare == NO -> dst_step(DSTEV_FAILED) }
	:: atomic { (d == DST_LISTENING || d == DST_KEYED) && !published -> published = 1 }
	/* give_key: once */
	:: atomic { m_key && !target_gone && m_key_answer == 0 && d != DST_IDLE && d != DST_PREPARING ->
		if :: d == DST_LISTENING -> dst_step(DSTEV_KEY); m_key_answer = YES
		   :: else -> m_key_answer = NO fi }
	/* take_permission, judge_permission */
	:: atomic { m_perm && !d_asked && (d == DST_KEYED || d == DST_PERMITTED) ->
		dst_step(DSTEV_PERMISSION);
		d_asked = 1; a_permit = 0;
		if :: tl_up -> rq_permit = 1 :: else -> a_permit = LATER fi }
	:: atomic { m_perm && m_perm_answer == 0 && (d == DST_RUNNING || d == DST_DONE) -> m_perm_answer = YES }
	:: atomic { m_perm && m_perm_answer == 0 && d == DST_FAILED -> m_perm_answer = NO }
#ifdef M_NO_EPOCH
	/* The permission of an older move comes late. */
	:: atomic { !d_asked && d == DST_KEYED && tl_up ->
		dst_step(DSTEV_PERMISSION); d_asked = 1; a_permit = 0; rq_permit = 1; g_old = 1 }
#endif
	/* on_resumed.  Silence and "later" are no refusal: the source asks again. */
	:: atomic { d_asked && a_permit == YES ->
		d_asked = 0; a_permit = 0; dst_step(DSTEV_RESUMED);
		if :: m_perm -> m_perm_answer = YES :: else fi }
	:: atomic { d_asked && a_permit == NO ->
		d_asked = 0; a_permit = 0; dst_step(DSTEV_FAILED);
		if :: m_perm -> m_perm_answer = NO :: else fi }
	:: atomic { d_asked && a_permit == LATER && tl_up && !(t_call || t_seq) -> d_asked = 0; a_permit = 0 }
	/* publish_taken, mig_target_written */
	:: atomic { d == DST_RUNNING && !target_gone -> completed = 1; dst_step(DSTEV_WRITTEN) }
	/* mig_target_event: failed */
	:: atomic { tl_up && tp == TP_FAILED && !d_asked && d >= DST_PREPARING && d < DST_PERMITTED ->
		dst_step(DSTEV_FAILED) }
	/* publish_failure: once it has begun, the source says how it ended */
	:: atomic { d == DST_FAILED && !started && !OVER -> failed = 1 }
	od
}

/* --- the controller (src/virt/controller/migration) and whoever else asks for something --- */

active proctype controller()
{
end:	do
	:: atomic { may_abort && started && !OVER -> may_abort = 0; if :: abort_asked = 1 :: true fi }
	/* take_back: only until the source has begun (the VMI's resourceVersion decides) */
	:: atomic { may_take_back && !started && !OVER -> may_take_back = 0; if :: failed = 1 :: true fi }
	/* resumeSource is a method of the launcher: it may be called at any time */
	:: atomic { may_resume && ls_up == 2 && lp == LP_DONE -> may_resume = 0; if :: rq_resume = 1 :: true fi }
	/* The VMI is Failed: so is its move, and the run strategy clears up. */
	:: atomic { vmi_failed && !OVER -> failed = 1 }
	/* finish_failed, abandon: the target's pod is deleted */
	:: atomic { failed && !completed && !target_gone -> target_gone = 1; qd = D_DEAD }
	od
}

/* --- faults: at most FAULTS of them, then no more --- */

inline lose_source_copy() { if :: !g_released -> g_died = 1 :: else fi }
inline lose_target_copy() { if :: qs == Q_POST || g_released || DST_RUNS -> g_died = 1 :: else fi }

active proctype fault()
{
	if :: q_converges = 1 :: q_converges = 0 fi;
end:	do
	:: atomic { faults > 0 -> faults = 0 }
	/* an agent dies; the next one knows nothing.  What it has sent may still arrive. */
	:: atomic { faults > 0 && s != SRC_IDLE -> faults--; s = SRC_IDLE; key_asked = 0; has_key = 0;
		cancel_sent = 0; perm_asked = 0; m_key_answer = 0; a_start = 0; ev_pre = 0 }
	:: atomic { faults > 0 && d != DST_IDLE -> faults--; d = DST_IDLE; d_asked = 0; a_permit = 0; a_prepare = 0;
		if :: t_call -> t_call = 2 :: else fi }
	/* a launcher dies; its agent hears of it */
	:: atomic { faults > 0 && ls_up == 2 -> faults--; ls_up = 0; lp = LP_NONE; l_epoch = 0; l_rel = 0; l_told = 0;
		l_sent = 0; l_timer = 0; l_stands = 0; l_cont = 0; l_saving = 0; rq_cont = 0; rq_cancel = 0; rq_resume = 0; ev_pre = 0;
		if :: s == SRC_STARTING && a_start == 0 -> a_start = NO :: else fi; rq_start = 0 }
	:: atomic { faults > 0 && tl_up -> faults--; tl_up = 0; tp = TP_NONE; t_seq = 0; t_call = 0;
		if :: d_asked && a_permit == 0 -> a_permit = LATER :: else fi; rq_permit = 0;
		if :: d == DST_PREPARING && a_prepare == 0 -> a_prepare = NO :: else fi; rq_prepare = 0 }
	/* a QEMU dies */
	:: atomic { faults > 0 && qs != Q_DEAD -> faults--; lose_source_copy(); qs = Q_DEAD }
	:: atomic { faults > 0 && qd != D_DEAD -> faults--; lose_target_copy(); qd = D_DEAD; d_cont = 0 }
	/* the migration link breaks; the state cannot be loaded; the target cannot go on */
	:: atomic { faults > 0 && link -> faults--; link = 0 }
	:: atomic { faults > 0 && qd == D_WAIT -> faults--; qd = D_BAD }
	:: atomic { faults > 0 && !d_refuses && !DST_RUNS -> faults--; d_refuses = 1 }
	/* a message is lost */
	:: atomic { faults > 0 && m_key -> faults--; m_key = 0; m_key_answer = 0 }
	:: atomic { faults > 0 && m_perm -> faults--; m_perm = 0; m_perm_answer = 0 }
	/* an answer of a launcher does not come in time, and what was asked for goes on */
	:: atomic { faults > 0 && s == SRC_STARTING && a_start == 0 -> faults--; a_start = NO }
	:: atomic { faults > 0 && d_asked && a_permit == 0 -> faults--; a_permit = LATER; rq_permit = 0;
		if :: t_call -> t_call = 2 :: else fi }
	/* the target's record cannot be written (resume()): QEMU is told nothing */
	:: atomic { faults > 0 && t_call && tp == TP_LOADED && !t_seq -> faults--; t_answer(LATER) }
	/* the release cannot be written (completed() takes it back); what the disk has is not known */
	:: atomic { faults > 0 && l_saving -> faults--; l_saving = 0; lp = LP_DONE; l_rel = 0; g_released = 0;
		if :: qs == Q_DEAD -> g_died = 1 :: else fi;
		if :: r_rel = 0 :: r_rel = 1 fi }
	od
}

/* --- what must hold --- */

/* Always. */
#define ONE_RUNNER  (!(SRC_RUNS && DST_RUNS))
#define ONE_WRITER  (!(SRC_WRITES && DST_RUNS))
#define NO_WAY_BACK (!(g_told && SRC_RUNS))
#define OWN_EPOCH   (!g_old)
/* What the tables say about each side is so; an agent that has just started knows nothing yet. */
#define TABLES_TRUE ((SRC_RUNS -> src_may_run(s)) && (DST_RUNS -> !src_may_run(s) || s == SRC_IDLE) && \
		     !(dst_may_run(d) && src_may_run(s) && s != SRC_IDLE))
ltl one_runner { [] ONE_RUNNER }
ltl one_writer { [] ONE_WRITER }
ltl no_way_back { [] NO_WAY_BACK }
ltl own_epoch { [] OWN_EPOCH }
ltl tables_true { [] TABLES_TRUE }
ltl safe { [] (ONE_RUNNER && ONE_WRITER && NO_WAY_BACK && OWN_EPOCH && TABLES_TRUE) }

/* In the end, once faults have stopped: the guest runs for ever, or was lost for a reason that is one ... */
#define RUNS_OR_WHY (SRC_RUNS || DST_RUNS || g_died || g_said_no)
/* ... both agents have reached an end (a pod that has ended takes its agent's part along) ... */
#define MOVE_ENDED (OVER && (SRC_OVER || s == SRC_IDLE || vmi_failed) && \
		    (d == DST_DONE || d == DST_FAILED || d == DST_IDLE || target_gone))
/* ... and the VMI says what is so. */
#define RECORD_TRUE ((completed -> !SRC_RUNS) && (failed && !completed -> !DST_RUNS))
ltl not_lost { <> [] RUNS_OR_WHY }
ltl ends { <> [] MOVE_ENDED }
ltl record_true { <> [] RECORD_TRUE }
ltl settles { <> [] (RUNS_OR_WHY && MOVE_ENDED && RECORD_TRUE) }

/* These must fail: what they say can never happen does happen. */
ltl can_move { [] !(s == SRC_GIVEN && d == DST_DONE && completed && DST_RUNS) }
ltl can_cancel { [] !(s == SRC_FAILED && abort_asked && failed && SRC_RUNS) }
ltl can_cancel_too_late { [] !(abort_asked && cancel_sent && s == SRC_GIVEN && DST_RUNS) }
ltl can_be_lost { [] !(s == SRC_LOST && failed && g_said_no) }
ltl can_take_back { [] !(!started && failed && s == SRC_FAILED) }
