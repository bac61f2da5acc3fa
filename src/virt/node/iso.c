#include "virt/node/iso.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Sector plan. */
enum {
	AT_PRIMARY = 16,
	AT_JOLIET,
	AT_END,
	AT_PATHS_L,
	AT_PATHS_M,
	AT_JOLIET_PATHS_L,
	AT_JOLIET_PATHS_M,
	AT_ROOT,
	AT_JOLIET_ROOT,
	AT_FILES,
	NAME_MAX_CHARS = 60,
};

struct image {
	uint8_t *b;
	const struct iso_file *files;
	uint32_t at[ISO_FILES_MAX]; /* first sector of each */
	size_t n;
	uint32_t sectors;
};

static uint32_t sectors_of(size_t bytes)
{
	return (uint32_t)((bytes + ISO_SECTOR - 1) / ISO_SECTOR);
}

/* ISO 9660 stores most numbers twice: little-endian, then big-endian. */
static void put16(uint8_t *p, uint16_t v)
{
	p[0] = p[3] = (uint8_t)v;
	p[1] = p[2] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = p[7 - i] = (uint8_t)(v >> (8 * i));
}

static void put_text(uint8_t *p, size_t cap, const char *s, bool wide)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < cap; i++)
		if (!wide)
			p[i] = i < n ? (uint8_t)s[i] : ' ';
		else if (i % 2 == 0)
			p[i] = 0;
		else
			p[i] = i / 2 < n ? (uint8_t)s[i / 2] : ' ';
}

/* The primary tree may use A-Z, 0-9 and '_' only. */
static size_t plain_name(size_t i, const char *name, char out[16])
{
	char base[9];
	size_t n = 0;

	for (; n < 6 && name[n]; n++)
		base[n] = isalnum((unsigned char)name[n]) ? (char)toupper((unsigned char)name[n])
							  : '_';
	base[n] = '\0';
	return (size_t)snprintf(out, 16, "%s_%zu.;1", base, i);
}

/* One directory record; returns its length. */
static size_t put_record(uint8_t *p, const void *name, size_t n, uint32_t at, uint32_t bytes,
			 bool dir)
{
	size_t len = 33 + n + (n % 2 == 0);

	p[0] = (uint8_t)len;
	put32(p + 2, at);
	put32(p + 10, bytes);
	p[18] = 70; /* 1970-01-01: the same input gives the same image */
	p[19] = 1;
	p[20] = 1;
	p[25] = dir ? 2 : 0;
	put16(p + 28, 1);
	p[32] = (uint8_t)n;
	memcpy(p + 33, name, n);
	return len;
}

static void put_root(struct image *im, uint32_t at, bool joliet)
{
	uint8_t *p = im->b + (size_t)at * ISO_SECTOR;
	size_t k = put_record(p, "\0", 1, at, ISO_SECTOR, true);

	k += put_record(p + k, "\1", 1, at, ISO_SECTOR, true);
	for (size_t i = 0; i < im->n; i++) {
		uint8_t wide[2 * NAME_MAX_CHARS];
		char plain[16];
		size_t n = strlen(im->files[i].name);

		if (joliet) {
			put_text(wide, 2 * n, im->files[i].name, true);
			k += put_record(p + k, wide, 2 * n, im->at[i], (uint32_t)im->files[i].n,
					false);
		} else {
			n = plain_name(i, im->files[i].name, plain);
			k += put_record(p + k, plain, n, im->at[i], (uint32_t)im->files[i].n,
					false);
		}
	}
}

static void put_path_table(struct image *im, uint32_t at, uint32_t root, bool big)
{
	uint8_t *p = im->b + (size_t)at * ISO_SECTOR;

	p[0] = 1;
	for (int i = 0; i < 4; i++)
		p[2 + i] = (uint8_t)(root >> (8 * (big ? 3 - i : i)));
	p[big ? 7 : 6] = 1;
}

static void put_volume(struct image *im, uint32_t at, const char *label, bool joliet)
{
	uint8_t *p = im->b + (size_t)at * ISO_SECTOR;
	uint32_t paths = joliet ? AT_JOLIET_PATHS_L : AT_PATHS_L;

	p[0] = joliet ? 2 : 1;
	memcpy(p + 1, "CD001", 5);
	p[6] = 1;
	put_text(p + 8, 32, "LINUX", joliet);
	put_text(p + 40, 32, label, joliet);
	put32(p + 80, im->sectors);
	if (joliet)
		memcpy(p + 88, "%/E", 3); /* UCS-2 level 3 */
	put16(p + 120, 1);
	put16(p + 124, 1);
	put16(p + 128, ISO_SECTOR);
	put32(p + 132, 10); /* bytes of the path table */
	for (int i = 0; i < 4; i++) {
		p[140 + i] = (uint8_t)(paths >> (8 * i));
		p[148 + i] = (uint8_t)((paths + 1) >> (8 * (3 - i)));
	}
	put_record(p + 156, "\0", 1, joliet ? AT_JOLIET_ROOT : AT_ROOT, ISO_SECTOR, true);
	put_text(p + 190, 623, "", joliet); /* set, publisher, preparer, application, files */
	for (size_t t = 813; t < 881; t += 17)
		memset(p + t, '0', 16); /* no dates */
	p[881] = 1;
}

enum rc iso_write(const char *label, const struct iso_file *files, size_t n, struct sbuf *out,
		  struct err *err)
{
	struct image im = {.files = files, .n = n, .sectors = AT_FILES};

	if (n > ISO_FILES_MAX || strlen(label) > 16)
		return err_set(err, RC_INVALID,
			       "too many files or too long a label for an ISO image");
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(files[i].name);

		if (!len || len > NAME_MAX_CHARS)
			return err_set(err, RC_INVALID, "'%s' is not a name for an ISO image",
				       files[i].name);
		if (files[i].n > ISO_BYTES_MAX)
			return err_set(err, RC_TOO_BIG, "'%s' is too large for a seed",
				       files[i].name);
		im.at[i] = im.sectors;
		im.sectors += sectors_of(files[i].n);
	}
	/* Whole blocks of 4 KiB: as a writable disk on storage with such blocks, QEMU copies it to the target
	 * of a move only then. */
	im.sectors += im.sectors % 2;
	CLEANUP(mem_freep) uint8_t *b = mem_calloc(im.sectors, ISO_SECTOR);

	if (!b)
		return err_set(err, RC_NOMEM, "out of memory");
	im.b = b;
	put_volume(&im, AT_PRIMARY, label, false);
	put_volume(&im, AT_JOLIET, label, true);
	b[AT_END * ISO_SECTOR] = 255;
	memcpy(b + AT_END * ISO_SECTOR + 1, "CD001\1", 6);
	put_path_table(&im, AT_PATHS_L, AT_ROOT, false);
	put_path_table(&im, AT_PATHS_M, AT_ROOT, true);
	put_path_table(&im, AT_JOLIET_PATHS_L, AT_JOLIET_ROOT, false);
	put_path_table(&im, AT_JOLIET_PATHS_M, AT_JOLIET_ROOT, true);
	put_root(&im, AT_ROOT, false);
	put_root(&im, AT_JOLIET_ROOT, true);
	for (size_t i = 0; i < n; i++)
		if (files[i].n)
			memcpy(b + (size_t)im.at[i] * ISO_SECTOR, files[i].bytes, files[i].n);
	sbuf_add(out, b, (size_t)im.sectors * ISO_SECTOR);
	enum rc rc = sbuf_rc(out);

	return rc ? err_set(err, rc, "the seed image is too large") : RC_OK;
}
