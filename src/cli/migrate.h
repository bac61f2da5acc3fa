/* src/cli/migrate.h - the request for a move, which `migrate` makes and `explain` tries. */
#ifndef CLI_MIGRATE_H
#define CLI_MIGRATE_H

#include "base/err.h"

struct client;
struct json;

struct move_request {
	const char *ns; /* NULL: the client's */
	const char *vm;
	const char *to;	      /* only to this node; NULL: to any */
	const char *selector; /* "key=value,..." for addedNodeSelector; NULL: none */
	bool dry_run;	      /* nothing is stored; the answer tells where the VM could go */
};

/* Creates a VirtualMachineInstanceMigration; *out: as the server answers it, the caller's. */
MUST_CHECK enum rc migrate_create(struct client *c, const struct move_request *r, struct json **out,
				  struct err *err);

#endif
