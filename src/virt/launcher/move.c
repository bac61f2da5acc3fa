#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/launcher/move_int.h"

/* --- phases --- */

#define MP_NAME(code, name) name,
static const char *const phase_names[] = {MOVE_PHASES(MP_NAME)};
#undef MP_NAME

#define P(p_) (1u << MP_##p_)

/* To which phases each may go; a row of zero is final. */
static const unsigned edges[MP__MAX] = {
	[MP_SETUP] = P(DISKS) | P(MEMORY) | P(CANCELLING) | P(FAILED),
	[MP_DISKS] = P(MEMORY) | P(CANCELLING) | P(CANCELLED) | P(FAILED),
	[MP_MEMORY] = P(PRE_SWITCHOVER) | P(CANCELLING) | P(CANCELLED) | P(FAILED),
	[MP_PRE_SWITCHOVER] = P(SWITCHING) | P(CANCELLING) | P(CANCELLED) | P(FAILED),
	[MP_SWITCHING] = P(COMPLETED) | P(POSTCOPY) | P(CANCELLING) | P(CANCELLED) | P(FAILED),
	/* No way back: only a dead QEMU makes it fail. */
	[MP_POSTCOPY] = P(BROKEN) | P(COMPLETED) | P(RESUMED) | P(FAILED),
	[MP_BROKEN] = P(POSTCOPY) | P(COMPLETED) | P(RESUMED) | P(FAILED),
	[MP_CANCELLING] = P(COMPLETED) | P(CANCELLED) | P(FAILED),
	[MP_COMPLETED] = P(FAILED), /* resumed here after all, before it was released */
	[MP_CANCELLED] = 0,
	[MP_FAILED] = 0,
	[MP_PREPARING] = P(LISTENING) | P(FAILED),
	[MP_LISTENING] = P(LOADING) | P(LOADED) | P(FAILED),
	[MP_LOADING] = P(LOADED) | P(FAILED),
	[MP_LOADED] = P(RESUMED) | P(POSTCOPY) | P(FAILED),
	[MP_RESUMED] = 0,
};
#undef P

const char *move_phase_name(enum move_phase p)
{
	assert(p < MP__MAX);
	return phase_names[p];
}

bool move_phase_next_is_legal(enum move_phase from, enum move_phase to)
{
	assert(from < MP__MAX && to < MP__MAX);
	return edges[from] & (1u << to);
}

bool move_is_over(const struct move *m)
{
	return m->phase == MP_COMPLETED || m->phase == MP_CANCELLED || m->phase == MP_FAILED ||
	       m->phase == MP_RESUMED;
}

/* The only function that writes m->phase. */
void move_step(struct move *m, enum move_phase next)
{
	enum move_phase from = m->phase;

	if (from == next)
		return;
	if (!move_phase_next_is_legal(from, next) && !m->adopting) {
		log_warn("move '%s': %s -> %s is no legal step, staying", m->uid, phase_names[from],
			 phase_names[next]);
		return;
	}
	m->phase = next;
	m->at = loop_realtime(m->l->loop);
	log_info("move '%s': %s -> %s%s%s", m->uid, phase_names[from], phase_names[next],
		 next == MP_FAILED ? ": " : "", next == MP_FAILED ? m->fail_message : "");
	if (move_is_over(m)) {
		m->progress = ev_src_free(m->progress);
		m->deadline = ev_src_free(m->deadline);
	}
	assert(!(m->released && m->role == MIG_TARGET));
	move_report(m);
}

void move_set_failure(struct move *m, const char *reason, const char *fmt, ...)
{
	va_list ap;

	if (m->fail_reason[0])
		return; /* the first cause counts */
	snprintf(m->fail_reason, sizeof(m->fail_reason), "%s", reason);
	va_start(ap, fmt);
	vsnprintf(m->fail_message, sizeof(m->fail_message), fmt, ap);
	va_end(ap);
}

struct move *move_named(struct launcher *l, struct ipc_call *call, const struct json *params,
			enum mig_role role)
{
	const char *uid = js_get_str(params, "migrationUid");
	struct move *m = l->move;

	if (m && m->role == role && str_eq(m->uid, uid))
		return m;
	ipc_call_fail(call, RC_CONFLICT, "'%s' is not a move that this VM is the %s of",
		      uid ? uid : "", role == MIG_SOURCE ? "source" : "target");
	return NULL;
}

