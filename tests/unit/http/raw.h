/* tests/unit/http/raw.h - bytes over a TLS connection to a server on the same loop, as no honest client sends them. */
#ifndef TESTS_HTTP_RAW_H
#define TESTS_HTTP_RAW_H

#include <gnutls/gnutls.h>

#include "fixture.h"

struct raw {
	struct fixture *f;
	int fd; /* -1: not open */
	gnutls_session_t tls;
	gnutls_certificate_credentials_t cred;
	char seen[65536]; /* NUL-terminated */
	size_t n;	  /* bytes that came, also those beyond seen */
	bool is_closed;
};

/* A connection to 127.0.0.1, from address "from" (NULL: any), before its handshake. */
void raw_connect(struct raw *w, struct fixture *f, uint16_t port, const char *from);
/* The handshake, with cert and key or without (NULL); false: the server closed the connection. */
bool raw_handshake(struct raw *w, const char *cert, const char *key, const char *priorities);
/* All of bytes, or until the server closes. */
void raw_send(struct raw *w, const void *bytes, size_t n);
void raw_sends(struct raw *w, const char *text);
/* Until text was seen, the server closed, or time is over; true: it was seen.  NULL: until it closed. */
bool raw_wait(struct raw *w, const char *text, usec_t time);
/* Takes what is here already, without a turn of the loop; true: something was. */
bool raw_has(struct raw *w);
void raw_close(struct raw *w);

#endif
