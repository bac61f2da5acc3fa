#include "virt/migration/progress.h"

#define RATE_OVER (USEC_PER_SEC / 2)

/* A pass that begins with hardly less than the best one is none that gets on: KubeVirt's stallMargin. */
static bool is_smaller(int64_t left, int64_t smallest)
{
	return left < smallest - smallest / 25;
}

void mig_progress_note(struct mig_progress *p, int64_t pass, int64_t left, usec_t now)
{
	if (p->at && pass == p->pass) {
		if (left < p->left && p->counts)
			p->at = now;
		p->left = left < p->left ? left : p->left;
		return;
	}
	/* Memory has another size than the disks: its first pass is measured by nothing. */
	p->counts = !p->at || p->pass == 0 || is_smaller(left, p->smallest);
	if (p->counts) {
		p->at = now;
		p->smallest = left;
	}
	p->pass = pass;
	p->left = left;
}

bool mig_progress_is_stalled(const struct mig_progress *p, usec_t limit, usec_t now)
{
	return p->at && now - p->at > limit;
}

void mig_rate_note(struct mig_rate *r, int64_t done, usec_t now)
{
	if (r->at && now - r->at < RATE_OVER)
		return;
	if (r->at && done >= r->done)
		r->per_second = (int64_t)((double)(done - r->done) * (double)USEC_PER_SEC /
					  (double)(now - r->at));
	r->at = now;
	r->done = done;
}

int64_t mig_gigabytes(int64_t memory_bytes, int64_t disk_bytes)
{
	int64_t gb = (memory_bytes + disk_bytes + 999999999) / 1000000000;

	return gb > 1 ? gb : 1;
}
