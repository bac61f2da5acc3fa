/* The hand-over of a running guest in post-copy, as src/virt/launcher/move_postcopy.c and
 * src/virt/node/migration_postcopy.c do it on top of what handoff.pml describes.  docs/internals/handoff.md says
 * what is modelled, what is not, and what each mutant shows.
 *
 * It begins where the two differ: the key has been handed out and the memory of a guest that never converges is
 * being copied.  The rules of handoff.pml hold here too: the agents' states move only through the printed tables;
 * each M_... is a guard left out, and a property must fail; there is no time, what only asks again without a change
 * of anything is left out, and no fairness is assumed. */
#include "tables.inc"

#ifndef FAULTS
#define FAULTS 2
#endif

/* --- what there is --- */

/* The source's QEMU: runs and copies; stands before the switch; told to go on, the devices are on their way (it
 * says postcopy-active already, and an error makes it run again); a page has been sent in post-copy; the link is
 * lost (postcopy-paused); connects again; completed (postmigrate); runs again; dead. */
#define Q_COPY 0
#define Q_PRE 1
#define Q_DEV 2
#define Q_ACT 3
#define Q_PAUSED 4
#define Q_REC 5
#define Q_POST 6
#define Q_BACK 7
#define Q_DEAD 8
byte qs = Q_COPY;
bit q_pc;			/* migrate-start-postcopy was sent */
bit q_devices;			/* the devices have left it */
bit q_cancel;			/* migrate_cancel is on its way to it */
bit link = 1, cut_off;		/* the two nodes reach each other; never again */
bit conn = 1;			/* the connection of the two QEMUs holds */
#define SRC_RUNS   (qs == Q_COPY || qs == Q_BACK)
#define SRC_WRITES (qs <= Q_DEV || qs == Q_BACK)
#define Q_BEYOND   (qs == Q_ACT || qs == Q_PAUSED || qs == Q_REC)

/* The target's QEMU: waits; has loaded the devices and stands (-S, run state paused); runs; could not load; dead. */
#define D_WAIT 0
#define D_LOADED 1
#define D_RUN 2
#define D_BAD 3
#define D_DEAD 4
byte qd = D_WAIT;
/* Its half of the link: believed in; lost (postcopy-paused); listens anew. */
#define L_ON 0
#define L_LOST 1
#define L_LISTEN 2
byte dl;
bit whole;			/* the last page has come */
bit d_cont, d_refuses;
#define DST_RUNS (qd == D_RUN)
#define D_LIVES	 (qd == D_LOADED || qd == D_RUN)

/* The source's launcher.  Up: 0 no, 1 it has read its record and takes requests, 2 it has asked QEMU. */
#define LP_COPY 1
#define LP_PRE 2
#define LP_SWITCH 3
#define LP_CANCEL 4
#define LP_SPLIT 5		/* postcopy */
#define LP_BROKEN 6		/* postcopy-paused */
#define LP_DONE 7		/* completed */
#define LP_OVER 8		/* failed or cancelled */
byte ls_up = 2, lp = LP_COPY;
bit l_may = 1;			/* the options allow post-copy: a launcher that comes after does not know them */
bit l_pc, l_epoch, l_rel;	/* post-copy was asked for, the epoch is known, released */
byte l_saving;			/* the release is being written: 1 at the split, 2 at the end */
bit l_addr = 1;			/* where the target is */
byte r_phase = LP_COPY;		/* the record */
bit r_pc, r_epoch, r_rel, r_split;

/* The target's launcher. */
#define TP_NONE 0
#define TP_LISTEN 1
#define TP_LOADED 2
#define TP_SPLIT 3
#define TP_BROKEN 4
#define TP_RESUMED 5
#define TP_FAILED 6
byte tp = TP_LISTEN;
bit tl_up = 1, t_seq, t_addr = 1;
bit t_deaf;			/* it has missed that the link is lost (mutants) */
byte t_call;			/* resumeIncoming under way: 1 of this agent, 2 of one that is dead */
byte rt_phase = TP_LISTEN;	/* the record */
bit rt_resumed;

/* The agents: their states, and what they keep in memory. */
byte s = SRC_MOVING, d = DST_KEYED;
bit cancel_sent, mends, d_asked, d_broken, d_lost, d_ports = 1;

/* Requests of an agent to its launcher, and the answers. */
bit rq_cont, rq_cancel, rq_connect;
bit ev_pre;			/* the preSwitchover event */
#define YES 1
#define NO 2
byte a_permit;

/* Between the agents. */
bit m_perm, m_recover;
byte m_perm_answer;

/* The VMI. */
bit abort_asked, named, failed, completed, vmi_failed;
bit src_pod = 1, target_gone;	/* activePods has the source's; the target's pod was deleted */
bit may_abort = 1;

