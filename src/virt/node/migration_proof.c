/* Claims that both nodes are to share: proven before any byte moves.  The source's agent writes a token beside each
 * disk and tells the target's, which has to find it.  Storage may hang: then no other look at it is begun (volwork.h). */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "virt/migration/host_disks.h"
#include "virt/migration/local_disks.h"
#include "virt/node/migration_int.h"
#include "virt/node/pvdata.h"
#include "virt/node/voltoken.h"
#include "virt/node/volwork.h"

enum what { WRITE, CHECK, DROP };

struct mig_proof {
	struct volwork *volwork;
	struct mig_proof **slot; /* NULL: nobody waits any more */
	enum what what;
	char *root, *vmi_uid, *move_uid, *source;
	struct json *ours, *theirs; /* arrays of {claim, root, folder, token} */
	size_t at;		    /* in ours */
	mig_proof_fn fn;
	void *arg;
	enum rc rc;
	struct err err;
};

/* --- which claims --- */

static bool has_folder(const struct json *list, const char *root, const char *folder)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "root"), root) &&
		    str_eq(js_get_str(js_item(list, i), "folder"), folder))
			return true;
	return false;
}

/* root NULL: that of class "shared". */
static enum rc add_folder(struct json *list, const char *what, const char *root, const char *folder,
			  bool has_token, struct err *err)
{
	char token[33] = "";
	uint8_t raw[16];

	rand_bytes(raw, sizeof(raw));
	if (has_token)
		str_hex(raw, sizeof(raw), token);
	return js_append(list, js_pack("{s:s, s:s*, s:s, s:s}", "claim", what, "root", root,
				       "folder", folder, "token", token))
		       ? err_set(err, RC_NOMEM, "out of memory")
		       : RC_OK;
}

/* Files of the nodes that are said to be the same everywhere: one token in each folder. */
static enum rc add_host_disk(const struct vm *vm, const Volume *spec, bool has_token,
			     struct json *list, struct err *err)
{
	const char *path = spec->hostDisk->path, *slash = strrchr(path, '/');
	const char *root = host_disk_folder(vmhost_ferry_config(vm->host), path);

	if (!root || !slash)
		return err_set(err, RC_FORBIDDEN,
			       "volume '%s': '%s' is not below a folder that " HOST_DISKS_SETTING
			       " allows",
			       spec->name, path);
	size_t at = strlen(root), n = (size_t)(slash - path);
	CLEANUP(mem_freep)
	char *folder = n > at ? mem_strndup(path + at + 1, n - at - 1) : mem_strdup(".");

	if (!folder)
		return err_set(err, RC_NOMEM, "out of memory");
	return has_folder(list, root, folder)
		       ? RC_OK
		       : add_folder(list, spec->name, root, folder, has_token, err);
}

static enum rc add_shared(const struct vm *vm, const Volume *spec, bool has_token,
			  struct json *list, struct err *err)
{
	const char *claim = local_disk_claim(spec), *folder;
	const PersistentVolume *pv =
		claim ? pvdata_of_claim(vm->host->cfg.cache, vm->ns, claim) : NULL;
	bool is_local;

	if (host_disk_is_own(&vm_vmi(vm)->spec, spec)) /* it is copied */
		return RC_OK;
	if (spec->hostDisk)
		return add_host_disk(vm, spec, has_token, list, err);
	if (!claim)
		return RC_OK;
	if (!pv)
		return err_set(err, RC_BUSY, "the volume of claim '%s' is not known to node '%s'",
			       claim, vm->host->cfg.node_name);
	TRY(pvdata_place(pv, &is_local, &folder, err));
	return is_local ? RC_OK : add_folder(list, claim, NULL, folder, has_token, err);
}

enum rc mig_proof_claims(const struct vm *vm, bool has_tokens, struct json **out, struct err *err)
{
	CLEANUP(js_unrefp) struct json *list = js_new_array();
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	if (!list)
		return err_set(err, RC_NOMEM, "out of memory");
	for (size_t i = 0; vmi && i < vmi->spec.n_volumes; i++)
		TRY(add_shared(vm, &vmi->spec.volumes[i], has_tokens, list, err));
	*out = STEAL(list);
	return RC_OK;
}

/* --- the work --- */

static const char *token_of(const struct json *list, const struct json *ours)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "folder"), js_get_str(ours, "folder")) &&
		    str_eq(js_get_str(js_item(list, i), "root"), js_get_str(ours, "root")))
			return js_get_str(js_item(list, i), "token");
	return NULL;
}

static enum rc check_one(const struct mig_proof *p, const struct voltoken *t,
			 const struct json *item, struct err *err)
{
	const char *token = token_of(p->theirs, item), *claim = js_get_str(item, "claim");
	struct err why = {0};

	if (str_is_empty(token))
		return err_set(err, RC_CONFLICT,
			       "claim '%s': the agent of node '%s' does not prove that both nodes "
			       "see the same storage",
			       claim, p->source);
	enum rc rc = voltoken_check(t, token, &why);

	if (rc)
		return err_set(err, RC_CONFLICT,
			       "claim '%s': its storage is not the same on both nodes: what node "
			       "'%s' has written beside its disk is not seen here: %s",
			       claim, p->source, why.msg);
	return RC_OK;
}