/* --- what the node is told --- */

static struct json *stats_json(const struct move *m)
{
	struct json *j = mig_stats_json(&m->stats), *disks = js_new_array();

	for (size_t i = 0; disks && i < m->n_disks; i++)
		if (js_append(disks, js_pack("{s:s, s:I, s:I}", "name",
					     m->l->spec->disks[m->disks[i].index].name, "total",
					     m->disks[i].total, "done", m->disks[i].copied)))
			disks = js_unref(disks);
	if (!j || js_set(j, "disks", disks)) {
		if (!j)
			js_unref(disks);
		return js_unref(j);
	}
	return j;
}

static enum rc set_time(struct json *j, const char *key, usec_t t)
{
	return t ? js_set(j, key, js_new_int((int64_t)t)) : RC_OK;
}

static enum rc set_hand_over(struct json *j, const struct move *m)
{
	enum rc rc = m->epoch >= 0 ? js_set(j, "epoch", js_new_int(m->epoch)) : RC_OK;

	if (!rc && m->released)
		rc = js_set(j, "released", js_new_bool(true));
	if (!rc && (m->is_split || m->post_copy_asked))
		rc = js_set(j, "postCopy", js_new_bool(true));
	return rc;
}

static enum rc set_limits(struct json *j, const struct move *m)
{
	enum rc rc = RC_OK;

	if (m->downtime_limit_ms)
		rc = js_set(j, "downtimeLimitMs", js_new_int(m->downtime_limit_ms));
	if (!rc && m->parameters) /* as QEMU shows it */
		rc = js_set(j, "maxBandwidthBytes",
			    js_new_int(js_get_int(m->parameters, "max-bandwidth", 0)));
	return rc;
}

struct json *move_json(const struct move *m)
{
	struct json *j =
		js_pack("{s:s, s:s, s:s, s:I, s:o}", "migrationUid", m->uid, "role",
			m->role == MIG_SOURCE ? "source" : "target", "phase", phase_names[m->phase],
			"at", (int64_t)m->at, "stats", stats_json(m));
	enum rc rc = j ? RC_OK : RC_NOMEM;

	if (!rc && m->fail_reason[0])
		rc = js_set(j, "failure",
			    js_pack("{s:s, s:s}", "reason", m->fail_reason, "message",
				    m->fail_message));
	if (!rc)
		rc = set_time(j, "stopAt", m->stop_at);
	if (!rc)
		rc = set_time(j, "resumeAt", m->resume_at);
	if (!rc)
		rc = set_time(j, "waitedUs", m->waited_us);
	if (!rc && m->phase == MP_COMPLETED && m->stats.downtime_ms >= 0)
		rc = js_set(j, "downtimeMs", js_new_int(m->stats.downtime_ms));
	if (!rc && m->was_paused)
		rc = js_set(j, "guestPaused", js_new_bool(true));
	if (!rc)
		rc = set_limits(j, m);
	if (!rc && m->forecast.verdict != FORECAST_UNKNOWN)
		rc = js_set(j, "forecast",
			    js_pack("{s:s, s:I, s:I}", "verdict",
				    forecast_name(m->forecast.verdict), "pauseMs",
				    m->forecast.pause_ms, "leftMs", m->forecast.left_ms));
	if (!rc && m->phase == MP_COMPLETED)
		rc = js_set(j, "downtimeBytes", js_new_int(m->stats.downtime_bytes));
	if (!rc)
		rc = set_hand_over(j, m);
	return rc ? js_unref(j) : j;
}

struct json *move_describe(const struct launcher *l)
{
	return l->move ? move_json(l->move) : NULL;
}

void move_report(struct move *m)
{
	m->last_report = loop_now(m->l->loop);
	ipc_server_event(m->l->server, "migration", move_json(m));
}

/* --- the record --- */

enum rc move_save(const struct move *m, struct err *err)
{
	CLEANUP(js_unrefp)
	struct json *j = js_pack(
		"{s:s, s:s, s:s, s:I, s:b, s:b, s:I, s:b, s:b, s:b, s:s, s:b, s:I}", "migrationUid",
		m->uid, "role", m->role == MIG_SOURCE ? "source" : "target", "phase",
		phase_names[m->phase], "epoch", m->epoch, "released", (int)m->released, "resumed",
		(int)m->resumed, "stopAt", (int64_t)m->stop_at, "wasPaused", (int)m->was_paused,
		"postCopy", (int)m->post_copy_asked, "split", (int)m->is_split, "address",
		m->address, "finishing", (int)m->is_finishing, "switchoverTimeoutMs",
		m->options.switchover_timeout_ms);

