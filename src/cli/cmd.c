#include "cli/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "yaml/yaml.h"
#include "json/json.h"

int cmd_usage(const struct cmd *c, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "ferry %s: ", c->name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nUsage: ferry %s %s   ('ferry %s --help' tells more)\n", c->name, c->args,
		c->name);
	return EXIT_USAGE;
}

int cmd_fail(const struct err *err)
{
	fprintf(stderr, "error: %s\n", err->msg);
	return EXIT_FAIL;
}

enum rc cmd_duration(const char *text, usec_t max, usec_t *out, struct err *err)
{
	uint64_t seconds;

	if (str_to_u64(text, max / USEC_PER_SEC, &seconds, NULL))
		return str_to_duration(text, max, out, err);
	*out = seconds * USEC_PER_SEC;
	return RC_OK;
}

enum rc cmd_print_value(const struct json *value, const char *format, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_RESPONSE_BYTES);

	if (str_eq(format, "yaml")) {
		yaml_print(value, &b);
	} else {
		js_print_pretty(value, &b, 4);
		sbuf_addc(&b, '\n');
	}
	if (sbuf_rc(&b))
		return err_set(err, sbuf_rc(&b), "cannot print the object");
	fputs(sbuf_str(&b), stdout);
	return RC_OK;
}

static const struct opt *find_opt(const struct opt *opts, const char *arg,
				  const char **inline_value)
{
	for (const struct opt *o = opts; o->name; o++) {
		size_t n = strlen(o->name);

		*inline_value = NULL;
		if (strncmp(arg, o->name, n) == 0 && (arg[n] == '\0' || arg[n] == '=')) {
			if (arg[n] == '=')
				*inline_value = arg + n + 1;
			return o;
		}
		if (o->letter && arg[0] == '-' && arg[1] == o->letter) {
			if (arg[2])
				*inline_value = arg + 2;
			return o;
		}
	}
	return NULL;
}

static void print_help(const struct cmd *c)
{
	printf("Usage: ferry %s %s\n\n%s\n", c->name, c->args, c->summary);
	if (c->help)
		printf("\n%s", c->help);
}

bool cmd_parse(const struct cmd *c, int argc, char **argv, const struct opt *opts, int *n_rest,
	       bool *help)
{
	int rest = 0;
	bool options = true;

	*help = false;
	for (int i = 1; i < argc; i++) {
		const char *value;
		const struct opt *o;

		if (options && str_eq(argv[i], "--")) {
			options = false;
			continue;
		}
		if (!options || argv[i][0] != '-' || !argv[i][1]) {
			argv[rest++] = argv[i];
			continue;
		}
		if (str_eq(argv[i], "--help") || str_eq(argv[i], "-h")) {
			print_help(c);
			*help = true;
			return false;
		}
		o = find_opt(opts, argv[i], &value);
		if (!o) {
			cmd_usage(c, "unknown option '%s'", argv[i]);
			return false;
		}
		if (o->is_flag) {
			*o->flag = !value || str_eq(value, "true");
			continue;
		}
		if (!value && ++i == argc) {
			cmd_usage(c, "option %s needs a value", o->name);
			return false;
		}
		*o->value = value ? value : argv[i];
	}
	*n_rest = rest;
	return true;
}
