#include "virt/launcher/vmstate.h"

/* Every legal move, and nothing else; docs/internals/launcher.md draws it.  Cells hold next state + 1. */
#define TO(s_) (VM_##s_ + 1)

static const unsigned char edges[VM_STATE__MAX][VM_EVENT__MAX] = {
	[VM_NONE] = {[VME_LAUNCH] = TO(STARTING)},
	/* Adoption starts here too, so every state QEMU can be found in is reachable. */
	[VM_STARTING] = {[VME_HOLDS] = TO(PRELAUNCH),
			 [VME_WAITS] = TO(INCOMING),
			 [VME_RUNS] = TO(RUNNING),
			 [VME_STOPS] = TO(PAUSED),
			 [VME_LOADED] = TO(PAUSED),
			 [VME_MIGRATES] = TO(MIGRATING),
			 [VME_SWITCHES] = TO(PRE_SWITCHOVER),
			 [VME_MIGRATED] = TO(POSTMIGRATE),
			 [VME_POWEROFF] = TO(SHUTDOWN),
			 [VME_CRASHES] = TO(CRASHED),
			 [VME_EXITS] = TO(GONE)},
	[VM_PRELAUNCH] = {[VME_RUNS] = TO(RUNNING), [VME_EXITS] = TO(GONE)},
	[VM_INCOMING] =
		{[VME_LOADED] = TO(PAUSED), [VME_RUNS] = TO(RUNNING), [VME_EXITS] = TO(GONE)},
	[VM_RUNNING] = {[VME_STOPS] = TO(PAUSED),
			[VME_MIGRATES] = TO(MIGRATING),
			[VME_POWEROFF] = TO(SHUTDOWN),
			[VME_CRASHES] = TO(CRASHED),
			[VME_EXITS] = TO(GONE)},
	[VM_PAUSED] = {[VME_RUNS] = TO(RUNNING),
		       [VME_MIGRATES] = TO(MIGRATING),
		       [VME_POWEROFF] = TO(SHUTDOWN),
		       [VME_CRASHES] = TO(CRASHED),
		       [VME_EXITS] = TO(GONE)},
	[VM_MIGRATING] = {[VME_SWITCHES] = TO(PRE_SWITCHOVER),
			  [VME_RUNS] = TO(RUNNING),
			  [VME_STOPS] = TO(PAUSED),
			  [VME_MIGRATED] = TO(POSTMIGRATE),
			  [VME_POWEROFF] = TO(SHUTDOWN),
			  [VME_CRASHES] = TO(CRASHED),
			  [VME_EXITS] = TO(GONE)},
	[VM_PRE_SWITCHOVER] = {[VME_RUNS] = TO(RUNNING),
			       [VME_STOPS] = TO(PAUSED),
			       [VME_MIGRATED] = TO(POSTMIGRATE),
			       [VME_CRASHES] = TO(CRASHED),
			       [VME_EXITS] = TO(GONE)},
	/* The guest may have been off when it was moved: then the copy here is only good for quitting. */
	[VM_POSTMIGRATE] = {[VME_RUNS] = TO(RUNNING), [VME_EXITS] = TO(GONE)},
	[VM_SHUTDOWN] = {[VME_EXITS] = TO(GONE)},
	[VM_CRASHED] =
		{[VME_RUNS] = TO(RUNNING), [VME_POWEROFF] = TO(SHUTDOWN), [VME_EXITS] = TO(GONE)},
};
#undef TO

#define VM_NAME(code, name) name,
static const char *const state_names[] = {VM_STATES(VM_NAME)};
static const char *const event_names[] = {VM_EVENTS(VM_NAME)};
#undef VM_NAME

const char *vm_state_name(enum vm_state s)
{
	assert(s < VM_STATE__MAX);
	return state_names[s];
}

const char *vm_event_name(enum vm_event e)
{
	assert(e < VM_EVENT__MAX);
	return event_names[e];
}

bool vm_state_next(enum vm_state s, enum vm_event e, enum vm_state *next)
{
	assert(s < VM_STATE__MAX && e < VM_EVENT__MAX);
	if (!edges[s][e])
		return false;
	*next = (enum vm_state)(edges[s][e] - 1);
	return true;
}