static enum rc do_one(struct mig_proof *p, const struct json *item, struct err *err)
{
	const char *own = js_get_str(item, "root");
	const struct voltoken t = {.root = own ? own : p->root,
				   .folder = js_get_str(item, "folder"),
				   .vmi_uid = p->vmi_uid,
				   .move_uid = p->move_uid};
	const char *claim = js_get_str(item, "claim");

	if (!t.root)
		return err_set(err, RC_UNSUPPORTED,
			       "claim '%s': this node has no storage of class 'shared'", claim);
	if (p->what == CHECK)
		return check_one(p, &t, item, err);
	enum rc rc = p->what == WRITE ? voltoken_write(&t, js_get_str(item, "token"), err)
				      : voltoken_drop(&t, err);

	return rc ? err_prepend(err, "claim '%s'", claim) : RC_OK;
}

static void work(void *arg)
{
	struct mig_proof *p = arg;

	p->rc = do_one(p, js_item(p->ours, p->at), &p->err);
}

static void proof_destroy(struct mig_proof *p)
{
	mem_free(p->root);
	mem_free(p->vmi_uid);
	mem_free(p->move_uid);
	mem_free(p->source);
	js_unref(p->ours);
	js_unref(p->theirs);
	mem_free(p);
}

static void after(void *arg);

static enum rc look(struct mig_proof *p, struct err *err)
{
	const char *own = js_get_str(js_item(p->ours, p->at), "root");

	return volwork_run(p->volwork, own ? own : p->root, work, after, p, err);
}

/* The next one, which may lie on other storage.  What nobody waits for is not begun, but for what tidies up. */
static bool goes_on(struct mig_proof *p)
{
	struct err err;

	if (p->rc || (!p->slot && p->what != DROP) || ++p->at >= js_len(p->ours))
		return false;
	enum rc rc = look(p, &err); /* then p->rc and p->err are the job's already */

	if (!rc)
		return true;
	p->rc = rc;
	err_copy(&p->err, &err);
	return false;
}

static void after(void *arg)
{
	struct mig_proof *p = arg;

	if (goes_on(p))
		return;
	if (p->slot)
		*p->slot = NULL;
	if (p->slot && p->fn)
		p->fn(p->arg, p->rc, p->err.msg);
	else if (p->rc)
		log_warn("move %s: %s", p->move_uid, p->err.msg);
	proof_destroy(p);
}

struct ask {
	enum what what;
	const struct json *ours, *theirs;
	const char *source;
	mig_proof_fn fn;
	void *arg;
};

static enum rc start(struct mig_proof **slot, const struct vm *vm, const char *uid,
		     const struct ask *a, struct err *err)
{
	struct mig_proof *p = mem_alloc(sizeof(*p));
	const char *root = vm->host->cfg.shared_dir;

	if (!p)
		return err_set(err, RC_NOMEM, "out of memory");
	p->volwork = vm->host->cfg.volwork;
	p->slot = slot;
	p->what = a->what;
	p->fn = a->fn;
	p->arg = a->arg;
	p->root = mem_strdup(root);
	p->vmi_uid = mem_strdup(vm->vmi_uid);
	p->move_uid = mem_strdup(uid);
	p->source = mem_strdup(a->source);
	p->ours = js_copy(a->ours); /* the pool's own: values are not thread-safe */
	p->theirs = a->theirs ? js_copy(a->theirs) : NULL;
	enum rc rc = (!root || p->root) && p->vmi_uid && p->move_uid && (!a->source || p->source) &&
				     p->ours && (!a->theirs || p->theirs)
			     ? look(p, err)
			     : err_set(err, RC_NOMEM, "out of memory");

	if (rc) {
		proof_destroy(p);
		return rc;
	}
	if (slot)
		*slot = p;
	return RC_OK;
}

enum rc mig_proof_write(struct mig_proof **slot, const struct vm *vm, const char *uid,
			const struct json *claims, mig_proof_fn fn, void *arg, struct err *err)
{
	const struct ask a = {.what = WRITE, .ours = claims, .fn = fn, .arg = arg};

	return start(slot, vm, uid, &a, err);
}

enum rc mig_proof_check(struct mig_proof **slot, const struct vm *vm, const char *uid,
			const struct mig_proof_told *told, mig_proof_fn fn, void *arg,
			struct err *err)
{
	const struct ask a = {.what = CHECK,
			      .ours = told->claims,
			      .theirs = told->theirs,
			      .source = told->source,
			      .fn = fn,
			      .arg = arg};

	return start(slot, vm, uid, &a, err);
}

void mig_proof_drop(const struct vm *vm, const char *uid, const struct json *claims)
{
	const struct ask a = {.what = DROP, .ours = claims};
	struct err err = {0};

	if (js_len(claims) && start(NULL, vm, uid, &a, &err))
		log_warn("move %s: %s", uid, err.msg); /* the next move of the VM removes it */
}

struct mig_proof *mig_proof_free(struct mig_proof *p)
{
	if (p)
		p->slot = NULL; /* after() frees it */
	return NULL;
}