/* Only the properties look at these. */
bit g_released, g_told, g_died, g_said_no;
byte faults = FAULTS;

#define src_on(e) (src_next(s, e) != SRC_NO)
#define dst_on(e) (dst_next(d, e) != DST_NO)
#define src_step(e) if :: src_on(e) -> s = src_next(s, e); g_told = g_told || s == SRC_RELEASED :: else fi
#define dst_step(e) if :: dst_on(e) -> d = dst_next(d, e) :: else fi
#define OVER	 (failed || completed)
#define SRC_OVER (s == SRC_GIVEN || s == SRC_FAILED || s == SRC_LOST)
#define L_SPLIT	 (lp == LP_SPLIT || lp == LP_BROKEN)

/* --- the two QEMUs --- */

active proctype source_qemu()
{
end:	do
	:: atomic { qs == Q_COPY && q_pc && conn && qd == D_WAIT -> qs = Q_PRE }
	:: atomic { qs == Q_COPY && (!conn || qd != D_WAIT) -> qs = Q_BACK }
	:: atomic { qs == Q_DEV && !q_devices && conn && qd == D_WAIT -> q_devices = 1 }
	   /* An error before the first page makes it run again, whatever the target has by then. */
	:: atomic { qs == Q_DEV && (!conn || qd >= D_BAD) -> qs = Q_BACK }
	   /* The page counts when it is sent: a target that could not load the devices may not have said so yet. */
	:: atomic { qs == Q_DEV && q_devices && conn -> qs = Q_ACT; if :: qd >= D_BAD -> g_died = 1 :: else fi }
	:: atomic { qs == Q_ACT && (!conn || qd >= D_BAD) -> qs = Q_PAUSED; conn = 0 }
	:: atomic { qs == Q_ACT && conn && whole -> qs = Q_POST }
	:: atomic { qs == Q_REC && link && dl == L_LISTEN && D_LIVES -> qs = Q_ACT; dl = L_ON; conn = 1 }
	:: atomic { qs == Q_REC && !(link && dl == L_LISTEN && D_LIVES) -> qs = Q_PAUSED }
	:: atomic { q_cancel && qs <= Q_DEV -> qs = Q_BACK; q_cancel = 0; conn = 0 }
	   /* Nobody may ask for it in post-copy: it runs again, or what it had is gone. */
	:: atomic { q_cancel && qs > Q_DEV && qs <= Q_REC -> q_cancel = 0; conn = 0;
		if :: qs = Q_BACK :: qs = Q_DEAD fi }
	:: atomic { q_cancel && qs > Q_REC -> q_cancel = 0 }
	od
}

active proctype target_qemu()
{
end:	do
	:: atomic { qd == D_WAIT && q_devices && qs != Q_BACK -> qd = D_LOADED }
	   /* cut in the middle of the devices: the load fails, and the source may be past its return */
	:: atomic { qd == D_WAIT && q_devices && !conn -> qd = D_BAD;
		if :: Q_BEYOND -> g_died = 1 :: else fi }
	:: atomic { D_LIVES && qs == Q_ACT && conn && dl == L_ON && !whole -> whole = 1 }
	:: atomic { D_LIVES && !conn && dl == L_ON && !whole -> dl = L_LOST }
	:: atomic { d_cont && !d_refuses ->
		d_cont = 0;
		if :: qd == D_LOADED -> qd = D_RUN :: else fi }
	od
}

/* --- the source's launcher --- */

inline l_ask_cancel() { lp = LP_CANCEL; q_cancel = 1 }	/* out_cancel */
inline l_over() { lp = LP_OVER; r_phase = LP_OVER }	/* out_finish, move_qemu_gone */

