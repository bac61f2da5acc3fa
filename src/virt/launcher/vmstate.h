/* src/virt/launcher/vmstate.h - the states of a VM as its launcher sees it: a table and nothing else. */
#ifndef VIRT_LAUNCHER_VMSTATE_H
#define VIRT_LAUNCHER_VMSTATE_H

#include "base/err.h"

#define VM_STATES(X)                           \
	X(VM_NONE, "none")                     \
	X(VM_STARTING, "starting")             \
	X(VM_PRELAUNCH, "prelaunch")           \
	X(VM_INCOMING, "incoming")             \
	X(VM_RUNNING, "running")               \
	X(VM_PAUSED, "paused")                 \
	X(VM_MIGRATING, "migrating")           \
	X(VM_PRE_SWITCHOVER, "pre-switchover") \
	X(VM_POSTMIGRATE, "postmigrate")       \
	X(VM_SHUTDOWN, "shutdown")             \
	X(VM_CRASHED, "crashed")               \
	X(VM_GONE, "gone")

#define VM_EVENTS(X)                \
	X(VME_LAUNCH, "launch")     \
	X(VME_HOLDS, "holds")       \
	X(VME_WAITS, "waits")       \
	X(VME_RUNS, "runs")         \
	X(VME_STOPS, "stops")       \
	X(VME_LOADED, "loaded")     \
	X(VME_MIGRATES, "migrates") \
	X(VME_SWITCHES, "switches") \
	X(VME_MIGRATED, "migrated") \
	X(VME_POWEROFF, "poweroff") \
	X(VME_CRASHES, "crashes")   \
	X(VME_EXITS, "exits")

#define VM_ENUM(code, name) code,
enum vm_state { VM_STATES(VM_ENUM) VM_STATE__MAX };
enum vm_event { VM_EVENTS(VM_ENUM) VM_EVENT__MAX };
#undef VM_ENUM

const char *vm_state_name(enum vm_state s);
const char *vm_event_name(enum vm_event e);
/* False: the event is refused in this state. */
bool vm_state_next(enum vm_state s, enum vm_event e, enum vm_state *next);

#endif
