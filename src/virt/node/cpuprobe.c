#include "virt/node/cpuprobe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "ev/ev.h"
#include "json/json.h"
#include "qmp/qmp.h"
#include "virt/node/cpulabels.h"

extern char **environ;

struct cpuprobe {
	struct loop *loop;
	char *qemu;
	char *accel;
	char *cache_file;
	char *without;
	char *key; /* what the cached answers depend on */
	usec_t timeout;
	cpuprobe_fn fn;
	void *arg;
	struct qmp *qmp;
	struct qmp_slot *slot;
	struct ev_src *child;
	struct ev_src *timer;
	struct ev_src *later;
	pid_t pid;
	struct json *probe;
	size_t next_def;    /* index of the definition that is expanded next */
	bool also_obsolete; /* no other model is usable */
	bool asks_zstd;	    /* the answer that comes next is about it: QEMU may refuse */
	struct err err;
	enum rc rc;
};

struct cpuprobe *cpuprobe_free(struct cpuprobe *p)
{
	if (!p)
		return NULL;
	qmp_slot_free(p->slot);
	qmp_free(p->qmp);
	ev_src_free(p->timer);
	ev_src_free(p->later);
	if (p->pid > 0)
		(void)kill(p->pid, SIGKILL);
	ev_src_free(p->child);
	js_unref(p->probe);
	mem_free(p->qemu);
	mem_free(p->accel);
	mem_free(p->cache_file);
	mem_free(p->without);
	mem_free(p->key);
	return mem_free(p);
}

static void finish(void *arg)
{
	struct cpuprobe *p = arg;
	cpuprobe_fn fn = p->fn;

	p->later = ev_src_free(p->later);
	p->fn = NULL;
	if (fn)
		fn(p->rc, p->rc ? NULL : p->probe, p->rc ? &p->err : NULL, p->arg);
}

/* Ends the probe; the callback runs from the loop. */
static void done(struct cpuprobe *p, enum rc rc)
{
	if (p->later || !p->fn)
		return;
	p->rc = rc;
	p->timer = ev_src_free(p->timer);
	if (ev_defer(p->loop, &p->later, finish, p, NULL))
		finish(p);
}

static void save(struct cpuprobe *p)
{
	struct err err;

	if (!p->cache_file)
		return;
	CLEANUP(mem_freep) char *text = js_to_text(p->probe);
	enum rc rc = text ? file_write_durable(p->cache_file, text, strlen(text), 0600, &err)
			  : err_set(&err, RC_NOMEM, "out of memory");

	if (rc)
		log_warn("cannot keep the CPU probe (%s), the next start asks QEMU again", err.msg);
}

static void on_reply(const struct qmp_reply *r, void *arg);

static void call(struct cpuprobe *p, const char *command, struct json *args)
{
	struct qmp_call c = {.command = command,
			     .args = args,
			     .timeout = p->timeout,
			     .fd = -1,
			     .fn = on_reply,
			     .arg = p};
	enum rc rc = qmp_invoke(p->qmp, &p->slot, &c, &p->err);

	if (rc)
		done(p, rc);
}

static struct json *expansion(const char *type, const char *model)
{
	return js_pack("{s:s, s:{s:s}}", "type", type, "model", "name", model);
}

/* Of all that there is, without what is kept back; what depends on it goes with it, as QEMU knows. */
static struct json *host_expansion(const struct cpuprobe *p)
{
	const struct json *without = js_get(p->probe, "without");
	struct json *props = js_new_object();

	for (size_t i = 0; props && i < js_len(without); i++)
		if (js_set(props, js_str(js_item(without, i)), js_new_bool(false)))
			props = js_unref(props);
	return js_pack("{s:s, s:{s:s, s:o}}", "type", "static", "model", "name",
		       strcmp(p->accel, "kvm") == 0 ? "host" : "max", "props", props);
}

/* A model that has what is kept back, or what depends on it, cannot be given here: it says so like one that the
 * machine cannot do. */
static enum rc keep_back(const struct json *probe, struct json *def, const struct json *props)
{
	if (!js_len(js_get(probe, "without")))
		return RC_OK;
	JS_FOREACH(it, props)
		if (js_type(it.value) == JS_BOOL && js_bool(it.value, false) &&
		    cpu_feature_counts(it.key) && !cpu_feature_is_given(probe, it.key))
			TRY(js_append(js_get(def, "unavailable-features"), js_new_str(it.key)));
	return RC_OK;
}

/* Two names of one feature would slip through the comparisons. */
static enum rc check_without(struct cpuprobe *p, const struct json *props)
{
	const struct json *without = js_get(p->probe, "without");

	for (size_t i = 0; i < js_len(without); i++)
		if (!js_get(props, js_str(js_item(without, i))))
			return err_set(&p->err, RC_INVALID,
				       "QEMU has no CPU feature that it calls '%s'",
				       js_str(js_item(without, i)));
	return RC_OK;
}

/* Only what can become the host-model is expanded: "X-v1" is what "X" is, and obsolete models are looked at
 * when there is nothing else.  Where features are kept back, each model is looked at. */
