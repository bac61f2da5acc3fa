/* src/cli/main.c - the `ferry` command: an explicit list of commands, and help. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/cmd.h"
#include "json/json.h"

static const struct cmd *const commands[] = {
	&cmd_up,	  &cmd_down,	&cmd_doctor,	      &cmd_get,	       &cmd_describe,
	&cmd_apply,	  &cmd_create,	&cmd_delete,	      &cmd_wait,       &cmd_start,
	&cmd_stop,	  &cmd_restart, &cmd_pause,	      &cmd_unpause,    &cmd_reset,
	&cmd_soft_reboot, &cmd_migrate, &cmd_explain,	      &cmd_cpu_models, &cmd_cordon,
	&cmd_uncordon,	  &cmd_drain,	&cmd_evacuate_cancel, &cmd_backup,     &cmd_restore,
	&cmd_console,	  &cmd_probe,	&cmd_completion,      &cmd_version,    &cmd_user,
	&cmd_token,	  &cmd_vnc,	&cmd_port_forward,    &cmd_box,
};

static void print_usage(FILE *to)
{
	fprintf(to,
		"ferry runs virtual machines as declared objects and moves them while they run.\n\n"
		"Usage: ferry COMMAND [ARGUMENTS]\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!commands[i]->hidden)
			fprintf(to, "  %-15s %s\n", commands[i]->name, commands[i]->summary);
	fprintf(to,
		"\n'ferry COMMAND --help' tells more about each.\n"
		"The cluster is found by --kubeconfig, $KUBECONFIG, $FERRY_STATE or /var/lib/ferry.\n");
}

size_t cmd_list(const struct cmd *const **out)
{
	*out = commands;
	return ARRAY_SIZE(commands);
}

int main(int argc, char **argv)
{
	js_use_mem();
	(void)signal(SIGPIPE, SIG_IGN);
	if (argc < 2) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	if (str_eq(argv[1], "--help") || str_eq(argv[1], "-h") || str_eq(argv[1], "help")) {
		print_usage(stdout);
		return EXIT_OK;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (str_eq(argv[1], commands[i]->name))
			return commands[i]->run(commands[i], argc - 1, argv + 1);
	const char *near = NULL;
	unsigned best = 3;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!commands[i]->hidden && str_distance(commands[i]->name, argv[1]) < best) {
			best = str_distance(commands[i]->name, argv[1]);
			near = commands[i]->name;
		}
	fprintf(stderr, "ferry: unknown command '%s'%s%s%s\n", argv[1],
		near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
	return EXIT_USAGE;
}
