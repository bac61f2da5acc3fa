/* tests/unit/admission/fake_hooks.h - a small cluster in memory behind lib/hook. */
#ifndef TESTS_FAKE_HOOKS_H
#define TESTS_FAKE_HOOKS_H

#include "hook/hook.h"
#include "json/json.h"

struct http_req;

/* One call of a subresource and what came of it. */
struct hook_call {
	struct hook_env *env;
	const char *ns, *name, *body, *rest;
	const char *query; /* one parameter, "name=value"; NULL: none */
	struct http_req *http;
	void *data;
	void (*cancel)(struct hook_call *call);
	bool is_answered, is_upgraded;
	int status;
	char text[2048];   /* message of a Status, or the JSON of the body */
	size_t n_bytes;	   /* of an answer in bytes; text has the first of them */
	hook_then_fn then; /* of the request that waits for call_deliver() */
};

struct hook_env {
	struct json *objects; /* {"<resource>": [obj, ...]} */
	struct json *config;  /* KubeVirt's spec.configuration */
	usec_t now;
	char warnings[1024];
	void *arg; /* hook_arg() */
	/* The requests that calls made: "PATCH <target> <body>" */
	size_t n_requests;
	char requests[16][1024];
};

/* JSON with single quotes for double ones. */
struct json *json_of(const char *text);
void env_init(struct hook_env *e);
void env_fini(struct hook_env *e);
void env_add(struct hook_env *e, const char *resource, const char *object);
/* Answers the request that the call waits for. */
void call_deliver(struct hook_call *call, int status, const char *body);

#endif
