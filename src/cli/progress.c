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

static bool stands(const struct json *vmim)
{
	return str_eq(progress_phase(vmim), "Running") &&
	       str_eq(js_str(js_at(vmim, "status", "migrationState", "mode", NULL)), "Paused");
}

/* Of all that goes over, as status.ferry has it: what is left of memory alone grows again with each pass. */
static void print_percent(const struct json *vmim, struct sbuf *out)
{
	const struct json *f = js_at(vmim, "status", "ferry", NULL);

	sbuf_addf(out, "%-16s %3lld %%", progress_phase(vmim),
		  (long long)js_get_int(f, "percent", 0));
}

static void print_disks(const struct json *vmim, struct sbuf *out)
{
	const struct json *disks = js_at(vmim, "status", "ferry", "disks", NULL);
	double total = 0, left = 0;

	for (size_t i = 0; i < js_len(disks); i++) {
		total += mib(js_item(disks, i), "totalBytes");
		left += mib(js_item(disks, i), "remainingBytes");
	}
	print_percent(vmim, out);
	sbuf_addf(out, "  %7.1f of %.1f MiB of disks", total - left, total);
}

static void print_memory(const struct json *vmim, struct sbuf *out)
{
	const struct json *f = js_at(vmim, "status", "ferry", NULL);
	const struct json *mem = js_get(f, "memory");
	const char *stage = js_get_str(f, "stage");

	print_percent(vmim, out);
	sbuf_addf(out, "  %7.1f MiB sent  %6.1f MiB/s  pass %lld", mib(mem, "transferredBytes"),
		  mib(f, "linkBytesPerSecond"), (long long)js_get_int(f, "passes", 0));
	if (stage && str_has_prefix(stage, "postcopy"))
		sbuf_addf(out, "  %s",
			  str_eq(stage, "postcopy") ? "post-copy" : "post-copy: the link is lost");
	else if (stands(vmim))
		sbuf_adds(out, "  the guest is paused while the rest goes over");
	else if (str_eq(js_get_str(f, "forecast"), "Diverges"))
		sbuf_adds(out, "  writes faster than the link");
	else if (js_get(f, "secondsLeft"))
		sbuf_addf(out, "  about %lld s left", (long long)js_get_int(f, "secondsLeft", 0));
}

void progress_print(const struct json *vmim, struct sbuf *out)
{
	const struct json *f = js_at(vmim, "status", "ferry", NULL);
	const char *phase = progress_phase(vmim), *stage = js_get_str(f, "stage");

	if (js_get_int(js_get(f, "memory"), "totalBytes", 0) > 0)
		print_memory(vmim, out);
	else if (js_get(f, "percent") && js_len(js_get(f, "disks")))
		print_disks(vmim, out);
	else if (stage && (str_eq(phase, "Pending") || str_eq(phase, "Scheduling")))
		sbuf_addf(out, "%-16s %s", phase, stage);
	else
		sbuf_adds(out, phase);
}
