/* tests/unit/admission/fake_hooks.h - a small cluster in memory behind lib/hook. */
#ifndef TESTS_FAKE_HOOKS_H
#define TESTS_FAKE_HOOKS_H

#include "hook/hook.h"
#include "json/json.h"

/* One answered request of a subresource. */
struct hook_call {
	struct hook_env *env;
	struct apisrv_user user;
	const char *ns, *name, *rest, *version, *body;
	const char *params[8]; /* name, value, ... NULL */
	/* What came of it. */
	bool is_answered;
	int status;
	char text[2048]; /* message of a Status, or the body */
	char content_type[64];
	struct json *reply;
};

struct hook_env {
	struct json *objects; /* {"<resource>": [obj, ...]} */
	struct json *config;  /* KubeVirt's spec.configuration */
	usec_t now;
	char warnings[1024];
	/* Requests that a subresource made: method, target, body as text; answers for them in turn. */
	size_t n_requests;
	struct {
		enum hook_as as;
		char method[8], target[256], type[64], body[1024];
	} requests[8];
	int answers[8];
	const char *answer_bodies[8];
};

/* JSON with single quotes for double ones. */
struct json *json_of(const char *text);
void env_init(struct hook_env *e);
void env_fini(struct hook_env *e);
void env_add(struct hook_env *e, const char *resource, const char *object);

#endif
