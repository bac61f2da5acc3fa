/* src/virt/node/host_files.h - the files of this node that are disks of VMs: hostDisks.
 *
 * Blocking: pool threads; calls for one pod one at a time.  A file that all nodes see (shared) is only opened, and made
 * where it is missing.  One that is this node's own comes with a move and is left by one; what a pod has to do with it
 * stands in a record, <state>/local/.host-files/<pod uid>/<volume>, which is durable before anything is made:
 *
 *   incoming  this pod makes it: the file .ferry-incoming.<pod uid>.<volume>, of which the disk's own name is a second
 *             one (and which nobody else can use as a disk, because of its two names)
 *   used      the pod's guest runs on it: of this inode; or, once that was said (elsewhere), ran on it here
 *
 * So nothing of a user's is ever removed: an incoming file has a name that only its pod gives, and the disk's name goes
 * with it only while it is the same file; a used one goes only when the VM has left this node, and by its inode.
 */
#ifndef NODE_HOST_FILES_H
#define NODE_HOST_FILES_H

#include "base/err.h"

struct vol_places;
struct volume;

/* Opens the file, as volume_open() does (which calls this).  With incoming_bytes it is made anew.  RC_EXISTS: there is
 * a file of that name already. */
MUST_CHECK enum rc host_file_open(struct volume *v, const struct vol_places *p, struct err *err);

/* What would a file of this size find that a move brings to this place?  Makes nothing, and looks for no other file; the
 * text stays the same while the answer does.  RC_EXISTS: there is one, or a pod has still to do with one there, whose uid
 * is then in owner (else ""); RC_TOO_BIG; what is wrong with the folder. */
enum { HOST_FILE_OWNER = 64 };
MUST_CHECK enum rc host_file_look(const char *local, const char *folder, const char *file,
				  uint64_t bytes, char owner[HOST_FILE_OWNER], struct err *err);
/* What has come for this pod is its guest's from now on; may be repeated.  RC_CONFLICT: the name is another file's. */
MUST_CHECK enum rc host_files_keep(const char *local, const char *pod_uid, struct err *err);
/* The pod has ended.  Each folder may lie on a storage of its own, so its records are ended one folder after the other:
 * *folder is the next one (the caller's), and NULL when nothing of the pod's records is left any more. */
MUST_CHECK enum rc host_files_next(const char *local, const char *pod_uid, char **folder,
				   struct err *err);
/* The files of the guest whose paths are in moved[] are on another node now.  Durable, and the first step of the pod's end:
 * who said so may be gone before the last one. */
MUST_CHECK enum rc host_files_note_moved(const char *local, const char *pod_uid, char *const *moved,
					 size_t n_moved, struct err *err);
/* In this folder, what came and was not kept is removed, and so are files that have been noted as moved, unless another
 * pod has to do with them here.  Nothing there is fine. */
MUST_CHECK enum rc host_files_end(const char *local, const char *pod_uid, const char *folder,
				  struct err *err);

#endif
