/* What a node says of disks that a move would bring it: of whose, in which words, and when it is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/gen/api_types.h"
#include "api/map.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "lib/jsontext.h"
#include "virt/node/arrivals_look.h"
#include "virt/node/pvdata.h"
#include "virt/node/volwork.h"

#define VMI_UID "11111111-0000-4000-8000-000000000001"
#define POD_UID "22222222-0000-4000-8000-000000000002"
#define KEY	"arrivals.ferry.dev/" VMI_UID

struct world {
	char dir[64], state[80], local[96], files[80];
	struct loop *loop;
	struct kcache *cache;
	struct volwork *work;
	struct arrivals_look *look;
	struct api_map facts;
	unsigned n_published, n_left;
};

static void on_facts(const struct api_map *facts, void *arg)
{
	struct world *w = arg;

	api_map_fini(&w->facts);
	assert_int_equal(api_map_copy(&w->facts, facts), RC_OK);
	w->n_published++;
	loop_quit(w->loop, 0);
}

static void put(struct world *w, const struct api_kind *kind, const char *text)
{
	struct json *j = json_of(text);
	struct kobj *o = NULL;

	assert_int_equal(kobj_decode(&o, kind, j, NULL), RC_OK);
	assert_int_equal(kcache_put(w->cache, o, NULL), RC_OK);
	js_unref(j);
}

/* version: what comes later is newer. */
static void put_vmi(struct world *w, const char *version, const char *node, const char *file)
{
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'apiVersion':'kubevirt.io/v1','kind':'VirtualMachineInstance','metadata':{'name':"
		"'v','namespace':'t','uid':'" VMI_UID "','resourceVersion':'%s'},'spec':{'domain':"
		"{'devices':{'disks':[{'name':'f','disk':{}},{'name':'c','disk':{}}]}},'volumes':["
		"{'name':'f','hostDisk':{'path':'%s/%s','type':'Disk'}},{'name':'c',"
		"'persistentVolumeClaim':{'claimName':'c'}}]},'status':{'phase':'Running',"
		"'nodeName':'%s','volumeStatus':[{'name':'c','target':'b','size':1048576},{'name':"
		"'f','target':'a','size':1048576}]}}",
		version, w->files, file, node);

	put(w, &api_kind_VirtualMachineInstance, text);
}

static void put_pod(struct world *w, const char *version, const char *uid, const char *phase)
{
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'apiVersion':'v1','kind':'Pod','metadata':{'name':'p','namespace':'t','uid':'%s',"
		"'labels':{'kubevirt.io/created-by':'" VMI_UID "'},'resourceVersion':'%s'},'spec':{"
		"'nodeName':'node-2','containers':[{'name':'c'}]},'status':{'phase':'%s'}}",
		uid, version, phase);

	put(w, &api_kind_Pod, text);
}

static void set_moves(struct world *w, const char *version, const char *may)
{
	CLEANUP(mem_freep)
	char *text =
		mem_printf("{'apiVersion':'ferry.dev/v1alpha1','kind':'FerryConfig','metadata':"
			   "{'name':'ferry','resourceVersion':'%s'},'spec':{'hostDiskPaths':["
			   "'%s'],'localDiskMoves':%s}}",
			   version, w->files, may);

	put(w, &api_kind_FerryConfig, text);
}

