/* src/virt/node/imgunpack.h - takes wanted files out of the layers of a container image.
 *
 * Runs in its own jailed process (imgunpack_main), because the layers are hostile until proven dull.
 * Only regular files are ever made, under names of our own, in one folder.
 */
#ifndef NODE_IMGUNPACK_H
#define NODE_IMGUNPACK_H

#include "base/err.h"
#include "base/map.h"

enum { UNPACK_ENTRIES_MAX = 1000000, UNPACK_FILES_MAX = 16 };

struct unpack_limits {
	uint64_t bytes_max; /* of all files made, holes included */
	size_t entries_max; /* over all layers */
	size_t files_max;   /* wanted files alive at one time */
};

struct unpack_file {
	char local[16]; /* name in the output folder: "f0", "f1", … */
	uint64_t bytes;
};

/* Reads layers (tar, plain or gzip or zstd) lowest first from fds[0..n).  wanted: NULL-terminated; an
 * item that ends in '/' is a folder whose direct files are wanted, another is one file; no leading
 * '/'.  Later layers replace or whiteout earlier ones.  found: path -> struct unpack_file *, owned
 * by the map (initialised here, caller calls map_fini).  RC_INVALID says what is wrong with the
 * image; RC_TOO_BIG which limit it exceeds. */
MUST_CHECK enum rc unpack_layers(const int *fds, size_t n, const char *const *wanted,
				 int out_dir_fd, const struct unpack_limits *lim, struct map *found,
				 struct err *err);

/* The jailed program: argv = {name, N layers, bytes_max, wanted…}; layers are descriptors 3…; files
 * go to the working directory; prints {"<path>":{"file":"f0","bytes":N},…}.  Returns the exit code. */
int imgunpack_main(int argc, char **argv);

#endif
