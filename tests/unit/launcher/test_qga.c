/* The guest agent's client against agents that say anything. */
#include "virt/launcher/qga.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "virt/launcher/agent_facts.h"

struct rig {
	struct loop *loop;
	struct qga *q;
	int fd;		  /* the guest's end */
	char asked[8192]; /* what the guest was sent */
	size_t n_asked;
	bool is_closed;
	enum rc closed;
};

struct got {
	unsigned times;
	enum rc rc;
	char desc[QGA_DESC_MAX];
	struct json *value;
};

static void on_reply(const struct qga_reply *r, void *arg)
{
	struct got *g = arg;

	g->times++;
	g->rc = r->rc;
	snprintf(g->desc, sizeof(g->desc), "%s", r->desc ? r->desc : "");
	js_unref(g->value);
	g->value = js_ref(r->value);
}

static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct rig *r = arg;

	assert_non_null(why);
	assert_false(r->is_closed);
	r->is_closed = true;
	r->closed = rc;
}

static const struct qga_ops ops = {.on_closed = on_closed};

static void up(struct rig *r)
{
	int pair[2];

	*r = (struct rig){.fd = -1};
	assert_int_equal(loop_new(&r->loop, LOOP_REAL, NULL), RC_OK);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
			 0);
	r->fd = pair[0];
	assert_int_equal(qga_new(&r->q, r->loop, pair[1], 41, &ops, r, NULL), RC_OK);
}

static void down(struct rig *r)
{
	qga_free(r->q);
	loop_free(r->loop);
	if (r->fd >= 0)
		close(r->fd);
}

static void turn(struct rig *r)
{
	for (int i = 0; i < 4; i++) {
		assert_int_equal(loop_step(r->loop, 500, NULL, NULL), RC_OK);
		ssize_t n = read(r->fd, r->asked + r->n_asked, sizeof(r->asked) - r->n_asked - 1);

		if (n > 0)
			r->n_asked += (size_t)n;
		r->asked[r->n_asked] = '\0';
	}
}

static void say_bytes(struct rig *r, const char *bytes, size_t n)
{
	for (size_t at = 0; at < n && !r->is_closed;) {
		ssize_t k = send(r->fd, bytes + at, n - at, MSG_NOSIGNAL);

		if (k > 0)
			at += (size_t)k;
		else
			turn(r);
	}
	turn(r);
}

static void say(struct rig *r, const char *text)
{
	say_bytes(r, text, strlen(text));
}

static void invoke(struct rig *r, const char *command, struct got *g, usec_t timeout)
{
	struct qga_call c = {.command = command, .timeout = timeout, .fn = on_reply, .arg = g};

	*g = (struct got){0};
	assert_int_equal(qga_invoke(r->q, &c, NULL), RC_OK);
	turn(r);
}

static void done(struct got *g, enum rc rc)
{
	assert_int_equal(g->times, 1);
	assert_int_equal(g->rc, rc);
	g->value = js_unref(g->value);
}

static void a_command_is_asked_after_both_are_in_step(void **state)
{
	struct rig r;
	struct got g;

	(void)state;
	up(&r);
	invoke(&r, "guest-ping", &g, 10 * USEC_PER_SEC);
	assert_string_equal(r.asked, "\xff{\"execute\":\"guest-sync-delimited\",\"arguments\":"
				     "{\"id\":42}}\n");
	say(&r, "\xff{\"return\": 42}\n");
	assert_non_null(strstr(r.asked, "\n{\"execute\":\"guest-ping\"}\n"));
	assert_int_equal(g.times, 0);
	say(&r, "{\"return\": {\"a\": 1}}\n");
	assert_int_equal(js_get_int(g.value, "a", 0), 1);
	done(&g, RC_OK);
	down(&r);
}

