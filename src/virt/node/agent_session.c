#include "virt/node/agent_session.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/join.h"
#include "http/ws.h"
#include "virt/node/agent_answer.h"

struct session {
	struct list link;
	char *vm; /* "ns/name" */
	struct http_join *join;
};

static void session_free(struct session *s)
{
	list_remove(&s->link);
	http_join_free(s->join);
	mem_free(s->vm);
	mem_free(s);
}

static void on_end(struct http_join *j, enum rc rc, const char *text, void *arg)
{
	(void)j;
	(void)rc;
	(void)text;
	session_free(arg);
}

static struct session *find(const struct agent_sessions *s, const char *vm)
{
	LIST_FOREACH(it, &s->all) {
		struct session *one = LIST_ENTRY(it, struct session, link);

		if (http_join_is_live(one->join) && str_eq(one->vm, vm))
			return one;
	}
	return NULL;
}

void agent_sessions_init(struct agent_sessions *s, const char *what, const char *bye)
{
	s->what = what;
	s->bye = bye;
	list_init(&s->all);
}

void agent_sessions_fini(struct agent_sessions *s)
{
	while (!list_is_empty(&s->all))
		session_free(LIST_ENTRY(s->all.next, struct session, link));
}

bool agent_sessions_has(const struct agent_sessions *s, const char *vm)
{
	return find(s, vm) != NULL;
}

void agent_sessions_open(struct agent_sessions *s, struct http_req *req, const char *vm, int fd)
{
	static const struct http_join_ops ops = {.on_end = on_end};
	struct session *one = mem_alloc(sizeof(*one)), *old = find(s, vm);
	struct err err = {0};

	if (one)
		one->vm = mem_strdup(vm);
	if (!one || !one->vm) {
		fd_close(fd);
		mem_free(one);
		agent_answer_rc(req, RC_NOMEM, "out of memory");
		return;
	}
	const struct http_join_config config = {
		.ops = &ops, .arg = one, .protocol = "plain.kubevirt.io", .bye = s->bye};

	if (http_join_upgrade(req, &one->join, fd, &config, &err)) {
		mem_free(one->vm);
		mem_free(one);
		agent_answer_rc(req, err.rc, err.msg);
		return;
	}
	list_push_tail(&s->all, &one->link);
	if (old) {
		log_info("%s of '%s': a new session replaces the old one", s->what, vm);
		http_join_close(old->join, HTTP_WS_NORMAL, "replaced by another session");
	}
}
