#include "virt/launcher/caps.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(c_) ((uint64_t)1 << (c_))

static const uint64_t stages[STAGE__MAX] = {
	[STAGE_START] = BIT(CAP_SYS_ADMIN) | BIT(CAP_SETUID) | BIT(CAP_SETGID) | BIT(CAP_SETPCAP) |
			BIT(CAP_KILL) | BIT(CAP_CHOWN) | BIT(CAP_MKNOD) | BIT(CAP_DAC_OVERRIDE) |
			BIT(CAP_FOWNER) | BIT(CAP_SYS_RESOURCE) | BIT(CAP_SYS_CHROOT),
	[STAGE_RUN] = BIT(CAP_KILL) | BIT(CAP_CHOWN) | BIT(CAP_SETPCAP),
	[STAGE_REAPER] = 0,
	[STAGE_NONE] = 0,
};

enum rc caps_enter(enum caps_stage stage, struct err *err)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set_sys(err, errno, "cannot set no_new_privs");
	if (syscall(SYS_capget, &head, data) < 0)
		return err_set_sys(err, errno, "cannot read the capabilities");
	uint64_t have = data[0].permitted | (uint64_t)data[1].permitted << 32;
	uint64_t keep = have & stages[stage];

	if (have & BIT(CAP_SETPCAP))
		for (int c = 0; c < 64; c++)
			if (!(stages[stage] & BIT(c)) && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 &&
			    errno != EINVAL)
				return err_set_sys(err, errno,
						   "cannot shrink the capability bounding set");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
		return err_set_sys(err, errno, "cannot clear the ambient capabilities");
	for (int i = 0; i < 2; i++) {
		data[i].permitted = data[i].effective = (uint32_t)(keep >> (32 * i));
		data[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &head, data) < 0)
		return err_set_sys(err, errno, "cannot drop capabilities");
	return RC_OK;
}
