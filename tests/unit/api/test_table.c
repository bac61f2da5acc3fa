#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "api/table.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "lib/torture.h"

/* Single quotes for readability. */
static struct json *J(const char *text)
{
	CLEANUP(mem_freep) char *copy = mem_strdup(text);
	struct json *j = NULL;
	struct err err;

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	if (js_parse(copy, strlen(copy), &j, &err))
		fail_msg("%s: %s", copy, err.msg);
	return j;
}

static usec_t at(const char *stamp)
{
	usec_t t = 0;

	assert_int_equal(time_parse(stamp, &t, NULL), RC_OK);
	return t;
}

static void every_column_of_the_schema_can_be_computed(void **state)
{
	(void)state;
	for (size_t i = 0; api_kinds[i]; i++)
		for (size_t c = 0; c < api_kinds[i]->n_columns; c++) {
			const struct api_column *col = &api_kinds[i]->columns[c];

			if (col->fn ? !api_table_is_computed(col->fn)
				    : !api_path_is_valid(col->path))
				fail_msg("%s: column %s", api_kinds[i]->kind, col->name);
		}
}

static void paths_find_what_they_name(void **state)
{
	CLEANUP(js_unrefp)
	struct json *j =
		J("{'a':{'b':[{'c':1},{'c':2}]},'l':{'x.y/z':'v'},'k':[{'type':'A','s':'1'},"
		  "{'type':'B b','s':'2'}],'n':null}");
	static const struct {
		const char *path;
		int64_t want;
	} ints[] = {
		{".a.b[0].c", 1}, {".a.b[1].c", 2}, {".a.b[2].c", -1}, {".a.x.c", -1}, {".n", -1}};
	static const char *const bad[] = {
		"a", ".", ".a[", ".a[x]", ".a[?(@.b=1)]", ".a..b", ".a[?(@.t=='x]", "[", ".a[-1]"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ints); i++)
		assert_int_equal(js_int(api_path_get(j, ints[i].path), -1), ints[i].want);
	assert_string_equal(js_str(api_path_get(j, ".l.x\\.y/z")), "v");
	assert_string_equal(js_str(api_path_get(j, ".k[?(@.type=='B b')].s")), "2");
	assert_string_equal(js_str(api_path_get(j, ".k[?(@.type==\"A\")].s")), "1");
	assert_null(api_path_get(j, ".k[?(@.type=='C')].s"));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_false(api_path_is_valid(bad[i]));
		assert_null(api_path_get(j, bad[i]));
	}
}

