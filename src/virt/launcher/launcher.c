#include "virt/launcher/launcher.h"

#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "virt/launcher/launcher_int.h"
#include "virt/launcher/move_int.h"

static const usec_t IDLE_TIMEOUT = 600 * USEC_PER_SEC;
static const usec_t NO_TIME = 1; /* realtime 0 would read as "unset" */

static void on_idle(void *arg)
{
	struct launcher *l = arg;

	log_info("no VM and no client for a while: ending");
	loop_quit(l->loop, 0);
}

/* What is worth knowing stands in exit.json and vm.json: the next launcher here would say the same. */
void launcher_check_idle(struct launcher *l)
{
	bool idle = !vm_is_alive(l) && ipc_server_clients(l->server) == 0;
	struct err err = {0};

	if (!idle)
		l->idle_timer = ev_src_free(l->idle_timer);
	else if (!l->idle_timer &&
		 ev_timer_after(l->loop, &l->idle_timer, IDLE_TIMEOUT, on_idle, l, &err))
		log_warn("this launcher will not end by itself: %s", err.msg);
}

enum rc launcher_new(struct launcher **out, struct loop *loop, const struct launcher_config *config,
		     struct err *err)
{
	CLEANUP(launcher_freep)
	struct launcher *l = mem_alloc(sizeof(*l));
	struct ipc_server_config server = {.name = "ferry-launcher",
					   .speaks = {LAUNCHER_PROTOCOL, LAUNCHER_PROTOCOL},
					   .max_clients = 8,
					   .mode = 0600};
	char path[PATH_LEN];
	enum rc rc;

	if (!l)
		return err_set(err, RC_NOMEM, "cannot allocate the launcher");
	l->loop = loop;
	l->config = *config;
	list_init(&l->waiting);
	list_init(&l->displays);
	l->cgroup_fd = l->serial_log_fd = l->reaper.pidfd = l->qemu.pidfd = -1;
	l->since = MAX(loop_realtime(loop), NO_TIME);
	l->hello = js_pack("{s:s}", "ferryVersion", FERRY_VERSION);
	if (!l->hello)
		return err_set(err, RC_NOMEM, "cannot allocate the launcher");
	server.hello = l->hello;
	path_in(l, "launcher.sock", path);
	rc = ipc_server_new(&l->server, loop, path, &server, &launcher_methods, l, err);
	if (rc)
		return rc;
	vm_adopt(l);
	launcher_check_idle(l);
	*out = STEAL(l);
	return RC_OK;
}

struct launcher *launcher_free(struct launcher *l)
{
	if (!l)
		return NULL;
	if (l->start_call)
		ipc_call_fail(STEAL(l->start_call), RC_CLOSED, "the launcher ends");
	methods_end(l);
	vm_fail_waiting(l, RC_CLOSED, "the launcher ends");
	display_end(l, "the launcher ends");
	move_free(l->move);
	l->seq = qmp_seq_free(l->seq);
	l->asking_cpu = guest_cpu_free(l->asking_cpu);
	l->asking_devices = guest_devices_free(l->asking_devices);
	l->asking_usage = usage_free(l->asking_usage);
	l->cpu = js_unref(l->cpu);
	l->vcpu_threads = js_unref(l->vcpu_threads);
	l->meter = meter_free(l->meter);
	l->qmp = qmp_free(l->qmp);
	l->jail = jail_start_free(l->jail);
	console_free(l);
	guest_agent_free(l);
	struct ev_src **sources[] = {&l->reaper_io,   &l->qmp_retry,  &l->start_deadline,
				     &l->grace_timer, &l->kill_timer, &l->log_timer,
				     &l->exit_defer,  &l->idle_timer, &l->reboot_deadline};

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		*sources[i] = ev_src_free(*sources[i]);
	proc_close(&l->reaper);
	proc_close(&l->qemu);
	vm_close_fds(l);
	fd_close(l->serial_log_fd);
	ipc_server_free(l->server);
	js_unref(l->exit);
	js_unref(l->hello);
	launch_spec_free(l->spec);
	return mem_free(l);
}
