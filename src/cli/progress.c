#include "cli/progress.h"

#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"

static double mib(const struct json *j, const char *key)
{
	return (double)js_get_int(j, key, 0) / (double)MIB;
}

const char *progress_phase(const struct json *vmim)
{
	const char *phase = js_str(js_at(vmim, "status", "phase", NULL));

	return str_is_empty(phase) ? "Pending" : phase;
}

void progress_print(const struct json *vmim, struct sbuf *out)
{
	const struct json *f = js_at(vmim, "status", "ferry", NULL);
	const struct json *mem = js_get(f, "memory");
	const char *phase = progress_phase(vmim), *stage = js_get_str(f, "stage");
	double total = mib(mem, "totalBytes"), left = mib(mem, "remainingBytes");

	if (total > 0)
		sbuf_addf(out, "%-16s %3.0f %%  %7.1f MiB sent  %6.1f MiB/s  pass %lld", phase,
			  100.0 * (total - left) / total, mib(mem, "transferredBytes"),
			  mib(f, "linkBytesPerSecond"), (long long)js_get_int(f, "passes", 0));
	else if (stage && (str_eq(phase, "Pending") || str_eq(phase, "Scheduling")))
		sbuf_addf(out, "%-16s %s", phase, stage);
	else
		sbuf_adds(out, phase);
}
