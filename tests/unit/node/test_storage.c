/* Images and disks of the node: references, headers, unpacking, seeds, volumes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/node/imgref.h"
#include "virt/node/imgunpack.h"
#include "virt/node/oci.h"
#include "virt/node/qcow2.h"
#include "virt/node/seed.h"
#include "virt/node/volumes.h"
#include "virt/node/voltoken.h"

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/tmp/ferry-test-node-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
	(void)state;
	return file_remove_tree(dir, NULL) ? -1 : 0;
}

static void registry_references_are_completed(void **state)
{
	static const struct {
		const char *in, *place, *host, *tag, *skopeo;
	} t[] = {
		{"fedora", "docker.io/library/fedora", "docker.io", "latest",
		 "docker://docker.io/library/fedora:latest"},
		{"quay.io/a/b:v1", "quay.io/a/b", "quay.io", "v1", "docker://quay.io/a/b:v1"},
		{"docker://localhost:5000/x:1", "localhost:5000/x", "localhost:5000", "1",
		 "docker://localhost:5000/x:1"},
		{"user/img", "docker.io/user/img", "docker.io", "latest",
		 "docker://docker.io/user/img:latest"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct imgref r;
		struct err err = {0};

		assert_int_equal(imgref_parse(t[i].in, &r, &err), RC_OK);
		assert_string_equal(r.place, t[i].place);
		assert_string_equal(r.host, t[i].host);
		assert_string_equal(r.tag, t[i].tag);
		char *s = imgref_skopeo_source(&r);

		assert_string_equal(s, t[i].skopeo);
		mem_free(s);
		imgref_fini(&r);
	}
}

static void folder_references_keep_tag_and_digest(void **state)
{
	static const char pinned[] =
		"oci:/img/"
		"tiny@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	struct imgref r;

	(void)state;
	assert_int_equal(imgref_parse("oci:/img/tiny:v1", &r, NULL), RC_OK);
	assert_int_equal(r.kind, IMGREF_FOLDER);
	assert_string_equal(r.place, "/img/tiny");
	assert_string_equal(r.tag, "v1");
	char *s = imgref_pinned(&r, strchr(pinned, '@') + 1);

	assert_string_equal(s, pinned);
	mem_free(s);
	imgref_fini(&r);
	assert_int_equal(imgref_parse(pinned, &r, NULL), RC_OK);
	assert_string_equal(r.place, "/img/tiny");
	assert_null(r.tag);
	assert_non_null(r.digest);
	imgref_fini(&r);
}

static void bad_references_are_refused(void **state)
{
	static const char *const bad[] = {"",	  " x",		"a b",	     "http://x/y",
					  "x:",	  "x:-t",	"UP/x",	     "x@sha256:12",
					  "oci:", "oci:/a:b:c", "docker://", "host:80//x",
					  "x\n",  "--help/x"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct imgref r;

		if (imgref_parse(bad[i], &r, NULL) == RC_OK)
			fail_msg("'%s' was accepted", bad[i]);
	}
}

static void hostile_qcow2_headers_are_refused(void **state)
{
	uint8_t h[QCOW2_PROBE_BYTES] = {0};
	struct image_info info;
	struct err err = {0};
	FILE *f = tmpfile();
	int fd = fileno(f);

	(void)state;
	assert_int_equal(qcow2_format(fd, 64 * MIB, NULL), RC_OK);
	assert_int_equal(image_probe(fd, &info, &err), RC_OK);
	assert_int_equal(pread(fd, h, sizeof(h), 0), sizeof(h));
	uint64_t size = 4 * QCOW2_CLUSTER_BYTES;

	assert_int_equal(image_judge(h, sizeof(h), size, &info, &err), RC_OK);
	assert_int_equal(info.format, IMAGE_QCOW2);
	assert_int_equal(info.virtual_bytes, 64 * MIB);

	static const struct {
		size_t at;
		uint8_t v;
		const char *says;
	} t[] = {
		{15, 0x70, "backing file"},	{19, 4, "backing file"},
		{79, 4, "external file"},	{7, 9, "version 9"},
		{35, 1, "encrypted"},		{23, 40, "cluster size"},
		{39, 0, "L1 table size"},	{47, 0x01, "L1 table lies"},
		{79, 0x20, "unknown features"}, {103, 1, "bad length"},
		{31, 1, "disk size"},		{79, 2, "corrupt"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint8_t c[QCOW2_PROBE_BYTES];

		memcpy(c, h, sizeof(c));
		c[t[i].at] = t[i].v;
		assert_int_equal(image_judge(c, sizeof(c), size, &info, &err), RC_INVALID);
		if (!strstr(err.msg, t[i].says))
			fail_msg("'%s' does not say '%s'", err.msg, t[i].says);
	}
	memcpy(h + 104, "\x44\x41\x54\x41\0\0\0\4/etc", 12); /* the data file's name */
	assert_int_equal(image_judge(h, sizeof(h), size, &info, &err), RC_INVALID);
	for (size_t n = 4; n < 104; n++)
		assert_int_equal(image_judge(h, n, size, &info, NULL), RC_INVALID);
	(void)fclose(f);
}

