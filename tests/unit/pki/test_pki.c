#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "pki/pki.h"
#include "lib/torture.h"

static const usec_t NOW = (usec_t)1767225600 * USEC_PER_SEC; /* 2026-01-01 */
static const usec_t DAY = (usec_t)86400 * USEC_PER_SEC;

static const char *const orgs[] = {"system:nodes", "ferry:agents"};
static const char *const sans[] = {"localhost", "127.0.0.1", "fd00::1", "*.ferry.test"};

static struct pki_request node_request(void)
{
	return (struct pki_request){.cn = "system:node:node-1",
				    .orgs = orgs,
				    .n_orgs = 2,
				    .sans = sans,
				    .n_sans = 4,
				    .use = PKI_SERVER | PKI_CLIENT,
				    .validity = 90 * DAY};
}

static void issued_certificate_says_what_was_asked(void **state)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0}, node = {0};
	struct pki_request req = node_request();
	struct pki_info i;

	(void)state;
	assert_int_equal(pki_ca_new(&ca, "ferry-ca", NOW, 3650 * DAY, NULL), RC_OK);
	assert_int_equal(pki_issue(&node, &ca, &req, NOW, NULL), RC_OK);
	assert_int_equal(pki_inspect(&i, node.cert, NULL), RC_OK);
	assert_string_equal(i.cn, "system:node:node-1");
	assert_int_equal(i.n_orgs, 2);
	assert_string_equal(i.orgs[0], "system:nodes");
	assert_string_equal(i.orgs[1], "ferry:agents");
	assert_int_equal(i.n_sans, 4);
	for (size_t k = 0; k < 4; k++)
		assert_string_equal(i.sans[k], sans[k]);
	assert_int_equal(i.not_after, NOW + 90 * DAY);
	assert_true(i.not_before < NOW);
	assert_false(i.is_ca);
	assert_true(strlen(i.serial) >= 16);
	pki_info_fini(&i);
	assert_int_equal(pki_inspect(&i, ca.cert, NULL), RC_OK);
	assert_true(i.is_ca);
	pki_info_fini(&i);
	assert_non_null(strstr(node.key, "BEGIN PRIVATE KEY"));
}

static void verification_tells_ca_time_and_use(void **state)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0}, other = {0}, node = {0}, client = {0};
	struct pki_request req = node_request();
	struct err err = {0};

	(void)state;
	assert_int_equal(pki_ca_new(&ca, "ferry-ca", NOW, 3650 * DAY, NULL), RC_OK);
	assert_int_equal(pki_ca_new(&other, "ferry-ca", NOW, 3650 * DAY, NULL), RC_OK);
	assert_int_equal(pki_issue(&node, &ca, &req, NOW, NULL), RC_OK);
	req.use = PKI_CLIENT;
	assert_int_equal(pki_issue(&client, &ca, &req, NOW, NULL), RC_OK);

	assert_int_equal(pki_verify(node.cert, ca.cert, PKI_SERVER | PKI_CLIENT, NOW, NULL), RC_OK);
	assert_int_equal(pki_verify(node.cert, other.cert, 0, NOW, &err), RC_UNAUTHORIZED);
	assert_string_equal(err.msg, "the certificate is not signed by this CA");
	assert_int_equal(pki_verify(node.cert, ca.cert, 0, NOW + 91 * DAY, &err), RC_UNAUTHORIZED);
	assert_string_equal(err.msg, "the certificate has expired");
	assert_int_equal(pki_verify(node.cert, ca.cert, 0, NOW - DAY, &err), RC_UNAUTHORIZED);
	assert_string_equal(err.msg, "the certificate is not valid yet");
	assert_int_equal(pki_verify(client.cert, ca.cert, PKI_SERVER, NOW, &err), RC_UNAUTHORIZED);
	assert_string_equal(err.msg, "the certificate is not for servers");

	assert_false(pki_needs_rotation(node.cert, ca.cert, NOW));
	assert_false(pki_needs_rotation(node.cert, ca.cert, NOW + 59 * DAY));
	assert_true(pki_needs_rotation(node.cert, ca.cert, NOW + 61 * DAY));
	assert_true(pki_needs_rotation(node.cert, other.cert, NOW));
	assert_true(pki_needs_rotation("garbage", ca.cert, NOW));
}