/* Late answers, wrong numbers, answers to nobody, and what is no JSON. */
static void what_nobody_asked_for_is_no_answer(void **state)
{
	static const char *const noise[] = {"{\"return\": 41}\n",
					    "{\"return\": {\"stolen\": true}}\n",
					    "{\"return\": 42.0}\n",
					    "{\"return\": \"42\"}\n",
					    "{\"error\": {\"desc\": \"no\"}}\n",
					    "]]]}{\n",
					    "\n\n",
					    "{\"return\": 42",
					    "\xff",
					    "42\n",
					    "{\"QMP\": {}}\n",
					    "{\"event\": \"x\"}\n"};
	struct rig r;
	struct got g;

	(void)state;
	up(&r);
	say(&r, "{\"return\": {}}\n{\"return\": 42}\n"); /* before anything was asked */
	invoke(&r, "guest-ping", &g, 10 * USEC_PER_SEC);
	for (size_t i = 0; i < ARRAY_SIZE(noise); i++) {
		say(&r, noise[i]);
		assert_int_equal(g.times, 0);
		assert_null(strstr(r.asked, "guest-ping"));
	}
	say(&r, "\xff{\"return\": 42}\n{\"return\": \"yes\"}\n{\"return\": \"again\"}\n");
	assert_string_equal(js_str(g.value), "yes");
	done(&g, RC_OK);
	say(&r, "{\"return\": \"again\"}\n");
	assert_int_equal(g.times, 1);
	assert_false(r.is_closed);
	down(&r);
}

static void bytes_may_be_split_anywhere(void **state)
{
	static const char answer[] =
		"rubbish\xff{\"return\": 42}\n{\"return\": [\"\xc3\xa4\", {\"b\": 2}]}\n";
	(void)state;
	for (size_t cut = 0; cut < sizeof(answer); cut++) {
		struct rig r;
		struct got g;

		up(&r);
		invoke(&r, "guest-info", &g, 10 * USEC_PER_SEC);
		say_bytes(&r, answer, cut);
		say_bytes(&r, answer + cut, sizeof(answer) - 1 - cut);
		turn(&r);
		assert_int_equal(js_len(g.value), 2);
		done(&g, RC_OK);
		down(&r);
	}
}

static void a_guest_that_says_too_much_is_let_go(void **state)
{
	CLEANUP(mem_freep) char *flood = mem_alloc(LIMIT_QGA_BYTES + 2);
	static const char *const starts[] = {"{\"return\": \"",
					     "\xff{\"return\": 42}\n{\"return\": \"", "\n",
					     "{\"return\": 7}\n"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		struct rig r;
		struct got g;

		memset(flood, i == 2 ? '\n' : 'x', LIMIT_QGA_BYTES + 1);
		up(&r);
		invoke(&r, "guest-info", &g, 10 * USEC_PER_SEC);
		say(&r, starts[i]);
		say_bytes(&r, flood, LIMIT_QGA_BYTES + 1);
		for (int k = 0; k < 1000 && !r.is_closed; k++)
			turn(&r);
		assert_true(r.is_closed);
		assert_int_equal(r.closed, RC_TOO_BIG);
		done(&g, RC_TOO_BIG);
		assert_int_equal(
			qga_invoke(r.q,
				   &(struct qga_call){
					   .command = "x", .timeout = 1, .fn = on_reply, .arg = &g},
				   NULL),
			RC_CLOSED);
		down(&r);
	}
}

