/* src/cli/evacuate.c - evacuate-cancel, in virtctl's words: VMs that were asked to leave stay. */
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "json/json.h"

struct cancel {
	struct client *client;
	bool dry_run;
};

static enum rc cancel_one(const struct cancel *c, bool is_vm, const char *ns, const char *name,
			  const char *mark)
{
	CLEANUP(mem_freep)
	char *path =
		mem_printf("/apis/subresources.kubevirt.io/v1/namespaces/%s/%s/%s/evacuate/cancel",
			   ns, is_vm ? "virtualmachines" : "virtualmachineinstances", name);
	CLEANUP(js_unrefp)
	struct json *body = js_pack("{s:s*}", "evacuationNodeName", mark);
	struct err err = {0};
	enum rc rc = path && body ? RC_OK : err_set(&err, RC_NOMEM, "out of memory");

	if (!rc && c->dry_run)
		rc = js_set(body, "dryRun", js_pack("[s]", "All"));
	if (!rc)
		rc = client_send(c->client, "PUT", path, NULL, body, NULL, &err);
	if (rc)
		fprintf(stderr, "error canceling evacuation for %s %s/%s: %s\n",
			is_vm ? "VM" : "VMI", ns, name, err.msg);
	else
		printf("%s %s/%s was canceled evacuation\n", is_vm ? "VM" : "VMI", ns, name);
	return rc;
}

/* Every VMI that an eviction marked on the node; goes on after a failure. */
static enum rc cancel_node(const struct cancel *c, const char *node, struct err *err)
{
	CLEANUP(js_unrefp) struct json *list = NULL;
	size_t n = 0, n_failed = 0;
	enum rc rc =
		client_get(c->client, "/apis/kubevirt.io/v1/virtualmachineinstances", &list, err);
	const struct json *items = js_get(list, "items");

	for (size_t i = 0; i < js_len(items) && !rc; i++) {
		const struct json *meta = js_get(js_item(items, i), "metadata");

		if (!str_eq(js_str(js_at(js_item(items, i), "status", "evacuationNodeName", NULL)),
			    node))
			continue;
		n++;
		n_failed += cancel_one(c, false, js_get_str(meta, "namespace"),
				       js_get_str(meta, "name"), node) != RC_OK;
	}
	if (!rc && !n)
		printf("no VM on %s was asked to leave by an eviction\n", node);
	if (!rc && n_failed)
		rc = err_set(err, RC_IO, "%zu of %zu evacuations were not canceled", n_failed, n);
	return rc;
}

static bool is_word(const char *word, const char *const list[])
{
	for (size_t i = 0; list[i]; i++)
		if (str_eq(word, list[i]))
			return true;
	return false;
}

static const char *const vm_words[] = {"vm", "vms", "virtualmachine", "virtualmachines", NULL};
static const char *const vmi_words[] = {"vmi", "vmis", "virtualmachineinstance",
					"virtualmachineinstances", NULL};
static const char *const node_words[] = {"node", "nodes", "no", NULL};

static int evacuate_cancel_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	struct cancel cancel = {0};
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &flags.ns},
		{.name = "--dry-run", .is_flag = true, .flag = &cancel.dry_run},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	struct err err = {0};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 2)
		return cmd_usage(c, "say which: vm NAME, vmi NAME or node NAME");
	bool is_vm = is_word(argv[0], vm_words), is_vmi = is_word(argv[0], vmi_words);

	if (!is_vm && !is_vmi && !is_word(argv[0], node_words))
		return cmd_usage(c, "unsupported resource type \"%s\"", argv[0]);
	if (client_open(&client, &flags, &err))
		return cmd_fail(&err);
	cancel.client = client;
	if (is_vm || is_vmi)
		return cancel_one(&cancel, is_vm, client_ns(client), argv[1], NULL) ? EXIT_FAIL
										    : EXIT_OK;
	return cancel_node(&cancel, argv[1], &err) ? cmd_fail(&err) : EXIT_OK;
}

const struct cmd cmd_evacuate_cancel = {
	.name = "evacuate-cancel",
	.args = "vm NAME | vmi NAME | node NODE [-n NS] [--dry-run]",
	.summary = "Let virtual machines stay that an eviction asked to leave their node.",
	.help = "The move that the evacuation made is cancelled, and no other is made; a move of your own\n"
		"goes on.  With node, all that an eviction asked to leave it.\n\n"
		"It is refused while the node has the taint kubevirt.io/drain: take that off instead.\n",
	.run = evacuate_cancel_run,
};
