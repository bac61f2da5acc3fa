/* lib/base/file.h - file descriptors, whole-file reads, durable writes, random bytes, time text.
 *
 * Blocking: daemons call the file functions at start-up or from the pool.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <sys/types.h>

#include "base/err.h"

/* Closes if >= 0, keeps errno; returns -1. */
int fd_close(int fd);
static inline UNUSED void fd_closep(int *fd)
{
	fd_close(*fd);
}

/* The whole file, NUL-terminated (the NUL is not counted).  RC_TOO_BIG above max bytes. */
MUST_CHECK enum rc file_read(const char *path, size_t max, char **out, size_t *n, struct err *err);
/* Written to a temporary name beside it, fsync'ed, renamed, directory fsync'ed: after RC_OK the file
 * is whole and durable, before it the old one is untouched. */
MUST_CHECK enum rc file_write_durable(const char *path, const void *bytes, size_t n, mode_t mode,
				      struct err *err);
/* The name of what path leads to is on disk after this. */
MUST_CHECK enum rc file_sync_parent(const char *path, struct err *err);
/* mkdir -p with this mode for what is missing. */
MUST_CHECK enum rc file_mkdir_p(const char *path, mode_t mode, struct err *err);
/* Removes a tree below (and with) path without following links or crossing mounts; a missing path is fine. */
MUST_CHECK enum rc file_remove_tree(const char *path, struct err *err);
/* Calls fn for every name in the folder that does not begin with a dot, until one fails; a missing folder has none. */
typedef enum rc (*file_each_fn)(const char *name, void *arg, struct err *err);
MUST_CHECK enum rc file_each(const char *dir, file_each_fn fn, void *arg, struct err *err);
/* Opens path below dir_fd with openat2: no links, no "..", no magic links (RESOLVE_BENEATH...). */
MUST_CHECK enum rc file_open_beneath(int dir_fd, const char *path, int flags, mode_t mode, int *out,
				     struct err *err);
/* Loops over short writes and EINTR; for blocking descriptors. */
MUST_CHECK enum rc file_write_all(int fd, const void *bytes, size_t n, struct err *err);

/* A connected stream socket, non-blocking and close-on-exec.  RC_INVALID: the path is too long; RC_BUSY: the
 * listener's queue is full. */
MUST_CHECK enum rc file_connect_unix(const char *path, int *out, struct err *err);

/* Kernel randomness; never fails after boot (aborts if the kernel says no: a bug of the sandbox). */
void rand_bytes(void *out, size_t n);
uint64_t rand_u64(void);
/* Tests and the simulation only: everything random from now on comes from this seed, so that a run can
 * be repeated; 0: the kernel's again. */
void rand_fix(uint64_t seed);
/* RFC 4122 version 4, 36 characters and a NUL. */
void rand_uuid(char out[37]);
/* n characters of Kubernetes' generateName alphabet, and a NUL. */
void rand_name(char *out, size_t n);

/* RFC 3339, UTC, whole seconds ("2026-01-02T03:04:05Z"), from microseconds since the epoch. */
void time_rfc3339(usec_t realtime, char out[32]);
/* The same with six digits of fraction (metav1.MicroTime). */
void time_rfc3339_micro(usec_t realtime, char out[40]);
/* Both forms; any number of fraction digits, 'Z' or an offset. */
MUST_CHECK enum rc time_parse(const char *s, usec_t *out, struct err *err);

#endif