	return record_write(m->l, "migration.json", j, m->released, err);
}

void move_set_finishing(struct move *m, int64_t switchover_timeout_ms)
{
	m->is_finishing = true;
	m->options.downtime_limit_ms = m->downtime_limit_ms = MIG_DOWNTIME_MAX_MS;
	m->options.max_pause_ms = 0; /* whoever asks for this accepts the pause */
	m->options.switchover_timeout_ms = switchover_timeout_ms;
}

void move_load(struct launcher *l)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	struct err err = {0};
	enum rc rc = record_read(l, "migration.json", &j, &err);
	const char *uid = js_get_str(j, "migrationUid"), *phase = js_get_str(j, "phase");

	if (rc == RC_NOT_FOUND)
		return;
	if (rc || !uid) {
		log_error("the record of the last move cannot be read: %s",
			  rc ? err.msg : "no migrationUid");
		return;
	}
	struct move *m = mem_alloc(sizeof(*m));

	if (!m) {
		log_error("out of memory: the last move is not known");
		return;
	}
	m->l = l;
	snprintf(m->uid, sizeof(m->uid), "%s", uid);
	m->role = str_eq(js_get_str(j, "role"), "target") ? MIG_TARGET : MIG_SOURCE;
	m->phase = m->role == MIG_TARGET ? MP_PREPARING : MP_SETUP;
	for (int i = 0; i < MP__MAX; i++)
		if (str_eq(phase, phase_names[i]))
			m->phase = (enum move_phase)i;
	/* A link of post-copy that is lost is made again by whoever is here then. */
	if (js_get_str(j, "address"))
		snprintf(m->address, sizeof(m->address), "%s", js_get_str(j, "address"));
	m->epoch = js_get_int(j, "epoch", -1);
	m->released = js_get_bool(j, "released", false);
	m->resumed = js_get_bool(j, "resumed", false);
	m->post_copy_asked = js_get_bool(j, "postCopy", false);
	m->is_split = js_get_bool(j, "split", false);
	if (m->released && !m->is_split) /* written before the phase: it had completed, whatever
					  * QEMU does from now on */
		m->phase = MP_COMPLETED;
	else if (m->released && m->phase != MP_COMPLETED)
		m->phase = MP_POSTCOPY; /* QEMU is asked whether the link holds */
	/* Perhaps: a cancel that comes before QEMU was asked must reach it, and does no harm if not. */
	m->migrate_sent = m->role == MIG_SOURCE;
	m->was_paused = js_get_bool(j, "wasPaused", false);
	m->stop_at = (usec_t)js_get_int(j, "stopAt", 0);
	m->stats.downtime_ms = m->stats.elapsed_ms = -1;
	ignore_rc(mig_options_decode(NULL, &m->options, NULL)); /* the defaults: cannot fail */
	m->downtime_limit_ms = MIN(m->options.initial_downtime_ms, m->options.downtime_limit_ms);
	if (js_get_bool(j, "finishing", false))
		move_set_finishing(
			m, js_get_int(j, "switchoverTimeoutMs", m->options.switchover_timeout_ms));
	for (size_t i = 0; i < l->spec->n_disks; i++)
		if (l->spec->disks[i]
			    .moves) /* memory only starts to move when all copies are in step */
			m->disks[m->n_disks++] = (struct move_disk){.index = i, .ready = true};
	l->move = m;
	if (move_is_over(m)) /* should its key have outlived the launcher that ended it */
		move_remove_key(m);
}

/* --- one-time keys --- */

/* The group ffdhe2048 of RFC 7919.  Without this file QEMU makes a group of its own for each server
 * credential, which took from 0.2 to 2.3 seconds of a move.  TLS 1.3 does not use it. */
static const char dh_params[] = "-----BEGIN DH PARAMETERS-----\n"
				"MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz\n"
				"+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a\n"
				"87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7\n"
				"YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi\n"
				"7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD\n"
				"ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==\n"
				"-----END DH PARAMETERS-----\n";

static enum rc write_cred(const struct move *m, const char *file, const char *text, struct err *err)
{
	char name[100], path[PATH_LEN];