/* --- layers --- */

struct entry {
	const char *path;
	int type;
	const char *text; /* content, or the link's target */
};

static int make_layer(const struct entry *e, size_t n)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/layer-%016llx", dir, (unsigned long long)rand_u64());
	struct archive *a = archive_write_new();

	archive_write_set_format_pax(a);
	archive_write_add_filter_gzip(a);
	assert_int_equal(archive_write_open_filename(a, path), ARCHIVE_OK);
	for (size_t i = 0; i < n; i++) {
		struct archive_entry *ae = archive_entry_new();

		archive_entry_set_pathname(ae, e[i].path);
		archive_entry_set_filetype(ae, (unsigned)e[i].type);
		archive_entry_set_perm(ae, 0644);
		if (e[i].type == AE_IFLNK)
			archive_entry_set_symlink(ae, e[i].text);
		else if (e[i].type == 0) {
			archive_entry_set_filetype(ae, AE_IFREG);
			archive_entry_set_hardlink(ae, e[i].text);
		} else if (e[i].text)
			archive_entry_set_size(ae, (la_int64_t)strlen(e[i].text));
		assert_int_equal(archive_write_header(a, ae), ARCHIVE_OK);
		if (e[i].type == AE_IFREG && e[i].text)
			(void)archive_write_data(a, e[i].text, strlen(e[i].text));
		archive_entry_free(ae);
	}
	archive_write_free(a);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static enum rc unpack(const int *fds, size_t n, struct map *found, struct err *err)
{
	static const char *const wanted[] = {"disk/", NULL};
	struct unpack_limits lim = {.bytes_max = 100, .entries_max = 20, .files_max = 4};
	int out = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	enum rc rc = unpack_layers(fds, n, wanted, out, &lim, found, err);

	close(out);
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
	return rc;
}

static void later_layers_replace_and_whiteout(void **state)
{
	static const struct entry low[] = {{"disk", AE_IFDIR, NULL},
					   {"./disk/a.img", AE_IFREG, "old"},
					   {"disk/b.img", AE_IFREG, "b"},
					   {"etc/passwd", AE_IFREG, "x"}};
	static const struct entry high[] = {{"/disk/.wh.b.img", AE_IFREG, ""},
					    {"disk/a.img", AE_IFREG, "newer"}};
	int fds[2] = {make_layer(low, 4), make_layer(high, 2)};
	struct map found;

	(void)state;
	assert_int_equal(unpack(fds, 2, &found, NULL), RC_OK);
	assert_int_equal(found.n, 1);
	struct unpack_file *f = map_get(&found, "disk/a.img");

	assert_non_null(f);
	assert_int_equal(f->bytes, 5);
	map_fini(&found);
}