static void nesting_and_nonsense_are_no_answers(void **state)
{
	static const char *const bad[] = {
		"[[[[", "{\"return\"}",	      "\x01\x02",	  "{}", "[]",
		"7",	"{\"error\": \"x\"}", "{\"error\": null}"};
	char deep[4096];

	(void)state;
	memset(deep, '[', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	for (size_t i = 0; i <= ARRAY_SIZE(bad); i++) {
		struct rig r;
		struct got g;

		up(&r);
		invoke(&r, "guest-info", &g, 10 * USEC_PER_SEC);
		say(&r, "\xff{\"return\": 42}\n");
		say(&r, i < ARRAY_SIZE(bad) ? bad[i] : deep);
		say(&r, "\n");
		done(&g, RC_INVALID);
		/* The next command has a number of its own, and works. */
		invoke(&r, "guest-ping", &g, 10 * USEC_PER_SEC);
		say(&r, "\xff{\"return\": 43}\n{\"return\": {}}\n");
		done(&g, RC_OK);
		down(&r);
	}
}

static void errors_are_told_in_printable_words(void **state)
{
	struct rig r;
	struct got g;

	(void)state;
	up(&r);
	invoke(&r, "guest-x", &g, 10 * USEC_PER_SEC);
	say(&r, "\xff{\"return\": 42}\n{\"error\": {\"class\": \"CommandNotFound\", \"desc\": "
		"\"no\\u001b[2J\\n\\u00e4\"}}\n");
	assert_string_equal(g.desc, "no [2J \xc3\xa4");
	done(&g, RC_NOT_FOUND);
	invoke(&r, "guest-y", &g, 10 * USEC_PER_SEC);
	say(&r, "\xff{\"return\": 43}\n{\"error\": {\"desc\": 7}}\n");
	done(&g, RC_REFUSED_BY_AGENT);
	down(&r);
}

static void silence_has_an_end_and_a_late_answer_is_dropped(void **state)
{
	struct rig r;
	struct got g, h, s = {0};

	(void)state;
	up(&r);
	invoke(&r, "guest-get-users", &g, 20 * USEC_PER_MSEC);
	say(&r, "\xff{\"return\": 42}\n");
	for (int i = 0; i < 200 && !g.times; i++)
		turn(&r);
	done(&g, RC_TIMEOUT);
	invoke(&r, "guest-ping", &h, 10 * USEC_PER_SEC);
	say(&r, "{\"return\": [\"late\"]}\n\xff{\"return\": 43}\n{\"return\": {}}\n");
	assert_true(js_is_object(h.value));
	done(&h, RC_OK);
	/* A command that need not answer, once the agent has it. */
	struct qga_call c = {.command = "guest-shutdown",
			     .args = js_pack("{s:s}", "mode", "reboot"),
			     .timeout = 20 * USEC_PER_MSEC,
			     .may_be_silent = true,
			     .fn = on_reply,
			     .arg = &s};

	assert_int_equal(qga_invoke(r.q, &c, NULL), RC_OK);
	turn(&r);
	say(&r, "\xff{\"return\": 44}\n");
	assert_non_null(strstr(r.asked, "{\"execute\":\"guest-shutdown\",\"arguments\":{\"mode\":"
					"\"reboot\"}}\n"));
	for (int i = 0; i < 200 && !s.times; i++)
		turn(&r);
	done(&s, RC_OK);
	down(&r);
}

static void the_end_of_the_channel_ends_all_commands(void **state)
{
	struct rig r;
	struct got g[QGA_MAX_QUEUED], more;

	(void)state;
	up(&r);
	for (size_t i = 0; i < QGA_MAX_QUEUED; i++)
		invoke(&r, "guest-ping", &g[i], 10 * USEC_PER_SEC);
	assert_int_equal(
		qga_invoke(r.q,
			   &(struct qga_call){
				   .command = "x", .timeout = 1, .fn = on_reply, .arg = &more},
			   NULL),
		RC_BUSY);
	close(r.fd);
	r.fd = -1;
	for (int i = 0; i < 200 && !r.is_closed; i++)
		assert_int_equal(loop_step(r.loop, 500, NULL, NULL), RC_OK);
	assert_int_equal(r.closed, RC_CLOSED);
	for (size_t i = 0; i < QGA_MAX_QUEUED; i++)
		done(&g[i], RC_CLOSED);
	down(&r);
}

static void text_is_cut_between_characters(void **state)
{
	char out[8];

	(void)state;
	qga_printable("abcdef\xc3\xa4", out, sizeof(out));
	assert_string_equal(out, "abcdef");
	qga_printable("abcde\xc3\xa4z", out, sizeof(out));
	assert_string_equal(out, "abcde\xc3\xa4");
	qga_printable("a\x7f\x1b\tb", out, sizeof(out));
	assert_string_equal(out, "a   b");
	qga_printable(NULL, out, sizeof(out));
	assert_string_equal(out, "");
}

static struct json *of(const char *text)
{
	struct json *j = NULL;

	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	return j;
}

static void answers_become_kubevirts_forms(void **state)
{
	static const char values[] =
		"{\"guest-info\": {\"version\": \"7.2.0\", \"supported_commands\": [{\"name\": "
		"\"guest-ping\", \"enabled\": true}, {\"name\": \"guest-exec\", \"enabled\": false}]}, "
		"\"guest-get-osinfo\": {\"name\": \"Debian\", \"kernel-release\": \"6.1\", \"id\": 7}, "
		"\"guest-get-host-name\": {\"host-name\": \"h\"}, \"guest-get-timezone\": {\"zone\": "
		"\"CET\", \"offset\": 3600}, \"guest-get-users\": [{\"user\": \"root\", \"login-time\": "
		"1.5}, 7, {\"login-time\": 1}], \"guest-get-fsinfo\": [{\"name\": \"vda1\", "
		"\"mountpoint\": \"/\", \"type\": \"ext4\", \"used-bytes\": 5, \"total-bytes\": 9, "
		"\"disk\": [{\"serial\": \"s\", \"bus-type\": \"virtio\"}]}], \"guest-fsfreeze-status\": "
		"\"frozen\"}";
	struct json *in = of(values);
	struct json *info = agent_facts_info(in), *users = agent_facts_users(in);
	CLEANUP(mem_freep) char *text = js_to_text(info), *list = js_to_text(users);

	(void)state;
	assert_string_equal(
		text,
		"{\"fsInfo\":{\"disks\":[{\"diskName\":\"vda1\",\"mountPoint\":\"/\","
		"\"fileSystemType\":\"ext4\",\"usedBytes\":5,\"totalBytes\":9,\"disk\":[{\"serial\":"
		"\"s\",\"busType\":\"virtio\"}]}]},\"guestAgentVersion\":\"7.2.0\",\"supportedCommands\":"
		"[{\"name\":\"guest-ping\",\"enabled\":true},{\"name\":\"guest-exec\"}],\"hostname\":\"h\","
		"\"os\":{\"name\":\"Debian\",\"kernelRelease\":\"6.1\"},\"timezone\":\"CET, 3600\","
		"\"userList\":[{\"userName\":\"root\",\"loginTime\":1.5}],\"fsFreezeStatus\":\"frozen\"}");
	assert_string_equal(list, "{\"items\":[{\"userName\":\"root\",\"loginTime\":1.5}]}");
	assert_true(agent_facts_has(js_get(in, "guest-info"), "guest-ping"));
	assert_false(agent_facts_has(js_get(in, "guest-info"), "guest-exec"));
	assert_false(agent_facts_has(js_get(in, "guest-info"), "guest-file-open"));
	js_unref(in);
	js_unref(info);
	js_unref(users);
}

static void only_addresses_are_shown_as_addresses(void **state)
{
	static const char values[] =
		"{\"guest-info\": {}, \"guest-network-get-interfaces\": [{\"name\": \"lo\", "
		"\"ip-addresses\": []}, {\"name\": \"eth0\", \"hardware-address\": \"0a:58:0a:f4:01:02\", "
		"\"ip-addresses\": [{\"ip-address\": \"10.0.2.2\"}, {\"ip-address\": \"fe80::1\"}, "
		"{\"ip-address\": \"1.2.3\"}, {\"ip-address\": 5}, {}]}, {\"name\": \"eth1\", "
		"\"hardware-address\": \"0a:58:zz:f4:01:02\"}, {\"name\": 3}, 4]}";
	struct json *in = of(values), *out = agent_facts_status(in);
	CLEANUP(mem_freep) char *text = js_to_text(js_get(out, "interfaces"));

	(void)state;
	assert_string_equal(
		text, "[{\"name\":\"eth0\",\"mac\":\"0a:58:0a:f4:01:02\",\"ips\":[\"10.0.2.2\","
		      "\"fe80::1\"]},{\"name\":\"eth1\",\"ips\":[]}]");
	assert_int_equal(js_len(js_get(out, "lacks")), 10);
	assert_false(js_get_bool(out, "frozen", true));
	js_unref(in);
	js_unref(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_command_is_asked_after_both_are_in_step),
		cmocka_unit_test(what_nobody_asked_for_is_no_answer),
		cmocka_unit_test(bytes_may_be_split_anywhere),
		cmocka_unit_test(a_guest_that_says_too_much_is_let_go),
		cmocka_unit_test(nesting_and_nonsense_are_no_answers),
		cmocka_unit_test(errors_are_told_in_printable_words),
		cmocka_unit_test(silence_has_an_end_and_a_late_answer_is_dropped),
		cmocka_unit_test(the_end_of_the_channel_ends_all_commands),
		cmocka_unit_test(text_is_cut_between_characters),
		cmocka_unit_test(answers_become_kubevirts_forms),
		cmocka_unit_test(only_addresses_are_shown_as_addresses),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("qga", tests, NULL, NULL);
}