	snprintf(name, sizeof(name), "creds/%s/%s", m->uid, file);
	path_in(m->l, name, path);
	enum rc rc = record_swap(path, text, strlen(text), 0640, err);

	if (!rc && chown(path, 0, (gid_t)m->l->spec->gid) < 0)
		rc = err_set_sys(err, errno, "cannot own '%s'", path);
	return rc;
}

bool move_has_fast_aes(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#else
	return false; /* not known: GnuTLS's own order is safe everywhere */
#endif
}

/* <dir>/creds/<uid>/keys.psk, readable by the VM's gid; QEMU sees it below /creds. */
enum rc move_write_key(struct move *m, char dir_in_jail[80], struct err *err)
{
	char name[100], path[PATH_LEN], line[256];

	snprintf(name, sizeof(name), "creds/%s", m->uid);
	path_in(m->l, name, path);
	if (mkdir(path, 0750) < 0 && errno != EEXIST)
		return err_set_sys(err, errno, "cannot make '%s'", path);
	if (chown(path, 0, (gid_t)m->l->spec->gid) < 0)
		return err_set_sys(err, errno, "cannot own '%s'", path);
	snprintf(line, sizeof(line), "%s:%s\n", m->tls.user, m->tls.key);
	enum rc rc = write_cred(m, "keys.psk", line, err);

	explicit_bzero(line, sizeof(line));
	if (!rc)
		rc = write_cred(m, "dh-params.pem", dh_params, err);
	snprintf(dir_in_jail, 80, "%s/%s", QEMU_JAIL_CREDS, m->uid);
	return rc;
}

void move_remove_key(struct move *m)
{
	char name[100], path[PATH_LEN];
	struct err err = {0};

	explicit_bzero(m->tls.key, sizeof(m->tls.key));
	snprintf(name, sizeof(name), "creds/%s", m->uid);
	path_in(m->l, name, path);
	if (file_remove_tree(path, &err))
		log_warn("move '%s': its key file stays: %s", m->uid, err.msg);
}

/* --- making and ending --- */

static enum rc check_params(const struct json *params, struct err *err)
{
	static const char *const known[] = {"migrationUid", "address", "port", "nbdPort",
					    "tls",	    "options", "disks"};

	JS_FOREACH(it, params) {
		bool found = false;

		for (size_t i = 0; i < ARRAY_SIZE(known); i++)
			found |= str_eq(it.key, known[i]);
		if (!found)
			return err_set(err, RC_INVALID, "%s: unknown member", it.key);
	}
	return RC_OK;
}

static bool is_uid(const char *s)
{
	return s && *s && strlen(s) <= 64 && s[0] != '-' &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") ==
		       strlen(s);
}

/* What the target waits for is what this side copies, or its guest would find an empty disk. */
static enum rc check_disks(const struct move *m, const struct json *wanted, struct err *err)
{
	size_t n = js_len(wanted);

	if (!wanted)
		return RC_OK;
	for (size_t i = 0; i < m->n_disks; i++) {
		const char *name = m->l->spec->disks[m->disks[i].index].name;
		bool found = false;

		for (size_t k = 0; k < n; k++)
			found |= str_eq(js_str(js_item(wanted, k)), name);
		if (!found)
			return err_set(err, RC_CONFLICT, "the target does not take disk '%s'",
				       name);
	}
	return n <= m->n_disks
		       ? RC_OK
		       : err_set(err, RC_CONFLICT,
				 "the target waits for %zu disks, and %zu go along: the VM was "
				 "started by a Ferry that did not move claims, and has to be "
				 "restarted once",
				 n, m->n_disks);
}

enum rc move_new(struct launcher *l, enum mig_role role, const struct json *params,
		 struct move **out, struct err *err)
{
	const char *uid = js_get_str(params, "migrationUid"),
		   *address = js_get_str(params, "address");
	int64_t port = js_get_int(params, "port", 49152),
		nbd = js_get_int(params, "nbdPort", 49153);
	enum rc rc = check_params(params, err);

	if (!rc && !is_uid(uid))
		rc = err_set(err, RC_INVALID, "migrationUid: letters, digits and '-' only");
	if (!rc && !mig_is_address(address))
		rc = err_set(err, RC_INVALID, "address: must be an IPv4 or IPv6 address");
	if (!rc && (port < 1 || port > 65535 || nbd < 1 || nbd > 65535))
		rc = err_set(err, RC_INVALID, "port, nbdPort: must be in 1..65535");
	if (rc)
		return rc;
	struct move *m = mem_alloc(sizeof(*m));

