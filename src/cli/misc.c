/* src/cli/misc.c - version, completion. */
#include <stdio.h>

#include "api/api.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "json/json.h"

static int version_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	bool client_only = false, help;
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{.name = "--client", .letter = 'c', .is_flag = true, .flag = &client_only},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(js_unrefp) struct json *v = NULL;
	struct err err = {0};
	int n;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	printf("Client Version: %s\n", FERRY_VERSION);
	if (client_only)
		return EXIT_OK;
	if (client_open(&client, &flags, &err) || client_get(client, "/version", &v, &err))
		return cmd_fail(&err);
	printf("Server Version: %s\n", js_get_str(v, "gitVersion") ?: "?");
	return EXIT_OK;
}

const struct cmd cmd_version = {
	.name = "version",
	.args = "[--client]",
	.summary = "Print the versions of this program and of the server.",
	.run = version_run,
};

static void print_words(const char *shell)
{
	const struct cmd *const *all;
	size_t n = cmd_list(&all);

	for (size_t i = 0; i < n; i++)
		if (!all[i]->hidden)
			printf("%s%s", i ? " " : "", all[i]->name);
	(void)shell;
}

static void print_kinds(void)
{
	for (size_t i = 0; api_kinds[i]; i++) {
		printf(" %s", api_kinds[i]->plural);
		for (size_t k = 0; api_kinds[i]->short_names[k]; k++)
			printf(" %s", api_kinds[i]->short_names[k]);
	}
}

static const char bash_tail[] =
	"\"\n"
	"	local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]:-}\n"
	"	if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W \"$commands\" -- \"$cur\")); return; fi\n"
	"	case $cmd in\n"
	"	get|describe|delete|wait)\n"
	"		if [ \"$COMP_CWORD\" = 2 ]; then COMPREPLY=($(compgen -W \"$kinds\" -- \"$cur\")); return; fi\n"
	"		COMPREPLY=($(compgen -W \"$(ferry get \"${COMP_WORDS[2]}\" -o name 2>/dev/null | sed 's,.*/,,')\" -- \"$cur\")) ;;\n"
	"	explain)\n"
	"		if [ \"$COMP_CWORD\" = 2 ]; then COMPREPLY=($(compgen -W migration -- \"$cur\")); return; fi\n"
	"		case ${COMP_WORDS[COMP_CWORD-1]} in\n"
	"		--to) COMPREPLY=($(compgen -W \"$(ferry get node -o name 2>/dev/null | sed 's,.*/,,')\" -- \"$cur\")) ;;\n"
	"		*) COMPREPLY=($(compgen -W \"$(ferry get vm -o name 2>/dev/null | sed 's,.*/,,')\" -- \"$cur\")) ;;\n"
	"		esac ;;\n"
	"	cordon|uncordon|drain)\n"
	"		COMPREPLY=($(compgen -W \"$(ferry get node -o name 2>/dev/null | sed 's,.*/,,')\" -- \"$cur\")) ;;\n"
	"	evacuate-cancel)\n"
	"		if [ \"$COMP_CWORD\" = 2 ]; then COMPREPLY=($(compgen -W 'vm vmi node' -- \"$cur\")); return; fi\n"
	"		COMPREPLY=($(compgen -W \"$(ferry get \"${COMP_WORDS[2]}\" -o name 2>/dev/null | sed 's,.*/,,')\" -- \"$cur\")) ;;\n"
	"	migrate)\n"
	"		local verbs=; [ \"$COMP_CWORD\" = 2 ] && verbs='cancel finish'\n"
	"		COMPREPLY=($(compgen -W \"$verbs $(ferry get vm -o name 2>/dev/null | sed 's,.*/,,')\" -- \"$cur\")) ;;\n"
	"	start|stop|restart|pause|unpause|console)\n"
	"		COMPREPLY=($(compgen -W \"$(ferry get vm -o name 2>/dev/null | sed 's,.*/,,')\" -- \"$cur\")) ;;\n"
	"	apply|create)\n"
	"		COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
	"	esac\n"
	"}\n"
	"complete -F _ferry ferry\n";

static int completion_run(const struct cmd *c, int argc, char **argv)
{
	const struct opt opts[] = {{0}};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 1 || (!str_eq(argv[0], "bash") && !str_eq(argv[0], "zsh")))
		return cmd_usage(c, "say which shell: bash or zsh");
	if (str_eq(argv[0], "zsh"))
		printf("autoload -U +X bashcompinit && bashcompinit\n");
	printf("_ferry() {\n	local commands=\"");
	print_words(argv[0]);
	printf("\"\n	local kinds=\"");
	print_kinds();
	fputs(bash_tail, stdout);
	return EXIT_OK;
}

const struct cmd cmd_completion = {
	.name = "completion",
	.args = "bash|zsh",
	.summary = "Print a completion script: source <(ferry completion bash)",
	.run = completion_run,
};
