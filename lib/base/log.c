#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"

static struct {
	char name[32];
	enum log_level level;
	bool json;
} conf = {.name = "ferry", .level = LOG_LVL_WARN};

static const char *const names[LOG_LVL__MAX] = {"error", "warn", "info", "debug"};

bool log_level_parse(const char *s, enum log_level *out)
{
	for (unsigned i = 0; i < LOG_LVL__MAX; i++)
		if (str_eq(s, names[i])) {
			*out = (enum log_level)i;
			return true;
		}
	return false;
}

void log_setup(const char *name, enum log_level level, bool json)
{
	const char *env = getenv("FERRY_LOG");

	(void)snprintf(conf.name, sizeof(conf.name), "%s", name);
	conf.level = level;
	conf.json = json;
	if (env)
		(void)log_level_parse(env, &conf.level); /* an unknown word keeps the default */
}

void log_set_level(enum log_level level)
{
	conf.level = level;
}

bool log_is_on(enum log_level level)
{
	return level <= conf.level;
}

static size_t put_json_text(char *out, size_t room, const char *s)
{
	size_t n = 0;

	for (; *s && n + 7 < room; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\') {
			out[n++] = '\\';
			out[n++] = (char)c;
		} else if (c < 0x20) {
			n += (size_t)snprintf(out + n, room - n, "\\u%04x", c);
		} else {
			out[n++] = (char)c;
		}
	}
	out[n] = '\0';
	return n;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char text[1600];
	char line[4096];
	struct timespec now;
	struct tm tm;
	char when[40];
	va_list ap;
	int n;

	if (!log_is_on(level))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *c = text; *c; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' '; /* one event, one line: input cannot forge another */
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	size_t w = strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);

	(void)snprintf(when + w, sizeof(when) - w, ".%06ldZ", now.tv_nsec / 1000);
	if (conf.json) {
		char esc[3600];

		put_json_text(esc, sizeof(esc), text);
		n = snprintf(
			line, sizeof(line),
			"{\"time\":\"%s\",\"level\":\"%s\",\"process\":\"%s\",\"msg\":\"%s\"}\n",
			when, names[level], conf.name, esc);
	} else {
		n = snprintf(line, sizeof(line), "%s %-5s %s: %s\n", when, names[level], conf.name,
			     text);
	}
	if (n > 0 && write(STDERR_FILENO, line, MIN((size_t)n, sizeof(line) - 1)) < 0)
		return; /* nowhere left to report to */
}
