/* Files of a node that come with a move and are left by one: nothing stays of a move that failed, whenever its agent died,
 * and no file of anybody else is touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "json/json.h"
#include "virt/node/host_files.h"
#include "virt/node/volumes.h"

#define POD  "f3b0c7de-0000-4000-8000-000000000001"
#define POD2 "f3b0c7de-0000-4000-8000-000000000002"

static char dir[64], local[80], allowed[80];

static int make_dir(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/tmp/ferry-test-files-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(local, sizeof(local), "%s/local", dir);
	(void)snprintf(allowed, sizeof(allowed), "%s/allowed", dir);
	return mkdir(local, 0755) || mkdir(allowed, 0755);
}

static int drop_dir(void **state)
{
	(void)state;
	return file_remove_tree(dir, NULL) ? -1 : 0;
}

static char *at(const char *name)
{
	static char path[2][300];
	static int n;

	n = !n;
	(void)snprintf(path[n], sizeof(path[n]), "%s/%s", allowed, name);
	return path[n];
}

static bool is_there(const char *name)
{
	struct stat st;

	return lstat(at(name), &st) == 0;
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(at(name), "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* An incoming one with bytes > 0, else what is here. */
static enum rc open_file_of(const char *pod, const char *file, uint64_t bytes, struct err *err)
{
	struct vol_places p = {.local = local, .pod_uid = pod};
	struct volume v;

	volume_init(&v);
	v.kind = VOL_HOST_DISK;
	v.is_local = true;
	v.incoming_bytes = bytes;
	v.name = mem_strdup("data");
	v.folder = mem_strdup(allowed);
	v.file = mem_strdup(file);
	enum rc rc = volume_open(&v, &p, err);

	if (!rc && bytes) {
		struct stat st;

		assert_int_equal(v.virtual_bytes, bytes);
		assert_int_equal(fstat(v.top_fd, &st), 0);
		assert_int_equal(st.st_size, bytes);
		assert_int_equal(st.st_mode & 0777, 0600);
		assert_true(volume_moves(&v));
	}
	volume_fini(&v);
	return rc;
}

static enum rc open_file(const char *file, uint64_t bytes, struct err *err)
{
	return open_file_of(POD, file, bytes, err);
}

static enum rc note(const char *moved)
{
	char *path = at(moved);

	return host_files_note_moved(local, POD, &path, 1, NULL);
}

static enum rc end(const char *moved)
{
	struct err err = {0};

	if (moved)
		assert_int_equal(note(moved), RC_OK);
	for (;;) {
		CLEANUP(mem_freep) char *folder = NULL;
		enum rc rc = host_files_next(local, POD, &folder, &err);

		if (!rc && folder)
			rc = host_files_end(local, POD, folder, &err);
		if (rc || !folder)
			return rc;
	}
}

#define TEMP ".ferry-incoming." POD ".data"

static void what_came_and_was_not_kept_goes_with_all_that_was_made_for_it(void **state)
{
	struct err err = {0};

	(void)state;
	assert_int_equal(mkdir(at("a"), 0755), 0);
	assert_int_equal(open_file("a/b/c/d.img", 3 * MIB, &err), RC_OK);
	assert_true(is_there("a/b/c/d.img") && is_there("a/b/c/" TEMP));
	/* nobody else can use it meanwhile: it has two names */
	assert_int_equal(open_file("a/b/c/d.img", 0, &err), RC_FORBIDDEN);
	assert_int_equal(end(NULL), RC_OK);
	assert_true(is_there("a") && !is_there("a/b"));
	assert_int_equal(end(NULL), RC_OK); /* nothing there is fine */
	/* the pod's next try begins anew */
	assert_int_equal(open_file("a/b/c/d.img", 3 * MIB, &err), RC_OK);
	assert_int_equal(open_file("a/b/c/d.img", 3 * MIB, &err), RC_OK);
	/* a folder that somebody uses meanwhile stays */
	put("a/b/own", "somebody's");
	assert_int_equal(end(NULL), RC_OK);
	assert_true(is_there("a/b/own") && !is_there("a/b/c"));
}

static void a_file_in_the_way_is_refused_and_untouched(void **state)
{
	struct err err = {0};
	char text[32] = "";

	(void)state;
	put("d.img", "somebody's");
	assert_int_equal(open_file("d.img", 3 * MIB, &err), RC_EXISTS);
	assert_int_equal(symlink("/nowhere", at("l.img")), 0);
	assert_int_equal(open_file("l.img", 3 * MIB, &err), RC_EXISTS);
	assert_int_equal(end(NULL), RC_OK);
	FILE *f = fopen(at("d.img"), "r");

	assert_non_null(fgets(text, sizeof(text), f));
	assert_int_equal(fclose(f), 0);
	assert_string_equal(text, "somebody's");
	assert_true(is_there("l.img") && !is_there(TEMP));
}

