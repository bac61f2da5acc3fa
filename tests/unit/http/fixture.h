/* tests/unit/http/fixture.h - a server and a client on one real loop over loopback TLS. */
#ifndef TESTS_HTTP_FIXTURE_H
#define TESTS_HTTP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ev/ev.h"
#include "http/client.h"
#include "http/server.h"

struct fixture {
	char dir[64];
	char ca[96], crt[96], key[96], user_crt[96], user_key[96], stranger_crt[96],
		stranger_key[96];
	struct loop *loop;
	struct http_server *server;
	struct http_client *client; /* with the user's certificate */
	http_handler_fn handler;    /* what the test wants; may change */
	void *arg;
};

/* What a call came to. */
struct got {
	bool done;
	unsigned times;
	enum rc rc;
	int status;
	char body[8192];
	size_t n;
	char text[512];
	char warning[256];
};

int fixture_setup(void **state);
int fixture_teardown(void **state);
const char *fixture_url(const struct fixture *f, const char *path);
/* Runs the loop until *flag or two seconds passed (which fails the test). */
void fixture_wait(struct fixture *f, const bool *flag);
void fixture_run_for(struct fixture *f, usec_t time);
void got_done(const struct http_result *r, void *arg);
/* One whole GET. */
void fixture_get(struct fixture *f, struct http_client *c, const char *path, struct got *out);
/* talk() with its first, second, ... allocation failing, until none of it is reached any more (it says false then), which
 * takes more than at_least; the server has nothing open afterwards. */
void fixture_with_faults(struct fixture *f, bool (*talk)(struct fixture *f, unsigned nth),
			 unsigned at_least);
struct http_client *fixture_client(struct fixture *f, const char *cert, const char *key);

#endif
