#include "virt/node/qcow2.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

enum {
	V2_HEADER = 72,
	V3_HEADER = 104,
	CLUSTER_BITS_MIN = 9,
	CLUSTER_BITS_MAX = 21,
	REFCOUNT_ORDER = 4, /* 16-bit counts */
};

#define QCOW2_MAGIC	  0x514649fbu /* "QFI\xfb" */
#define MAX_VIRTUAL_BYTES ((uint64_t)1 << 50)

/* Incompatible features: dirty and corrupt are states, compression type and extended L2 are layouts
 * that QEMU reads by itself; an external data file is another file to open. */
#define INCOMPAT_DATA_FILE ((uint64_t)1 << 2)
#define INCOMPAT_CORRUPT   ((uint64_t)1 << 1)
#define INCOMPAT_KNOWN	   ((uint64_t)0x1f)

#define EXT_END		   0u
#define EXT_BACKING_FORMAT 0xe2792acau
#define EXT_DATA_FILE	   0x44415441u

static uint32_t get_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t get_be64(const uint8_t *p)
{
	return (uint64_t)get_be32(p) << 32 | get_be32(p + 4);
}

static void put_be32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

static void put_be64(uint8_t *p, uint64_t v)
{
	put_be32(p, (uint32_t)(v >> 32));
	put_be32(p + 4, (uint32_t)v);
}

const char *image_format_name(enum image_format f)
{
	return f == IMAGE_QCOW2 ? "qcow2" : "raw";
}

/* Walks the header extensions that lie in the probed bytes. */
static enum rc judge_extensions(const uint8_t *head, size_t n, size_t at, size_t end,
				struct err *err)
{
	if (end > n)
		end = n;
	while (at + 8 <= end) {
		uint32_t type = get_be32(head + at);
		uint64_t len = get_be32(head + at + 4);

		if (type == EXT_END)
			return RC_OK;
		if (type == EXT_DATA_FILE)
			return err_set(err, RC_INVALID,
				       "the qcow2 image names an external data file, which is not "
				       "allowed");
		if (type == EXT_BACKING_FORMAT)
			return err_set(
				err, RC_INVALID,
				"the qcow2 image names a backing format, which is not allowed");
		at += 8 + ((len + 7) & ~(uint64_t)7);
	}
	return RC_OK;
}

/* Versions 3 and up add feature bits and the header's length. */
static enum rc judge_v3(const uint8_t *head, size_t n, size_t cluster, struct err *err)
{
	if (n < V3_HEADER)
		return err_set(err, RC_INVALID, "the qcow2 header is cut short");
	uint64_t incompat = get_be64(head + 72);
	uint32_t order = get_be32(head + 96);
	uint32_t length = get_be32(head + 100);

	if (incompat & INCOMPAT_DATA_FILE)
		return err_set(
			err, RC_INVALID,
			"the qcow2 image keeps its data in an external file, which is not allowed");
	if (incompat & INCOMPAT_CORRUPT)
		return err_set(err, RC_INVALID, "the qcow2 image is marked as corrupt");
	if (incompat & ~INCOMPAT_KNOWN)
		return err_set(err, RC_INVALID, "the qcow2 image needs unknown features (0x%llx)",
			       (unsigned long long)(incompat & ~INCOMPAT_KNOWN));
	if (order > 6)
		return err_set(err, RC_INVALID, "the qcow2 header has a bad refcount order");
	if (length < V3_HEADER || length > cluster || length % 8)
		return err_set(err, RC_INVALID, "the qcow2 header has a bad length");
	return judge_extensions(head, n, length, cluster, err);
}

/* The L1 table maps the whole disk and lies inside the file. */
static enum rc judge_l1(const uint8_t *head, uint64_t size, size_t cluster, uint64_t file_bytes,
			struct err *err)
{
	uint64_t entries = get_be32(head + 36);
	uint64_t at = get_be64(head + 40);
	uint64_t per_entry = (uint64_t)cluster * (cluster / 8); /* bytes that one entry maps */
	uint64_t needed = (size + per_entry - 1) / per_entry;

	if (entries < needed || entries > (uint64_t)4 * 1024 * 1024)
		return err_set(err, RC_INVALID, "the qcow2 header has a bad L1 table size");
	if (at % cluster || at < cluster || at > file_bytes || entries * 8 > file_bytes - at)
		return err_set(err, RC_INVALID, "the qcow2 L1 table lies outside the file");
	return RC_OK;
}

static enum rc judge_qcow2(const uint8_t *head, size_t n, uint64_t file_bytes,
			   struct image_info *out, struct err *err)
{
	if (n < V2_HEADER)
		return err_set(err, RC_INVALID, "the qcow2 header is cut short");
	uint32_t version = get_be32(head + 4);
	uint64_t backing = get_be64(head + 8);
	uint32_t backing_len = get_be32(head + 16);
	uint32_t bits = get_be32(head + 20);
	uint64_t size = get_be64(head + 24);
	uint32_t crypt = get_be32(head + 32);

