/* src/cli/lifecycle.c - start, stop, restart, pause, unpause, reset, soft-reboot, in virtctl's words. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "json/json.h"

struct action {
	const char *name;
	const char *plural; /* where the subresource is */
	const char *subject;
	const char *path; /* NULL: as the name */
	bool is_plain;	  /* no options and no body */
};

static const struct action actions[] = {
	{"start", "virtualmachines", "VM"},
	{"stop", "virtualmachines", "VM"},
	{"restart", "virtualmachines", "VM"},
	{"pause", "virtualmachineinstances", "VMI"},
	{"unpause", "virtualmachineinstances", "VMI"},
	{"reset", "virtualmachineinstances", "VMI", .is_plain = true},
	{"soft-reboot", "virtualmachineinstances", "VMI", .path = "softreboot", .is_plain = true},
};

static const struct action *action_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (str_eq(actions[i].name, name))
			return &actions[i];
	return NULL;
}

struct life_args {
	struct client_flags flags;
	const char *grace;
	bool paused;
	bool force;
	bool dry_run;
};

static enum rc build_body(const struct action *act, const struct life_args *a, struct json **out,
			  struct err *err)
{
	CLEANUP(js_unrefp) struct json *body = js_new_object();
	int64_t grace = -1;
	enum rc rc = body ? RC_OK : RC_NOMEM;

	if (!rc && a->grace)
		rc = str_to_i64(a->grace, 0, 1000000, &grace, err);
	if (!rc && a->force != (grace >= 0))
		return err_set(err, RC_INVALID,
			       "Must both use --force=true and set --grace-period.");
	if (!rc && grace >= 0)
		rc = js_set(body, str_eq(act->name, "stop") ? "gracePeriod" : "gracePeriodSeconds",
			    js_new_int(grace));
	if (!rc && a->paused)
		rc = js_set(body, "paused", js_new_bool(true));
	if (!rc && a->dry_run)
		rc = js_set(body, "dryRun", js_pack("[s]", "All"));
	if (!rc)
		*out = STEAL(body);
	return rc ? err_set(err, rc, "%s", err->msg[0] ? err->msg : "out of memory") : RC_OK;
}

static int send_action(struct client *client, const struct action *act, const char *name,
		       const struct json *body)
{
	CLEANUP(mem_freep)
	char *path =
		mem_printf("/apis/subresources.kubevirt.io/v1/namespaces/%s/%s/%s/%s",
			   client_ns(client), act->plural, name, act->path ? act->path : act->name);
	struct err err = {0};
	enum rc rc = path ? client_send(client, "PUT", path, NULL, body, NULL, &err)
			  : err_set(&err, RC_NOMEM, "out of memory");

	if (rc) {
		fprintf(stderr, "Error %s%sing %s: %s\n", act->name,
			str_eq(act->name, "stop")    ? "p"
			: str_eq(act->name, "reset") ? "t"
						     : "",
			act->subject[2] ? "VirtualMachineInstance" : "VirtualMachine", err.msg);
		return EXIT_FAIL;
	}
	printf("%s %s was scheduled to %s\n", act->subject, name, act->name);
	return EXIT_OK;
}

static int lifecycle_run(const struct cmd *c, int argc, char **argv)
{
	const struct action *act = action_of(c->name);
	struct life_args a = {0};
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &a.flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &a.flags.ns},
		{.name = act->is_plain ? "--" : "--dry-run", .is_flag = true, .flag = &a.dry_run},
		/* of start, and of stop and restart */
		{.name = act->subject[2]	    ? "--"
			 : str_eq(c->name, "start") ? "--paused"
						    : "--force",
		 .is_flag = true,
		 .flag = str_eq(c->name, "start") ? &a.paused : &a.force},
		{.name = act->subject[2] || str_eq(c->name, "start") ? "--" : "--grace-period",
		 .value = &a.grace},
		{0},
	};
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(js_unrefp) struct json *body = NULL;
	struct err err = {0};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	/* "pause vm NAME" as virtctl has it, or just a name */
	const char *name = n == 2 && act->subject[2] ? argv[1] : argv[0];

	if (n < 1 || n > 2 || (n == 2 && !act->subject[2]))
		return cmd_usage(c, "one name is needed");
	enum rc rc = build_body(act, &a, &body, &err);

	if (rc)
		return cmd_usage(c, "%s", err.msg);
	rc = client_open(&client, &a.flags, &err);
	if (rc)
		return cmd_fail(&err);
	if (act->is_plain)
		body = js_unref(body);
	return send_action(client, act, name, body);
}

const struct cmd cmd_start = {
	.name = "start",
	.args = "VM [--paused] [--dry-run]",
	.summary = "Start a virtual machine.",
	.run = lifecycle_run,
};
const struct cmd cmd_stop = {
	.name = "stop",
	.args = "VM [--force --grace-period S] [--dry-run]",
	.summary = "Shut a virtual machine down and keep it stopped.",
	.run = lifecycle_run,
};
const struct cmd cmd_restart = {
	.name = "restart",
	.args = "VM [--force --grace-period 0] [--dry-run]",
	.summary = "Shut a virtual machine down and start it again.",
	.run = lifecycle_run,
};
const struct cmd cmd_pause = {
	.name = "pause",
	.args = "[vmi|vm] NAME [--dry-run]",
	.summary = "Stop a guest's processors; its memory stays.",
	.run = lifecycle_run,
};
const struct cmd cmd_unpause = {
	.name = "unpause",
	.args = "[vmi|vm] NAME [--dry-run]",
	.summary = "Let a paused guest go on.",
	.run = lifecycle_run,
};
const struct cmd cmd_reset = {
	.name = "reset",
	.args = "[vmi|vm] NAME",
	.summary = "Reset a guest as its reset button does: nothing in it is shut down.",
	.run = lifecycle_run,
};
const struct cmd cmd_soft_reboot = {
	.name = "soft-reboot",
	.args = "[vmi|vm] NAME",
	.summary = "Have a guest reboot by itself: by its agent, else by the power button.",
	.run = lifecycle_run,
};