/* The agent may die between any two steps; what its next one finds is each of these. */
/* Its record is to be carried out, and by then the file's inode may be another file's. */
static void what_another_pod_has_used_is_cleaned_up_first(void **state)
{
	struct err err = {0};

	(void)state;
	put("d.img", "disk");
	assert_int_equal(open_file_of(POD, "d.img", 0, &err), RC_OK);
	assert_int_equal(unlink(at("d.img")), 0);
	assert_int_equal(open_file_of(POD2, "d.img", 3 * MIB, &err), RC_EXISTS);
	assert_int_equal(open_file_of(POD2, "e.img", 3 * MIB, &err), RC_OK);
	assert_int_equal(end(NULL), RC_OK);
	assert_int_equal(open_file_of(POD2, "d.img", 3 * MIB, &err), RC_OK);
}

static void each_half_done_step_is_undone_and_no_other_file_with_it(void **state)
{
	struct err err = {0};

	(void)state;
	/* a record, and nothing was made: a file of that name is somebody's */
	assert_int_equal(open_file("d.img", 3 * MIB, &err), RC_OK);
	assert_int_equal(unlink(at(TEMP)), 0);
	assert_int_equal(end(NULL), RC_OK);
	assert_true(is_there("d.img"));
	assert_int_equal(unlink(at("d.img")), 0);
	/* made, and not named yet */
	assert_int_equal(open_file("d.img", 3 * MIB, &err), RC_OK);
	assert_int_equal(unlink(at("d.img")), 0);
	assert_int_equal(end(NULL), RC_OK);
	assert_false(is_there(TEMP));
	/* somebody has put another file in its place */
	assert_int_equal(open_file("d.img", 3 * MIB, &err), RC_OK);
	assert_int_equal(unlink(at("d.img")), 0);
	put("d.img", "somebody's");
	assert_int_equal(host_files_keep(local, POD, &err), RC_CONFLICT);
	assert_int_equal(end(NULL), RC_OK);
	assert_true(is_there("d.img") && !is_there(TEMP));
}

static void what_was_kept_stays(void **state)
{
	struct err err = {0};
	struct stat st;

	(void)state;
	assert_int_equal(host_files_keep(local, POD, &err), RC_OK); /* nothing has come */
	assert_int_equal(open_file("a/d.img", 3 * MIB, &err), RC_OK);
	for (int i = 0; i < 2; i++) /* a permission may be repeated */
		assert_int_equal(host_files_keep(local, POD, &err), RC_OK);
	assert_int_equal(stat(at("a/d.img"), &st), 0);
	assert_int_equal(st.st_nlink, 1);
	assert_false(is_there("a/" TEMP));
	assert_int_equal(end(NULL), RC_OK);
	assert_int_equal(open_file("a/d.img", 0, &err), RC_OK);
	/* the agent died after the name was given up and before that was written down */
	assert_int_equal(end(NULL), RC_OK);
	assert_int_equal(open_file("e.img", 3 * MIB, &err), RC_OK);
	assert_int_equal(unlink(at(TEMP)), 0);
	assert_int_equal(host_files_keep(local, POD, &err), RC_OK);
	assert_int_equal(end(NULL), RC_OK);
	assert_true(is_there("e.img"));
}

static void an_old_copy_goes_only_if_it_is_the_file_that_the_guest_used(void **state)
{
	struct err err = {0};

	(void)state;
	put("d.img", "disk");
	put("other.img", "disk");
	assert_int_equal(open_file("d.img", 0, &err), RC_OK);
	assert_int_equal(end("other.img"), RC_OK); /* not what this pod used */
	assert_true(is_there("d.img") && is_there("other.img"));
	assert_int_equal(open_file("d.img", 0, &err), RC_OK);
	assert_int_equal(end("d.img"), RC_OK);
	assert_false(is_there("d.img"));
	/* another file has its name now */
	put("d.img", "disk");
	assert_int_equal(open_file("d.img", 0, &err), RC_OK);
	assert_int_equal(rename(at("d.img"), at("saved.img")), 0);
	put("d.img", "another");
	assert_int_equal(end("d.img"), RC_OK);
	assert_true(is_there("d.img") && is_there("saved.img"));
	/* without a record nothing is known */
	assert_int_equal(end("d.img"), RC_OK);
	assert_true(is_there("d.img"));
}

/* ---- before anything comes ---- */

