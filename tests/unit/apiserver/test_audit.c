/* The audit log: what a line says, what has none, and that nothing waits for the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cluster/apiserver/audit.h"
#include "fixture.h"

#define CM "/api/v1/namespaces/default/configmaps"

static struct loop *loop;
static struct store *store;
static struct audit *audit;
static struct apisrv *srv;
static char dir[64], path[96];
static int status;

static void audit_up(uint64_t max_bytes, unsigned keep)
{
	const struct audit_config config = {.path = path, .max_bytes = max_bytes, .keep = keep};
	struct err err = {0};

	if (audit_new(&audit, loop, &config, &err))
		fail_msg("%s", err.msg);
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/ferry-audit-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/audit.log", dir);
	assert_int_equal(loop_new(&loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(store_open(&store, loop, NULL, NULL), RC_OK);
	return 0;
}

static void settle(void)
{
	bool did = true;

	while (did)
		assert_int_equal(loop_step(loop, 0, &did, NULL), RC_OK);
}

static void server_up(void)
{
	const struct apisrv_config c = {
		.store = store, .seed = 7, .with_roles = true, .audit = audit};

	assert_int_equal(apisrv_new(&srv, loop, &c, NULL), RC_OK);
	settle();
}

static int teardown(void **state)
{
	(void)state;
	srv = apisrv_free(srv);
	audit = audit_free(audit);
	store = store_close(store);
	loop = loop_free(loop);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	assert_int_equal(mem_live_blocks(), 0);
	return 0;
}

static void on_answer(void *arg, const struct apisrv_answer *a)
{
	(void)arg;
	status = a->status;
}

static void on_begin(void *arg, int code, const char *type, size_t backlog)
{
	(void)arg;
	(void)type;
	(void)backlog;
	status = code;
}

static enum rc on_write(void *arg, const void *bytes, size_t n)
{
	(void)arg;
	(void)bytes;
	(void)n;
	return RC_OK;
}

static void on_end(void *arg)
{
	(void)arg;
}

static struct apisrv_call *ask(const struct apisrv_user *user, const struct apisrv_user *as,
			       const char *method, const char *target, const char *body)
{
	static const struct apisrv_sink sink = {.answer = on_answer,
						.stream_begin = on_begin,
						.stream_write = on_write,
						.stream_end = on_end};
	const struct apisrv_request r = {.method = method,
					 .target = target,
					 .user = user,
					 .as = as,
					 .user_agent = "kubectl/v1.32.4 (linux/amd64)",
					 .source = "192.0.2.7",
					 .authorization = NULL,
					 .body = body,
					 .n_body = body ? strlen(body) : 0};

	status = 0;
	struct apisrv_call *call = apisrv_handle(srv, &r, &sink, NULL);

	for (int i = 0; i < 10000 && !status; i++)
		assert_int_equal(loop_step(loop, 0, NULL, NULL), RC_OK);
	settle();
	return call;
}

static char *read_log(void)
{
	char *text = NULL;
	size_t n;

	assert_int_equal(file_read(path, 64 << 20, &text, &n, NULL), RC_OK);
	return text;
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* The last line; to be js_unref'ed. */
static struct json *last_line(void)
{
	char *text = read_log();
	struct json *j = NULL;
	size_t n = strlen(text);

	assert_true(n > 0 && text[n - 1] == '\n');
	size_t at = n - 1;

	while (at && text[at - 1] != '\n')
		at--;
	assert_int_equal(js_parse(text + at, n - 1 - at, &j, NULL), RC_OK);
	mem_free(text);
	return j;
}

