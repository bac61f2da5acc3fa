/* src/cli/cpu_models_cmd.c - the command around cpu_models.c. */
#include <stdio.h>

#include "base/limits.h"
#include "base/sbuf.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/cpu_models.h"
#include "json/json.h"

static int cpu_models_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	bool all = false, help;
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{.name = "--all", .letter = 'a', .is_flag = true, .flag = &all},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(js_unrefp) struct json *nodes = NULL;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_RESPONSE_BYTES);
	struct err err = {0};
	size_t n_common = 0;
	int n;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	enum rc rc = client_open(&client, &flags, &err);

	if (!rc)
		rc = client_get(client, "/api/v1/nodes", &nodes, &err);
	if (!rc)
		rc = cpu_models_print(js_get(nodes, "items"), argv, (size_t)n, all, &b, &n_common,
				      &err);
	if (rc)
		return cmd_fail(&err);
	fputs(sbuf_str(&b), stdout);
	return n_common ? EXIT_OK : EXIT_FAIL;
}

const struct cmd cmd_cpu_models = {
	.name = "cpu-models",
	.args = "[NODE...] [--all]",
	.summary = "List the CPU models that nodes have in common, and what tells them apart.",
	.help = "  NODE...     only these; all nodes of the cluster otherwise\n"
		"  -a, --all   models that some of them lack, too\n\n"
		"A VM that names one of the common models can move between all of them.  The model\n"
		"that host-model shall stand for is a setting of the cluster: cpuBaseline of the\n"
		"FerryConfig 'ferry'.  The exit code is 1 when there is no common model.\n",
	.run = cpu_models_run,
};
