/* src/cli/progress.h - a migration's stage, percent and rate on one line.
 *
 * Pure.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

struct json;
struct sbuf;

/* status.phase of a VirtualMachineInstanceMigration; "Pending" before there is one. */
const char *progress_phase(const struct json *vmim);
/* "Running           37 %     47.9 MiB sent    16.1 MiB/s  pass 2", without an end of line; the percentage is the
 * migration's own (status.ferry.percent), which never falls.  While disks go over: how much of them has.  Before
 * data flows: the phase, and why it waits. */
void progress_print(const struct json *vmim, struct sbuf *out);

#endif