static void a_line_says_who_did_what(void **state)
{
	(void)state;
	audit_up(1 << 30, 1);
	server_up();
	ask(&fx_admin, NULL, "POST", CM "?fieldManager=x",
	    "{\"metadata\":{\"name\":\"c\"},\"data\":{\"k\":\"hidden-value\"}}");
	assert_int_equal(status, 201);
	struct json *j = last_line();

	assert_string_equal(js_get_str(j, "kind"), "Event");
	assert_string_equal(js_get_str(j, "apiVersion"), "audit.k8s.io/v1");
	assert_string_equal(js_get_str(j, "level"), "Metadata");
	assert_string_equal(js_get_str(j, "stage"), "ResponseComplete");
	assert_string_equal(js_get_str(j, "verb"), "create");
	assert_string_equal(js_get_str(j, "requestURI"), CM "?fieldManager=x");
	assert_string_equal(js_get_str(j, "userAgent"), "kubectl/v1.32.4 (linux/amd64)");
	assert_int_equal(strlen(js_get_str(j, "auditID")), 36);
	assert_path(j, "admin", "user", "username");
	assert_path(j, "configmaps", "objectRef", "resource");
	assert_path(j, "default", "objectRef", "namespace");
	assert_path(j, "c", "objectRef", "name");
	assert_path(j, "v1", "objectRef", "apiVersion");
	assert_string_equal(js_str(js_item(js_get(j, "sourceIPs"), 0)), "192.0.2.7");
	assert_int_equal(js_get_int(js_get(j, "responseStatus"), "code", 0), 201);
	assert_path(j, "allow", "annotations", "authorization.k8s.io/decision");
	assert_non_null(js_str(js_at(j, "annotations", "ferry.dev/latency", NULL)));
	assert_non_null(js_get_str(j, "requestReceivedTimestamp"));
	assert_non_null(js_get_str(j, "stageTimestamp"));
	js_unref(j);
	CLEANUP(mem_freep) char *text = read_log();

	assert_null(strstr(text, "hidden-value"));
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_refusal_and_its_reason_are_told(void **state)
{
	(void)state;
	audit_up(1 << 30, 1);
	server_up();
	ask(&fx_nobody, NULL, "GET", CM "/c", NULL);
	assert_int_equal(status, 403);
	struct json *j = last_line();

	assert_path(j, "forbid", "annotations", "authorization.k8s.io/decision");
	assert_path(j, "eve", "user", "username");
	assert_path(j, "c", "objectRef", "name");
	js_unref(j);
	ask(&fx_nobody, NULL, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
	    "{\"spec\":{\"resourceAttributes\":{\"verb\":\"get\",\"resource\":\"pods\"}}}");
	j = last_line();
	assert_path(j,
		    "RBAC: allowed by ClusterRoleBinding \"system:basic-user\" of ClusterRole "
		    "\"system:basic-user\" to Group \"system:authenticated\"",
		    "annotations", "authorization.k8s.io/reason");
	js_unref(j);
	/* a node that reaches for others' things is told although nodes are not, else */
	ask(&fx_node1, NULL, "GET", "/api/v1/secrets", NULL);
	j = last_line();
	assert_path(j, "system:node:node-1", "user", "username");
	js_unref(j);
}

static void whoever_acts_for_another_is_told_too(void **state)
{
	static const struct apisrv_user jane = {.name = "jane"};

	(void)state;
	audit_up(1 << 30, 1);
	server_up();
	ask(&fx_admin, &jane, "GET", CM, NULL);
	struct json *j = last_line();

	assert_path(j, "admin", "user", "username");
	assert_path(j, "jane", "impersonatedUser", "username");
	js_unref(j);
	ask(&fx_nobody, &jane, "GET", CM, NULL);
	j = last_line();
	assert_path(j, "eve", "user", "username");
	assert_path(j, "forbid", "annotations", "authorization.k8s.io/decision");
	assert_int_equal(js_get_int(js_get(j, "responseStatus"), "code", 0), 403);
	js_unref(j);
}

static size_t lines(void)
{
	CLEANUP(mem_freep) char *text = read_log();

	return count_lines(text);
}

static void the_heartbeat_of_the_cluster_is_left_out(void **state)
{
	(void)state;
	audit_up(1 << 30, 1);
	server_up();
	size_t before = lines();

	ask(&fx_node1, NULL, "GET", "/api/v1/nodes", NULL);
	ask(&fx_controller, NULL, "GET", "/api/v1/pods", NULL);
	ask(&fx_node1, NULL, "POST",
	    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
	    "{\"metadata\":{\"name\":\"node-1\"},\"spec\":{\"leaseDurationSeconds\":1}}");
	assert_int_equal(status, 201);
	ask(&fx_nobody, NULL, "GET", "/healthz", NULL);
	assert_int_equal(lines(), before);
	ask(&fx_node1, NULL, "POST", "/api/v1/nodes", "{\"metadata\":{\"name\":\"node-1\"}}");
	ask(&fx_admin, NULL, "GET", "/api/v1/nodes", NULL);
	ask(&fx_nobody, NULL, "GET", "/version/x", NULL);
	assert_int_equal(lines(), before + 3);
}

static void a_watch_that_its_client_leaves_has_a_line(void **state)
{
	(void)state;
	audit_up(1 << 30, 1);
	server_up();
	size_t before = lines();
	struct apisrv_call *call = ask(&fx_admin, NULL, "GET", CM "?watch=1", NULL);

	assert_non_null(call);
	assert_int_equal(lines(), before);
	apisrv_cancel(call);
	settle();
	struct json *j = last_line();

	assert_int_equal(lines(), before + 1);
	assert_string_equal(js_get_str(j, "verb"), "watch");
	js_unref(j);
}

static void no_token_is_written_down(void **state)
{
	(void)state;
	audit_up(1 << 30, 1);
	server_up();
	static const struct apisrv_sink sink = {.answer = on_answer};
	const struct apisrv_request r = {
		.method = "GET", .target = "/api/v1/pods", .authorization = "Bearer very-secret"};

	status = 0;
	apisrv_handle(srv, &r, &sink, NULL);
	settle();
	assert_int_equal(status, 401);
	struct json *j = last_line();

	assert_int_equal(js_get_int(js_get(j, "responseStatus"), "code", 0), 401);
	assert_path(j, "system:anonymous", "user", "username");
	js_unref(j);
	CLEANUP(mem_freep) char *text = read_log();

	assert_null(strstr(text, "very-secret"));
}

/* ---- the file ------------------------------------------------------------------------------------------------ */

static void line_of(char letter, size_t n)
{
	char text[256];

	assert_true(n < sizeof(text));
	memset(text, letter, n);
	audit_line(audit, text, n);
	settle();
}

static bool holds(unsigned number, char letter)
{
	CLEANUP(mem_freep)
	char *name = number ? mem_printf("%s.%u", path, number) : mem_strdup(path);
	CLEANUP(mem_freep) char *text = NULL;
	size_t n;

	return file_read(name, 1 << 20, &text, &n, NULL) == RC_OK && strchr(text, letter);
}

static void large_files_are_put_aside(void **state)
{
	(void)state;
	audit_up(150, 2);
	line_of('a', 100);
	line_of('b', 100);
	assert_true(holds(0, 'b') && holds(1, 'a'));
	line_of('c', 100);
	line_of('d', 100);
	assert_true(holds(0, 'd') && holds(1, 'c') && holds(2, 'b'));
	assert_false(holds(3, 'a'));
	/* it goes on where it was, over a restart */
	audit = audit_free(audit);
	audit_up(150, 2);
	line_of('e', 20);
	assert_true(holds(0, 'd') && holds(0, 'e'));
}

static double metric(const char *name)
{
	struct sbuf b = SBUF_INIT(65536);

	audit_metrics(audit, &b);
	const char *at = strstr(sbuf_str(&b), name);

	assert_non_null(at);
	double v = strtod(at + strlen(name), NULL);

	sbuf_fini(&b);
	return v;
}

static void what_does_not_fit_is_counted_and_lost(void **state)
{
	char text[8192];

	(void)state;
	audit_up(1 << 30, 1);
	memset(text, 'x', sizeof(text));
	/* nothing is written while the loop does not turn */
	for (size_t i = 0; i < 2000; i++)
		audit_line(audit, text, sizeof(text));
	assert_true(metric("\napiserver_audit_event_total ") == 2000);
	assert_true(metric("{plugin=\"log\"} ") > 0);
	settle();
	double lost = metric("{plugin=\"log\"} ");
	CLEANUP(mem_freep) char *log = read_log();

	assert_true(lost < 2000);
	assert_true((double)count_lines(log) + lost == 2000);
}

static void a_file_that_fails_stops_nothing(void **state)
{
	(void)state;
	audit_up(1 << 30, 1);
	server_up();
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	ask(&fx_admin, NULL, "POST", CM, "{\"metadata\":{\"name\":\"c\"}}");
	assert_int_equal(status, 201);
	assert_true(metric("{plugin=\"log\"} ") == 1);
	assert_int_equal(mkdir(dir, 0700), 0);
	ask(&fx_admin, NULL, "POST", CM, "{\"metadata\":{\"name\":\"d\"}}");
	assert_int_equal(lines(), 1);
	assert_true(metric("{plugin=\"log\"} ") == 1);
}

static void a_folder_that_is_not_there_is_told_at_once(void **state)
{
	const struct audit_config config = {
		.path = "/nowhere/audit.log", .max_bytes = 1, .keep = 1};
	struct err err = {0};

	(void)state;
	assert_int_not_equal(audit_new(&audit, loop, &config, &err), RC_OK);
	assert_non_null(strstr(err.msg, "cannot open '/nowhere/audit.log'"));
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_line_says_who_did_what),
		T(a_refusal_and_its_reason_are_told),
		T(whoever_acts_for_another_is_told_too),
		T(the_heartbeat_of_the_cluster_is_left_out),
		T(a_watch_that_its_client_leaves_has_a_line),
		T(no_token_is_written_down),
		T(large_files_are_put_aside),
		T(what_does_not_fit_is_counted_and_lost),
		T(a_file_that_fails_stops_nothing),
		T(a_folder_that_is_not_there_is_told_at_once),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("audit", tests, NULL, NULL);
}