	if (version != 2 && version != 3)
		return err_set(err, RC_INVALID, "qcow2 version %u is not supported", version);
	if (backing || backing_len)
		return err_set(err, RC_INVALID,
			       "the qcow2 image has a backing file, which is not allowed");
	if (crypt)
		return err_set(err, RC_INVALID,
			       "the qcow2 image is encrypted, which is not supported");
	if (bits < CLUSTER_BITS_MIN || bits > CLUSTER_BITS_MAX)
		return err_set(err, RC_INVALID, "the qcow2 header has a bad cluster size");
	if (!size || size > MAX_VIRTUAL_BYTES || size % 512)
		return err_set(err, RC_INVALID, "the qcow2 header has a bad disk size (%llu bytes)",
			       (unsigned long long)size);
	size_t cluster = (size_t)1 << bits;
	enum rc rc = judge_l1(head, size, cluster, file_bytes, err);

	if (!rc)
		rc = version == 3 ? judge_v3(head, n, cluster, err)
				  : judge_extensions(head, n, V2_HEADER, cluster, err);
	if (rc)
		return rc;
	out->format = IMAGE_QCOW2;
	out->virtual_bytes = size;
	return RC_OK;
}

enum rc image_judge(const uint8_t *head, size_t n, uint64_t file_bytes, struct image_info *out,
		    struct err *err)
{
	if (n > QCOW2_PROBE_BYTES)
		n = QCOW2_PROBE_BYTES;
	if (n >= 4 && get_be32(head) == QCOW2_MAGIC)
		return judge_qcow2(head, n, file_bytes, out, err);
	if (!file_bytes)
		return err_set(err, RC_INVALID, "the disk image is empty");
	out->format = IMAGE_RAW;
	out->virtual_bytes = (file_bytes + 511) & ~(uint64_t)511;
	return RC_OK;
}

enum rc image_probe(int fd, struct image_info *out, struct err *err)
{
	uint8_t head[QCOW2_PROBE_BYTES];
	size_t n = 0;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set_sys(err, errno, "cannot stat the disk image");
	if (!S_ISREG(st.st_mode))
		return err_set(err, RC_INVALID, "the disk image is not a regular file");
	if (st.st_nlink > 1)
		return err_set(err, RC_INVALID,
			       "the disk image has more than one name (hard links)");
	while (n < sizeof(head)) {
		ssize_t k = pread(fd, head + n, sizeof(head) - n, (off_t)n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return err_set_sys(err, errno, "cannot read the disk image");
		if (k == 0)
			break;
		n += (size_t)k;
	}
	return image_judge(head, n, (uint64_t)st.st_size, out, err);
}

/* Layout: cluster 0 header, 1 refcount table, 2 refcount block, 3.. L1 table (zeros: a hole). */
enum rc qcow2_format(int fd, uint64_t virtual_bytes, struct err *err)
{
	const uint64_t cluster = QCOW2_CLUSTER_BYTES;
	uint64_t per_l1 = cluster * (cluster / 8);
	uint64_t l1_entries = (virtual_bytes + per_l1 - 1) / per_l1;
	uint64_t l1_clusters = (l1_entries * 8 + cluster - 1) / cluster;
	uint64_t used = 3 + l1_clusters;

	if (!virtual_bytes || virtual_bytes % 512 || virtual_bytes > MAX_VIRTUAL_BYTES)
		return err_set(err, RC_INVALID, "a disk of %llu bytes is not possible",
			       (unsigned long long)virtual_bytes);
	if (used > cluster / 2)
		return err_set(err, RC_TOO_BIG, "a disk of %llu bytes is too large",
			       (unsigned long long)virtual_bytes);
	CLEANUP(mem_freep) uint8_t *b = mem_alloc(3 * cluster);

	if (!b)
		return err_set(err, RC_NOMEM, "out of memory");
	put_be32(b, QCOW2_MAGIC);
	put_be32(b + 4, 3);
	put_be32(b + 20, 16); /* cluster bits */
	put_be64(b + 24, virtual_bytes);
	put_be32(b + 36, (uint32_t)l1_entries);
	put_be64(b + 40, 3 * cluster); /* L1 table */
	put_be64(b + 48, cluster);     /* refcount table */
	put_be32(b + 56, 1);	       /* its clusters */
	put_be32(b + 96, REFCOUNT_ORDER);
	put_be32(b + 100, V3_HEADER);
	put_be64(b + cluster, 2 * cluster); /* the one refcount block */
	for (uint64_t i = 0; i < used; i++)
		b[2 * cluster + 2 * i + 1] = 1;
	enum rc rc = file_write_all(fd, b, 3 * cluster, err);

	if (rc)
		return rc;
	if (ftruncate(fd, (off_t)(used * cluster)) < 0)
		return err_set_sys(err, errno, "cannot size the disk image");
	return RC_OK;
}