	if (!m)
		return err_set(err, RC_NOMEM, "out of memory");
	m->l = l;
	m->role = role;
	m->phase = role == MIG_SOURCE ? MP_SETUP : MP_PREPARING;
	m->at = loop_realtime(l->loop);
	m->port = (int)port;
	m->nbd_port = (int)nbd;
	m->epoch = -1;
	m->stats.downtime_ms = m->stats.elapsed_ms = m->stats.setup_ms =
		m->stats.expected_downtime_ms = -1;
	snprintf(m->uid, sizeof(m->uid), "%s", uid);
	snprintf(m->address, sizeof(m->address), "%s", address);
	for (size_t i = 0; i < l->spec->n_disks; i++)
		if (l->spec->disks[i].moves)
			m->disks[m->n_disks++].index = i;
	rc = mig_tls_decode(js_get(params, "tls"), &m->tls, err);
	if (!rc)
		rc = mig_options_decode(js_get(params, "options"), &m->options, err);
	/* Both sides know the same disks: a move that copies some stays pre-copy. */
	m->options.post_copy &= m->n_disks == 0;
	if (!rc && role == MIG_SOURCE)
		rc = check_disks(m, js_get(params, "disks"), err);
	if (rc) {
		move_free(m);
		return rc;
	}
	*out = m;
	return RC_OK;
}

void move_fail_call(struct ipc_call **slot, enum rc rc, const char *why)
{
	struct ipc_call *call = STEAL(*slot);

	if (call)
		ipc_call_fail(call, rc, "%s", why);
}

void move_free(struct move *m)
{
	if (!m)
		return;
	move_fail_call(&m->call, RC_CLOSED, "the launcher ends");
	move_fail_call(&m->resume_call, RC_CLOSED, "the launcher ends");
	move_fail_call(&m->continue_call, RC_CLOSED, "the launcher ends");
	move_fail_call(&m->recover_call, RC_CLOSED, "the launcher ends");
	qmp_seq_free(m->seq);
	qmp_seq_free(m->clean);
	qmp_slot_free(m->stats_slot);
	qmp_slot_free(m->migrate_slot);
	qmp_slot_free(m->recover_slot);
	ev_src_free(m->progress);
	ev_src_free(m->deadline);
	ev_src_free(m->poll);
	ev_src_free(m->old_poll);
	ev_src_free(m->resume_deadline);
	js_unref(m->parameters);
	mem_free(m);
}

struct move_names move_disk_names(const struct move *m, const struct move_disk *d)
{
	unsigned tag = (unsigned)str_hash(m->uid, strlen(m->uid));
	struct move_names n;

	snprintf(n.job, sizeof(n.job), "move%zu-%08x", d->index % 1000, tag);
	snprintf(n.node, sizeof(n.node), "nbd%zu-%08x", d->index % 1000, tag);
	snprintf(n.export, sizeof(n.export), "disk%zu-%08x", d->index % 1000, tag);
	return n;
}

static void on_cleaned(const struct qmp_seq_result *r, void *arg)
{
	struct move *m = arg;

	if (r->rc)
		log_debug("move '%s': cleaning up: %s", m->uid, r->desc);
}

void move_clean(struct move *m)
{
	struct qmp_seq *s = NULL;
	struct err err = {0};

	move_remove_key(m);
	if (!m->l->qmp || m->clean || qmp_seq_new(&s, QMP_TIMEOUT, &err))
		return;
	for (size_t i = 0; i < m->n_disks && m->role == MIG_SOURCE; i++) {
		struct move_names n = move_disk_names(m, &m->disks[i]);

		/* A job that still runs keeps its node: then that goes when the job's end is told. */
		qmp_seq_add(s, "block-job-cancel",
			    js_pack("{s:s, s:b}", "device", n.job, "force", 1), SEQ_MAY_FAIL);
		qmp_seq_add(s, "blockdev-del", js_pack("{s:s}", "node-name", n.node), SEQ_MAY_FAIL);
	}
	if (m->n_disks && m->role == MIG_TARGET)
		qmp_seq_add_plain(s, "nbd-server-stop", SEQ_MAY_FAIL);
	qmp_seq_add(s, "migrate-set-parameters", js_pack("{s:s}", "tls-creds", ""), SEQ_MAY_FAIL);
	qmp_seq_add(s, "object-del", js_pack("{s:s}", "id", MIG_TLS_ID), SEQ_MAY_FAIL);
	if (qmp_seq_run(s, &m->clean, m->l->qmp, on_cleaned, m, &err))
		log_warn("move '%s': cannot clean up QEMU: %s", m->uid, err.msg);
}