static bool is_candidate(const struct cpuprobe *p, const char *name)
{
	size_t n = strlen(name);

	if (js_len(js_get(p->probe, "without")))
		return cpu_model_is_usable(p->probe, name);
	return cpu_model_is_usable(p->probe, name) &&
	       !(n > 3 && strcmp(name + n - 3, "-v1") == 0) &&
	       (p->also_obsolete || !cpu_model_is_obsolete(name));
}

/* Candidates are expanded one after the other, then the probe is whole. */
static void expand_next(struct cpuprobe *p)
{
	const struct json *defs = js_get(p->probe, "definitions");

	for (; p->next_def < js_len(defs); p->next_def++) {
		const char *name = js_get_str(js_item(defs, p->next_def), "name");

		if (name && is_candidate(p, name)) {
			call(p, "query-cpu-model-expansion", expansion("static", name));
			return;
		}
	}
	if (!js_len(js_get(p->probe, "models")) && !p->also_obsolete) {
		p->also_obsolete = true;
		p->next_def = 0;
		expand_next(p);
		return;
	}
	if (js_set(p->probe, "key", js_new_str(p->key))) {
		done(p, err_set(&p->err, RC_NOMEM, "out of memory"));
		return;
	}
	save(p);
	call(p, "quit", NULL);
}

/* QEMU tells the vendor only with values that no JSON integer holds (lbr-fmt, 2^64 - 64), so it is asked
 * elsewhere.  Emulation is the same on every machine: QEMU's "max" calls itself AMD. */
static void cpu_vendor(const struct cpuprobe *p, char out[32])
{
	CLEANUP(mem_freep) char *text = NULL;
	size_t n = 0;

	(void)snprintf(out, 32, "AuthenticAMD");
	if (strcmp(p->accel, "kvm") != 0 ||
	    file_read("/proc/cpuinfo", LIMIT_FILE_BYTES, &text, &n, NULL))
		return;
	const char *at = strstr(text, "vendor_id");

	at = at ? strchr(at, ':') : NULL;
	if (at)
		(void)snprintf(out, 32, "%.*s", (int)MIN(strcspn(at + 2, "\n"), 31), at + 2);
}

/* Keeps one answer under the name that cpulabels.h documents, and asks for the next. */
static enum rc take(struct cpuprobe *p, const struct json *value)
{
	struct json *probe = p->probe;
	const struct json *props = js_at(value, "model", "props", NULL);

	if (!js_get(probe, "capabilities")) {
		TRY(js_set(probe, "capabilities", js_copy(value)));
		p->asks_zstd = true;
		call(p, "migrate-set-parameters", js_pack("{s:s}", "multifd-compression", "zstd"));
	} else if (!js_get(probe, "machines")) {
		TRY(js_set(probe, "machines", js_ref(value)));
		call(p, "query-cpu-definitions", NULL);
	} else if (!js_get(probe, "definitions")) {
		TRY(js_set(probe, "definitions", js_copy(value)));
		call(p, "query-cpu-model-expansion", host_expansion(p));
	} else if (!js_get(probe, "host")) {
		char vendor[32];

		TRY(check_without(p, props));
		cpu_vendor(p, vendor);
		TRY(js_set(probe, "host", js_copy(props)));
		TRY(js_set(js_get(probe, "host"), "vendor", js_new_str(vendor)));
		TRY(js_set(probe, "models", js_new_object()));
		expand_next(p);
	} else if (p->next_def < js_len(js_get(probe, "definitions"))) {
		struct json *def = js_item(js_get(probe, "definitions"), p->next_def++);

		TRY(js_set(js_get(probe, "models"), js_get_str(def, "name"), js_ref(props)));
		TRY(keep_back(probe, def, props));
		expand_next(p);
	} else {
		done(p, RC_OK); /* the answer to quit */
	}
	return RC_OK;
}

static void on_reply(const struct qmp_reply *r, void *arg)
{
	struct cpuprobe *p = arg;

	p->slot = qmp_slot_free(p->slot);
	if (p->asks_zstd && r->rc != RC_CLOSED && r->rc != RC_TIMEOUT) {
		p->asks_zstd = false;
		if (js_set(p->probe, "zstd", js_new_bool(!r->rc)))
			done(p, err_set(&p->err, RC_NOMEM, "out of memory"));
		else
			call(p, "query-machines", NULL);
	} else if (r->rc)
		done(p, err_set(&p->err, r->rc, "QEMU does not tell its CPUs: %s", r->desc));
	else if (take(p, r->value))
		done(p, p->err.rc ? p->err.rc : err_set(&p->err, RC_NOMEM, "out of memory"));
}

static void on_ready(const struct json *greeting, void *arg)
{
	struct cpuprobe *p = arg;
	char text[48];
	int v[3];

	(void)greeting;
	qmp_version(p->qmp, v);
	(void)snprintf(text, sizeof(text), "%d.%d.%d", v[0], v[1], v[2]);
	if (js_set(p->probe, "version", js_new_str(text)))
		done(p, err_set(&p->err, RC_NOMEM, "out of memory"));
	else
		call(p, "query-migrate-capabilities", NULL);
}

