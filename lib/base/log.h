/* lib/base/log.h - structured log lines on stderr.
 *
 * Any thread; one write(2) per line.  lib/ logs at debug only; src/ logs once, where the
 * decision is taken.  error: we gave up on something; warn: we go on (say how);
 * info: state moved; debug: everything else.  Never secrets.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/err.h"

enum log_level { LOG_LVL_ERROR, LOG_LVL_WARN, LOG_LVL_INFO, LOG_LVL_DEBUG, LOG_LVL__MAX };

/* name is copied into each line ("ferry-node").  json: one JSON object per line instead of text.
 * The level comes from the environment variable FERRY_LOG (error, warn, info, debug) if set. */
void log_setup(const char *name, enum log_level level, bool json);
void log_set_level(enum log_level level);
bool log_is_on(enum log_level level);
bool log_level_parse(const char *s, enum log_level *out);
void log_line(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define log_error(...) log_line(LOG_LVL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LVL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LVL_INFO, __VA_ARGS__)
#define log_debug(...)                                        \
	do {                                                  \
		if (log_is_on(LOG_LVL_DEBUG))                 \
			log_line(LOG_LVL_DEBUG, __VA_ARGS__); \
	} while (0)

#endif