static void a_whiteout_of_the_folder_takes_all(void **state)
{
	static const struct entry low[] = {{"disk/a.img", AE_IFREG, "old"}};
	static const struct entry high[] = {{".wh.disk", AE_IFREG, ""}};
	static const struct entry opaque[] = {{"disk/.wh..wh..opq", AE_IFREG, ""}};
	struct map found;

	(void)state;
	for (int i = 0; i < 2; i++) {
		int fds[2] = {make_layer(low, 1), make_layer(i ? opaque : high, 1)};

		assert_int_equal(unpack(fds, 2, &found, NULL), RC_OK);
		assert_int_equal(found.n, 0);
		map_fini(&found);
	}
}

static void hostile_layers_are_refused(void **state)
{
	static const struct {
		struct entry e;
		enum rc rc;
	} t[] = {
		{{"disk/x", AE_IFLNK, "/etc/shadow"}, RC_INVALID},
		{{"disk/x", 0, "etc/shadow"}, RC_INVALID},
		{{"disk/x", AE_IFIFO, NULL}, RC_INVALID},
		{{"disk/x", AE_IFREG,
		  "0123456789012345678901234567890123456789012345678901234567890123456789"
		  "0123456789012345678901234567890123456789"},
		 RC_TOO_BIG},
		{{"../disk/x", AE_IFREG, "a"}, RC_OK}, /* not wanted, so not made */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		int fds[1] = {make_layer(&t[i].e, 1)};
		struct map found;

		assert_int_equal(unpack(fds, 1, &found, NULL), t[i].rc);
		map_fini(&found);
	}
	int fds[1] = {open("/bin/sh", O_RDONLY | O_CLOEXEC)};
	struct map found;

	assert_int_equal(unpack(fds, 1, &found, NULL), RC_INVALID);
	map_fini(&found);
}

/* --- index and manifest --- */

static void images_are_chosen_by_tag_digest_and_platform(void **state)
{
#define D(c_) "sha256:" c_ c_ c_ c_ c_ c_ c_ c_ c_ c_ c_ c_ c_ c_ c_ c_
	static const char text[] =
		"{\"manifests\":["
		"{\"digest\":\"" D("aaaa") "\",\"size\":1,\"platform\":{\"os\":\"linux\","
					   "\"architecture\":\"arm64\"}},"
					   "{\"digest\":\"" D(
						   "bbbb") "\",\"size\":1,\"platform\":{\"os\":"
							   "\"linux\",\"architecture\":\"amd64\"},"
							   "\"annotations\":{\"org.opencontainers."
							   "image.ref.name\":\"v1\"}}]}";
	struct json *j = NULL;
	struct oci_descriptor d;
	struct err err = {0};

	(void)state;
	assert_int_equal(js_parse(text, strlen(text), &j, &err), RC_OK);
	assert_int_equal(oci_choose(j, NULL, NULL, &d, &err), RC_OK);
	assert_string_equal(d.digest, D("bbbb"));
	assert_int_equal(oci_choose(j, "v1", NULL, &d, &err), RC_OK);
	assert_int_equal(oci_choose(j, NULL, D("aaaa"), &d, &err), RC_OK);
	assert_string_equal(d.digest, D("aaaa"));
	assert_int_equal(oci_choose(j, "v2", NULL, &d, &err), RC_NOT_FOUND);
	assert_non_null(strstr(err.msg, "'v1'"));
	js_unref(j);
}

/* --- seeds --- */

static void base64_is_strict(void **state)
{
	static const struct {
		const char *in, *out;
	} t[] = {{"", ""},	  {"Zg==", "f"},	  {"Zm8=", "fo"},
		 {"Zm9v", "foo"}, {"Zm9v\nYg==", "foob"}, {"Zg=", NULL},
		 {"Zg", NULL},	  {"Zg==Zg", NULL},	  {"Z*==", NULL},
		 {"=", NULL},	  {"Zm9vYg===", NULL}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char *out = NULL;
		size_t n;
		enum rc rc = seed_base64(t[i].in, &out, &n, NULL);

		assert_int_equal(rc, t[i].out ? RC_OK : RC_INVALID);
		if (!rc)
			assert_string_equal(out, t[i].out);
		mem_free(out);
	}
}

