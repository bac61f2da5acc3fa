/* src/virt/subresources/subresources.h - the API group subresources.kubevirt.io.
 *
 * Loop thread only.  Codes, texts and effects are KubeVirt v1.9's.  What Ferry cannot do yet is refused
 * by name (docs/internals/admission.md lists it), never answered as if it had been done.
 */
#ifndef VIRT_SUBRESOURCES_SUBRESOURCES_H
#define VIRT_SUBRESOURCES_SUBRESOURCES_H

#include "hook/hook.h"

struct loop;
struct sbuf;
struct virt_subres;

/* For struct apisrv_hooks; its arg is the struct virt_subres. */
extern const struct subres_hook virt_subres[];
extern const size_t n_virt_subres;

/* The connection to the node agents: the API server's own certificate. */
MUST_CHECK enum rc virt_subres_new(struct virt_subres **out, struct loop *loop, const char *ca_file,
				   const char *cert_file, const char *key_file, struct err *err);
/* Prometheus text: consoles, displays and ports that are open now, by VMI.  Source: KubeVirt v1.9, virt-api. */
void virt_subres_metrics(const struct virt_subres *s, struct sbuf *out);
/* Ends consoles; the API server's calls must be gone. NULL is fine; returns NULL. */
struct virt_subres *virt_subres_free(struct virt_subres *s);

#endif
