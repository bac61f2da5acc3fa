/* Bad input over TLS: each row has the one answer that it gets. */
#include <stdio.h>

#include <gnutls/x509.h>

#include "base/file.h"
#include "base/mem.h"
#include "pki/pki.h"
#include "raw.h"

/* Says who asked; "/ws" is a websocket that echoes nothing. */
static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	(void)ws;
	(void)is_text;
	(void)bytes;
	(void)n;
	(void)arg;
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	(void)code;
	(void)reason;
	(void)status;
	(void)why;
	(void)arg;
	http_ws_free(ws);
}

static void answer(struct http_req *r, void *arg)
{
	static const struct http_ws_ops ops = {.on_message = on_message, .on_close = on_close};
	const struct http_peer *p = http_req_peer(r);
	struct http_ws *ws = NULL;
	struct err err = {0};
	char text[512];
	size_t n;

	(void)arg;
	if (strcmp(http_req_path(r), "/ws") == 0) {
		if (http_upgrade_ws(r, NULL, &ops, NULL, &ws, &err))
			http_respond(r, 400, "text/plain", err.msg, strlen(err.msg), NULL, 0);
		return;
	}
	(void)http_req_body(r, &n);
	int len = snprintf(text, sizeof(text), "path=%.64s cn=%s orgs=%zu body=%zu.",
			   http_req_path(r), p->cn ? p->cn : "-", p->n_orgs, n);

	http_respond(r, 200, "text/plain", text, (size_t)len, NULL, 0);
}

struct row {
	const char *name;
	const char *head; /* sent first */
	char fill;	  /* then so many of it */
	size_t n_fill;
	const char *tail;
	const char *want; /* in the answer; NULL: closed without one */
};

#define HOST "Host: a\r\n"
#define END  "Connection: close\r\n\r\n"
#define WS                                                                     \
	"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: " \
	"13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

