/* src/virt/launcher/caps.h - giving up privileges in named stages.  Any single-threaded moment. */
#ifndef VIRT_LAUNCHER_CAPS_H
#define VIRT_LAUNCHER_CAPS_H

#include "base/err.h"

/* STAGE_START: what setting a jail up takes.  STAGE_RUN: signal QEMU, own its credentials' files.
 * STAGE_REAPER: nothing; the reaper writes one file as its owner. */
enum caps_stage { STAGE_START, STAGE_RUN, STAGE_REAPER, STAGE_NONE, STAGE__MAX };

/* Cuts the permitted, effective, inheritable, ambient and bounding sets down to the stage's, and sets
 * no_new_privs.  Never adds: what is gone stays gone. */
MUST_CHECK enum rc caps_enter(enum caps_stage stage, struct err *err);

#endif
