/* src/cli/cmd.h - one command of `ferry`: name, help, and what it does.
 *
 * Each command is one const struct in its own file; main.c holds the explicit list.
 */
#ifndef CLI_CMD_H
#define CLI_CMD_H

#include "base/err.h"

struct json;

enum { EXIT_OK = 0, EXIT_FAIL = 1, EXIT_USAGE = 2 };

struct cmd {
	const char *name;
	const char *args;    /* "VM [--to NODE]" */
	const char *summary; /* one line */
	const char *help;    /* whole text of --help, after the usage line; may be NULL */
	bool hidden;	     /* not listed: called by ferry itself */
	int (*run)(const struct cmd *c, int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct cmd cmd_probe;
extern const struct cmd cmd_up;
extern const struct cmd cmd_down;
extern const struct cmd cmd_box;
extern const struct cmd cmd_doctor;
extern const struct cmd cmd_get, cmd_describe, cmd_apply, cmd_create, cmd_delete, cmd_wait;
extern const struct cmd cmd_start, cmd_stop, cmd_restart, cmd_pause, cmd_unpause, cmd_migrate,
	cmd_reset, cmd_soft_reboot;
extern const struct cmd cmd_cordon, cmd_uncordon, cmd_drain, cmd_evacuate_cancel;
extern const struct cmd cmd_cpu_models;
extern const struct cmd cmd_user, cmd_token;
extern const struct cmd cmd_backup, cmd_restore;
extern const struct cmd cmd_explain, cmd_console, cmd_vnc, cmd_port_forward, cmd_completion,
	cmd_version;

/* All commands, hidden ones too; returns how many. */
size_t cmd_list(const struct cmd *const **out);

/* An option of a command's table; end with {0}. */
struct opt {
	const char *name; /* "--to" */
	char letter;	  /* 'n', or 0 */
	bool is_flag;
	const char **value; /* set to the argument (borrowed from argv) */
	bool *flag;
};

/* Options may stand anywhere; the rest moves to the front of argv and *n_rest tells how many.
 * "--name=value", "--name value", "-nvalue" and "-n value" are accepted; "--" ends options.
 * False (a message was printed): unknown option, missing value, or --help was asked for (then *help). */
bool cmd_parse(const struct cmd *c, int argc, char **argv, const struct opt *opts, int *n_rest,
	       bool *help);
/* Prints "ferry NAME: text" and how to get help; returns EXIT_USAGE. */
int cmd_usage(const struct cmd *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Prints "error: text"; returns EXIT_FAIL. */
int cmd_fail(const struct err *err);
/* A duration of an option: as Go writes it (str_to_duration), and a number alone is seconds; at most max microseconds. */
MUST_CHECK enum rc cmd_duration(const char *text, usec_t max, usec_t *out, struct err *err);
/* The value on standard output: format "yaml", or JSON as kubectl indents it. */
MUST_CHECK enum rc cmd_print_value(const struct json *value, const char *format, struct err *err);
/* Output of a program, at most one line of it; false when it cannot be run or fails. */
bool cmd_first_line(const char *const argv[], char *out, size_t size);

#endif
