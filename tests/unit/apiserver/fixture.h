/* tests/unit/apiserver/fixture.h - an API server in this process, on virtual time, without sockets. */
#ifndef TESTS_APISERVER_FIXTURE_H
#define TESTS_APISERVER_FIXTURE_H

#include "cluster/apiserver/apisrv.h"
#include "cluster/apiserver/store.h"
#include "ev/ev.h"
#include "json/json.h"

struct fx {
	struct loop *loop;
	struct store *store;
	struct apisrv *srv;
};

/* One answer; owned by the fixture's user: answer_fini(). */
struct fx_answer {
	int status; /* 0: none yet */
	int retry_after;
	char *content_type;
	char *text;
	size_t n;
	struct json *json; /* NULL: not JSON */
	char warnings[8][256];
	size_t n_warnings;
	bool is_armed, fired; /* fx_call_nth() */
};

/* A watch and the frames that came. */
struct fx_watch {
	struct apisrv_call *call;
	struct json *events[256];
	size_t n;
	size_t max_frames; /* refuse more: a slow reader; 0: never */
	bool begun, ended;
	int status;
	struct json *refusal; /* when it was answered instead */
	char warnings[4][256];
	size_t n_warnings;
	char part[1 << 20];
	size_t n_part;
};

extern const struct apisrv_user fx_admin, fx_controller, fx_node1, fx_nobody;

void fx_up(struct fx *f, const struct apisrv_hooks *hooks); /* without the standard roles */
void fx_up_with_roles(struct fx *f, const struct apisrv_hooks *hooks);
/* With the standard roles and keys for tokens, which stay the caller's. */
void fx_up_with_tokens(struct fx *f, struct tokens *tokens);
/* Another server on the same store, with the standard roles: as after a restart. */
void fx_again(struct fx *f, const struct apisrv_hooks *hooks);
void fx_down(struct fx *f);
/* Runs the loop until an answer is there.  body: JSON text; NULL: none. */
void fx_call(struct fx *f, struct fx_answer *a, const struct apisrv_user *user, const char *method,
	     const char *target, const char *content_type, const char *accept, const char *body);
/* user asks as another. */
void fx_call_as(struct fx *f, struct fx_answer *a, const struct apisrv_user *user,
		const struct apisrv_user *as, const char *method, const char *target,
		const char *body);
/* Whoever holds the token asks; header: "Bearer …". */
void fx_call_token(struct fx *f, struct fx_answer *a, const char *header, const char *method,
		   const char *target, const char *body);
/* The same with the nth allocation failing, as fx_call_nth(). */
void fx_call_token_nth(struct fx *f, struct fx_answer *a, unsigned nth, const char *header,
		       const char *method, const char *target, const char *body);
/* The same as administrator, with the nth allocation of the request (up to its answer) failing. */
void fx_call_nth(struct fx *f, struct fx_answer *a, unsigned nth, const char *method,
		 const char *target, const char *content_type, const char *accept,
		 const char *body);
void fx_answer_fini(struct fx_answer *a);
/* Shorthands as administrator; the answer's status must be the given one.  The result is the answer's JSON,
 * to be js_unref'ed. */
struct json *fx_do(struct fx *f, int want, const char *method, const char *target,
		   const char *body);
struct json *fx_patch(struct fx *f, int want, const char *kind, const char *target,
		      const char *body);
struct json *fx_as(struct fx *f, const struct apisrv_user *user, int want, const char *method,
		   const char *target, const char *body);
void fx_settle(struct fx *f); /* runs what is due now */
void fx_sleep(struct fx *f, usec_t t);

void fx_watch_start(struct fx *f, struct fx_watch *w, const char *target, const char *accept);
void fx_watch_stop(struct fx_watch *w); /* cancels and frees what came */
const char *fx_event_type(const struct fx_watch *w, size_t i);
const struct json *fx_event_obj(const struct fx_watch *w, size_t i);

#define assert_msg(j_, text_)	    assert_string_equal(js_get_str(j_, "message"), text_)
#define assert_path(j_, want_, ...) assert_string_equal(js_str(js_at(j_, __VA_ARGS__, NULL)), want_)

/* An answer that nobody looks at. */
static inline UNUSED void drop(struct json *j)
{
	js_unref(j);
}

#endif
