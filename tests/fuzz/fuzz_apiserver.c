/* Requests to an API server in this process, several per input, with KubeVirt's admission: nothing
 * crashes, each is answered, and what is stored stays whole.
 *
 * Input: blocks "METHOD target\ncontent-type\naccept\nbody", between lines "--".
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/apiserver/apisrv.h"
#include "cluster/apiserver/store.h"
#include "ev/ev.h"
#include "fuzz.h"
#include "json/json.h"
#include "virt/admission/admission.h"

enum { MAX_REQUESTS = 8 };

struct server {
	struct loop *loop;
	struct store *store;
	struct apisrv *srv;
	int open;
};

struct reply {
	struct server *s;
	struct apisrv_call *call;
	bool done, streaming;
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void on_answer(void *arg, const struct apisrv_answer *a)
{
	struct reply *r = arg;

	must(!r->done && !r->streaming && a->status >= 200 && a->status < 600);
	must(a->n == 0 || a->body);
	r->done = true;
}

static void on_begin(void *arg, int status, const char *type, size_t backlog)
{
	struct reply *r = arg;

	must(!r->done && !r->streaming && status == 200 && type && backlog);
	r->streaming = true;
}

static enum rc on_write(void *arg, const void *bytes, size_t n)
{
	struct reply *r = arg;

	must(r->streaming && !r->done && bytes && n);
	return RC_OK;
}

static void on_end(void *arg)
{
	struct reply *r = arg;

	must(r->streaming && !r->done);
	r->done = true;
}

static const struct apisrv_sink sink = {.answer = on_answer,
					.stream_begin = on_begin,
					.stream_write = on_write,
					.stream_end = on_end};

static void settle(struct server *s)
{
	bool did = true;

	for (int i = 0; i < 100000 && did; i++)
		must(loop_step(s->loop, 0, &did, NULL) == RC_OK);
	must(!did);
}

/* Cuts the next line (or, for sep "\n--\n", block) off the front of *text. */
static char *cut(char **text, const char *sep)
{
	char *start = *text, *end = start ? strstr(start, sep) : NULL;

	if (!start)
		return NULL;
	if (end) {
		*end = '\0';
		*text = end + strlen(sep);
	} else {
		*text = NULL;
	}
	return start;
}

static void request(struct server *s, struct reply *r, char *block)
{
	static const char *const masters[] = {"system:masters"}, *const nodes[] = {"system:nodes"};
	static const struct apisrv_user admin = {.name = "admin", .n_groups = 1, .groups = masters};
	static const struct apisrv_user node = {
		.name = "system:node:n1", .n_groups = 1, .groups = nodes};
	/* whoever has the rights that earlier requests gave him, and who asks as another */
	static const struct apisrv_user jane = {.name = "jane"}, joe = {.name = "joe"};
	char *head = cut(&block, "\n"), *type = cut(&block, "\n"), *accept = cut(&block, "\n");
	char *target = head ? strchr(head, ' ') : NULL;

	if (!target)
		return;
	*target++ = '\0';
	struct apisrv_request req = {
		.method = head,
		.target = target,
		.content_type = type,
		.accept = accept,
		.body = block,
		.n_body = block ? strlen(block) : 0,
		.user = strlen(target) % 5 == 0	  ? &node
			: strlen(target) % 7 == 0 ? &jane
						  : &admin,
		.as = strlen(target) % 11 == 0 ? &joe : NULL,
	};

	r->s = s;
	r->call = apisrv_handle(s->srv, &req, &sink, r);
	settle(s);
	/* Writes are durable by now: only watches are still open. */
	must(r->done || r->streaming);
}

static void check_store(struct server *s)
{
	static const char *const tables[] = {"configmaps", "pods", "services", "namespaces",
					     "virtualmachines.kubevirt.io"};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		struct store_iter it;
		struct obj *o;

		store_iter_init(&it, s->store, tables[i], NULL);
		while ((o = store_iter_next(&it))) {
			struct json *j = NULL;
			size_t n;
			const char *text = obj_text(o, &n);

			must(js_parse(text, n, &j, NULL) == RC_OK);
			must(js_str(js_at(j, "metadata", "uid", NULL)) != NULL);
			js_unref(j);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct reply replies[MAX_REQUESTS] = {0};
	struct server s = {0};
	char *text = mem_alloc(size + 1), *rest = text;
	const struct apisrv_hooks hooks = {.n_admission = n_virt_admission,
					   .admission = virt_admission};

	must(text != NULL);
	memcpy(text, data, size);
	must(loop_new(&s.loop, LOOP_VIRTUAL, NULL) == RC_OK);
	must(store_open(&s.store, s.loop, NULL, NULL) == RC_OK);
	const struct apisrv_config config = {.store = s.store, .hooks = &hooks, .seed = 1};

	must(apisrv_new(&s.srv, s.loop, &config, NULL) == RC_OK);
	settle(&s);
	for (int i = 0; i < MAX_REQUESTS && rest; i++)
		request(&s, &replies[i], cut(&rest, "\n--\n"));
	check_store(&s);
	apisrv_drain(s.srv);
	for (int i = 0; i < MAX_REQUESTS; i++)
		must(!replies[i].streaming || replies[i].done);
	apisrv_free(s.srv);
	store_close(s.store);
	loop_free(s.loop);
	mem_free(text);
	must(mem_live_blocks() == 0);
	return 0;
}
