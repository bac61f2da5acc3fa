/* ConfigMap kube-root-ca.crt of kube-system: the cluster's authority, for clients to trust.  A controller copies
 * it into each namespace (src/cluster/controllers/serviceaccount.c).
 */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"

#define REST "kube-system/kube-root-ca.crt"
#define PATH "/api/v1/namespaces/kube-system/configmaps"

static void on_written(void *arg, int status, const struct json *obj)
{
	(void)arg;
	if (status >= 400 && status != 409)
		log_error("cannot publish the cluster's authority: %s", js_get_str(obj, "message"));
}

/* obj is consumed. */
static enum rc send(struct apisrv *s, const char *method, const char *target, struct json *obj)
{
	struct err err = {0};

	if (!obj)
		return RC_NOMEM;
	return apisrv_inner(s, NULL, &apisrv_self, method, target, NULL, obj, on_written, NULL,
			    &err);
}

static enum rc publish(struct apisrv *s)
{
	struct obj *o = store_newest(s->store, "configmaps/" REST);

	if (!o)
		return send(s, "POST", PATH,
			    js_pack("{s:s, s:s, s:{s:s}, s:{s:s}}", "kind", "ConfigMap",
				    "apiVersion", "v1", "metadata", "name", "kube-root-ca.crt",
				    "data", "ca.crt", s->ca));
	CLEANUP(js_unrefp) struct json *old = obj_json(o);
	CLEANUP(js_unrefp) struct json *data = js_pack("{s:s}", "ca.crt", s->ca);

	if (!old || !data)
		return RC_NOMEM;
	if (is_deleting(old) || js_equal(js_get(old, "data"), data))
		return RC_OK;
	CLEANUP(js_unrefp) struct json *new_ = js_copy(old);

	if (!new_ || js_set(new_, "data", STEAL(data)))
		return RC_NOMEM;
	return send(s, "PUT", PATH "/kube-root-ca.crt", STEAL(new_));
}

static void on_defer(void *arg)
{
	struct apisrv *s = arg;

	s->ca_defer = ev_src_free(s->ca_defer);
	if (publish(s))
		log_warn(
			"cannot publish the cluster's authority: out of memory; tried again when it "
			"changes");
}

static void poke(struct apisrv *s)
{
	if (s->ca && !s->ca_defer && ev_defer(s->loop, &s->ca_defer, on_defer, s, NULL))
		log_warn("cannot publish the cluster's authority: out of memory");
}

void rootca_event(struct apisrv *s, const struct store_event *ev)
{
	if (strcmp(obj_table(ev->obj), "configmaps") == 0 && strcmp(obj_rest(ev->obj), REST) == 0)
		poke(s);
}

enum rc apisrv_set_ca(struct apisrv *s, const char *pem)
{
	char *copy = mem_strdup(pem);

	if (!copy)
		return RC_NOMEM;
	mem_free(s->ca);
	s->ca = copy;
	poke(s);
	return RC_OK;
}
