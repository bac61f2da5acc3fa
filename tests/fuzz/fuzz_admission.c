/* A VirtualMachine as a user sends it: JSON, schema check, decoding, defaults, every rule, and back. */
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/str.h"
#include "fuzz.h"
#include "json/json.h"
#include "virt/admission/admission.h"

bool apisrv_user_is_component(const struct apisrv_user *u)
{
	return u == NULL;
}

const struct json *hook_get(struct hook_env *e, const char *resource, const char *ns,
			    const char *name)
{
	return e || resource || ns || name ? NULL : NULL;
}

void hook_each(struct hook_env *e, const char *resource, const char *ns, hook_each_fn fn, void *arg)
{
	(void)e;
	(void)resource;
	(void)ns;
	(void)fn;
	(void)arg;
}

const struct json *hook_kubevirt_config(struct hook_env *e)
{
	return e ? NULL : NULL;
}

const struct json *hook_ferry_config(struct hook_env *e)
{
	return e ? NULL : NULL;
}

usec_t hook_now(struct hook_env *e)
{
	return e ? 0 : 1;
}

void hook_warn(struct hook_ctx *ctx, const char *fmt, ...)
{
	(void)ctx;
	(void)fmt;
}

static const struct admission_hook *hook_of(const struct api_kind *k)
{
	char name[160];

	(void)snprintf(name, sizeof(name), "%s.%s", k->plural, k->group);
	for (size_t i = 0; i < n_virt_admission; i++)
		if (str_eq(virt_admission[i].resource, name))
			return &virt_admission[i];
	return NULL;
}

/* As an object of each kind that is refused as a whole. */
static void judge_refused(const struct json *j)
{
	static const struct apisrv_user nobody = {.name = "nobody"};

	for (size_t i = 0; api_served[i]; i++) {
		const struct api_kind *k = api_served[i];
		const struct admission_hook *h = k->refused ? hook_of(k) : NULL;
		struct field_errs fe = FIELD_ERRS_INIT;
		struct hook_ctx ctx = {
			.user = &nobody, .op = HOOK_CREATE, .ns = "n", .subresource = ""};
		void *typed = NULL;

		if (!h)
			continue;
		api_check(k, j, API_CHECK_NO_SUPPORT, &fe);
		if (!fe_has(&fe, FE_TYPE_INVALID) &&
		    api_decode(k->type, j, &typed, NULL) == RC_OK &&
		    h->validate(&ctx, typed, NULL, &fe, NULL))
			abort();
		api_free(k->type, typed);
		js_unref(fe_causes(&fe));
		fe_fini(&fe);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct adm_cluster c = {0};
	struct field_errs fe = FIELD_ERRS_INIT;
	struct json *j = NULL;
	void *typed = NULL;

	if (js_parse((const char *)data, n, &j, NULL))
		return 0;
	api_check(&api_kind_VirtualMachineInstance, j, 0, &fe);
	if (!fe_has(&fe, FE_TYPE_INVALID) &&
	    api_decode(&api_type_VirtualMachineInstance, j, &typed, NULL) == RC_OK &&
	    adm_cluster_init(&c, NULL, NULL, NULL) == RC_OK) {
		VirtualMachineInstance *vmi = typed;

		if (adm_vmi_defaults(vmi, &c, NULL))
			abort();
		adm_check_spec(&vmi->spec, &vmi->metadata, "spec", &c, &fe);
		js_unref(api_encode(&api_type_VirtualMachineInstance, vmi));
		adm_cluster_fini(&c);
	}
	api_free(&api_type_VirtualMachineInstance, typed);
	js_unref(fe_causes(&fe));
	fe_fini(&fe);
	judge_refused(j);
	js_unref(j);
	return 0;
}
