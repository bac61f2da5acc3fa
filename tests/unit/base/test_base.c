#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/textpool.h"
#include "lib/torture.h"

static void every_result_has_status_and_reason(void **state)
{
	(void)state;
	for (unsigned rc = 1; rc < RC__MAX; rc++) {
		assert_true(rc_http((enum rc)rc) >= 400);
		assert_true(strlen(rc_reason((enum rc)rc)) > 0);
		/* reason and status of an answer lead back to a code of the same class */
		assert_int_equal(
			rc_http(rc_from_http(rc_http((enum rc)rc), rc_reason((enum rc)rc))),
			rc_http((enum rc)rc));
	}
	assert_int_equal(rc_from_http(204, NULL), RC_OK);
	assert_int_equal(rc_from_http(418, NULL), RC_IO);
}

static void prepended_context_reads_outside_in(void **state)
{
	struct err e = {0};

	(void)state;
	assert_int_equal(err_set(&e, RC_NOT_FOUND, "no disk '%s'", "a"), RC_NOT_FOUND);
	assert_int_equal(err_prepend(&e, "volume '%s'", "root"), RC_NOT_FOUND);
	assert_string_equal(e.msg, "volume 'root': no disk 'a'");
	assert_int_equal(err_set(NULL, RC_BUSY, "x"), RC_BUSY);
}

static void sbuf_stops_at_its_maximum_and_stays_failed(void **state)
{
	struct sbuf b = SBUF_INIT(4);
	char *out = NULL;

	(void)state;
	sbuf_adds(&b, "abcd");
	assert_int_equal(sbuf_rc(&b), RC_OK);
	sbuf_addc(&b, 'e');
	assert_int_equal(sbuf_rc(&b), RC_TOO_BIG);
	assert_int_equal(sbuf_take(&b, &out, NULL), RC_TOO_BIG);
	assert_null(out);
	sbuf_reset(&b);
	sbuf_addf(&b, "%d", 42);
	assert_string_equal(sbuf_str(&b), "42");
	sbuf_drop(&b, 1);
	assert_string_equal(sbuf_str(&b), "2");
	sbuf_fini(&b);
}

static void whole_numbers_only(void **state)
{
	static const char *const bad[] = {"",  " 1",   "1 ", "1x",
					  "-", "0x10", "+1", "9223372036854775808"};
	int64_t v = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(str_to_i64(bad[i], INT64_MIN, INT64_MAX, &v, NULL), RC_INVALID);
	assert_int_equal(v, 7);
	assert_int_equal(str_to_i64("-12", -20, 20, &v, NULL), RC_OK);
	assert_int_equal(v, -12);
	assert_int_equal(str_to_i64("21", -20, 20, &v, NULL), RC_INVALID);
}

static void durations_are_written_as_in_go(void **state)
{
	static const struct {
		const char *text;
		usec_t usec;
	} good[] = {
		{"0", 0},
		{"0s", 0},
		{"90s", 90 * USEC_PER_SEC},
		{"1h30m", 5400 * USEC_PER_SEC},
		{"30m1h", 5400 * USEC_PER_SEC},
		{"1.5s", 1500 * USEC_PER_MSEC},
		{".5s", 500 * USEC_PER_MSEC},
		{"1.s", USEC_PER_SEC},
		{"250us", 250},
		{"250µs", 250},
		{"1ns", 1},
		{"1001ns", 2},
		{"1.000000000000000000001h", 3600 * USEC_PER_SEC},
		{"2m3.5s", 123500 * USEC_PER_MSEC},
		{"1000h", 3600000 * USEC_PER_SEC},
	};
	static const char *const bad[] = {"",
					  "1",
					  " 1s",
					  "1s ",
					  "-1s",
					  "+1s",
					  "s",
					  ".s",
					  "1d",
					  "1e3s",
					  "1s2",
					  "0x1s",
					  "1.2.3s",
					  "1,5s",
					  "00",
					  "1001h",
					  "99999999999999999999s",
					  "9999999999999999999h",
					  "5124095h34m33.709551616s"};
	usec_t v = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(str_to_duration(good[i].text, 3600000 * USEC_PER_SEC, &v, NULL),
				 RC_OK);
		assert_int_equal(v, good[i].usec);
	}
	v = 7;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(str_to_duration(bad[i], 3600000 * USEC_PER_SEC, &v, NULL),
				 RC_INVALID);
	assert_int_equal(str_to_duration(NULL, 1, &v, NULL), RC_INVALID);
	assert_int_equal(v, 7);
}

