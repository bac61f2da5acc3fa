#include "virt/launcher/kvm_probe.h"

#include <stdio.h>

void kvm_probe(struct kvm_verdict *out)
{
	out->works = false;
	snprintf(out->reason, sizeof(out->reason), "the KVM proof is not written yet");
}

void kvm_probe_cached(const char *cache_path, struct kvm_verdict *out)
{
	kvm_probe(out);
}
