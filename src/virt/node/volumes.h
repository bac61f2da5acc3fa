/* src/virt/node/volumes.h - makes and opens the disks of one VM.
 *
 * Blocking: pool threads; calls for one VM one at a time.  Everything that a tenant can write is
 * reached by openat2 below a folder descriptor: no link is followed, only plain files with one name
 * are opened.  New files appear whole (temporary name, then rename) or not at all.
 *
 *   <shared>/<pv>/disk.img       class "shared": seen by every node
 *   <state>/local/<pv>/disk.img  class "local": this node only
 *   <state>/local/.incoming/<uid>/<pv>/disk.img  on its way here with the VM of pod <uid>
 *   <state>/pods/<uid>/disks/    overlays, seeds, empty disks: they go with the pod
 *   <folder>/<file>              hostDisk: the folder is root's own, and an administrator has allowed it (host_files.h)
 *
 * A volume in Block mode is a file of exactly its capacity ("block.img"), handed to QEMU as it is.
 */
#ifndef NODE_VOLUMES_H
#define NODE_VOLUMES_H

#include "base/err.h"
#include "virt/node/qcow2.h"
#include "virt/node/seed.h"

enum vol_kind { VOL_CLAIM, VOL_CONTAINER_DISK, VOL_CLOUD_INIT, VOL_EMPTY_DISK, VOL_HOST_DISK };

/* KubeVirt's figures (facts 11.1, 11.3). */
#define VOL_FS_OVERHEAD_PERMILLE 55
#define VOL_TOLERATE_PERCENT	 10

struct volume {
	/* What is wanted; texts are owned by the struct. */
	char *name;
	enum vol_kind kind;
	bool read_only; /* opened O_RDONLY */
	bool is_local; /* VOL_CLAIM: class "local"; VOL_HOST_DISK: nobody says that all nodes see the file */
	/* VOL_CLAIM */
	bool is_block;
	char *pv;	   /* PersistentVolume's name */
	uint64_t capacity; /* min(capacity, request), bytes */
	bool must_exist; /* it is here, or lost, and never made anew: a move has brought it, or (VOL_HOST_DISK too) the
			    * VM has used it here */
	uint64_t
		incoming_bytes; /* target of a move that brings it (VOL_HOST_DISK too): the size at the source; 0: it
				 * is here */
	/* VOL_CONTAINER_DISK: the unpacked base, read-only */
	char *base_path;
	/* VOL_EMPTY_DISK: capacity as well */
	/* VOL_HOST_DISK: capacity as well, for a file that is made */
	char *folder, *file; /* file: below the folder */
	bool may_make;
	/* VOL_CLOUD_INIT */
	struct seed_source seed; /* texts owned below */
	char *seed_texts[8];
	uint64_t
		seed_bytes; /* target of a move: the size at the source; filled by the copy, or, read-only, built
			      * again and compared; 0: build it */

	/* What came of it. */
	int top_fd;  /* -1: not open */
	int base_fd; /* -1: no base */
	enum image_format top_format, base_format;
	uint64_t virtual_bytes;		      /* what the guest sees */
	bool has_direct_io;		      /* O_DIRECT works */
	uint64_t small_expected, small_found; /* event ToleratedSmallPV when set */
};

struct vol_places {
	const char *shared;  /* NULL: this node has no class "shared" */
	const char *local;   /* "<state>/local" */
	const char *disks;   /* the pod's own folder, made if missing */
	const char *pod_uid; /* whose volumes come; NULL: none do */
};

void volume_init(struct volume *v);
void volume_fini(struct volume *v); /* closes, frees */

/* Makes what is missing and opens it.  RC_INVALID: the image is at fault; RC_FORBIDDEN: something in the
 * volume's folder is no plain file; RC_TOO_BIG: not enough space (text as KubeVirt's); RC_IO. */
MUST_CHECK enum rc volume_open(struct volume *v, const struct vol_places *p, struct err *err);

/* Its data are this node's alone: in a move they go along. */
static inline bool volume_moves(const struct volume *v)
{
	return v->kind == VOL_CLAIM || v->kind == VOL_HOST_DISK ? v->is_local : true;
}

/* Would a disk of this size that a move brings find room in the storage for local volumes?  RC_TOO_BIG.  The text stays
 * the same while the answer does. */
MUST_CHECK enum rc volume_look(const char *local, uint64_t bytes, struct err *err);

/* Pure: bytes of disk.img for a volume of this capacity, file system overhead taken off, whole MiB. */
uint64_t volume_file_bytes(uint64_t capacity);

/* Removes a PersistentVolume's data; missing data is fine. */
MUST_CHECK enum rc volume_delete_data(const struct vol_places *p, const char *pv, bool is_local,
				      struct err *err);

/* Local volumes that a move brings are kept apart until the guest may run on them: what is there then is this node's
 * for good, what is not is dropped with the pod.  Nothing there is fine, so both may be repeated.
 * RC_CONFLICT: a folder of that name is there already. */
MUST_CHECK enum rc volume_keep_incoming(const char *local, const char *pod_uid, struct err *err);
MUST_CHECK enum rc volume_drop_incoming(const char *local, const char *pod_uid, struct err *err);

#endif
