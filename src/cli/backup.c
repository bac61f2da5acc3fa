/* src/cli/backup.c - `ferry backup`, `ferry restore`. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/backup_stream.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "ev/ev.h"
#include "http/client.h"

#define BACKUP_TIMEOUT (3600 * USEC_PER_SEC)

struct backup {
	struct backup_stream stream;
	struct client *client;
	const char *file; /* what the user asked for */
	char *part;	  /* where it grows */
	int fd;
	bool tty, shown, done;
	int signal; /* that ends it; 0: none */
	uint64_t written;
	enum rc rc;
	struct err err;
};

/* ---- what is shown --------------------------------------------------------------------------------- */

static void show(struct backup *b, const char *what, uint64_t done, uint64_t of)
{
	if (!b->tty || !of)
		return;
	fprintf(stderr, "\r%s %3u %%", what, (unsigned)(MIN(done, of) * 100 / of));
	(void)fflush(stderr);
	b->shown = true;
}

static void unshow(struct backup *b)
{
	if (b->shown)
		fprintf(stderr, "\r%*s\r", 40, "");
	b->shown = false;
}

static void on_progress(void *arg, uint64_t done, uint64_t of)
{
	show(arg, "the server copies", done, of);
}

/* ---- receiving ------------------------------------------------------------------------------------- */

static enum rc on_write(void *arg, const void *bytes, size_t n, struct err *err)
{
	struct backup *b = arg;
	enum rc rc = file_write_all(b->fd, bytes, n, err);

	if (rc)
		return err_prepend(err, "'%s'", b->part);
	b->written += n;
	show(b, "receiving        ", b->written, b->stream.bytes);
	return RC_OK;
}

static void on_data(const void *bytes, size_t n, void *arg)
{
	struct backup *b = arg;

	if (!b->rc)
		b->rc = backup_stream_feed(&b->stream, bytes, n, &b->err);
}

static void on_done(const struct http_result *r, void *arg)
{
	struct backup *b = arg;

	b->done = true;
	if (b->rc)
		return;
	if (r->rc)
		b->rc = r->err ? err_copy(&b->err, r->err)
			       : err_set(&b->err, r->rc, "the request failed");
	else if (r->status / 100 == 2)
		b->rc = backup_stream_end(&b->stream, &b->err);
	else
		b->rc = client_status_err(r, &b->err);
}

static void on_signal(int signo, void *arg)
{
	struct backup *b = arg;

	b->signal = signo;
}

static enum rc receive(struct backup *b, struct err *err)
{
	struct loop *loop = client_loop(b->client);
	CLEANUP(mem_freep)
	char *url = mem_printf("%s/ferry/v1/backup", client_server(b->client));
	CLEANUP(ev_src_freep) struct ev_src *interrupt = NULL;
	CLEANUP(ev_src_freep) struct ev_src *terminate = NULL;
	CLEANUP(http_slot_freep) struct http_slot *slot = NULL;
	const struct http_call call = {
		.method = "POST",
		.url = url,
		.timeout = BACKUP_TIMEOUT,
		.on_data = on_data,
		.done = on_done,
		.arg = b,
	};

	if (!url)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = ev_signal(loop, &interrupt, SIGINT, on_signal, b, err);

	if (!rc)
		rc = ev_signal(loop, &terminate, SIGTERM, on_signal, b, err);
	if (!rc)
		rc = http_call(client_http(b->client), &slot, &call, err);
	while (!rc && !b->done && !b->signal && !b->rc) /* the call has a deadline */
		rc = loop_step(loop, USEC_INFINITY, NULL, err);
	if (!rc && b->signal && !b->done)
		rc = err_set(err, RC_CLOSED, "interrupted; nothing was left behind");
	return rc ? rc : b->rc ? err_copy(err, &b->err) : RC_OK;
}

/* On disk under its own name, the folder too. */
static enum rc keep(struct backup *b, struct err *err)
{
	if (fsync(b->fd) != 0)
		return err_set_sys(err, errno, "cannot write '%s'", b->part);
	if (rename(b->part, b->file) != 0)
		return err_set_sys(err, errno, "cannot rename '%s'", b->part);
	b->part = mem_free(b->part);
	return file_sync_parent(b->file, err);
}

