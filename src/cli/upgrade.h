/* src/cli/upgrade.h - which running VMs could a node with another QEMU not take over? */
#ifndef CLI_UPGRADE_H
#define CLI_UPGRADE_H

#include "base/err.h"

struct json;
struct sbuf;

/* Why a QEMU (probe: what `ferry-node probe-qemu` tells of it) cannot take this VMI's guest, appended to why;
 * nothing is appended when it can. */
void upgrade_judge(const struct json *vmi, const struct json *probe, struct sbuf *why);

/* `ferry doctor --upgrade`: an exit code. */
int upgrade_run(const char *kubeconfig, const char *qemu, const char *ferry_node);

#endif
