/* src/cli/explain.c - where could this VM go, and if not, why: before anything moves. */
#include <stdio.h>

#include "base/limits.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/migrate.h"
#include "cli/placement.h"
#include "json/json.h"

static bool is_migration(const char *word)
{
	return str_eq(word, "migration") || str_eq(word, "migrations");
}

static int print_answer(const struct json *vmim, const char *vm, const char *node,
			const char *format)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_RESPONSE_BYTES);
	bool has_room = placement_print(vmim, vm, node, &b);
	struct err err = {0};
	enum rc rc = sbuf_rc(&b);

	if (rc)
		rc = err_set(&err, rc, "cannot print the answer");
	else if (*format)
		rc = cmd_print_value(vmim, format, &err);
	else
		fputs(sbuf_str(&b), stdout);
	if (rc)
		return cmd_fail(&err);
	return has_room ? EXIT_OK : EXIT_FAIL;
}

static int explain_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	struct move_request move = {.dry_run = true};
	const char *output = "";
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &flags.ns},
		{.name = "--output", .letter = 'o', .value = &output},
		{.name = "--to", .value = &move.to},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(js_unrefp) struct json *answer = NULL;
	struct err err = {0};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n < 1 || !is_migration(argv[0]))
		return cmd_usage(c, "say what to explain: migration");
	if (n != 2)
		return cmd_usage(c, "one VM is needed");
	if (*output && !str_eq(output, "json") && !str_eq(output, "yaml"))
		return cmd_usage(c, "-o '%s': json or yaml", output);
	move.vm = argv[1];
	enum rc rc = client_open(&client, &flags, &err);

	if (!rc)
		rc = migrate_create(client, &move, &answer, &err);
	return rc ? cmd_fail(&err) : print_answer(answer, move.vm, move.to, output);
}

const struct cmd cmd_explain = {
	.name = "explain",
	.args = "migration VM [--to NODE] [-n NS] [-o json|yaml]",
	.summary = "Tell for each node whether a virtual machine can move there, and if not, why.",
	.help = "  --to NODE      only this node\n"
		"  -o json|yaml   the migration as it would be made, with status.ferry.placement\n\n"
		"Nothing is made and nothing moves.  VERDICT is one of\n"
		"  Yes      the node can take it now\n"
		"  Wait     only for the moment it cannot (room, cordon, a node that is not ready);\n"
		"           a move would wait for it\n"
		"  No       it cannot, and no waiting helps: another spec, label or machine would\n"
		"  Source   it runs there\n\n"
		"The exit code is 0 when a node can take it now, 1 when none can or the move would be\n"
		"refused, 2 for wrong arguments.\n",
	.run = explain_run,
};