static void begin(struct world *w)
{
	const struct api_kind *const kinds[] = {
		&api_kind_VirtualMachineInstance, &api_kind_Pod,       &api_kind_FerryConfig,
		&api_kind_MigrationPolicy,	  &api_kind_Namespace, &api_kind_PersistentVolume};

	*w = (struct world){0};
	(void)snprintf(w->dir, sizeof(w->dir), "/tmp/ferry-test-arrivals-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	(void)snprintf(w->state, sizeof(w->state), "%s/state", w->dir);
	(void)snprintf(w->local, sizeof(w->local), "%s/local", w->state);
	(void)snprintf(w->files, sizeof(w->files), "%s/files", w->dir);
	assert_int_equal(mkdir(w->state, 0755) | mkdir(w->local, 0755) | mkdir(w->files, 0755), 0);
	assert_int_equal(loop_new(&w->loop, LOOP_REAL, NULL), RC_OK);
	assert_int_equal(kcache_new(&w->cache, w->loop, NULL, NULL, NULL), RC_OK);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		assert_int_equal(
			kcache_add(w->cache, &(struct kcache_source){.kind = kinds[i]}, NULL),
			RC_OK);
	assert_int_equal(pvdata_index(w->cache, NULL), RC_OK);
	const struct volwork_config wc = {
		.loop = w->loop, .node_name = "node-2", .local_dir = w->local};

	assert_int_equal(volwork_new(&w->work, &wc, NULL), RC_OK);
	set_moves(w, "1", "true");
	put(w, &api_kind_PersistentVolume,
	    "{'apiVersion':'v1','kind':'PersistentVolume','metadata':{'name':'pv','"
	    "creationTimestamp':'2026-01-01T00:00:00Z'},'spec':{'claimRef':{'namespace':'t','name':"
	    "'c'},'csi':{'driver':'ferry.dev/local','volumeHandle':'pv'},'nodeAffinity':{"
	    "'required':{'nodeSelectorTerms':[{'matchExpressions':[{'key':'kubernetes.io/hostname',"
	    "'operator':'In','values':['node-1']}]}]}}},'status':{'phase':'Bound'}}");
}

static void look(struct world *w)
{
	const struct arrivals_look_config c = {.loop = w->loop,
					       .cache = w->cache,
					       .volwork = w->work,
					       .node_name = "node-2",
					       .state_dir = w->state,
					       .local_dir = w->local,
					       .every = USEC_PER_MSEC,
					       .late_after = 20 * USEC_PER_MSEC,
					       .publish = on_facts,
					       .arg = w};

	assert_int_equal(arrivals_look_new(&w->look, &c, NULL), RC_OK);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void one_less(void *arg)
{
	struct world *w = arg;

	if (!--w->n_left)
		loop_quit(w->loop, 0);
}

/* In the middle of a look, perhaps: what is under way comes back to nobody. */
static void end(struct world *w)
{
	const char *const roots[] = {w->local, w->files};

	arrivals_look_free(w->look);
	w->n_left = ARRAY_SIZE(roots);
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++)
		assert_int_equal(volwork_run(w->work, roots[i], nothing, one_less, w, NULL), RC_OK);
	assert_int_equal(loop_run(w->loop, NULL, NULL), RC_OK);
	pool_end(w->loop);
	volwork_free(w->work);
	kcache_free(w->cache);
	api_map_fini(&w->facts);
	loop_free(w->loop);
	assert_int_equal(file_remove_tree(w->dir, NULL), RC_OK);
}

/* Until something else is said than before; NULL: nothing of this VMI. */
static const char *next(struct world *w)
{
	assert_int_equal(loop_run(w->loop, NULL, NULL), RC_OK);
	assert_string_equal(api_map_get(&w->facts, "arrivals.ferry.dev/looks"), "true");
	return api_map_get(&w->facts, KEY);
}

static void touch(const struct world *w, const char *name)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s", w->files, name);

	assert_int_equal(file_write_durable(path, "x", 1, 0600, NULL), RC_OK);
}

static void drop(const struct world *w, const char *name)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s", w->files, name);

	assert_int_equal(unlink(path), 0);
}

static void quit(void *arg)
{
	loop_quit(arg, 0);
}

/* Some looks later nothing else is said. */
static void nothing_is_said(struct world *w)
{
	CLEANUP(ev_src_freep) struct ev_src *timer = NULL;
	unsigned n = w->n_published;

	assert_int_equal(ev_timer_after(w->loop, &timer, 20 * USEC_PER_MSEC, quit, w->loop, NULL),
			 RC_OK);
	assert_int_equal(loop_run(w->loop, NULL, NULL), RC_OK);
	assert_int_equal(w->n_published, n);
}

