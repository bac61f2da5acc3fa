/* What a node reads of images that nobody vouches for: disk headers, references, OCI indexes and
 * manifests, base64, and whole layers.  The first byte chooses. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "fuzz.h"
#include "json/json.h"
#include "virt/node/imgref.h"
#include "virt/node/imgunpack.h"
#include "virt/node/oci.h"
#include "virt/node/qcow2.h"
#include "virt/node/seed.h"

static void header(const uint8_t *data, size_t n)
{
	struct image_info info;
	struct err err;

	if (!image_judge(data, n, n * 1000, &info, &err) &&
	    (!info.virtual_bytes || info.virtual_bytes % 512))
		if (n)
			abort(); /* accepted, but no disk */
}

static void reference(const char *text)
{
	struct imgref r, again;
	struct err err;

	if (imgref_parse(text, &r, &err))
		return;
	/* Pinned, it must be a reference to the same place. */
	CLEANUP(mem_freep)
	char *pinned = imgref_pinned(
		&r, "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");

	if (pinned && strlen(pinned) <= 1024 && !imgref_parse(pinned, &again, &err)) {
		if (strcmp(again.place, r.place) != 0 || again.kind != r.kind)
			abort();
		imgref_fini(&again);
	}
	imgref_fini(&r);
}

static void index_and_manifest(const char *text, size_t n)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	static struct oci_manifest m;
	struct oci_descriptor d;
	struct err err;
	char path[96];

	if (js_parse(text, n, &j, &err))
		return;
	if (!oci_choose(j, NULL, NULL, &d, &err) || !oci_choose(j, "v1", NULL, &d, &err)) {
		oci_blob_path(d.digest, path);
		if (strstr(path, "..") || strlen(path) != strlen("blobs/sha256/") + 64)
			abort();
	}
	if (!oci_manifest_read(j, &m, &err) && (!m.n_layers || m.n_layers > OCI_LAYERS_MAX))
		abort();
}

static void layer(const uint8_t *data, size_t n)
{
	static const char *const wanted[] = {"disk/", "boot/vmlinuz", NULL};
	static char dir[] = "/tmp/ferry-fuzz-image-XXXXXX";
	static int dir_fd = -1;
	struct unpack_limits lim = {.bytes_max = 1 << 20, .entries_max = 100, .files_max = 4};
	int fd = memfd_create("layer", MFD_CLOEXEC);
	struct map found;
	struct err err;

	if (dir_fd < 0 && mkdtemp(dir))
		dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && dir_fd >= 0 && !file_write_all(fd, data, n, NULL) &&
	    lseek(fd, 0, SEEK_SET) == 0) {
		ignore_rc(unpack_layers(&fd, 1, wanted, dir_fd, &lim, &found, &err));
		MAP_FOREACH(it, &found)
			(void)unlinkat(dir_fd, ((struct unpack_file *)it->value)->local, 0);
		map_fini(&found);
		/* What a failed entry left. */
		for (char name[] = "f0"; name[1] <= '9'; name[1]++)
			(void)unlinkat(dir_fd, name, 0);
	}
	(void)rmdir(dir);
	if (dir_fd >= 0)
		close(dir_fd);
	dir_fd = -1;
	memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
	fd_close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (!n)
		return 0;
	CLEANUP(mem_freep) char *text = mem_strndup((const char *)data + 1, n - 1);
	char *out = NULL;
	size_t len;

	switch (data[0] % 5) {
	case 0:
		header(data + 1, n - 1);
		break;
	case 1:
		if (text)
			reference(text);
		break;
	case 2:
		index_and_manifest((const char *)data + 1, n - 1);
		break;
	case 3:
		if (text && !seed_base64(text, &out, &len, NULL))
			mem_free(out);
		break;
	default:
		layer(data + 1, n - 1);
		break;
	}
	return 0;
}
