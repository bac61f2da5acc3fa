/* tests/unit/kube/fake_stage.h - a scripted API server with a client and a cache over it, for what reads and writes objects. */
#ifndef TESTS_KUBE_FAKE_STAGE_H
#define TESTS_KUBE_FAKE_STAGE_H

#include "api/api.h"
#include "ev/ev.h"
#include "fake.h"
#include "kube/kcache.h"

struct fake_stage {
	struct loop *loop;
	struct fake fake;
	struct kube *kube;
	struct kcache *cache;
	int version; /* the last one that was given; whoever gives one counts it up */
};

/* The cache has nothing but these kinds, and none of them yet; whatever fails fails the test, here and below. */
void fake_stage_init(struct fake_stage *s, enum loop_kind kind, const struct api_kind *const *kinds,
		     size_t n);
void fake_stage_fini(struct fake_stage *s);

/* Into the cache; ' in the text is ". */
void fake_stage_put(struct fake_stage *s, const struct api_kind *kind, const char *text);
/* A node's lease, with a version of its own. */
void fake_stage_put_lease(struct fake_stage *s, const char *node, const char *renewed);
/* The open read of that node's lease. */
void fake_stage_answer_lease(struct fake_stage *s, const char *node, const char *renewed);

/* Until nothing is left to be done now. */
void fake_stage_settle(struct fake_stage *s);
void fake_stage_wait(struct fake_stage *s, usec_t delay);

#endif