active proctype source_launcher()
{
end:	do
	/* move_load */
	:: atomic { ls_up == 0 ->
		ls_up = 1; lp = r_phase; l_pc = r_pc; l_epoch = r_epoch; l_rel = r_rel;
#ifdef M_ADDRESS_NOT_RECORDED
		l_addr = 0;
#endif
		if
#ifdef M_NO_SPLIT_RECORD
		:: r_rel -> lp = LP_DONE; g_released = 1
#else
		:: r_rel && !r_split -> lp = LP_DONE; g_released = 1
		:: r_rel && r_split && r_phase != LP_DONE -> lp = LP_SPLIT; g_released = 1
#endif
		:: else
		fi }
	/* out_adopt, pc_out_adopt.  QEMU has carried out what the launcher before this one asked for. */
	:: atomic { ls_up == 1 && !q_cancel ->
		ls_up = 2;
		if
		:: lp == LP_OVER || lp == LP_DONE
		:: else ->
			if
			:: qs == Q_BACK || qs == Q_DEAD -> l_over()
			:: qs == Q_COPY -> lp = LP_COPY
			:: qs == Q_PRE -> l_ask_cancel()
			:: (qs == Q_DEV || Q_BEYOND) && !L_SPLIT -> lp = LP_SWITCH; l_pc = 1
			:: Q_BEYOND && L_SPLIT -> lp = (qs == Q_ACT -> LP_SPLIT : LP_BROKEN); l_pc = 1
			:: qs == Q_POST && !L_SPLIT -> lp = LP_SWITCH
			:: qs == Q_POST && L_SPLIT
			fi
		fi }
	/* pc_start(), move_start_post_copy: after a pass that did not shrink, or at the agent's word */
	:: atomic { ls_up == 2 && lp == LP_COPY && l_may && !l_pc && qs == Q_COPY ->
		r_pc = 1; l_pc = 1; q_pc = 1 }
	/* pre_switchover() */
	:: atomic { ls_up == 2 && lp == LP_COPY && qs == Q_PRE -> lp = LP_PRE; ev_pre = 1 }
	/* move_continue */
	:: atomic { ls_up && rq_cont ->
		rq_cont = 0;
		if
		:: lp == LP_PRE ->
			r_epoch = 1; l_epoch = 1; r_phase = LP_PRE; r_pc = l_pc; lp = LP_SWITCH;
			if :: qs == Q_PRE -> qs = Q_DEV :: else fi
		:: else
		fi }
	/* on_deadline: at the switch it yanks, which is harmless beyond the return */
	:: atomic { ls_up == 2 && lp == LP_PRE -> l_ask_cancel() }
	:: atomic { ls_up == 2 && lp == LP_SWITCH && qs < Q_POST && conn -> conn = 0 }
	/* move_cancel */
	:: atomic { ls_up && rq_cancel ->
		rq_cancel = 0;
		if
		:: lp == LP_DONE || lp == LP_OVER || lp == LP_CANCEL || l_saving
#ifndef M_CANCEL_WHEN_SPLIT
		:: L_SPLIT && !l_saving
#endif
#ifndef M_CANCEL_AFTER_SWITCH
		:: l_pc && lp == LP_SWITCH && !l_saving
#endif
#ifndef M_CANCEL_BEFORE_ADOPTED
		/* told to go on perhaps, by the launcher before this one */
		:: l_pc && l_epoch && lp == LP_PRE && !l_saving
#endif
		:: else -> l_ask_cancel()
		fi }
	/* out_ended_badly; move_qemu_gone */
	:: atomic { ls_up == 2 && lp <= LP_CANCEL && (qs == Q_BACK || qs == Q_DEAD) && !l_saving -> l_over() }
	:: atomic { ls_up == 2 && L_SPLIT && qs == Q_DEAD && !l_saving -> l_over() }
	/* on_split_stats, split(): the release, once QEMU cannot fall back */
#ifdef M_BARE_ACTIVE
	:: atomic { ls_up == 2 && lp == LP_SWITCH && l_epoch && (qs == Q_DEV || Q_BEYOND) && !l_saving ->
#else
	:: atomic { ls_up == 2 && lp == LP_SWITCH && l_epoch && Q_BEYOND && !l_saving ->
#endif
		r_rel = 1; r_split = 1; r_phase = LP_SWITCH; r_pc = l_pc; l_saving = 1; g_released = 1 }
	/* completed().  What was released at the split stays so. */
	:: atomic { ls_up == 2 && lp >= LP_SWITCH && lp <= LP_BROKEN && l_epoch && qs == Q_POST && !l_saving ->
		if
#ifndef M_RELEASED_AGAIN
		:: l_rel -> lp = LP_DONE
		:: !l_rel ->
#else
		:: true ->
#endif
			r_rel = 1; l_saving = 2; g_released = 1
		fi }
	:: atomic { ls_up && l_saving ->
		lp = (l_saving == 2 -> LP_DONE : (qs == Q_ACT -> LP_SPLIT : LP_BROKEN));
		l_saving = 0; l_rel = 1; r_rel = 1 }
	/* pc_out_event, pc_out_stats */
	:: atomic { ls_up == 2 && lp == LP_SPLIT && qs == Q_PAUSED && !l_saving -> lp = LP_BROKEN }
	:: atomic { ls_up == 2 && lp == LP_BROKEN && qs == Q_ACT && !l_saving -> lp = LP_SPLIT }
	/* move_recover_outgoing */
	:: atomic { ls_up && rq_connect ->
		rq_connect = 0;
		if :: lp == LP_BROKEN && l_addr && qs == Q_PAUSED -> qs = Q_REC :: else fi }
	/* move_resume_source: asked for by ask_back(), or by anybody; a refusal changes nothing */
	:: atomic { ls_up == 2 && !l_rel && lp == LP_DONE && qs == Q_POST -> r_rel = 0; qs = Q_BACK; l_over() }
#ifdef M_RESUME_WHEN_SPLIT
	:: atomic { ls_up == 2 && L_SPLIT && Q_BEYOND && !l_saving -> r_rel = 0; qs = Q_BACK; l_over() }
#endif
	od
}

/* --- the source's agent --- */

inline src_end() { qs = Q_DEAD; if :: m_perm = 0 :: true fi }

active proctype source_agent()
{
end:	do
	/* take_up_again, and then on_phase */
	:: atomic { s == SRC_IDLE && ls_up && !OVER ->
		src_step(SRCEV_BEGIN); src_step(SRCEV_READY); src_step(SRCEV_ACCEPTED);
		ev_pre = 0;
		if :: lp == LP_PRE -> src_step(SRCEV_STANDS); rq_cont = 1
		   :: l_rel -> src_step(SRCEV_RELEASED)
		   :: else fi }
	/* switch_now */
	:: atomic { ev_pre && ls_up && s == SRC_MOVING -> ev_pre = 0; src_step(SRCEV_STANDS); rq_cont = 1 }
	/* kick_move: abortRequested.  give_up: this launcher cannot do post-copy, and the guest does not converge. */
	:: atomic { (abort_asked
#ifndef M_ASKED_FOR_EVER
		     || (ls_up == 2 && lp == LP_COPY && !l_may && !l_pc)
#endif
		    ) && !cancel_sent && (s == SRC_MOVING || s == SRC_SWITCHING) ->
		cancel_sent = 1; src_step(SRCEV_CANCEL);
		if :: ls_up -> rq_cancel = 1 :: else fi }
	/* forgot_cancel */
	:: atomic { s == SRC_CANCELLING && ls_up == 2 && cancel_sent && !rq_cancel && !q_cancel &&
		    (lp == LP_COPY || lp == LP_PRE) && qs <= Q_PRE -> rq_cancel = 1 }
	/* on_phase: the release is the word that counts, whatever became of QEMU since */
#ifdef M_PERMISSION_BEFORE_RELEASE
	:: atomic { ls_up == 2 && lp == LP_SWITCH && (qs == Q_DEV || Q_BEYOND) && src_on(SRCEV_RELEASED) ->
		src_step(SRCEV_RELEASED) }
#endif
#ifdef M_DEAD_SOURCE_SPEAKS
	:: atomic { ls_up && l_rel && (L_SPLIT || lp == LP_DONE) && src_on(SRCEV_RELEASED) -> src_step(SRCEV_RELEASED) }
	:: atomic { ls_up && l_rel && lp == LP_OVER && (s == SRC_RELEASED || s == SRC_STREAMING) ->
		src_step(SRCEV_BROKEN); src_end() }
	:: atomic { ls_up && lp == LP_OVER && s != SRC_IDLE && src_on(SRCEV_ENDED) -> src_step(SRCEV_ENDED) }
#else
	:: atomic { ls_up && l_rel && src_on(SRCEV_RELEASED) -> src_step(SRCEV_RELEASED) }
	:: atomic { ls_up && !l_rel && lp == LP_OVER && s != SRC_IDLE && src_on(SRCEV_ENDED) -> src_step(SRCEV_ENDED) }
#endif
	/* give_permission, on_permission, taken() */
	:: atomic { s == SRC_RELEASED && !m_perm -> m_perm = 1 }
	:: atomic { s == SRC_RELEASED && m_perm_answer == YES && ls_up ->
		if
#ifndef M_KILLED_WHEN_TAKEN
		:: L_SPLIT -> src_step(SRCEV_SHARED)
		:: !L_SPLIT ->
#else
		:: true ->
#endif
			src_step(SRCEV_TAKEN); src_end()
		fi }
	:: atomic { s == SRC_RELEASED && (m_perm_answer == NO || target_gone) -> src_step(SRCEV_REFUSED); src_end() }
	:: atomic { s == SRC_RELEASED && completed -> src_step(SRCEV_TAKEN); src_end() }
	/* mig_source_phase_split: all has gone over, or this QEMU has died: what the target has, it says itself */
	:: atomic { s == SRC_STREAMING && ls_up && lp == LP_DONE -> src_step(SRCEV_SENT); src_end() }
	:: atomic { s == SRC_STREAMING && ls_up && lp == LP_OVER -> src_step(SRCEV_SENT); src_end() }
#ifndef M_COMPLETED_UNHEARD
	/* kick_move: the target is whole, and the link broke before this side heard of it */
	:: atomic { s == SRC_STREAMING && completed -> src_step(SRCEV_SENT); src_end() }
#endif
	/* kick_move: the target is lost, as it has said, and perhaps knows nothing of it any more */
#ifndef M_FAILURE_UNHEARD
	:: atomic { s == SRC_STREAMING && failed && !completed -> src_step(SRCEV_BROKEN); src_end() }
#endif
	/* mend() */
#ifdef M_MENDED_ONCE
	:: atomic { s == SRC_STREAMING && ls_up == 2 && lp == LP_BROKEN && !mends -> mends = 1; m_recover = 1 }
#else
	:: atomic { s == SRC_STREAMING && ls_up == 2 && lp == LP_BROKEN && qs == Q_PAUSED && link && dl != L_LISTEN &&
		    D_LIVES && !whole && !m_recover && !rq_connect && !target_gone -> m_recover = 1 }
	/* it listens, and the answer was lost or the connection has failed: asked again */
	:: atomic { s == SRC_STREAMING && ls_up == 2 && lp == LP_BROKEN && qs == Q_PAUSED && link && dl == L_LISTEN &&
		    D_LIVES && !m_recover && !rq_connect && !target_gone -> rq_connect = 1 }
#endif
#ifndef M_FAILED_TARGET_ASKED
	/* on_listening: the target says that its QEMU has died */
	:: atomic { s == SRC_STREAMING && d == DST_FAILED && !target_gone -> src_step(SRCEV_BROKEN); src_end() }
#endif
	/* publish_end */
	:: atomic { (s == SRC_FAILED || s == SRC_LOST) && !OVER -> failed = 1 }
	/* report_exit: the pod is over; while it is released it stays.  Of the move's end the launcher has told before. */
	:: atomic { src_pod && qs == Q_DEAD && ls_up == 2 && !l_saving && (s != SRC_IDLE || OVER) &&
		    s != SRC_RELEASED && s != SRC_STREAMING && !(l_rel && src_on(SRCEV_RELEASED)) -> src_pod = 0 }
	/* vmsync_phase: a QEMU that ends before the guest has moved away is the guest's end */
	:: atomic { qs == Q_DEAD && ls_up == 2 && !completed && !vmi_failed && !l_saving &&
		    (s != SRC_IDLE || failed) && s != SRC_GIVEN && s != SRC_RELEASED && s != SRC_STREAMING &&
		    (!named || s == SRC_LOST) && ((lp == LP_OVER || lp == LP_DONE) && !l_rel || s == SRC_LOST) ->
		vmi_failed = 1 }
	od
}

/* --- the target's launcher --- */

inline t_answer(what) { if :: t_call == 1 -> a_permit = what :: else fi; t_call = 0 }
/* The guest runs here. */
inline t_runs() {
	if
	:: whole -> tp = TP_RESUMED
#ifdef M_LOST_BEFORE_RUN
	:: !whole -> t_deaf = (dl != L_ON); tp = TP_SPLIT
#else
	:: !whole -> tp = (dl == L_ON -> TP_SPLIT : TP_BROKEN)
#endif
	fi }

active proctype target_launcher()
{
end:	do
	/* move_load, in_adopt */
	:: atomic { !tl_up ->
		tl_up = 1; t_deaf = 0;
#ifdef M_ADDRESS_NOT_RECORDED
		t_addr = 0;
#endif
		if
		:: rt_phase == TP_RESUMED -> tp = TP_RESUMED
		:: rt_phase != TP_RESUMED ->
			if
			:: qd == D_WAIT -> tp = TP_LISTEN
			:: qd >= D_BAD -> tp = TP_FAILED
#ifdef M_ADOPTED_LISTENING
			:: qd == D_LOADED && dl != L_ON && rt_phase == TP_LISTEN -> tp = TP_LISTEN; t_deaf = 1
			:: qd == D_LOADED && !(dl != L_ON && rt_phase == TP_LISTEN) -> tp = TP_LOADED
#else
			:: qd == D_LOADED -> tp = TP_LOADED
#endif
			:: qd == D_RUN ->
#ifdef M_ADOPTED_WHOLE
				if
				:: rt_phase != TP_SPLIT && whole -> tp = TP_SPLIT; t_deaf = 1
				:: else -> t_runs()
				fi
#else
				t_runs()
#endif
			fi
		fi }
	/* ask_loaded, in_loaded */
	:: atomic { tl_up && tp == TP_LISTEN && qd == D_LOADED && !t_deaf -> tp = TP_LOADED }
	:: atomic { tl_up && tp != TP_RESUMED && tp != TP_FAILED && qd >= D_BAD -> tp = TP_FAILED; t_seq = 0; t_answer(NO) }
	/* pc_in_event */
	:: atomic { tl_up && tp == TP_SPLIT && dl != L_ON && !t_deaf -> tp = TP_BROKEN }
	:: atomic { tl_up && tp == TP_BROKEN && dl == L_ON -> tp = TP_SPLIT }
	:: atomic { tl_up && (tp == TP_SPLIT || tp == TP_BROKEN) && whole && qd == D_RUN && !t_deaf ->
		tp = TP_RESUMED; rt_phase = TP_RESUMED }
	/* resume(), on_resumed */
	:: atomic { tl_up && t_call && tp == TP_LOADED && !t_seq -> rt_resumed = 1; rt_phase = TP_LOADED; t_seq = 1 }
	:: atomic { tl_up && t_seq && qd == D_LOADED && !d_cont -> d_cont = 1 }
	:: atomic { tl_up && t_seq && qd == D_RUN -> t_seq = 0; t_runs(); rt_phase = (whole -> TP_RESUMED : TP_SPLIT);
		t_answer(YES) }
	:: atomic { tl_up && t_seq && d_cont && d_refuses -> t_seq = 0; d_cont = 0; g_said_no = 1; t_answer(NO) }
	od
}

/* --- the target's agent --- */

active proctype target_agent()
{
end:	do
	/* take_up_again */
	:: atomic { !target_gone && d == DST_IDLE && tl_up && tp != TP_NONE && !OVER ->
		dst_step(DSTEV_BEGIN); dst_step(DSTEV_LISTENS); dst_step(DSTEV_KEY);
#ifdef M_PORTS_FORGOTTEN
		d_ports = 0;
#endif
		if :: tp >= TP_SPLIT && tp <= TP_RESUMED -> dst_step(DSTEV_PERMISSION); dst_step(DSTEV_RESUMED) :: else fi }
	/* take_permission, move_resume_incoming.  "Later" is left out: it is asked again. */
	:: atomic { m_perm && !d_asked && (d == DST_KEYED || d == DST_PERMITTED) && tl_up && !t_call && !t_seq ->
		dst_step(DSTEV_PERMISSION);
		d_asked = 1;
		if
		:: tp >= TP_SPLIT && tp <= TP_RESUMED -> a_permit = YES
		:: tp == TP_FAILED -> a_permit = NO
		:: tp <= TP_LOADED -> t_call = 1; a_permit = 0
		fi }
	:: atomic { m_perm && m_perm_answer == 0 && (d == DST_RUNNING || d == DST_FETCHING || d == DST_DONE) ->
		m_perm_answer = YES }
	:: atomic { m_perm && m_perm_answer == 0 && d == DST_FAILED -> m_perm_answer = NO }
	/* on_resumed */
	:: atomic { d_asked && a_permit == YES ->
		d_asked = 0; a_permit = 0; dst_step(DSTEV_RESUMED);
		if :: m_perm -> m_perm_answer = YES :: else fi }
	:: atomic { d_asked && a_permit == NO ->
		d_asked = 0; a_permit = 0; dst_step(DSTEV_FAILED);
		if :: m_perm -> m_perm_answer = NO :: else fi }
	/* the launcher's event, whose call nobody waits for any more */
	:: atomic { d == DST_PERMITTED && !d_asked && tl_up && tp >= TP_SPLIT && tp <= TP_RESUMED -> dst_step(DSTEV_RESUMED) }
	/* publish_taken, mig_target_written */
	:: atomic { d == DST_RUNNING && !target_gone && !vmi_failed && tl_up && tp == TP_RESUMED -> named = 1; completed = 1;
		dst_step(DSTEV_WRITTEN) }
	:: atomic { d == DST_RUNNING && !target_gone && tl_up && (tp == TP_SPLIT || tp == TP_BROKEN) -> named = 1;
		dst_step(DSTEV_NAMED) }
	/* mig_target_phase_split */
#ifdef M_HALF_UNASKED
	:: atomic { tl_up && d == DST_FETCHING && d_broken != (tp == TP_BROKEN) -> d_broken = (tp == TP_BROKEN) }
#endif
	:: atomic { tl_up && d == DST_FETCHING && tp == TP_RESUMED -> dst_step(DSTEV_WHOLE) }
	:: atomic { tl_up && tp == TP_FAILED && !d_asked && d >= DST_PERMITTED && d <= DST_FETCHING ->
		d_lost = (d != DST_PERMITTED); dst_step(DSTEV_FAILED) }
	/* mig_target_event: failed */
	:: atomic { tl_up && tp == TP_FAILED && !d_asked && d == DST_KEYED -> dst_step(DSTEV_FAILED) }
	/* mig_target_recover, move_recover_incoming: what still believes in the link is told first */
	:: atomic { m_recover && (d == DST_RUNNING || d == DST_FETCHING) && tl_up ->
		m_recover = 0;
		if
		:: (tp == TP_SPLIT || tp == TP_BROKEN) && qd == D_RUN && !whole && t_addr && d_ports && !t_deaf ->
			dl = L_LISTEN; conn = 0; rq_connect = 1
		:: else
		fi }
	:: atomic { m_recover && (d == DST_DONE || d == DST_FAILED) -> m_recover = 0 }
	/* mig_target_end_half: the launcher looks whether the link is lost still */
#ifdef M_HALF_OF_THE_LIVING
	:: atomic { d == DST_FETCHING && tl_up && tp == TP_BROKEN && dl != L_ON && !whole ->
#else
#ifdef M_HALF_UNASKED
	:: atomic { d == DST_FETCHING && d_broken && !src_pod ->
#else
	:: atomic { d == DST_FETCHING && tl_up && tp == TP_BROKEN && dl != L_ON && !whole && !src_pod ->
#endif
#endif
		d_lost = 1; dst_step(DSTEV_FAILED); qd = D_DEAD }
	/* publish_failure: is_lost.  The VM's own status follows: is_half. */
	:: atomic { d == DST_FAILED && d_lost && !OVER -> failed = 1 }
	:: atomic { d == DST_FAILED && d_lost && qd == D_DEAD && !vmi_failed && !completed -> vmi_failed = 1 }
	od
}

/* --- the controllers, and whoever else asks for something --- */

active proctype controller()
{
end:	do
	:: atomic { may_abort && !OVER -> may_abort = 0; if :: abort_asked = 1 :: true fi }
	/* end_with_pod: the pod of the node that the VMI names is over, and no other one holds a part of the guest */
	:: atomic { !vmi_failed && !completed && (named -> qd == D_DEAD : !src_pod) &&
		    (failed || (!src_pod && qd == D_DEAD)) -> vmi_failed = 1 }
	:: atomic { vmi_failed && !OVER -> failed = 1 }
	/* finish_failed, and the run strategy after a Failed VMI: the pods go */
	:: atomic { failed && !target_gone -> target_gone = 1; qd = D_DEAD }
	:: atomic { vmi_failed && qs != Q_DEAD -> qs = Q_DEAD }
	od
}

/* --- faults: at most FAULTS of them, then no more --- */

/* What dies with it: the guest, unless the other side has all of it and may have it. */
inline lose_source_copy() { if :: !(whole && g_released) -> g_died = 1 :: else fi }
inline lose_target_copy() { if :: Q_BEYOND || g_released || qs == Q_POST -> g_died = 1 :: else fi }

active proctype fault()
{
end:	do
	:: atomic { faults > 0 -> faults = 0 }
	/* the link breaks, and with it the connection; it may come back at any time, or never */
	:: atomic { faults > 0 && link -> faults--; link = 0; conn = 0 }
	:: atomic { !link && !cut_off -> if :: link = 1 :: cut_off = 1 fi }
	/* an agent dies */
	:: atomic { faults > 0 && s != SRC_IDLE -> faults--; s = SRC_IDLE; cancel_sent = 0; mends = 0; m_perm_answer = 0;
		m_recover = 0; ev_pre = 0 }
	:: atomic { faults > 0 && d != DST_IDLE -> faults--; d = DST_IDLE; d_asked = 0; a_permit = 0; d_broken = 0;
		d_lost = 0; m_recover = 0; if :: t_call -> t_call = 2 :: else fi }
	/* a launcher dies */
	:: atomic { faults > 0 && ls_up == 2 -> faults--; ls_up = 0; lp = LP_COPY; l_may = 0; l_pc = 0; l_epoch = 0;
		l_rel = 0; l_saving = 0; rq_cont = 0; rq_cancel = 0; rq_connect = 0;
		ev_pre = 0 }
	:: atomic { faults > 0 && tl_up -> faults--; tl_up = 0; tp = TP_NONE; t_seq = 0; t_call = 0; t_deaf = 0;
		if :: d_asked && a_permit == 0 -> d_asked = 0 :: else fi }
	/* a QEMU dies */
	:: atomic { faults > 0 && qs != Q_DEAD -> faults--; lose_source_copy(); qs = Q_DEAD; conn = 0 }
	:: atomic { faults > 0 && qd != D_DEAD -> faults--; lose_target_copy(); qd = D_DEAD; d_cont = 0; conn = 0 }
	/* the devices cannot be loaded; the guest cannot go on there */
	:: atomic { faults > 0 && qd == D_WAIT -> faults--; qd = D_BAD; if :: Q_BEYOND -> g_died = 1 :: else fi }
	:: atomic { faults > 0 && !d_refuses && !DST_RUNS -> faults--; d_refuses = 1 }
	/* a permission, a request to listen, or the answer is lost */
	:: atomic { faults > 0 && m_perm -> faults--; m_perm = 0; m_perm_answer = 0 }
	:: atomic { faults > 0 && m_recover -> faults--; m_recover = 0 }
	:: atomic { faults > 0 && rq_connect -> faults--; rq_connect = 0 }
	/* an answer of a launcher does not come in time, and what was asked for goes on */
	:: atomic { faults > 0 && d_asked && a_permit == 0 -> faults--; d_asked = 0;
		if :: t_call -> t_call = 2 :: else fi }
	/* migrate-start-postcopy is answered too late */
#ifdef M_LATE_IS_NO
	:: atomic { faults > 0 && ls_up == 2 && l_pc && lp == LP_COPY -> faults--; l_pc = 0 }
#endif
	/* the target's record cannot be written */
	:: atomic { faults > 0 && t_call && tp == TP_LOADED && !t_seq -> faults--; t_call = 0; d_asked = 0 }
	/* the release cannot be written; what the disk has is not known */
	:: atomic { faults > 0 && l_saving == 2 -> faults--; l_saving = 0; lp = LP_DONE; l_rel = 0; g_released = 0;
		if :: qs == Q_DEAD -> g_died = 1 :: else fi;
		if :: r_rel = 0 :: r_rel = 1 fi }
	:: atomic { faults > 0 && l_saving == 1 -> faults--; l_saving = 0; l_rel = 0; g_released = 0;
		if :: qs == Q_DEAD -> g_died = 1 :: else fi;
#ifdef M_RELEASE_ONCE
		lp = LP_SPLIT;
#endif
		if :: r_rel = 0 :: r_rel = 1 fi }
	od
}

/* --- what must hold --- */

/* Always. */
#define ONE_RUNNER  (!(SRC_RUNS && DST_RUNS))
#define ONE_WRITER  (!(SRC_WRITES && DST_RUNS))
#define NO_WAY_BACK (!(g_told && SRC_RUNS))
#define TABLES_TRUE ((SRC_RUNS -> src_may_run(s)) && (DST_RUNS -> !src_may_run(s) || s == SRC_IDLE) && \
		     !(dst_may_run(d) && src_may_run(s) && s != SRC_IDLE))
ltl one_runner { [] ONE_RUNNER }
ltl one_writer { [] ONE_WRITER }
ltl no_way_back { [] NO_WAY_BACK }
ltl tables_true { [] TABLES_TRUE }
ltl safe { [] (ONE_RUNNER && ONE_WRITER && NO_WAY_BACK && TABLES_TRUE) }

/* In the end, once faults have stopped: the guest runs for ever and has all of itself, or it waits for a link that
 * is down, or it was lost for a reason that is one ... */
#define LOST	     (g_died || g_said_no)
#define WAITS	     (!link && !LOST && src_pod && s == SRC_STREAMING)
#define GOES	     (SRC_RUNS || (DST_RUNS && whole))
#define RUNS_OR_WHY  (GOES || LOST || WAITS)
/* ... both agents have reached an end ... */
#define MOVE_ENDED   (OVER && (SRC_OVER || s == SRC_IDLE || vmi_failed) && \
		      (d == DST_DONE || d == DST_FAILED || d == DST_IDLE || target_gone))
/* ... and the VMI says what is so. */
#define RECORD_TRUE  ((completed -> !SRC_RUNS) && (failed && !completed -> !DST_RUNS) && !(failed && completed))
#define LOSS_SAID    (LOST && !GOES -> failed || vmi_failed || completed)
ltl not_lost { <> [] RUNS_OR_WHY }
ltl ends { <> [] (MOVE_ENDED || WAITS) }
ltl record_true { <> [] (RECORD_TRUE && LOSS_SAID) }
ltl settles { <> [] (RUNS_OR_WHY && (MOVE_ENDED || WAITS) && RECORD_TRUE && LOSS_SAID) }

/* These must fail: what they say can never happen does happen. */
ltl can_move { [] !(s == SRC_GIVEN && d == DST_DONE && completed && DST_RUNS && whole) }
ltl can_be_mended { [] !(d == DST_DONE && completed && faults == 0 && lp == LP_SPLIT && r_split && dl == L_ON && whole) }
ltl can_wait { <> [] !WAITS }
ltl can_fall_back { [] !(q_devices && qd == D_LOADED && s == SRC_FAILED && SRC_RUNS) }
ltl can_cancel_too_late { [] !(abort_asked && cancel_sent && s == SRC_GIVEN && DST_RUNS) }
ltl can_lose_half { [] !(d_lost && failed && vmi_failed && src_pod == 0) }