static void ages_read_as_kubectl_prints_them(void **state)
{
	static const struct {
		int64_t seconds;
		const char *want;
	} cases[] = {
		{-5, "<invalid>"},  {-1, "0s"},	      {0, "0s"},	   {119, "119s"},
		{120, "2m"},	    {200, "3m20s"},   {599, "9m59s"},	   {600, "10m"},
		{10799, "179m"},    {10800, "3h"},    {11000, "3h3m"},	   {28800, "8h"},
		{172799, "47h"},    {172800, "2d"},   {180000, "2d2h"},	   {691200, "8d"},
		{62208000, "720d"}, {63072000, "2y"}, {64000000, "2y10d"}, {315360000, "10y"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char out[24];

		api_age_print(cases[i].seconds, out);
		assert_string_equal(out, cases[i].want);
	}
}

static void expect_row(const struct api_kind *k, const char *text, const char *const *want)
{
	CLEANUP(js_unrefp) struct json *j = J(text);

	for (size_t c = 0; c < k->n_columns; c++) {
		CLEANUP(js_unrefp)
		struct json *cell = api_table_cell(&k->columns[c], j, at("2026-01-01T01:00:00Z"));
		CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(1024);

		assert_non_null(cell);
		if (js_is_string(cell))
			sbuf_adds(&b, js_str(cell));
		else
			js_print(cell, &b, false);
		if (!str_eq(sbuf_str(&b), want[c]))
			fail_msg("%s.%s is '%s', not '%s'", k->kind, k->columns[c].name,
				 sbuf_str(&b), want[c]);
	}
}

#define ROW(...) ((const char *const[]){__VA_ARGS__})
#define META	 "'metadata':{'name':'a','creationTimestamp':'2026-01-01T00:00:00Z'}"

static void rows_read_as_kubectl_prints_them(void **state)
{
	(void)state;
	expect_row(&api_kind_Pod,
		   "{" META ",'spec':{'nodeName':'n','containers':[{},{}],'readinessGates':"
		   "[{'conditionType':'G'}]},'status':{'phase':'Running','podIP':'10.0.0.1',"
		   "'conditions':[{'type':'G','status':'True'}],'containerStatuses':[{'ready':true,"
		   "'state':{'running':{}},'restartCount':2,'lastState':{'terminated':"
		   "{'finishedAt':'2026-01-01T00:59:00Z'}}},{'ready':false,'state':{'waiting':"
		   "{'reason':'ImagePullBackOff'}}}]}}",
		   ROW("1/2", "ImagePullBackOff", "2 (60s ago)", "60m", "10.0.0.1", "n", "<none>",
		       "1/1"));
	expect_row(&api_kind_Pod,
		   "{'metadata':{'name':'a','deletionTimestamp':'x'},'spec':{'containers':[{}]},"
		   "'status':{'phase':'Pending'}}",
		   ROW("0/1", "Terminating", "0", "<unknown>", "<none>", "<none>", "<none>",
		       "<none>"));
	expect_row(
		&api_kind_Pod,
		"{" META
		",'spec':{'containers':[{}],'initContainers':[{},{}]},'status':{'phase':'Pending',"
		"'initContainerStatuses':[{'state':{'terminated':{'exitCode':0}}},{'state':{'running':{}}}]}}",
		ROW("0/1", "Init:1/2", "0", "60m", "<none>", "<none>", "<none>", "<none>"));
	expect_row(
		&api_kind_Node,
		"{'metadata':{'name':'a','labels':{'node-role.kubernetes.io/w':''}},"
		"'spec':{'unschedulable':true},'status':{'conditions':[{'type':'Ready','status':'True'}],"
		"'addresses':[{'type':'InternalIP','address':'10.0.0.1'}],'nodeInfo':{'kubeletVersion':'v1'}}}",
		ROW("Ready,SchedulingDisabled", "w", "<unknown>", "v1", "10.0.0.1", "<none>",
		    "null", "null", "null"));
	expect_row(&api_kind_Service,
		   "{" META
		   ",'spec':{'type':'NodePort','clusterIP':'10.96.0.1','ports':[{'port':80,"
		   "'nodePort':30000},{'port':53,'protocol':'UDP'}],'selector':{'a':'b','c':'d'}}}",
		   ROW("NodePort", "10.96.0.1", "<none>", "80:30000/TCP,53/UDP", "60m", "a=b,c=d"));
	expect_row(&api_kind_PersistentVolumeClaim,
		   "{" META
		   ",'spec':{'volumeName':'v','storageClassName':'s','volumeMode':'Block'},"
		   "'status':{'phase':'Bound','capacity':{'storage':'1Gi'},"
		   "'accessModes':['ReadWriteMany','ReadWriteOnce']}}",
		   ROW("Bound", "v", "1Gi", "RWO,RWX", "s", "60m", "Block"));
	expect_row(&api_kind_EndpointSlice,
		   "{" META
		   ",'addressType':'IPv4','ports':[{'port':80}],'endpoints':[{'addresses':['1']},"
		   "{'addresses':['2']},{'addresses':['3']},{'addresses':['4']}]}",
		   ROW("IPv4", "80", "1,2,3 + 1 more...", "60m"));
	expect_row(&api_kind_Event,
		   "{" META
		   ",'involvedObject':{'kind':'VirtualMachine','name':'x'},'type':'Warning',"
		   "'reason':'R','message':' m\\n','lastTimestamp':'2026-01-01T00:58:00Z',"
		   "'source':{'component':'c','host':'h'},'count':3}",
		   ROW("2m", "Warning", "R", "virtualmachine/x", "null", "c, h", "m", "<unknown>",
		       "3"));
	expect_row(
		&api_kind_VirtualMachineInstance,
		"{" META
		",'status':{'phase':'Running','nodeName':'n','interfaces':[{'ipAddress':'10.0.0.9'}],"
		"'conditions':[{'type':'Ready','status':'True'},{'type':'LiveMigratable','status':'False'}]}}",
		ROW("60m", "Running", "10.0.0.9", "n", "True", "False", "null"));
	expect_row(&api_kind_ControllerRevision, "{" META ",'revision':3}",
		   ROW("<none>", "3", "60m"));
}

static const struct json *t_pod;

static enum rc make_cells(void)
{
	for (size_t c = 0; c < api_kind_Pod.n_columns; c++) {
		CLEANUP(js_unrefp)
		struct json *cell = api_table_cell(&api_kind_Pod.columns[c], t_pod, 0);

		if (!cell)
			return RC_NOMEM;
	}
	return RC_OK;
}

static void running_out_of_memory_is_reported(void **state)
{
	CLEANUP(js_unrefp) struct json *j = J("{" META ",'spec':{'containers':[{}]},'status':{}}");

	(void)state;
	t_pod = j;
	torture(make_cells);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_column_of_the_schema_can_be_computed),
		cmocka_unit_test(paths_find_what_they_name),
		cmocka_unit_test(ages_read_as_kubectl_prints_them),
		cmocka_unit_test(rows_read_as_kubectl_prints_them),
		cmocka_unit_test(running_out_of_memory_is_reported),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("api_table", tests, NULL, NULL);
}
