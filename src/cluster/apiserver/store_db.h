/* src/cluster/apiserver/store_db.h - the store's one connection to SQLite, for the files that use it.
 *
 * One thread at a time; everything blocks.
 */
#ifndef APISERVER_STORE_DB_H
#define APISERVER_STORE_DB_H

#include <sqlite3.h>

#include "cluster/apiserver/store_int.h"

struct db {
	sqlite3 *sql;
	sqlite3_stmt *insert, *del, *compact;
	int wal_pages; /* after the last commit */
	int lock;      /* "<path>.lock" */
};

#endif
