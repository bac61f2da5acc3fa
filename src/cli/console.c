/* src/cli/console.c - a terminal on the guest's serial line, over the API server's websocket. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "ev/ev.h"
#include "http/ws.h"
#include "json/json.h"

enum { ESCAPE = 0x1d }; /* Ctrl+] */

struct console {
	struct client *client;
	struct loop *loop;
	struct http_ws *ws;
	struct ev_src *in, *retry;
	struct termios saved;
	const char *name;
	char *url;
	usec_t deadline;
	bool raw;
	bool opened;
	int exit_code;
	struct err err;
};

static void try_connect(void *arg);

static void leave(struct console *k, int code)
{
	k->exit_code = code;
	loop_quit(k->loop, code);
}

static void on_input(uint32_t revents, void *arg)
{
	struct console *k = arg;
	char b[1024];
	ssize_t n = read(STDIN_FILENO, b, sizeof(b));

	(void)revents;
	if (n <= 0) {
		k->in = ev_src_free(
			k->in); /* the end of a pipe: keep showing what the guest says */
		return;
	}
	char *escape = memchr(b, ESCAPE, (size_t)n);

	if (escape)
		n = escape - b;
	if (n && k->ws && http_ws_is_open(k->ws))
		ignore_rc(http_ws_send(k->ws, false, b,
				       (size_t)n)); /* typing faster than 256 KiB waits: dropped */
	if (escape)
		leave(k, EXIT_OK);
}

static void on_open(struct http_ws *ws, const char *protocol, void *arg)
{
	struct console *k = arg;
	struct termios t;

	(void)ws;
	(void)protocol;
	k->opened = true;
	fprintf(stderr,
		"Successfully connected to %s console. Press Ctrl+] or Ctrl+5 to exit console.\n",
		k->name);
	if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &k->saved) == 0) {
		t = k->saved;
		cfmakeraw(&t);
		k->raw = tcsetattr(STDIN_FILENO, TCSANOW, &t) == 0;
	}
	ignore_rc(ev_io(k->loop, &k->in, STDIN_FILENO, EPOLLIN, on_input, k,
			NULL)); /* a file has no epoll */
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	(void)ws;
	(void)arg;
	if (!is_text)
		ignore_rc(file_write_all(STDOUT_FILENO, bytes, n, NULL));
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct console *k = arg;

	(void)ws;
	k->ws = http_ws_free(k->ws);
	if (!k->opened && status == 400 && loop_now(k->loop) < k->deadline) {
		/* not running yet: the server's word for "try again" */
		ev_timer_rearm(k->retry, USEC_PER_SEC);
		return;
	}
	if (!k->opened) {
		err_set(&k->err, why ? why->rc : RC_IO, "%s",
			status == 400 ? "Timeout trying to connect to the virtual machine instance"
			: why	      ? why->msg
			: reason      ? reason
				      : "Can't connect to websocket");
		leave(k, EXIT_FAIL);
		return;
	}
	if (code == HTTP_WS_ABNORMAL)
		fprintf(stderr,
			"\r\nYou were disconnected from the console. This has one of the following reasons:\r\n"
			" - another user connected to the console of the target vm\r\n"
			" - network issues\r\n");
	leave(k, code == HTTP_WS_ABNORMAL ? EXIT_FAIL : EXIT_OK);
}

static const struct http_ws_ops ops = {
	.on_open = on_open, .on_message = on_message, .on_close = on_close};

static void try_connect(void *arg)
{
	struct console *k = arg;

	if (http_ws_connect(client_http(k->client), &k->ws, k->url, "plain.kubevirt.io",
			    10 * USEC_PER_SEC, &ops, k, &k->err))
		leave(k, EXIT_FAIL);
}

static int console_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	const char *timeout = "5";
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &flags.ns},
		{.name = "--timeout", .value = &timeout},
		{0},
	};
	struct console k = {0};
	uint64_t minutes = 0;
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 1)
		return cmd_usage(c, "one VMI is needed");
	enum rc rc = str_to_u64(timeout, 1440, &minutes, &k.err);

	if (!rc)
		rc = client_open(&k.client, &flags, &k.err);
	if (rc)
		return cmd_fail(&k.err);
	k.loop = client_loop(k.client);
	k.name = argv[0];
	k.deadline = loop_now(k.loop) + minutes * 60 * USEC_PER_SEC;
	k.url = mem_printf(
		"%s/apis/subresources.kubevirt.io/v1/namespaces/%s/virtualmachineinstances/%s/console",
		client_server(k.client), client_ns(k.client), argv[0]);
	rc = k.url ? ev_timer_after(k.loop, &k.retry, 0, try_connect, &k, &k.err) : RC_NOMEM;
	if (!rc)
		rc = loop_run(k.loop, NULL, &k.err);
	if (k.raw)
		tcsetattr(STDIN_FILENO, TCSANOW, &k.saved);
	ev_src_free(k.in);
	ev_src_free(k.retry);
	http_ws_free(k.ws);
	mem_free(k.url);
	client_free(k.client);
	if (rc || k.err.rc)
		return cmd_fail(&k.err);
	return k.exit_code;
}

const struct cmd cmd_console = {
	.name = "console",
	.args = "VMI [--timeout MINUTES]",
	.summary = "Connect the terminal to a guest's serial console.",
	.run = console_run,
};