static void the_seed_is_the_same_each_time_and_readable(void **state)
{
	struct seed_source s = {.instance_id = "u-1",
				.hostname = "h",
				.user_data = "#cloud-config\n",
				.network_data_base64 = "dmVyc2lvbjogMgo="};
	CLEANUP(sbuf_fini) struct sbuf a = SBUF_INIT(1 << 20);
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(1 << 20);
	char path[128], cmd[600];

	(void)state;
	assert_int_equal(seed_build(&s, &a, NULL), RC_OK);
	assert_int_equal(seed_build(&s, &b, NULL), RC_OK);
	assert_int_equal(a.n, b.n);
	assert_memory_equal(a.p, b.p, a.n);
	if (access("/usr/bin/xorriso", X_OK) < 0)
		skip();
	(void)snprintf(path, sizeof(path), "%s/seed.iso", dir);
	assert_int_equal(file_write_durable(path, a.p, a.n, 0600, NULL), RC_OK);
	(void)snprintf(cmd, sizeof(cmd),
		       "cd %s && xorriso -osirrox on -read_fs norock -indev seed.iso -pvd_info "
		       "-extract / out "
		       ">log 2>&1 && grep -q 'Volume Id *: cidata' log && "
		       "grep -q '\"local-hostname\":\"h\"' out/meta-data && "
		       "test \"$(cat out/user-data)\" = '#cloud-config' && "
		       "test \"$(cat out/network-config)\" = 'version: 2'",
		       dir);
	assert_int_equal(system(cmd), 0); /* NOLINT: fixed text and our own folder */
}

/* --- volumes --- */

static struct vol_places places(void)
{
	static char shared[80], local[80], disks[80];

	(void)snprintf(shared, sizeof(shared), "%s/shared", dir);
	(void)snprintf(local, sizeof(local), "%s/local", dir);
	(void)snprintf(disks, sizeof(disks), "%s/disks", dir);
	(void)mkdir(shared, 0755);
	(void)mkdir(local, 0755);
	return (struct vol_places){.shared = shared, .local = local, .disks = disks};
}

static enum rc open_pv(const char *pv, uint64_t capacity, bool is_block, struct volume *v,
		       struct err *err)
{
	struct vol_places p = places();

	volume_init(v);
	v->name = mem_strdup("root");
	v->pv = mem_strdup(pv);
	v->capacity = capacity;
	v->is_block = is_block;
	return volume_open(v, &p, err);
}