static const struct row rows[] = {
	{"request line of 1 MB", "GET /", 'a', 1000000, " HTTP/1.1\r\n" HOST END, "HTTP/1.1 414"},
	{"target of 9 KB", "GET /", 'a', 9000, " HTTP/1.1\r\n" HOST END, "HTTP/1.1 414"},
	{"one header of 1 MB", "GET / HTTP/1.1\r\nX: ", 'a', 1000000, "\r\n" HOST END,
	 "HTTP/1.1 431"},
	{"two lengths",
	 "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 0, 0, "",
	 "HTTP/1.1 400"},
	{"length and chunks",
	 "POST / HTTP/1.1\r\n" HOST
	 "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	 0, 0, "", "HTTP/1.1 400"},
	{"negative length", "POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 0, 0, "",
	 "HTTP/1.1 400"},
	{"length with a sign", "POST / HTTP/1.1\r\n" HOST "Content-Length: +3\r\n\r\nabc", 0, 0, "",
	 "HTTP/1.1 400"},
	{"length beyond 64 bits",
	 "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999\r\n\r\n", 0, 0, "",
	 "HTTP/1.1 4"},
	{"huge length", "POST / HTTP/1.1\r\n" HOST "Content-Length: 9223372036854775807\r\n\r\n", 0,
	 0, "", "HTTP/1.1 413"},
	{"body of 100 MB", "POST / HTTP/1.1\r\n" HOST "Content-Length: 104857600\r\n\r\n", 0, 0, "",
	 "HTTP/1.1 413"},
	{"chunk size overflow",
	 "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\nabc",
	 0, 0, "\r\n0\r\n\r\n", "HTTP/1.1 4"},
	{"chunk size with a sign",
	 "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n", 0,
	 0, "", "HTTP/1.1 400"},
	{"another transfer coding",
	 "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0, 0, "",
	 "HTTP/1.1 501"},
	{"chunks in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0,
	 0, "", "HTTP/1.0 has no Transfer-Encoding"},
	{"bare LF", "GET /lf HTTP/1.1\nHost: a\nConnection: close\n\n", 0, 0, "",
	 "path=/lf cn=alice"},
	{"%00 in the path", "GET /a%00b HTTP/1.1\r\n" HOST END, 0, 0, "", "HTTP/1.1 400"},
	{"%2e%2e%2f", "GET /a/%2e%2e%2fetc HTTP/1.1\r\n" HOST END, 0, 0, "", "HTTP/1.1 400"},
	{"..;/", "GET /a/..;/b HTTP/1.1\r\n" HOST END, 0, 0, "", "path=/a/..;/b cn"},
	{"//", "GET //a HTTP/1.1\r\n" HOST END, 0, 0, "", "path=//a cn"},
	{"overlong UTF-8", "GET /%c0%ae%c0%ae/ HTTP/1.1\r\n" HOST END, 0, 0, "", "HTTP/1.1 400"},
	{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, 0, "", "HTTP/1.1 505"},
	{"no HTTP at all", "\x16\x03\x01\x02\x01\x01\r\n\r\n", 0, 0, "", NULL},
	{"upgrade of a normal path", "GET /n HTTP/1.1\r\n" HOST WS, 0, 0, "", "path=/n cn=alice"},
	{"websocket", "GET /ws HTTP/1.1\r\n" HOST WS, 0, 0, "", "HTTP/1.1 101"},
	{"websocket in HTTP/1.0", "GET /ws HTTP/1.0\r\n" HOST WS, 0, 0, "",
	 "not a websocket handshake"},
	{"front proxy headers",
	 "GET /x HTTP/1.1\r\n" HOST "X-Remote-User: root\r\nX-Remote-Group: system:masters\r\n" END,
	 0, 0, "", "path=/x cn=alice orgs=2"},
};

static void send_row(struct raw *w, const struct row *r)
{
	char block[16384];

	raw_sends(w, r->head);
	memset(block, r->fill, sizeof(block));
	for (size_t left = r->n_fill; left && !w->is_closed;) {
		size_t n = MIN(left, sizeof(block));

		raw_send(w, block, n);
		left -= n;
	}
	raw_sends(w, r->tail);
}

static void each_bad_request_has_its_answer(void **state)
{
	struct fixture *f = *state;
	unsigned wrong = 0;
	struct raw w;

	f->handler = answer;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *r = &rows[i];

		raw_connect(&w, f, http_server_port(f->server), NULL);
		assert_true(raw_handshake(&w, f->user_crt, f->user_key, NULL));
		send_row(&w, r);
		bool seen = raw_wait(&w, r->want, 5 * USEC_PER_SEC);

		if (!seen || (!r->want && w.n)) {
			print_error("%s: '%.300s' (%zu bytes, %s) instead of '%s'\n", r->name,
				    w.seen, w.n, w.is_closed ? "closed" : "open",
				    r->want ? r->want : "the end");
			wrong++;
		}
		raw_close(&w);
	}
	assert_int_equal(wrong, 0);
	/* and an honest one goes on */
	struct got g;

	fixture_get(f, f->client, "/honest", &g);
	assert_int_equal(g.status, 200);
}

static void a_hundred_thousand_headers_are_431(void **state)
{
	struct fixture *f = *state;
	struct raw w;

	f->handler = answer;
	raw_connect(&w, f, http_server_port(f->server), NULL);
	assert_true(raw_handshake(&w, f->user_crt, f->user_key, NULL));
	raw_sends(&w, "GET / HTTP/1.1\r\n");
	for (int i = 0; i < 1000 && !w.is_closed; i++) {
		char block[2048];
		size_t n = 0;

		for (int k = 0; k < 100; k++)
			n += (size_t)snprintf(block + n, sizeof(block) - n, "H%02d: %04d\r\n", k,
					      i);
		raw_send(&w, block, n);
	}
	raw_sends(&w, "\r\n");
	assert_true(raw_wait(&w, "HTTP/1.1 431", 5 * USEC_PER_SEC));
	raw_close(&w);
}