/* --- what the VM's side asks --- */

void move_event(struct launcher *l, const char *name, const struct json *data, usec_t at)
{
	if (!l->move)
		return;
	if (l->move->role == MIG_SOURCE)
		out_event(l->move, name, data, at);
	else
		in_event(l->move, name, data, at);
}

void move_waited(struct move *m, usec_t until)
{
	if (m->waits_at && until > m->waits_at)
		m->waited_us = until - m->waits_at;
}

bool move_owns_stop(struct launcher *l)
{
	struct move *m = l->move;

	if (!m || m->role != MIG_SOURCE || move_is_over(m) || m->phase == MP_SETUP ||
	    m->phase == MP_DISKS)
		return m && move_is_waiting_target(l);
	if (l->io_error) { /* not the switch: the guest stands for another reason, and moves standing */
		m->was_paused = true;
		l->io_error = false;
	}
	m->stop_at = l->last_stop;
	out_stands(m);
	return true;
}

bool move_owns_resume(struct launcher *l)
{
	struct move *m = l->move;

	if (!m || move_is_over(m) || (m->role == MIG_TARGET && move_is_split(m)))
		return false;
	if (m->role == MIG_TARGET) {
		m->resume_at = l->last_resume;
		move_waited(m, m->resume_at);
		vm_move(l, VME_RUNS, "MigrationResumed");
		return true;
	}
	if (m->phase == MP_SETUP || m->phase == MP_DISKS)
		return false;
	/* The source goes on by itself after a cancel or a failure; which of the two is told right after. */
	m->resume_at = l->last_resume;
	vm_move(l, VME_RUNS, "MigrationFailed");
	return true;
}

bool move_is_waiting_target(const struct launcher *l)
{
	return l->move && l->move->role == MIG_TARGET && !move_is_over(l->move) &&
	       !move_is_split(l->move); /* in post-copy it is the VM, like any other */
}

static void on_adopt_query(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (r->rc)
		return; /* the monitor is gone again: asked again after the next connection */
	mig_stats_parse(r->value, &m->stats);
	m->adopting = true;
	if (m->role == MIG_SOURCE)
		out_adopt(m, r->value, vm_state_name(m->l->state));
	else
		in_adopt(m, r->value, vm_state_name(m->l->state));
}

void move_adopt(struct launcher *l, const char *run_state)
{
	struct move *m = l->move;
	struct qmp_call c = {
		.command = "query-migrate", .timeout = QMP_TIMEOUT, .fn = on_adopt_query, .arg = m};
	struct err err = {0};

	if (!m || m->phase == MP_CANCELLED || m->phase == MP_FAILED || m->phase == MP_RESUMED)
		return;
	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (qmp_invoke(l->qmp, &m->stats_slot, &c, &err))
		log_warn("move '%s': cannot ask QEMU about it: %s", m->uid, err.msg);
}

void move_monitor_lost(struct launcher *l)
{
	struct move *m = l->move;

	if (!m)
		return;
	m->stats_slot = qmp_slot_free(m->stats_slot);
	m->migrate_slot = qmp_slot_free(m->migrate_slot);
	m->seq = qmp_seq_free(m->seq);
	m->clean = qmp_seq_free(m->clean);
	move_fail_call(&m->call, RC_CLOSED, "QEMU's monitor closed");
	move_fail_call(&m->resume_call, RC_CLOSED, "QEMU's monitor closed");
	move_fail_call(&m->continue_call, RC_CLOSED, "QEMU's monitor closed");
	pc_monitor_lost(m);
}

void move_qemu_gone(struct launcher *l)
{
	struct move *m = l->move;

	if (!m)
		return;
	move_monitor_lost(l);
	if (!move_is_over(m)) {
		move_set_failure(m, "QemuDied", "QEMU ended while the VM moved");
		move_step(m, MP_FAILED);
	}
	move_remove_key(m);
}
