/* src/cluster/apiserver/discovery_int.h - what the two forms of discovery share.  Loop thread only. */
#ifndef APISERVER_DISCOVERY_INT_H
#define APISERVER_DISCOVERY_INT_H

#include "cluster/apiserver/apisrv_int.h"

/* Every group and version once, in the order of api_kinds; hooks' groups follow.  fn ends it by false. */
typedef bool (*discovery_version_fn)(void *arg, const char *group, const char *version);
void discovery_each_version(const struct apisrv *s, discovery_version_fn fn, void *arg);
/* A resource that is served without being stored: reviews. */
bool discovery_is_virtual(const char *group, const char *version, const char *name);
/* An APIResourceList, the caller's; its groupVersion is "" when there is no such group or version.  NULL:
 * out of memory. */
struct json *discovery_resource_list(const struct apisrv *s, const char *group,
				     const char *version);
/* The version of aggregated discovery that the client prefers; NULL: it wants the old form. */
const char *discovery_wants_aggregated(const char *accept);
/* Answers with an APIGroupDiscoveryList (apidiscovery.k8s.io) of the core group or of all others. */
void serve_aggregated(struct apisrv_call *c, bool core, const char *version);

#endif