/* ---- TLS --------------------------------------------------------------------------------------------- */

static void renegotiation_ends_the_connection(void **state)
{
	struct fixture *f = *state;
	struct raw w;

	f->handler = answer;
	raw_connect(&w, f, http_server_port(f->server), NULL);
	assert_true(raw_handshake(&w, f->user_crt, f->user_key, "NORMAL:-VERS-ALL:+VERS-TLS1.2"));
	raw_sends(&w, "GET /1 HTTP/1.1\r\n" HOST "\r\n");
	assert_true(raw_wait(&w, "path=/1", 5 * USEC_PER_SEC));
	int r = gnutls_rehandshake(w.tls);

	assert_true(r == 0 || r == GNUTLS_E_INVALID_REQUEST); /* a client's: by the next call */
	while ((r = gnutls_handshake(w.tls)) == GNUTLS_E_AGAIN)
		assert_int_equal(loop_step(f->loop, USEC_PER_MSEC, NULL, NULL), RC_OK);
	assert_true(r < 0);
	assert_true(raw_wait(&w, NULL, 5 * USEC_PER_SEC));
	raw_close(&w);
}

static void old_protocols_are_not_spoken(void **state)
{
	struct fixture *f = *state;
	struct raw w;

	raw_connect(&w, f, http_server_port(f->server), NULL);
	assert_false(raw_handshake(&w, NULL, NULL, "NORMAL:-VERS-ALL:+VERS-TLS1.1:%COMPAT"));
	raw_close(&w);
}

/* One GET with a certificate of "ca", which is changed by adjust before it is signed. */
static void issue_as(struct fixture *f, const struct pki_request *req, usec_t now, const char *name)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0}, p = {0};

	assert_int_equal(pki_load(&ca, f->dir, "ca", NULL), RC_OK);
	assert_int_equal(pki_issue(&p, &ca, req, now, NULL), RC_OK);
	assert_int_equal(pki_save(&p, f->dir, name, NULL), RC_OK);
}

static void ask_as(struct fixture *f, struct raw *w, const char *name)
{
	char crt[128], key[128];

	snprintf(crt, sizeof(crt), "%s/%s.crt", f->dir, name);
	snprintf(key, sizeof(key), "%s/%s.key", f->dir, name);
	f->handler = answer;
	raw_connect(w, f, http_server_port(f->server), NULL);
	assert_true(raw_handshake(w, crt, key, NULL));
	raw_sends(w, "GET /who HTTP/1.1\r\n" HOST "\r\n");
}

static void expired_certificate_is_401(void **state)
{
	struct fixture *f = *state;
	struct pki_request req = {
		.cn = "system:node:n1", .use = PKI_CLIENT, .validity = 3600 * USEC_PER_SEC};
	struct raw w;

	issue_as(f, &req, loop_realtime(f->loop) - 7200 * USEC_PER_SEC, "old");
	ask_as(f, &w, "old");
	assert_true(raw_wait(&w, "HTTP/1.1 401", 5 * USEC_PER_SEC));
	raw_close(&w);
}

static void servers_certificate_is_no_clients(void **state)
{
	struct fixture *f = *state;
	struct raw w;

	ask_as(f, &w, "server");
	assert_true(raw_wait(&w, "HTTP/1.1 401", 5 * USEC_PER_SEC));
	raw_close(&w);
}

static void a_hundred_sans_are_no_identity(void **state)
{
	struct fixture *f = *state;
	char names[100][32];
	const char *sans[100];
	struct pki_request req = {.cn = "bob",
				  .sans = sans,
				  .n_sans = 100,
				  .use = PKI_CLIENT,
				  .validity = 3600 * USEC_PER_SEC};
	struct raw w;

	for (int i = 0; i < 100; i++) {
		snprintf(names[i], sizeof(names[i]), "alice-%d.example", i);
		sans[i] = names[i];
	}
	issue_as(f, &req, loop_realtime(f->loop), "sans");
	ask_as(f, &w, "sans");
	assert_true(raw_wait(&w, "cn=bob orgs=0", 5 * USEC_PER_SEC));
	raw_close(&w);
}

