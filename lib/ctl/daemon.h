/* lib/ctl/daemon.h - what every Ferry daemon needs around its own work: options, logs, signals,
 * a loop, /healthz, /readyz and /metrics.
 *
 * Main thread only; one per process.  Typical main():
 *
 *   static const struct daemon_option options[] = {
 *           {"server", "URL", "address of the API server", .text = &server, .is_required = true},
 *           {"dry-run", NULL, "only say what would be done", .flag = &dry_run},
 *           {NULL}};
 *   static const struct daemon_def def = {"ferry-node", "runs pods and VMs of one machine", options,
 *                                         .health = "127.0.0.1:8187"};
 *   struct daemon *d = NULL;
 *   int code = daemon_new(&d, &def, argc, argv);
 *   if (!d)
 *           return code;
 *   … start things on daemon_loop(d) …
 *   code = daemon_run(d);
 *   … free things …
 *   daemon_free(d);
 *   return code;
 */
#ifndef CTL_DAEMON_H
#define CTL_DAEMON_H

#include "base/err.h"

struct daemon;
struct loop;
struct sbuf;

struct daemon_option {
	const char *name;	/* without "--"; NULL ends the table */
	const char *value_name; /* "FILE"; NULL: a flag without value */
	const char *help;
	const char *
		*text; /* with a value: set to it (borrowed from argv); holds the default before */
	bool *flag;    /* without: set to true */
	bool is_required;
};

struct daemon_def {
	const char *name;
	const char *about; /* one line, a verb phrase */
	const struct daemon_option *options;
	const char *health; /* default of --health; NULL: "none" */
	const char *more;   /* further text for --help; NULL: none */
};

/* Parses options ("--name value", "--name=value"; --help, --version, --health ADDRESS:PORT|unix:PATH|
 * none, --log-level, --log-json are added), sets the log up, lets JSON use mem_*, ignores SIGPIPE,
 * makes the loop, takes SIGTERM and SIGINT, and listens for health.
 * *out stays NULL when the process is to end with the returned code (0 after --help; 2 for bad
 * options; 1 when something failed): what to say was said. */
int daemon_new(struct daemon **out, const struct daemon_def *def, int argc, char **argv);
struct daemon *daemon_free(struct daemon *d); /* accepts NULL; returns NULL; after all loop users */
DEFINE_CLEANUP(struct daemon *, daemon_free);

struct loop *daemon_loop(const struct daemon *d);

/* The first SIGTERM or SIGINT calls fn, which ends with daemon_quit() when all is put down; without fn
 * the loop quits with 0.  A second one quits at once with 130. */
void daemon_on_stop(struct daemon *d, void (*fn)(void *arg), void *arg);
/* SIGHUP; without fn it is ignored. */
void daemon_on_reload(struct daemon *d, void (*fn)(void *arg), void *arg);

/* fn appends Prometheus text at each scrape; at most 16. */
typedef void (*daemon_metrics_fn)(struct sbuf *out, void *arg);
void daemon_on_metrics(struct daemon *d, daemon_metrics_fn fn, void *arg);
/* What a scrape of --health shows: the process, then all of these. */
void daemon_print_metrics(struct daemon *d, struct sbuf *out);
void daemon_print_process(const struct daemon *d, struct sbuf *out); /* its first part alone */
/* /readyz answers 503 with why until it is ready (NULL), which is the start.  why is borrowed. */
void daemon_set_unready(struct daemon *d, const char *why);

void daemon_quit(struct daemon *d, int code);
int daemon_run(struct daemon *d); /* until daemon_quit(); returns its code */

/* Logs the error and returns the exit code 1: `return daemon_fail(&err);` */
int daemon_fail(const struct err *err);

#endif
