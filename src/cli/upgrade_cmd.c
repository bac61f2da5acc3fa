/* src/cli/upgrade_cmd.c - asks the other QEMU and the cluster, and prints upgrade.c's verdicts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/upgrade.h"
#include "json/json.h"

enum { ACCELS = 2 };

static const char *const accels[ACCELS] = {"tcg", "kvm"};

static enum rc probe_qemu(const char *ferry_node, const char *qemu, const char *accel,
			  struct json **out, struct err *err)
{
	const char *const argv[] = {ferry_node, "probe-qemu", "--qemu", qemu,
				    "--accel",	accel,	      NULL};
	CLEANUP(mem_freep) char *text = mem_alloc(LIMIT_FILE_BYTES);

	if (!text)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!cmd_first_line(argv, text, LIMIT_FILE_BYTES))
		return err_set(err, RC_IO, "'%s': %s", qemu,
			       *text ? text : "ferry-node does not answer");
	return js_parse(text, strlen(text), out, err);
}

static size_t accel_of(const struct json *vmi)
{
	const char *accel = js_str(js_at(vmi, "status", "ferry", "accelerator", NULL));

	return str_eq(accel, "kvm") ? 1 : 0;
}

static bool is_running(const struct json *vmi)
{
	return str_eq(js_str(js_at(vmi, "status", "phase", NULL)), "Running");
}

/* Which accelerator is there: only what guests really use is asked for. */
static enum rc probe_used(const struct json *vmis, const char *qemu, const char *ferry_node,
			  struct json *probes[ACCELS], struct err *err)
{
	for (size_t i = 0; i < js_len(vmis); i++) {
		const struct json *vmi = js_item(vmis, i);
		size_t a = accel_of(vmi);

		if (!is_running(vmi) || probes[a])
			continue;
		enum rc rc = probe_qemu(ferry_node, qemu, accels[a], &probes[a], err);

		if (rc)
			return rc;
	}
	return RC_OK;
}

static enum rc print(const struct json *vmis, struct json *const probes[ACCELS], const char *qemu,
		     size_t *n_stranded, struct err *err)
{
	size_t n = 0;

	*n_stranded = 0;
	for (size_t i = 0; i < js_len(vmis); i++) {
		const struct json *vmi = js_item(vmis, i), *meta = js_get(vmi, "metadata");
		CLEANUP(sbuf_fini) struct sbuf why = SBUF_INIT(4096);

		if (!is_running(vmi))
			continue;
		upgrade_judge(vmi, probes[accel_of(vmi)], &why);
		if (sbuf_rc(&why))
			return err_set(err, sbuf_rc(&why), "cannot judge a VM");
		printf("%s %s/%s%s%s\n", why.n ? "FAIL" : "ok  ", js_get_str(meta, "namespace"),
		       js_get_str(meta, "name"), why.n ? ": " : "", sbuf_str(&why));
		n++;
		*n_stranded += why.n > 0;
	}
	if (*n_stranded)
		printf("\n%zu of %zu running VMs could not move to a node with %s: restart them "
		       "there, or move them before it is changed.\n",
		       *n_stranded, n, qemu);
	else
		printf("\nAll %zu running VMs could move to a node with %s, as far as machine type, "
		       "CPU and version tell.\n",
		       n, qemu);
	return RC_OK;
}

int upgrade_run(const char *kubeconfig, const char *qemu, const char *ferry_node)
{
	const struct client_flags flags = {.kubeconfig = kubeconfig};
	CLEANUP(client_freep) struct client *client = NULL;
	CLEANUP(js_unrefp) struct json *list = NULL;
	struct json *probes[ACCELS] = {NULL, NULL};
	struct err err = {0};
	size_t n_stranded = 0;
	enum rc rc = client_open(&client, &flags, &err);

	if (!rc)
		rc = client_get(client, "/apis/kubevirt.io/v1/virtualmachineinstances", &list,
				&err);
	if (!rc)
		rc = probe_used(js_get(list, "items"), qemu, ferry_node, probes, &err);
	if (!rc)
		rc = print(js_get(list, "items"), probes, qemu, &n_stranded, &err);
	for (size_t i = 0; i < ACCELS; i++)
		js_unref(probes[i]);
	if (rc)
		return cmd_fail(&err);
	return n_stranded ? EXIT_FAIL : EXIT_OK;
}
