/* The answer to a backup, cut anywhere, damaged anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cli/backup_stream.h"
#include "json/json.h"

/* SHA-256 of "abc" */
#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static const char whole[] = "{\"type\":\"progress\",\"pages\":5,\"of\":9}\n"
			    "{\"type\":\"file\",\"bytes\":3}\nabc\n"
			    "{\"type\":\"done\",\"sha256\":\"" ABC
			    "\",\"revision\":\"81\",\"objects\":12,\"format\":2}\n";

struct got {
	char bytes[64];
	size_t n;
	uint64_t pages, of;
};

static enum rc on_write(void *arg, const void *bytes, size_t n, struct err *err)
{
	struct got *g = arg;

	if (g->n + n > sizeof(g->bytes))
		return err_set(err, RC_IO, "full");
	memcpy(g->bytes + g->n, bytes, n);
	g->n += n;
	return RC_OK;
}

static void on_progress(void *arg, uint64_t done, uint64_t of)
{
	struct got *g = arg;

	g->pages = done;
	g->of = of;
}

static enum rc feed(const char *text, size_t n, size_t piece, struct got *g,
		    struct backup_stream *out, struct err *err)
{
	struct backup_stream s = {.write = on_write, .progress = on_progress, .arg = g};
	enum rc rc = backup_stream_init(&s, err);

	memset(g, 0, sizeof(*g));
	for (size_t at = 0; at < n && !rc; at += piece)
		rc = backup_stream_feed(&s, text + at, piece < n - at ? piece : n - at, err);
	if (!rc)
		rc = backup_stream_end(&s, err);
	backup_stream_fini(&s);
	if (out)
		*out = s;
	return rc;
}

static void a_whole_answer_is_taken_in_any_pieces(void **state)
{
	(void)state;
	for (size_t piece = 1; piece <= sizeof(whole); piece++) {
		struct backup_stream s;
		struct got g;
		struct err err = {0};

		if (feed(whole, strlen(whole), piece, &g, &s, &err))
			fail_msg("pieces of %zu: %s", piece, err.msg);
		assert_int_equal(g.n, 3);
		assert_memory_equal(g.bytes, "abc", 3);
		assert_true(g.pages == 5 && g.of == 9);
		assert_string_equal(s.revision, "81");
		assert_true(s.objects == 12 && s.format == 2 && s.bytes == 3);
	}
	assert_int_equal(mem_live_blocks(), 0);
}

static void an_answer_that_ends_early_is_no_backup(void **state)
{
	(void)state;
	struct got g;
	struct err err = {0};

	for (size_t n = 0; n < strlen(whole); n++)
		assert_int_not_equal(feed(whole, n, 7, &g, NULL, &err), RC_OK);
	assert_int_equal(mem_live_blocks(), 0);
}

static void a_changed_byte_is_noticed(void **state)
{
	(void)state;
	char text[sizeof(whole)];
	struct got g;
	struct err err = {0};
	const char *abc = strstr(whole, "abc\n");

	memcpy(text, whole, sizeof(whole));
	text[abc - whole + 1] = 'x';
	assert_int_equal(feed(text, strlen(text), 9, &g, NULL, &err), RC_IO);
	assert_non_null(strstr(err.msg, "SHA-256 differs"));
	text[abc - whole + 1] = 'b';
	text[abc - whole + 3] = 'x'; /* the line feed behind the bytes */
	assert_int_equal(feed(text, strlen(text), 9, &g, NULL, &err), RC_IO);
	assert_int_equal(mem_live_blocks(), 0);
}

static void what_else_a_server_may_say(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} rows[] = {
		{"{\"type\":\"error\",\"message\":\"the disk is full\"}\n", "the disk is full"},
		{"{\"type\":\"file\",\"bytes\":3}\nabc\n{\"type\":\"error\",\"message\":\"no\"}\n",
		 "no"},
		{"{\"type\":\"file\",\"bytes\":-3}\n", "no backup"},
		{"{\"type\":\"file\"}\n", "no backup"},
		{"{\"type\":\"done\"}\n", "no backup"},
		{"{\"type\":\"file\",\"bytes\":0}\n\n{\"type\":\"done\",\"sha256\":\"short\",\"revision\":\"1\"}\n",
		 "no backup"},
		{"<html>\n", "no backup"},
		{"\n", "no backup"},
	};
	struct got g;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct err err = {0};

		assert_int_equal(feed(rows[i].text, strlen(rows[i].text), 100, &g, NULL, &err),
				 RC_IO);
		if (!strstr(err.msg, rows[i].says))
			fail_msg("'%s': %s", rows[i].text, err.msg);
	}
	/* a line without an end, bytes behind the end */
	static char line[8192];
	struct err err = {0};
	char more[sizeof(whole) + 4];

	memset(line, 'a', sizeof(line));
	assert_int_equal(feed(line, sizeof(line), 1000, &g, NULL, &err), RC_IO);
	snprintf(more, sizeof(more), "%sx", whole);
	assert_int_equal(feed(more, strlen(more), 1000, &g, NULL, &err), RC_IO);
	assert_int_equal(mem_live_blocks(), 0);
}

int main(void)
{
	js_use_mem();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_whole_answer_is_taken_in_any_pieces),
		cmocka_unit_test(an_answer_that_ends_early_is_no_backup),
		cmocka_unit_test(a_changed_byte_is_noticed),
		cmocka_unit_test(what_else_a_server_may_say),
	};

	return cmocka_run_group_tests_name("backup_stream", tests, NULL, NULL);
}
