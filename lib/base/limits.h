/* lib/base/limits.h - the ceilings of everything that a peer can size.
 *
 * Reaching one is an answer (413, 429, closed), never growth.
 */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

#define LIMIT_BODY_BYTES     3145728u	/* 3 MiB: request body, as kube-apiserver's */
#define LIMIT_RESPONSE_BYTES 268435456u /* 256 MiB: list answer that a client accepts */
#define LIMIT_OBJECT_BYTES   1572864u	/* 1.5 MiB: one stored object, as etcd's request limit */
#define LIMIT_JSON_DEPTH     64
#define LIMIT_YAML_DOCS	     1024
#define LIMIT_YAML_NODES     200000
#define LIMIT_NAME_BYTES     253
#define LIMIT_URL_BYTES	     8192
#define LIMIT_HEADERS	     100
#define LIMIT_QMP_BYTES	     8388608u /* 8 MiB: one QMP message */
#define LIMIT_QGA_BYTES	     1048576u /* 1 MiB: what a guest agent may say for one command */
#define LIMIT_IPC_BYTES	     1048576u /* 1 MiB: one agent/launcher message */
#define LIMIT_IPC_FDS	     16
#define LIMIT_WS_BYTES	     65536u /* 64 KiB: one websocket message */
#define LIMIT_CONNECTIONS    4096   /* of one HTTP server; lib/http/guard.c has the shares */
#define LIMIT_HEAD_USEC	     (10 * USEC_PER_SEC) /* TLS handshake and head of a request */
#define LIMIT_BODY_USEC \
	(30 * USEC_PER_SEC)	  /* its body, and longer for what comes at the floor's rate */
#define LIMIT_RATE_FLOOR    8192u /* bytes a second: bodies, and answers that wait for a reader */
#define LIMIT_BODIES_BYTES  134217728u /* 128 MiB: bodies of all requests of one HTTP server */
#define LIMIT_ANSWERS_BYTES 536870912u /* 512 MiB: answers on their way, watches included */
#define LIMIT_WATCHERS	    4096
#define LIMIT_WATCHERS_KEPT 512	      /* of these, for nodes and controllers alone */
#define LIMIT_WATCHERS_USER 1000      /* of one user */
#define LIMIT_PICTURE_BYTES 16777216  /* 16 MiB: one screenshot */
#define LIMIT_FILE_BYTES    16777216u /* 16 MiB: configuration and state files */
#define LIMIT_FIELD_ERRORS  256
#define LIMIT_TREE_DEPTH    64 /* folders removed below one root */

#endif
