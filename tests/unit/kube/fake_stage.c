#include "fake_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "api/gen/api_types.h"
#include "base/mem.h"
#include "json/json.h"
#include "kube/kobj.h"

void fake_stage_init(struct fake_stage *s, enum loop_kind kind, const struct api_kind *const *kinds,
		     size_t n)
{
	memset(s, 0, sizeof(*s));
	assert_int_equal(loop_new(&s->loop, kind, NULL), RC_OK);
	assert_int_equal(kube_new_over(&s->kube, s->loop, &fake_transport, &s->fake, NULL), RC_OK);
	assert_int_equal(kcache_new(&s->cache, NULL, NULL, NULL, NULL), RC_OK);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(
			kcache_add(s->cache, &(struct kcache_source){.kind = kinds[i]}, NULL),
			RC_OK);
}

void fake_stage_fini(struct fake_stage *s)
{
	kcache_free(s->cache);
	kube_free(s->kube);
	loop_free(s->loop);
}

void fake_stage_put(struct fake_stage *s, const struct api_kind *kind, const char *text)
{
	CLEANUP(mem_freep) char *copy = mem_strdup(text);
	CLEANUP(js_unrefp) struct json *j = NULL;
	struct kobj *o = NULL;
	struct err err = {0};

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	if (js_parse(copy, strlen(copy), &j, &err) || kobj_decode(&o, kind, j, &err) ||
	    kcache_put(s->cache, o, &err))
		fail_msg("%s in %s", err.msg, text);
}

void fake_stage_put_lease(struct fake_stage *s, const char *node, const char *renewed)
{
	char text[300];

	(void)snprintf(text, sizeof(text),
		       "{'metadata':{'name':'%s','namespace':'kube-node-lease','uid':'l-%s',"
		       "'resourceVersion':'%d'},'spec':{'renewTime':'%s'}}",
		       node, node, ++s->version, renewed);
	fake_stage_put(s, &api_kind_Lease, text);
}

void fake_stage_answer_lease(struct fake_stage *s, const char *node, const char *renewed)
{
	char path[200];

	(void)snprintf(path, sizeof(path),
		       "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/%s",
		       node);
	fake_answer(fake_find(&s->fake, path), 200,
		    "{\"kind\":\"Lease\",\"spec\":{\"renewTime\":\"%s\"}}", renewed);
	fake_stage_settle(s);
}

void fake_stage_settle(struct fake_stage *s)
{
	bool did = true;

	while (did)
		assert_int_equal(loop_step(s->loop, 0, &did, NULL), RC_OK);
}

static void on_time(void *arg)
{
	*(bool *)arg = true;
}

void fake_stage_wait(struct fake_stage *s, usec_t delay)
{
	struct ev_src *timer = NULL;
	bool over = false;

	assert_int_equal(ev_timer_after(s->loop, &timer, delay, on_time, &over, NULL), RC_OK);
	while (!over)
		assert_int_equal(loop_step(s->loop, USEC_INFINITY, NULL, NULL), RC_OK);
	ev_src_free(timer);
	fake_stage_settle(s);
}