static gnutls_datum_t datum(const char *text)
{
	return (gnutls_datum_t){(unsigned char *)(uintptr_t)text, (unsigned)strlen(text)};
}

/* "alice\0.evil": whoever stops at the NUL takes it for alice's. */
static void issue_with_nul(struct fixture *f)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0};
	gnutls_x509_crt_t crt, issuer;
	gnutls_x509_privkey_t key, ca_key;
	gnutls_datum_t pem_ca, pem_key, out;
	char path[128];
	time_t now = (time_t)(loop_realtime(f->loop) / USEC_PER_SEC);

	assert_int_equal(pki_load(&ca, f->dir, "ca", NULL), RC_OK);
	pem_ca = datum(ca.cert);
	pem_key = datum(ca.key);
	assert_int_equal(gnutls_x509_crt_init(&issuer), 0);
	assert_int_equal(gnutls_x509_crt_import(issuer, &pem_ca, GNUTLS_X509_FMT_PEM), 0);
	assert_int_equal(gnutls_x509_privkey_init(&ca_key), 0);
	assert_int_equal(
		gnutls_x509_privkey_import2(ca_key, &pem_key, GNUTLS_X509_FMT_PEM, NULL, 0), 0);
	assert_int_equal(gnutls_x509_privkey_init(&key), 0);
	assert_int_equal(
		gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
					     GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
		0);
	assert_int_equal(gnutls_x509_crt_init(&crt), 0);
	assert_int_equal(gnutls_x509_crt_set_version(crt, 3), 0);
	assert_int_equal(gnutls_x509_crt_set_serial(crt, "\x07", 1), 0);
	assert_int_equal(gnutls_x509_crt_set_activation_time(crt, now - 60), 0);
	assert_int_equal(gnutls_x509_crt_set_expiration_time(crt, now + 3600), 0);
	assert_int_equal(gnutls_x509_crt_set_key(crt, key), 0);
	assert_int_equal(gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0,
						       "alice\0.evil", 11),
			 0);
	assert_int_equal(gnutls_x509_crt_set_key_purpose_oid(crt, GNUTLS_KP_TLS_WWW_CLIENT, 0), 0);
	assert_int_equal(gnutls_x509_crt_sign2(crt, issuer, ca_key, GNUTLS_DIG_SHA256, 0), 0);
	assert_int_equal(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &out), 0);
	snprintf(path, sizeof(path), "%s/nul.crt", f->dir);
	assert_int_equal(file_write_durable(path, out.data, out.size, 0600, NULL), RC_OK);
	gnutls_free(out.data);
	assert_int_equal(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &out), 0);
	snprintf(path, sizeof(path), "%s/nul.key", f->dir);
	assert_int_equal(file_write_durable(path, out.data, out.size, 0600, NULL), RC_OK);
	gnutls_free(out.data);
	gnutls_x509_crt_deinit(crt);
	gnutls_x509_crt_deinit(issuer);
	gnutls_x509_privkey_deinit(key);
	gnutls_x509_privkey_deinit(ca_key);
}

static void name_with_a_nul_is_401(void **state)
{
	struct fixture *f = *state;
	struct raw w;

	issue_with_nul(f);
	ask_as(f, &w, "nul");
	if (!raw_wait(&w, "HTTP/1.1 401", 5 * USEC_PER_SEC))
		fail_msg("'%s' %d", w.seen, w.is_closed);
	assert_true(raw_wait(&w, "a name that is no text", 5 * USEC_PER_SEC));
	raw_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_bad_request_has_its_answer, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(a_hundred_thousand_headers_are_431, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(renegotiation_ends_the_connection, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(old_protocols_are_not_spoken, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(expired_certificate_is_401, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(servers_certificate_is_no_clients, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(a_hundred_sans_are_no_identity, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(name_with_a_nul_is_401, fixture_setup,
						fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
