/* src/virt/launcher/meter.h - how fast the guest writes, measured by QEMU now and then.  Loop thread only.
 *
 * A minute's rest, a second, four seconds, and so on while the guest runs; during the first pass of a move as the
 * forecast needs it.  One command at a time, one measurement at a time, and none while the guest stands.
 */
#ifndef VIRT_LAUNCHER_METER_H
#define VIRT_LAUNCHER_METER_H

#include "virt/migration/written.h"

struct json;
struct launcher;
struct meter;

/* QEMU answers and its state is known: from here on, or on again. */
void meter_start(struct launcher *l);
void meter_lost(struct launcher *l); /* the monitor has closed */
struct meter *meter_free(struct meter *m);

/* A move wants it measured now, for so many seconds; its answer is move_measured().  Nothing happens while one is
 * under way already (then that one's comes) or QEMU does not answer. */
void meter_measure(struct launcher *l, int64_t seconds);
/* What is known that is still worth something; else empty. */
struct written meter_written(const struct launcher *l);
/* {"bytesPerSecond", "at"}; NULL: not measured so far. */
struct json *meter_json(const struct launcher *l);
/* Commands that QEMU got for it. */
int64_t meter_commands(const struct launcher *l);

#endif
