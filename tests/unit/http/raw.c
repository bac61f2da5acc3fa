#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macro.h"

void raw_connect(struct raw *w, struct fixture *f, uint16_t port, const char *from)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in own = {.sin_family = AF_INET};

	memset(w, 0, sizeof(*w));
	w->f = f;
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(w->fd >= 0);
	if (from) {
		assert_int_equal(inet_pton(AF_INET, from, &own.sin_addr), 1);
		assert_int_equal(bind(w->fd, (struct sockaddr *)&own, sizeof(own)), 0);
	}
	assert_int_equal(connect(w->fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
}

static void turn(struct raw *w)
{
	assert_int_equal(loop_step(w->f->loop, USEC_PER_MSEC, NULL, NULL), RC_OK);
}

/* The socket blocks for nobody: both ends live in this thread. */
static ssize_t pull(gnutls_transport_ptr_t p, void *buf, size_t n)
{
	struct raw *w = p;

	return recv(w->fd, buf, n, MSG_DONTWAIT);
}

static ssize_t push(gnutls_transport_ptr_t p, const void *buf, size_t n)
{
	struct raw *w = p;

	return send(w->fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool raw_handshake(struct raw *w, const char *cert, const char *key, const char *priorities)
{
	usec_t end = loop_now(w->f->loop) + 20 * USEC_PER_SEC;
	int r;

	assert_int_equal(gnutls_certificate_allocate_credentials(&w->cred), 0);
	if (cert)
		assert_int_equal(gnutls_certificate_set_x509_key_file(w->cred, cert, key,
								      GNUTLS_X509_FMT_PEM),
				 0);
	assert_int_equal(gnutls_init(&w->tls, GNUTLS_CLIENT | GNUTLS_NONBLOCK), 0);
	if (priorities)
		assert_int_equal(gnutls_priority_set_direct(w->tls, priorities, NULL), 0);
	else
		assert_int_equal(gnutls_set_default_priority(w->tls), 0);
	assert_int_equal(gnutls_credentials_set(w->tls, GNUTLS_CRD_CERTIFICATE, w->cred), 0);
	gnutls_transport_set_ptr(w->tls, w);
	gnutls_transport_set_pull_function(w->tls, pull);
	gnutls_transport_set_push_function(w->tls, push);
	while ((r = gnutls_handshake(w->tls)) == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED) {
		if (loop_now(w->f->loop) > end)
			fail_msg("the handshake does not end");
		turn(w);
	}
	return r == 0;
}

static void take(struct raw *w)
{
	char buf[16384];
	ssize_t r;

	for (;;) {
		r = w->tls ? gnutls_record_recv(w->tls, buf, sizeof(buf))
			   : pull(w, buf, sizeof(buf));
		if (w->tls ? r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED
			   : r < 0 && errno == EAGAIN)
			return;
		if (r <= 0) {
			w->is_closed = true;
			return;
		}
		size_t room = sizeof(w->seen) - 1 - MIN(w->n, sizeof(w->seen) - 1);

		memcpy(w->seen + MIN(w->n, sizeof(w->seen) - 1), buf, MIN(room, (size_t)r));
		w->n += (size_t)r;
	}
}

void raw_send(struct raw *w, const void *bytes, size_t n)
{
	usec_t end = loop_now(w->f->loop) + 20 * USEC_PER_SEC;
	const char *p = bytes;

	while (n && !w->is_closed) {
		ssize_t r = w->tls ? gnutls_record_send(w->tls, p, n) : push(w, p, n);

		if (r > 0) {
			p += r;
			n -= (size_t)r;
			continue;
		}
		if (w->tls ? r != GNUTLS_E_AGAIN && r != GNUTLS_E_INTERRUPTED : errno != EAGAIN)
			break;
		if (loop_now(w->f->loop) > end)
			fail_msg("the server takes nothing");
		turn(w);
		take(w);
	}
}

void raw_sends(struct raw *w, const char *text)
{
	raw_send(w, text, strlen(text));
}

bool raw_wait(struct raw *w, const char *text, usec_t time)
{
	usec_t end = loop_now(w->f->loop) + time;

	while (loop_now(w->f->loop) < end) {
		take(w);
		if (text && strstr(w->seen, text))
			return true;
		if (w->is_closed)
			break;
		turn(w);
	}
	return !text && w->is_closed;
}

bool raw_has(struct raw *w)
{
	take(w);
	return w->n > 0;
}

void raw_close(struct raw *w)
{
	if (w->tls)
		gnutls_deinit(w->tls);
	if (w->cred)
		gnutls_certificate_free_credentials(w->cred);
	if (w->fd >= 0)
		close(w->fd);
	w->tls = NULL;
	w->cred = NULL;
	w->fd = -1;
}