static void bad_names_are_refused(void **state)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0};
	struct pki_pair out = {0};
	struct pki_request req = node_request();
	const char *const bad[] = {"not a name"};
	struct err err = {0};

	(void)state;
	assert_int_equal(pki_ca_new(&ca, "ferry-ca", NOW, 3650 * DAY, NULL), RC_OK);
	req.sans = bad;
	req.n_sans = 1;
	assert_int_equal(pki_issue(&out, &ca, &req, NOW, &err), RC_INVALID);
	assert_string_equal(err.msg, "'not a name' is neither a DNS name nor an address");
	req.n_sans = 0;
	req.cn = "";
	assert_int_equal(pki_issue(&out, &ca, &req, NOW, &err), RC_INVALID);
	assert_null(out.cert);
}

static void files_keep_the_key_private(void **state)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0}, back = {0}, other = {0};
	char dir[] = "/tmp/ferry-pki-XXXXXX", path[128];
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(pki_ca_new(&ca, "ferry-ca", NOW, 3650 * DAY, NULL), RC_OK);
	assert_int_equal(pki_load(&back, dir, "ca", NULL), RC_NOT_FOUND);
	assert_int_equal(pki_save(&ca, dir, "ca", NULL), RC_OK);
	assert_int_equal(pki_load(&back, dir, "ca", NULL), RC_OK);
	assert_string_equal(back.cert, ca.cert);
	assert_string_equal(back.key, ca.key);
	snprintf(path, sizeof(path), "%s/ca.key", dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);

	/* The key of another pair: what a crash between the two writes leaves. */
	assert_int_equal(pki_ca_new(&other, "ferry-ca", NOW, DAY, NULL), RC_OK);
	assert_int_equal(file_write_durable(path, other.key, strlen(other.key), 0600, NULL), RC_OK);
	pki_pair_fini(&back);
	assert_int_equal(pki_load(&back, dir, "ca", NULL), RC_INVALID);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
}

static void psk_file_is_what_qemu_reads(void **state)
{
	char dir[] = "/tmp/ferry-psk-XXXXXX", path[128], hex[PKI_PSK_HEX], hex2[PKI_PSK_HEX],
	     want[256];
	char *text = NULL;
	size_t n;
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(dir));
	pki_psk_new(hex);
	pki_psk_new(hex2);
	assert_int_equal(strlen(hex), 64);
	assert_string_not_equal(hex, hex2);
	assert_int_equal(pki_psk_write(dir, "mig-1", hex, NULL), RC_OK);
	snprintf(path, sizeof(path), "%s/keys.psk", dir);
	snprintf(want, sizeof(want), "mig-1:%s\n", hex);
	assert_int_equal(file_read(path, 1000, &text, &n, NULL), RC_OK);
	assert_string_equal(text, want);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	mem_free(text);
	assert_int_equal(pki_psk_write(dir, "a:b", hex, NULL), RC_INVALID);
	assert_int_equal(pki_psk_write(dir, "a", "xyz", NULL), RC_INVALID);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
}

static struct pki_pair torture_ca;

static enum rc issue_and_inspect(void)
{
	CLEANUP(pki_pair_fini) struct pki_pair out = {0};
	struct pki_request req = node_request();
	struct pki_info i = {0};
	enum rc rc = pki_issue(&out, &torture_ca, &req, NOW, NULL);

	if (!rc)
		rc = pki_inspect(&i, out.cert, NULL);
	pki_info_fini(&i);
	return rc;
}

static void issuing_survives_every_failed_allocation(void **state)
{
	(void)state;
	assert_int_equal(pki_ca_new(&torture_ca, "ferry-ca", NOW, 3650 * DAY, NULL), RC_OK);
	torture(issue_and_inspect);
	pki_pair_fini(&torture_ca);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(issued_certificate_says_what_was_asked),
		cmocka_unit_test(verification_tells_ca_time_and_use),
		cmocka_unit_test(bad_names_are_refused),
		cmocka_unit_test(files_keep_the_key_private),
		cmocka_unit_test(psk_file_is_what_qemu_reads),
		cmocka_unit_test(issuing_survives_every_failed_allocation),
	};

	return cmocka_run_group_tests_name("pki", tests, NULL, NULL);
}
