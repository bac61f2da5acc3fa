/* A hostile launch spec: what passes its checks must give a command line in which no value has left its
 * option. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "fuzz.h"
#include "json/json.h"
#include "virt/launcher/qemu_cmdline.h"

/* Options whose value is free text: everything else is checked for what only free text could bring in. */
static bool is_free(const char *option)
{
	return str_eq(option, "-append");
}

static void check(const struct argv *a)
{
	for (size_t i = 1; i < a->n; i++) {
		const char *arg = a->v[i];

		if (is_free(a->v[i - 1]))
			continue;
		if (arg[0] == '{') {
			struct json *j = NULL;

			if (js_parse(arg, strlen(arg), &j, NULL) || !js_is_object(j))
				abort();
			js_unref(j);
		}
		/* a file is named by number only, or is one of ours */
		const char *file = strstr(arg, "\"filename\":\"");

		if (file && !str_has_prefix(file, "\"filename\":\"/dev/fdset/"))
			abort();
		for (const char *p = arg; *p; p++)
			if ((unsigned char)*p < 0x20)
				abort();
	}
	if (!str_has_prefix(a->v[1], "-name") || a->rc)
		abort();
	/* "guest=" holds the name with its commas doubled, and then comes our own part */
	const char *p = a->v[2];

	if (!str_has_prefix(p, "guest="))
		abort();
	for (; *p; p++)
		if (p[0] == ',' && p[1] == ',')
			p++;
		else if (p[0] == ',' && !str_eq(p, ",debug-threads=on"))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct json *j = NULL;
	struct launch_spec *s = NULL;
	struct err err = {0};

	if (js_parse((const char *)data, n, &j, NULL))
		return 0;
	if (!launch_spec_decode(j, &s, &err) && !launch_spec_check(s, &err)) {
		struct qemu_fd fds[LAUNCH_MAX_DISKS * LAUNCH_MAX_CHAIN + LAUNCH_MAX_NICS + 4];
		struct qemu_env env = {.qemu = "/q",
				       .fds = fds,
				       .qmp_fd = {10, 11},
				       .serial_fd = 12,
				       .agent_fd = 14,
				       .serial_log_fd = 13};
		struct argv argv = {0};

		for (size_t i = 0; i < s->n_disks; i++)
			for (size_t k = 0; k < s->disks[i].n_images; k++)
				fds[env.n_fds++] =
					(struct qemu_fd){s->disks[i].images[k].fd, 20, false};
		for (size_t i = 0; i < s->n_nics; i++)
			fds[env.n_fds++] = (struct qemu_fd){s->nics[i].fd, 20, false};
		if (s->kernel) {
			fds[env.n_fds++] = (struct qemu_fd){s->kernel->kernel_fd, 20, false};
			fds[env.n_fds++] = (struct qemu_fd){s->kernel->initrd_fd, 20, false};
		}
		fds[env.n_fds++] = (struct qemu_fd){s->efi_code_fd, 20, false};
		fds[env.n_fds++] = (struct qemu_fd){s->efi_vars_fd, 20, false};
		if (!qemu_cmdline(s, &env, &argv, &err))
			check(&argv);
		argv_fini(&argv);
	}
	launch_spec_free(s);
	js_unref(j);
	return 0;
}
