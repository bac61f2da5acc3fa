/* events.k8s.io/v1: the events of v1 under other names.
 *
 * Stored is v1's form, because that is what people read.  What comes in is checked as what it is and then
 * translated, so that findings have the client's names; what goes out is translated back.
 */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "api/labels.h"
#include "base/str.h"

static const struct {
	const char *core, *view;
	bool may_change; /* by an update of the newer form */
} names[] = {
	{"metadata", "metadata", true},
	{"eventTime", "eventTime", false},
	{"series", "series", true},
	{"reportingComponent", "reportingController", false},
	{"reportingInstance", "reportingInstance", false},
	{"action", "action", false},
	{"reason", "reason", false},
	{"involvedObject", "regarding", false},
	{"related", "related", false},
	{"message", "note", false},
	{"type", "type", false},
	{"source", "deprecatedSource", false},
	{"firstTimestamp", "deprecatedFirstTimestamp", false},
	{"lastTimestamp", "deprecatedLastTimestamp", false},
	{"count", "deprecatedCount", false},
};

bool call_is_view(const struct apisrv_call *c)
{
	return c->alias && c->alias->type != c->res->kind->type;
}

static struct json *translated(const struct json *from, bool to_view, const char *api_version)
{
	CLEANUP(js_unrefp)
	struct json *to = js_pack("{s:s, s:s}", "kind", "Event", "apiVersion", api_version);

	for (size_t i = 0; to && i < ARRAY_SIZE(names); i++) {
		const struct json *value = js_get(from, to_view ? names[i].core : names[i].view);

		if (value && js_set(to, to_view ? names[i].view : names[i].core, js_copy(value)))
			return NULL;
	}
	return STEAL(to);
}

struct json *view_of(const struct apisrv_call *c, const struct json *obj)
{
	return translated(obj, true, c->alias->api_version);
}

bool view_take(struct change *ch)
{
	if (!call_is_view(ch->c))
		return true;
	struct json *core = translated(ch->obj, false, ch->res->kind->api_version);

	if (!core || !js_ensure_object(core, "involvedObject")) {
		/* A regarding that is no object is told by its own check. */
		bool is_odd = core && js_get(core, "involvedObject");

		if (!is_odd || js_set(core, "involvedObject", js_new_object())) {
			js_unref(core);
			call_nomem(ch->c);
			return false;
		}
	}
	js_unref(ch->sent);
	ch->sent = ch->obj;
	ch->obj = core;
	return true;
}

/* What Kubernetes asks of an event in this form, beyond types. */
void view_validate(struct change *ch)
{
	static const char *const needed[] = {
		"eventTime", "reportingController", "reportingInstance", "action", "reason",
		"type"};

	if (!ch->sent)
		return;
	for (size_t i = 0; ch->op == HOOK_CREATE && i < ARRAY_SIZE(needed); i++)
		if (str_is_empty(js_get_str(ch->sent, needed[i])))
			fe_required(&ch->fe, needed[i], NULL);
	for (size_t i = 0; ch->op == HOOK_UPDATE && i < ARRAY_SIZE(names); i++) {
		const struct json *is = js_get(ch->obj, names[i].core);

		if (!names[i].may_change && !js_equal(is, js_get(ch->old, names[i].core)))
			fe_invalid_json(&ch->fe, names[i].view, is, "field is immutable");
	}
}

enum rc view_fields(struct api_fields *f, struct err *err)
{
	static const char *const map[][2] = {
		{"metadata.name", "metadata.name"},
		{"metadata.namespace", "metadata.namespace"},
		{"reason", "reason"},
		{"type", "type"},
		{"reportingController", "reportingComponent"},
		{"regarding.kind", "involvedObject.kind"},
		{"regarding.namespace", "involvedObject.namespace"},
		{"regarding.name", "involvedObject.name"},
		{"regarding.uid", "involvedObject.uid"},
		{"regarding.apiVersion", "involvedObject.apiVersion"},
		{"regarding.resourceVersion", "involvedObject.resourceVersion"},
		{"regarding.fieldPath", "involvedObject.fieldPath"},
		{NULL, NULL},
	};

	return api_fields_map(f, map, err);
}