static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct cpuprobe *p = arg;

	done(p, err_set(&p->err, rc ? rc : RC_IO, "QEMU ended while it was asked for its CPUs: %s",
			why));
}

static void on_timeout(void *arg)
{
	struct cpuprobe *p = arg;

	done(p, err_set(&p->err, RC_TIMEOUT, "QEMU did not tell its CPUs within %llu s",
			(unsigned long long)(p->timeout / USEC_PER_SEC)));
}

static void on_child(pid_t pid, int status, void *arg)
{
	struct cpuprobe *p = arg;

	(void)pid;
	(void)status;
	p->pid = 0;
	p->child = ev_src_free(p->child);
	/* The monitor's end of file tells the rest. */
}

static enum rc spawn_qemu(struct cpuprobe *p, int fd, struct err *err)
{
	const char *argv[] = {p->qemu,
			      "-machine",
			      "none",
			      "-nodefaults",
			      "-display",
			      "none",
			      "-accel",
			      p->accel,
			      "-S",
			      "-chardev",
			      "socket,id=mon,fd=3",
			      "-mon",
			      "chardev=mon,mode=control",
			      NULL};
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&fa, fd, 3);
	int r = posix_spawn(&p->pid, p->qemu, &fa, &attr, (char *const *)argv, environ);

	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&attr);
	if (r) {
		p->pid = 0;
		return err_set_sys(err, r, "cannot start '%s'", p->qemu);
	}
	return ev_child(p->loop, &p->child, p->pid, on_child, p, err);
}

static struct json *names_of(const char *text)
{
	struct json *list = js_new_array();
	struct str rest = str_of(text ? text : "");

	while (list && rest.p) {
		struct str name = str_split(&rest, ',');

		if (name.n && js_append(list, js_new_strn(name.p, name.n)))
			list = js_unref(list);
	}
	return list;
}

static enum rc ask_qemu(struct cpuprobe *p, struct err *err)
{
	static const struct qmp_ops ops = {.on_ready = on_ready, .on_closed = on_closed};
	int sv[2];

	p->probe = js_pack("{s:s, s:o}", "accel", p->accel, "without", names_of(p->without));
	if (!p->probe)
		return err_set(err, RC_NOMEM, "out of memory");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return err_set_sys(err, errno, "cannot make a socket pair");
	/* dup2 onto the same number would keep close-on-exec: stay clear of 3. */
	CLEANUP(fd_closep) int theirs = fcntl(sv[1], F_DUPFD_CLOEXEC, 10);

	close(sv[1]);
	enum rc rc = theirs < 0 ? err_set_sys(err, errno, "cannot duplicate a descriptor")
				: spawn_qemu(p, theirs, err);

	if (rc) {
		close(sv[0]);
		return rc;
	}
	rc = qmp_new(&p->qmp, p->loop, sv[0], p->timeout, &ops, p, err);
	return rc ? rc : ev_timer_after(p->loop, &p->timer, p->timeout, on_timeout, p, err);
}

static enum rc make_key(struct cpuprobe *p, struct err *err)
{
	struct stat st;
	struct utsname u;

	if (stat(p->qemu, &st) < 0)
		return err_set_sys(err, errno, "cannot find QEMU at '%s'", p->qemu);
	(void)uname(&u);
	p->key = mem_printf("3 %s %s %lld %lld %s %s", p->accel, p->qemu, (long long)st.st_size,
			    (long long)st.st_mtim.tv_sec, u.release, p->without);
	return p->key ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

static bool load_cached(struct cpuprobe *p)
{
	CLEANUP(mem_freep) char *text = NULL;
	struct json *j = NULL;
	size_t n = 0;

	if (!p->cache_file || file_read(p->cache_file, LIMIT_FILE_BYTES, &text, &n, NULL) ||
	    js_parse(text, n, &j, NULL))
		return false;
	if (!str_eq(js_get_str(j, "key"), p->key)) {
		js_unref(j);
		return false;
	}
	p->probe = j;
	return true;
}

enum rc cpuprobe_start(struct cpuprobe **out, struct loop *loop,
		       const struct cpuprobe_config *config, cpuprobe_fn fn, void *arg,
		       struct err *err)
{
	CLEANUP(cpuprobe_freep) struct cpuprobe *p = mem_alloc(sizeof(*p));

	if (!p)
		return err_set(err, RC_NOMEM, "out of memory");
	p->loop = loop;
	p->timeout = config->timeout;
	p->fn = fn;
	p->arg = arg;
	p->qemu = mem_strdup(config->qemu);
	p->accel = mem_strdup(config->accel);
	p->cache_file = mem_strdup(config->cache_file);
	p->without = mem_strdup(config->without ? config->without : "");
	if (!p->qemu || !p->accel || !p->without || (config->cache_file && !p->cache_file))
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = make_key(p, err);

	if (rc)
		return rc;
	if (load_cached(p))
		done(p, RC_OK);
	else
		rc = ask_qemu(p, err);
	if (rc)
		return rc;
	*out = STEAL(p);
	return RC_OK;
}