static void a_claim_gets_a_file_of_its_size_once(void **state)
{
	struct volume v;
	struct err err = {0};
	struct stat a, b;

	(void)state;
	assert_int_equal(open_pv("pv-1", GIB, false, &v, &err), RC_OK);
	assert_int_equal(v.virtual_bytes, volume_file_bytes(GIB));
	assert_int_equal(volume_file_bytes(GIB), 967 * MIB);
	assert_int_equal(fstat(v.top_fd, &a), 0);
	assert_int_equal(a.st_blocks, 0); /* sparse */
	volume_fini(&v);
	assert_int_equal(open_pv("pv-1", 2 * GIB, false, &v, &err), RC_OK);
	assert_int_equal(fstat(v.top_fd, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	volume_fini(&v);
	assert_int_equal(open_pv("pv-2", GIB, true, &v, &err), RC_OK);
	assert_int_equal(v.virtual_bytes, GIB);
	volume_fini(&v);
}

static struct volume incoming(const char *pv, uint64_t bytes)
{
	struct volume v;

	volume_init(&v);
	v.name = mem_strdup("data");
	v.pv = mem_strdup(pv);
	v.is_local = true;
	v.incoming_bytes = bytes;
	return v;
}

static bool is_there(const char *name)
{
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/local/%s", dir, name);
	return access(path, F_OK) == 0;
}

static void a_disk_on_its_way_is_kept_apart_until_it_is_kept(void **state)
{
	struct vol_places p = places();
	struct volume v = incoming("pv-1.u", 3 * MIB), w = incoming("pv-2.u", MIB);
	struct err err = {0};

	(void)state;
	p.pod_uid = "0b5a-pod";
	w.is_block = true;
	assert_int_equal(volume_open(&v, &p, &err), RC_OK);
	assert_int_equal(volume_open(&w, &p, &err), RC_OK);
	assert_int_equal(v.virtual_bytes,
			 3 * MIB); /* as at the source, whatever the claim asks for */
	assert_int_equal(w.virtual_bytes, MIB);
	assert_true(is_there(".incoming/0b5a-pod/pv-1.u/disk.img"));
	assert_false(is_there("pv-1.u"));
	/* another pod's end is none of its business */
	assert_int_equal(volume_drop_incoming(p.local, "other", &err), RC_OK);
	assert_true(is_there(".incoming/0b5a-pod/pv-2.u/block.img"));
	assert_int_equal(pwrite(v.top_fd, "x", 1, 0), 1);
	for (int again = 0; again < 2; again++) /* the permission may come twice */
		assert_int_equal(volume_keep_incoming(p.local, p.pod_uid, &err), RC_OK);
	assert_true(is_there("pv-1.u/disk.img"));
	assert_true(is_there("pv-2.u/block.img"));
	assert_false(is_there(".incoming/0b5a-pod"));
	/* and now the pod's end takes nothing */
	assert_int_equal(volume_drop_incoming(p.local, p.pod_uid, &err), RC_OK);
	assert_true(is_there("pv-1.u/disk.img"));
	volume_fini(&v);
	volume_fini(&w);
}

static void a_disk_that_is_not_kept_goes_with_its_pod(void **state)
{
	struct vol_places p = places();
	struct volume v = incoming("pv-1.u", MIB);
	struct err err = {0};

	(void)state;
	p.pod_uid = "pod";
	assert_int_equal(volume_open(&v, &p, &err), RC_OK);
	assert_int_equal(volume_drop_incoming(p.local, "pod", &err), RC_OK);
	assert_int_equal(volume_drop_incoming(p.local, "pod", &err), RC_OK);
	assert_false(is_there(".incoming/pod"));
	assert_int_equal(volume_keep_incoming(p.local, "pod", &err), RC_OK);
	assert_false(is_there("pv-1.u"));
	assert_int_equal(volume_drop_incoming(p.local, "../shared", &err), RC_INVALID);
	volume_fini(&v);
}

static void a_disk_that_moves_needs_room_for_all_of_it(void **state)
{
	struct vol_places p = places();
	struct volume v = incoming("pv-1.u", (uint64_t)1 << 60);
	struct err err = {0};

	(void)state;
	p.pod_uid = "pod";
	assert_int_equal(volume_open(&v, &p, &err), RC_TOO_BIG);
	assert_non_null(strstr(err.msg, "not enough space for a disk that moves here"));
	assert_false(is_there(".incoming/pod/pv-1.u/disk.img"));
	volume_fini(&v);
}

static void a_folder_that_is_there_is_not_replaced(void **state)
{
	struct vol_places p = places();
	struct volume v = incoming("pv-1.u", MIB);
	struct err err = {0};
	char path[200];

	(void)state;
	p.pod_uid = "pod";
	assert_int_equal(volume_open(&v, &p, &err), RC_OK);
	(void)snprintf(path, sizeof(path), "%s/pv-1.u", p.local);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(volume_keep_incoming(p.local, "pod", &err), RC_CONFLICT);
	assert_true(is_there(".incoming/pod/pv-1.u/disk.img"));
	volume_fini(&v);
}

/* An empty disk in the place of one that a move has brought would be a silent loss. */
static void a_disk_that_came_by_a_move_is_never_made_anew(void **state)
{
	struct vol_places p = places();
	struct volume v = incoming("pv-1.u", 0);
	struct err err = {0};

	(void)state;
	v.must_exist = true;
	v.capacity = GIB;
	assert_int_equal(volume_open(&v, &p, &err), RC_NOT_FOUND);
	assert_false(is_there("pv-1.u/disk.img"));
	volume_fini(&v);
}

static struct volume host_disk(const char *folder, const char *file)
{
	struct volume v;

	volume_init(&v);
	v.kind = VOL_HOST_DISK;
	v.name = mem_strdup("hd");
	v.folder = mem_printf("%s/%s", dir, folder);
	v.file = mem_strdup(file);
	return v;
}

static enum rc open_host_disk_at(const char *folder, const char *file, uint64_t capacity,
				 struct err *err)
{
	struct vol_places p = places();
	struct volume v = host_disk(folder, file);

	v.may_make = capacity > 0;
	v.capacity = capacity;
	enum rc rc = volume_open(&v, &p, err);

	if (!rc) {
		assert_int_equal(v.virtual_bytes, 3 * MIB);
		assert_int_equal(v.top_format, IMAGE_RAW);
		assert_false(volume_moves(&v));
	}
	volume_fini(&v);
	return rc;
}

static void a_host_disk_is_a_plain_file_below_a_folder_of_root(void **state)
{
	struct err err = {0};
	char path[200], to[200];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/hd", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(open_host_disk_at("hd", "a/b.img", 0, &err), RC_NOT_FOUND);
	/* made with its folders, and then it is there */
	assert_int_equal(open_host_disk_at("hd", "a/b.img", 3 * MIB + 5, &err), RC_OK);
	assert_int_equal(open_host_disk_at("hd", "a/b.img", 0, &err), RC_OK);
	assert_int_equal(open_host_disk_at("hd", "a/b.img", 9 * MIB, &err), RC_OK);
	assert_int_equal(open_host_disk_at("hd", "c.img", 5, &err), RC_INVALID);
	/* no link leads out, neither of the file nor of a folder */
	(void)snprintf(path, sizeof(path), "%s/hd/link.img", dir);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_not_equal(open_host_disk_at("hd", "link.img", 0, &err), RC_OK);
	(void)snprintf(path, sizeof(path), "%s/hd/up", dir);
	assert_int_equal(symlink("/etc", path), 0);
	assert_int_not_equal(open_host_disk_at("hd", "up/passwd", 0, &err), RC_OK);
	assert_int_not_equal(open_host_disk_at("hd", "../hd/a/b.img", 0, &err), RC_OK);
	(void)snprintf(path, sizeof(path), "%s/hd/a/b.img", dir);
	(void)snprintf(to, sizeof(to), "%s/hd/second-name.img", dir);
	assert_int_equal(link(path, to), 0);
	assert_int_equal(open_host_disk_at("hd", "a/b.img", 0, &err), RC_FORBIDDEN);
	/* a folder that others may write proves nothing */
	(void)snprintf(path, sizeof(path), "%s/hd", dir);
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(open_host_disk_at("hd", "c.img", 3 * MIB, &err), RC_FORBIDDEN);
}

/* It was here: an empty one in its place would be a silent loss. */
static void a_host_disk_that_was_used_here_is_not_made_anew(void **state)
{
	struct vol_places p = places();
	struct volume v = host_disk("hd", "a/b.img");
	struct err err = {0};
	char path[200];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/hd", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	v.may_make = v.must_exist = true;
	v.capacity = 3 * MIB;
	assert_int_equal(volume_open(&v, &p, &err), RC_NOT_FOUND);
	assert_int_equal(rmdir(path), 0); /* not even its folder */
	assert_int_equal(mkdir(path, 0755), 0);
	v.must_exist = false;
	assert_int_equal(volume_open(&v, &p, &err), RC_OK);
	v.must_exist = true;
	v.top_fd = fd_close(v.top_fd);
	assert_int_equal(volume_open(&v, &p, &err), RC_OK);
	volume_fini(&v);
}

static void a_token_shows_whether_storage_is_the_same(void **state)
{
	struct vol_places p = places();
	struct voltoken t = {.root = p.shared, .folder = "pv-1", .vmi_uid = "v", .move_uid = "m1"};
	struct voltoken there = t, next = t;
	struct err err = {0};
	struct volume v;
	char path[200];

	(void)state;
	assert_int_equal(open_pv("pv-1", GIB, false, &v, &err), RC_OK);
	volume_fini(&v);
	assert_int_equal(voltoken_check(&t, "abc", &err), RC_NOT_FOUND);
	assert_int_equal(voltoken_write(&t, "abc", &err), RC_OK);
	assert_int_equal(voltoken_check(&t, "abc", &err), RC_OK);
	assert_int_equal(voltoken_check(&t, "abd", &err), RC_CONFLICT);
	assert_int_equal(voltoken_check(&t, "abcd", &err), RC_CONFLICT);
	assert_int_equal(voltoken_check(&t, "ab", &err), RC_CONFLICT);
	/* another storage, with and without a folder of that name */
	there.root = p.local;
	assert_int_equal(voltoken_check(&there, "abc", &err), RC_NOT_FOUND);
	(void)snprintf(path, sizeof(path), "%s/pv-1", p.local);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(voltoken_check(&there, "abc", &err), RC_NOT_FOUND);
	/* what is planted there is not followed */
	(void)snprintf(path, sizeof(path), "%s/pv-1/.ferry-seen.v.m1", p.local);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_not_equal(voltoken_check(&there, "abc", &err), RC_OK);
	/* an agent died: the next move of the VM removes what it left, and nothing of others */
	next.move_uid = "m2";
	there = (struct voltoken){p.shared, "pv-1", "vv", "m1"};
	assert_int_equal(voltoken_write(&there, "x", &err), RC_OK);
	assert_int_equal(voltoken_write(&next, "abc", &err), RC_OK);
	assert_int_equal(voltoken_check(&t, "abc", &err), RC_NOT_FOUND);
	assert_int_equal(voltoken_check(&there, "x", &err), RC_OK);
	for (int again = 0; again < 2; again++)
		assert_int_equal(voltoken_drop(&next, &err), RC_OK);
	assert_int_equal(voltoken_check(&next, "abc", &err), RC_NOT_FOUND);
	next.folder = "../local";
	assert_int_not_equal(voltoken_write(&next, "abc", &err), RC_OK);
	next.folder = ".";
	assert_int_equal(voltoken_write(&next, "abc", &err), RC_OK);
	next.move_uid = "../x";
	assert_int_equal(voltoken_write(&next, "abc", &err), RC_INVALID);
}

static void what_a_tenant_plants_is_refused(void **state)
{
	struct vol_places p = places();
	char from[200], to[200];
	struct volume v;
	struct err err = {0};

	(void)state;
	for (int i = 0; i < 4; i++) {
		char pv[16];

		(void)snprintf(pv, sizeof(pv), "pv-t%d", i);
		(void)snprintf(from, sizeof(from), "%s/%s", p.shared, pv);
		if (i == 3) {
			assert_int_equal(symlink("/etc", from), 0); /* the folder itself */
		} else {
			assert_int_equal(mkdir(from, 0777), 0);
			(void)snprintf(to, sizeof(to), "%s/%s/disk.img", p.shared, pv);
			if (i == 0)
				assert_int_equal(symlink("/etc/passwd", to), 0);
			if (i == 1)
				assert_int_equal(mkfifo(to, 0666), 0);
			if (i == 2) {
				(void)snprintf(from, sizeof(from), "%s/victim", dir);
				close(open(from, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
				assert_int_equal(link(from, to), 0);
			}
		}
		if (open_pv(pv, GIB, false, &v, &err) == RC_OK)
			fail_msg("case %d was opened", i);
		volume_fini(&v);
	}
	assert_int_equal(open_pv("../x", GIB, false, &v, &err), RC_INVALID);
	volume_fini(&v);
}

static void too_small_a_disk_says_so(void **state)
{
	struct volume v;
	struct err err = {0};

	(void)state;
	assert_int_equal(open_pv("pv-big", (uint64_t)1 << 60, false, &v, &err), RC_TOO_BIG);
	assert_non_null(strstr(err.msg, "not enough space, demanded size"));
	volume_fini(&v);
	char path[160];

	(void)snprintf(path, sizeof(path), "%s/shared/pv-big/disk.img", dir);
	assert_int_equal(access(path, F_OK), -1); /* nothing half made */
}

static void overlays_record_no_base(void **state)
{
	struct vol_places p = places();
	struct volume v;
	struct image_info info;
	struct err err = {0};
	char base[128];

	(void)state;
	(void)snprintf(base, sizeof(base), "%s/base.img", dir);
	int fd = open(base, O_RDWR | O_CREAT | O_CLOEXEC, 0444);

	assert_int_equal(ftruncate(fd, 3 * MIB), 0);
	close(fd);
	volume_init(&v);
	v.kind = VOL_CONTAINER_DISK;
	v.name = mem_strdup("cd");
	v.base_path = mem_strdup(base);
	assert_int_equal(volume_open(&v, &p, &err), RC_OK);
	assert_int_equal(v.virtual_bytes, 3 * MIB);
	assert_int_equal(v.base_format, IMAGE_RAW);
	assert_int_equal(image_probe(v.top_fd, &info, &err),
			 RC_OK); /* it would refuse a backing file */
	assert_int_equal(info.format, IMAGE_QCOW2);
	assert_int_equal(fcntl(v.top_fd, F_GETFL) & O_ACCMODE, O_RDWR);
	volume_fini(&v);
}

/* kubevirt/kubevirt#9824: the image of a cdrom, and an empty disk that is only to be read. */
static void what_the_guest_only_reads_is_opened_so(void **state)
{
	static const enum vol_kind kinds[] = {VOL_CONTAINER_DISK, VOL_EMPTY_DISK};
	struct vol_places p = places();
	struct err err = {0};
	char base[128];

	(void)state;
	(void)snprintf(base, sizeof(base), "%s/drivers.iso", dir);
	int fd = open(base, O_RDWR | O_CREAT | O_CLOEXEC, 0444);

	assert_int_equal(ftruncate(fd, 3 * MIB), 0);
	close(fd);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct volume v;

		volume_init(&v);
		v.kind = kinds[i];
		v.capacity = MIB;
		v.read_only = true;
		v.name = mem_printf("ro-%zu", i);
		v.base_path = i ? NULL : mem_strdup(base);
		assert_int_equal(volume_open(&v, &p, &err), RC_OK);
		assert_int_equal(fcntl(v.top_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
		volume_fini(&v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registry_references_are_completed),
		cmocka_unit_test(folder_references_keep_tag_and_digest),
		cmocka_unit_test(bad_references_are_refused),
		cmocka_unit_test(hostile_qcow2_headers_are_refused),
		cmocka_unit_test_setup_teardown(later_layers_replace_and_whiteout, make_dir,
						drop_dir),
		cmocka_unit_test_setup_teardown(a_whiteout_of_the_folder_takes_all, make_dir,
						drop_dir),
		cmocka_unit_test_setup_teardown(hostile_layers_are_refused, make_dir, drop_dir),
		cmocka_unit_test(images_are_chosen_by_tag_digest_and_platform),
		cmocka_unit_test(base64_is_strict),
		cmocka_unit_test_setup_teardown(the_seed_is_the_same_each_time_and_readable,
						make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(a_claim_gets_a_file_of_its_size_once, make_dir,
						drop_dir),
		cmocka_unit_test_setup_teardown(a_disk_on_its_way_is_kept_apart_until_it_is_kept,
						make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(a_disk_that_is_not_kept_goes_with_its_pod, make_dir,
						drop_dir),
		cmocka_unit_test_setup_teardown(a_disk_that_moves_needs_room_for_all_of_it,
						make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(a_folder_that_is_there_is_not_replaced, make_dir,
						drop_dir),
		cmocka_unit_test_setup_teardown(a_disk_that_came_by_a_move_is_never_made_anew,
						make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(a_host_disk_that_was_used_here_is_not_made_anew,
						make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(a_host_disk_is_a_plain_file_below_a_folder_of_root,
						make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(a_token_shows_whether_storage_is_the_same, make_dir,
						drop_dir),
		cmocka_unit_test_setup_teardown(what_a_tenant_plants_is_refused, make_dir,
						drop_dir),
		cmocka_unit_test_setup_teardown(too_small_a_disk_says_so, make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(overlays_record_no_base, make_dir, drop_dir),
		cmocka_unit_test_setup_teardown(what_the_guest_only_reads_is_opened_so, make_dir,
						drop_dir),
	};

	return cmocka_run_group_tests_name("node storage", tests, NULL, NULL);
}
