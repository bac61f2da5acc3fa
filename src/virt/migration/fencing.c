#include "virt/migration/fencing.h"

#include "api/api.h"
#include "base/file.h"
#include "base/str.h"

/* Clocks agree within it; API times have whole seconds. */
#define MARGIN (5 * USEC_PER_SEC)

bool fencing_condemns(const NodeFence *f, const ObjectMeta *pod)
{
	usec_t proven, made;

	if (!f || !str_eq(f->status.state, FenceState_Proven) || !f->status.endTime ||
	    !pod->creationTimestamp || time_parse(f->status.endTime, &proven, NULL) ||
	    time_parse(pod->creationTimestamp, &made, NULL))
		return false;
	return made <= proven + MARGIN;
}