static void what_changes_is_told_and_nothing_else(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	look(&w);
	assert_null(next(&w)); /* nobody runs yet */
	put_vmi(&w, "2", "node-1", "d.img");
	assert_string_equal(next(&w), "yes");
	nothing_is_said(&w);
	touch(&w, "d.img");
	assert_true(str_has_prefix(next(&w), "no: there is a file '"));
	nothing_is_said(&w);
	touch(&w, "other.img"); /* nobody's disk */
	nothing_is_said(&w);
	drop(&w, "d.img");
	assert_string_equal(next(&w), "yes");
	put_pod(&w, "3", POD_UID, "Running"); /* it comes, and runs here then */
	nothing_is_said(&w);
	put_vmi(&w, "4", "node-2", "d.img");
	assert_null(next(&w));
	end(&w);
}

static void only_places_that_are_allowed_are_looked_at(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	put_vmi(&w, "2", "node-1", "../state/cpu-probe.json");
	look(&w);
	assert_non_null(strstr(next(&w), "no: file '"));
	assert_non_null(strstr(api_map_get(&w.facts, KEY), "is not below a folder that "));
	/* where disks stay at their nodes there is nothing to tell */
	put_vmi(&w, "3", "node-1", "d.img");
	assert_string_equal(next(&w), "yes");
	set_moves(&w, "2", "false");
	assert_null(next(&w));
	end(&w);
}

/* While the VM has a pod here, the file is its own; after its end that of a pod may be left for a moment. */
static void what_a_pod_of_the_vm_has_made_is_not_in_its_way(void **state)
{
	struct world w;
	char path[200];

	(void)state;
	begin(&w);
	put_vmi(&w, "2", "node-1", "d.img");
	look(&w);
	assert_string_equal(next(&w), "yes");
	put_pod(&w, "3", POD_UID, "Running");
	touch(&w, "d.img");
	nothing_is_said(&w);
	(void)snprintf(path, sizeof(path), "%s/.host-files/" POD_UID, w.local);
	assert_int_equal(file_mkdir_p(path, 0700, NULL), RC_OK);
	(void)snprintf(path, sizeof(path), "%s/.host-files/" POD_UID "/f", w.local);
	CLEANUP(mem_freep)
	char *record =
		mem_printf("{\"incoming\":false,\"folder\":\"%s\",\"file\":\"d.img\"}", w.files);

	assert_int_equal(file_write_durable(path, record, strlen(record), 0600, NULL), RC_OK);
	put_pod(&w, "4", POD_UID, "Succeeded");
	assert_true(str_has_prefix(next(&w), "later: the file '"));
	assert_non_null(strstr(api_map_get(&w.facts, KEY), "is not cleaned up yet"));
	/* of a VM that runs on it, it is in the way for as long as that VM is */
	put_pod(&w, "5", POD_UID, "Running");
	nothing_is_said(&w); /* its own */
	(void)snprintf(path, sizeof(path), "%s/.host-files/" POD_UID "/f", w.local);
	assert_int_equal(unlink(path), 0);
	put_pod(&w, "6", POD_UID, "Succeeded");
	assert_true(str_has_prefix(next(&w), "no: there is a file '"));
	drop(&w, "d.img");
	assert_string_equal(next(&w), "yes");
	end(&w);
}

static void hang(void *arg)
{
	while (sem_wait(arg) < 0)
		;
}

static void storage_that_hangs_is_told_and_not_waited_for(void **state)
{
	struct world w;
	sem_t until;

	(void)state;
	begin(&w);
	assert_int_equal(sem_init(&until, 0, 0), 0);
	assert_int_equal(volwork_run(w.work, w.files, hang, nothing, &until, NULL), RC_OK);
	put_vmi(&w, "2", "node-1", "d.img");
	look(&w);
	const char *said = next(&w);

	assert_true(str_has_prefix(said, "later: folder '"));
	assert_non_null(strstr(said, "' of node 'node-2' does not answer"));
	nothing_is_said(&w); /* again and again, in the same words */
	assert_int_equal(sem_post(&until), 0);
	assert_string_equal(next(&w), "yes");
	end(&w);
	assert_int_equal(sem_destroy(&until), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_changes_is_told_and_nothing_else),
		cmocka_unit_test(only_places_that_are_allowed_are_looked_at),
		cmocka_unit_test(what_a_pod_of_the_vm_has_made_is_not_in_its_way),
		cmocka_unit_test(storage_that_hangs_is_told_and_not_waited_for),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("arrivals", tests, NULL, NULL);
}