static void dns_names_follow_rfc_1123(void **state)
{
	(void)state;
	assert_true(str_is_dns_label("a-1"));
	assert_false(str_is_dns_label("-a"));
	assert_false(str_is_dns_label("A"));
	assert_false(str_is_dns_label("a.b"));
	assert_true(str_is_plain_path("/a") && str_is_plain_path("/a/.b/c..d"));
	for (const char *const *bad = (const char *const[]){"", "/", "a", "/a/", "//a", "/a//b",
							    "/a/.", "/..", "/a/../b", NULL};
	     *bad; bad++)
		assert_false(str_is_plain_path(*bad));
	assert_false(str_is_plain_path(NULL));
	assert_true(str_is_dns_subdomain("a.b-c.d"));
	assert_false(str_is_dns_subdomain("a..b"));
	assert_false(str_is_dns_subdomain("a."));
	char hex[7];

	str_hex("\x00\x9a\xff", 3, hex);
	assert_string_equal(hex, "009aff");
	assert_true(str_list_has("a,bc,d", ',', "bc") && str_list_has("a", ',', "a"));
	assert_false(str_list_has("a,bc,d", ',', "b") || str_list_has(NULL, ',', "a"));
	assert_false(str_list_has("a,bc", ',', "a,bc") || str_list_has("", ',', "a"));
	assert_int_equal(str_distance("Skylake-Client", "Skylake-Cliant"), 1);
	assert_int_equal(str_distance("", "abc"), 3);
}

static void map_agrees_with_a_plain_array_under_random_use(void **state)
{
	enum { KEYS = 200, STEPS = 20000 };
	bool has[KEYS] = {false};
	size_t n = 0;
	struct map m;
	unsigned seed = 1;

	(void)state;
	map_init(&m, NULL);
	for (int i = 0; i < STEPS; i++) {
		char key[16];
		unsigned k = (seed = seed * 1103515245u + 12345u) >> 16;
		bool del = k & 1;

		k = (k >> 1) % KEYS;
		(void)snprintf(key, sizeof(key), "key-%u", k);
		assert_int_equal(map_get(&m, key) != NULL, has[k]);
		if (del) {
			assert_int_equal(map_del(&m, key), has[k]);
			n -= has[k];
		} else {
			assert_int_equal(map_set(&m, key, &has[k]), RC_OK);
			n += !has[k];
		}
		has[k] = !del;
		assert_int_equal(m.n, n);
	}
	map_fini(&m);
}

struct keyed {
	int n;
	char key[16];
};

static void free_keyed(void *p)
{
	((struct keyed *)p)->key[0] = '!'; /* a map that still looks at it finds nothing */
	mem_free(p);
}

static struct keyed *keyed_new(int n)
{
	struct keyed *k = mem_alloc(sizeof(*k));

	k->n = n;
	(void)snprintf(k->key, sizeof(k->key), "key-%d", n % 100);
	return k;
}

/* Replaced values take the key with them: the map has to go over to the new one's. */
static void keys_can_stand_in_their_values(void **state)
{
	size_t before = mem_live_blocks();
	struct map m;

	map_init_borrowing(&m, free_keyed);
	for (int i = 0; i < 150; i++) {
		struct keyed *k = keyed_new(i);

		assert_int_equal(map_set(&m, k->key, k), RC_OK);
	}
	assert_int_equal(m.n, 100);
	for (int i = 0; i < 100; i++) {
		char key[16];
		const struct keyed *k;

		(void)snprintf(key, sizeof(key), "key-%d", i);
		k = map_get(&m, key);
		assert_non_null(k);
		assert_int_equal(k->n, i < 50 ? 100 + i : i);
		if (i % 3 == 0)
			assert_true(map_del(&m, k->key));
		else if (i % 3 == 1)
			free_keyed(map_take(&m, k->key));
	}
	assert_int_equal(m.n, 33);
	map_fini(&m);
	assert_int_equal(mem_live_blocks(), before);
}