static void what_was_said_to_have_moved_goes_also_when_nobody_is_left_to_ask(void **state)
{
	struct err err = {0};

	(void)state;
	put("old.img", "disk");
	put("other.img", "disk");
	assert_int_equal(open_file("old.img", 0, &err), RC_OK);
	/* an agent that dies: the next one's end has nobody to ask */
	assert_int_equal(note("other.img"), RC_OK);
	assert_int_equal(note("old.img"), RC_OK);
	assert_int_equal(note("old.img"), RC_OK); /* it may come to that more than once */
	assert_int_equal(end(NULL), RC_OK);
	assert_true(!is_there("old.img") && is_there("other.img"));
	/* somebody has given it back: the VM runs on it again */
	put("back.img", "disk");
	assert_int_equal(open_file("back.img", 0, &err), RC_OK);
	assert_int_equal(note("back.img"), RC_OK);
	assert_int_equal(open_file_of(POD2, "back.img", 0, &err), RC_OK);
	assert_int_equal(end(NULL), RC_OK);
	assert_true(is_there("back.img"));
	/* what comes is not the guest's yet, whatever is said of its path */
	assert_int_equal(open_file("new.img", 3 * MIB, &err), RC_OK);
	assert_int_equal(note("new.img"), RC_OK);
	assert_int_equal(host_files_keep(local, POD, &err), RC_OK);
	assert_int_equal(end(NULL), RC_OK);
	assert_true(is_there("new.img"));
}

static void what_is_in_the_way_is_told_and_nothing_is_made(void **state)
{
	char owner[HOST_FILE_OWNER];
	struct err err = {0};

	(void)state;
	assert_int_equal(host_file_look(local, allowed, "a/b/d.img", MIB, owner, &err), RC_OK);
	assert_false(is_there("a"));
	assert_int_equal(host_file_look(local, allowed, "d.img", 1ull << 62, owner, &err),
			 RC_TOO_BIG);
	assert_non_null(strstr(err.msg, "has no room for a disk of 4611686018427387904 B"));
	assert_int_equal(volume_look(local, MIB, &err), RC_OK);
	assert_int_equal(volume_look(local, 1ull << 62, &err), RC_TOO_BIG);
	put("d.img", "mine");
	assert_int_equal(host_file_look(local, allowed, "d.img", MIB, owner, &err), RC_EXISTS);
	assert_non_null(strstr(err.msg, "there is a file"));
	assert_string_equal(owner, "");
	/* a link is no way, neither as the file nor as its folder */
	assert_int_equal(symlink("/nowhere", at("link")), 0);
	assert_int_equal(host_file_look(local, allowed, "link", MIB, owner, &err), RC_EXISTS);
	assert_int_not_equal(host_file_look(local, allowed, "link/d.img", MIB, owner, &err), RC_OK);
	assert_int_equal(chmod(allowed, 0777), 0);
	assert_int_equal(host_file_look(local, allowed, "e.img", MIB, owner, &err), RC_FORBIDDEN);
	assert_int_equal(chmod(allowed, 0755), 0);
	assert_int_equal(host_file_look(local, at("none"), "e.img", MIB, owner, &err),
			 RC_NOT_FOUND);
}

static void what_a_pod_has_still_to_do_with_is_named_with_the_pod(void **state)
{
	char owner[HOST_FILE_OWNER];
	struct err err = {0};

	(void)state;
	put("d.img", "mine");
	assert_int_equal(open_file("d.img", 0, &err), RC_OK);
	assert_int_equal(unlink(at("d.img")), 0); /* its record is what counts */
	assert_int_equal(host_file_look(local, allowed, "d.img", MIB, owner, &err), RC_EXISTS);
	assert_string_equal(owner, POD);
	assert_int_equal(host_file_look(local, allowed, "e.img", MIB, owner, &err), RC_OK);
	assert_string_equal(owner, "");
	assert_int_equal(end(NULL), RC_OK);
	assert_int_equal(host_file_look(local, allowed, "d.img", MIB, owner, &err), RC_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			what_came_and_was_not_kept_goes_with_all_that_was_made_for_it, make_dir,
			drop_dir),
		cmocka_unit_test_setup_teardown(a_file_in_the_way_is_refused_and_untouched,
						make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(
			each_half_done_step_is_undone_and_no_other_file_with_it, make_dir,
			drop_dir),
		cmocka_unit_test_setup_teardown(what_another_pod_has_used_is_cleaned_up_first,
						make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(what_was_kept_stays, make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(
			what_was_said_to_have_moved_goes_also_when_nobody_is_left_to_ask, make_dir,
			drop_dir),
		cmocka_unit_test_setup_teardown(what_is_in_the_way_is_told_and_nothing_is_made,
						make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(
			what_a_pod_has_still_to_do_with_is_named_with_the_pod, make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(
			an_old_copy_goes_only_if_it_is_the_file_that_the_guest_used, make_dir,
			drop_dir),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("host files", tests, NULL, NULL);
}