static enum rc make_part(struct backup *b, struct err *err)
{
	struct stat st;

	if (stat(b->file, &st) == 0 && !S_ISREG(st.st_mode))
		return err_set(err, RC_INVALID, "'%s' is not a file", b->file);
	b->part = mem_printf("%s.part.%d", b->file, (int)getpid());
	if (!b->part)
		return err_set(err, RC_NOMEM, "out of memory");
	b->fd = open(b->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (b->fd >= 0)
		return RC_OK;
	enum rc rc = err_set_sys(err, errno, "cannot make '%s'", b->part);

	b->part = mem_free(b->part);
	return rc;
}

static int backup_run(const struct cmd *c, int argc, char **argv)
{
	struct client_flags flags = {0};
	const struct opt opts[] = {{.name = "--kubeconfig", .value = &flags.kubeconfig}, {0}};
	struct backup b = {.fd = -1, .tty = isatty(STDERR_FILENO)};
	struct err err = {0};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 1 || str_is_empty(argv[0]))
		return cmd_usage(c, "one FILE is needed");
	b.file = argv[0];
	b.stream.write = on_write;
	b.stream.progress = on_progress;
	b.stream.arg = &b;
	enum rc rc = client_open(&b.client, &flags, &err);

	if (!rc)
		rc = backup_stream_init(&b.stream, &err);
	if (!rc)
		rc = make_part(&b, &err);
	if (!rc)
		rc = receive(&b, &err);
	if (!rc)
		rc = keep(&b, &err);
	unshow(&b);
	if (b.part)
		unlink(b.part);
	mem_free(b.part);
	fd_close(b.fd);
	backup_stream_fini(&b.stream);
	client_free(b.client);
	if (rc)
		return b.signal ? (cmd_fail(&err), 128 + b.signal) : cmd_fail(&err);
	printf("%s: %llu bytes, %lld objects, revision %s, format %lld; whole (SHA-256 %s)\n",
	       b.file, (unsigned long long)b.stream.bytes, (long long)b.stream.objects,
	       b.stream.revision, (long long)b.stream.format, b.stream.sha256);
	return EXIT_OK;
}

/* ---- restore --------------------------------------------------------------------------------------- */

/* The store is the API server's business: its program stands beside ours. */
static int restore_run(const struct cmd *c, int argc, char **argv)
{
	const char *state = NULL;
	const struct opt opts[] = {{.name = "--state", .value = &state}, {0}};
	char self[4096];
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n != 1 || str_is_empty(argv[0]))
		return cmd_usage(c, "one FILE is needed");
	if (str_is_empty(state))
		return cmd_usage(c, "--state DIR is needed: the folder that `ferry up` was given");
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[len > 0 ? len : 0] = '\0';
	char *slash = strrchr(self, '/');
	CLEANUP(mem_freep)
	char *program =
		slash ? mem_printf("%.*s/ferry-apiserver", (int)(slash - self), self) : NULL;
	CLEANUP(mem_freep) char *control = mem_printf("%s/control", state);
	struct err err = {0};

	if (!program || !control) {
		err_set(&err, RC_NOMEM, "cannot find our own program");
		return cmd_fail(&err);
	}
	/* `ferry up` keeps the server's files in a folder of their own. */
	const char *where = access(control, F_OK) == 0 ? control : state;

	execl(program, "ferry-apiserver", "restore", "--state", where, argv[0], (char *)NULL);
	err_set_sys(&err, errno, "cannot run '%s'", program);
	return cmd_fail(&err);
}

const struct cmd cmd_backup = {
	.name = "backup",
	.args = "FILE",
	.summary = "Save everything the API server knows into a file, while it runs.",
	.help = "The file is checked before it gets its name; an older one of that name is replaced then.\n"
		"Not in it: disks, and the certificates in the state folder's control/pki.\n",
	.run = backup_run,
};
const struct cmd cmd_restore = {
	.name = "restore",
	.args = "FILE --state DIR",
	.summary = "Put a backup in the place of a stopped API server's store.",
	.help = "  --state DIR   the folder that `ferry up` was given, or ferry-apiserver's own\n\n"
		"The API server must not run.  The old store is kept beside the new one.  What this means for\n"
		"virtual machines that run: see \"Backup and restore\" in the operator's guide.\n",
	.run = restore_run,
};