static void a_text_is_shared_when_it_comes_again(void **state)
{
	size_t before = mem_live_blocks();
	const char *first, *second, *third, *other;
	char again[] = "a text of the pool's test";

	assert_int_equal(textpool_share("a text of the pool's test", &first), RC_OK);
	assert_null(first);
	assert_int_equal(mem_live_blocks(), before);
	assert_int_equal(textpool_share(again, &second), RC_OK);
	assert_string_equal(second, again);
	assert_ptr_not_equal(second, again);
	assert_int_equal(textpool_share("a text of the pool's test", &third), RC_OK);
	assert_ptr_equal(second, third);
	assert_ptr_equal(textpool_ref(third), third);
	assert_int_equal(textpool_share("another of the pool's test", &other), RC_OK);
	assert_null(other);
	textpool_unref(third);
	textpool_unref(third);
	assert_string_equal(second, again);
	textpool_unref(second);
	assert_int_equal(mem_live_blocks(), before);
	/* It was forgotten, and is remembered to have been here. */
	assert_int_equal(textpool_share(again, &third), RC_OK);
	assert_non_null(third);
	textpool_unref(third);
	assert_int_equal(mem_live_blocks(), before);
}

static enum rc share_some(void)
{
	static const char *const texts[] = {"pool 1", "pool 2", "pool 3",
					    "pool 1", "pool 2", "pool 3"};
	const char *got[ARRAY_SIZE(texts)] = {NULL};
	enum rc rc = RC_OK;

	for (size_t i = 0; i < ARRAY_SIZE(texts) && !rc; i++)
		rc = textpool_share(texts[i], &got[i]);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (got[i])
			textpool_unref(got[i]);
	return rc;
}

static void the_pool_survives_any_failed_allocation(void **state)
{
	assert_int_equal(share_some(), RC_OK); /* all of them have been seen */
	torture(share_some);
}

static enum rc map_body(void)
{
	struct map m;
	enum rc rc = RC_OK;

	map_init(&m, NULL);
	for (int i = 0; i < 20 && !rc; i++) {
		char key[8];

		(void)snprintf(key, sizeof(key), "k%d", i);
		rc = map_set(&m, key, &m);
	}
	map_fini(&m);
	return rc;
}

static void map_survives_any_failed_allocation(void **state)
{
	(void)state;
	torture(map_body);
}

static void times_survive_a_round_trip(void **state)
{
	char text[40];
	usec_t t = 0;

	(void)state;
	assert_int_equal(time_parse("2026-02-28T23:59:58.25+01:30", &t, NULL), RC_OK);
	time_rfc3339_micro(t, text);
	assert_string_equal(text, "2026-02-28T22:29:58.250000Z");
	time_rfc3339(t, text);
	assert_string_equal(text, "2026-02-28T22:29:58Z");
	assert_int_equal(time_parse("2026-02-28 23:59:58Z", &t, NULL), RC_INVALID);
	assert_int_equal(time_parse("2026-13-28T23:59:58Z", &t, NULL), RC_INVALID);
	assert_int_equal(time_parse("2026-02-28T23:59:58", &t, NULL), RC_INVALID);
}

static void durable_write_replaces_and_tree_removal_follows_no_link(void **state)
{
	char dir[] = "/tmp/ferry-base-XXXXXX";
	char path[64], sub[64], link[64];
	char *text = NULL;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/keep", dir);
	(void)snprintf(sub, sizeof(sub), "%s/sub", dir);
	(void)snprintf(link, sizeof(link), "%s/sub/link", dir);
	assert_int_equal(file_write_durable(path, "one", 3, 0600, NULL), RC_OK);
	assert_int_equal(file_write_durable(path, "two", 3, 0600, NULL), RC_OK);
	assert_int_equal(file_read(path, 10, &text, NULL, NULL), RC_OK);
	assert_string_equal(text, "two");
	mem_free(text);
	assert_int_equal(file_read(path, 2, &text, NULL, NULL), RC_TOO_BIG);
	assert_int_equal(file_mkdir_p(sub, 0755, NULL), RC_OK);
	assert_int_equal(symlink(dir, link), 0);
	assert_int_equal(file_remove_tree(sub, NULL), RC_OK);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
}

static enum rc note_name(const char *name, void *arg, struct err *err)
{
	unsigned *seen = arg;

	assert_string_equal(name, "a");
	(*seen)++;
	return *seen > 1 ? err_set(err, RC_BUSY, "enough") : RC_OK;
}

static void names_of_a_folder_are_listed_without_hidden_ones(void **state)
{
	char dir[] = "/tmp/ferry-base-XXXXXX", path[64];
	struct err err = {0};
	unsigned seen = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(file_each(dir, note_name, &seen, NULL), RC_OK);
	(void)snprintf(path, sizeof(path), "%s/.hidden", dir);
	assert_int_equal(file_write_durable(path, "", 0, 0600, NULL), RC_OK);
	(void)snprintf(path, sizeof(path), "%s/a", dir);
	assert_int_equal(file_write_durable(path, "", 0, 0600, NULL), RC_OK);
	assert_int_equal(file_each(dir, note_name, &seen, NULL), RC_OK);
	assert_int_equal(seen, 1);
	assert_int_equal(file_each(dir, note_name, &seen, &err), RC_BUSY);
	assert_string_equal(err.msg, "enough");
	assert_int_equal(file_each(path, note_name, &seen, NULL), RC_IO);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	assert_int_equal(file_each(dir, note_name, &seen, NULL), RC_OK);
	assert_int_equal(seen, 2);
}

static void utf8_is_what_unicode_says(void **state)
{
	static const struct {
		const char *s;
		size_t n, len;
	} rows[] = {
		{"a", 1, 1},
		{"\xc2\x80", 2, 2},
		{"\xdf\xbf", 2, 2},
		{"\xc1\xbf", 2, 0},
		{"\xc3", 1, 0},
		{"\xe2\x82\xac", 3, 3},
		{"\xe2\x82", 2, 0},
		{"\xe0\x9f\xbf", 3, 0},
		{"\xed\x9f\xbf", 3, 3},
		{"\xed\xa0\x80", 3, 0},
		{"\xf0\x8f\xbf\xbf", 4, 0},
		{"\xf4\x8f\xbf\xbf", 4, 4},
		{"\xf4\x90\x80\x80", 4, 0},
		{"\xf5\x80\x80\x80", 4, 0},
		{"\x80", 1, 0},
		{"\xe2\x28\xa1", 3, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(str_utf8_len(rows[i].s, rows[i].n), rows[i].len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_a_folder_are_listed_without_hidden_ones),
		cmocka_unit_test(utf8_is_what_unicode_says),
		cmocka_unit_test(every_result_has_status_and_reason),
		cmocka_unit_test(prepended_context_reads_outside_in),
		cmocka_unit_test(sbuf_stops_at_its_maximum_and_stays_failed),
		cmocka_unit_test(whole_numbers_only),
		cmocka_unit_test(durations_are_written_as_in_go),
		cmocka_unit_test(dns_names_follow_rfc_1123),
		cmocka_unit_test(map_agrees_with_a_plain_array_under_random_use),
		cmocka_unit_test(map_survives_any_failed_allocation),
		cmocka_unit_test(keys_can_stand_in_their_values),
		cmocka_unit_test(a_text_is_shared_when_it_comes_again),
		cmocka_unit_test(the_pool_survives_any_failed_allocation),
		cmocka_unit_test(times_survive_a_round_trip),
		cmocka_unit_test(durable_write_replaces_and_tree_removal_follows_no_link),
	};

	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
