#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"

/* The KubeVirt object: one in the cluster, and settings that Ferry can keep. */

static void check_gate_lists(const DeveloperConfiguration *d, struct field_errs *fe)
{
	for (size_t i = 0; d && i < d->n_featureGates; i++)
		for (size_t k = 0; k < d->n_disabledFeatureGates; k++)
			if (str_eq(d->featureGates[i], d->disabledFeatureGates[k]))
				fe_cause(fe, INVALID,
					 "spec.configuration.developerConfiguration.featureGates",
					 "feature gate \"%s\" exists on both \"FeatureGates\" and "
					 "\"DisabledFeatureGates\"",
					 d->featureGates[i]);
}

static const MigrationConfiguration *migrations(const KubeVirt *kv)
{
	return kv && kv->spec.configuration ? kv->spec.configuration->migrations : NULL;
}

void adm_check_max_downtime(const struct adm_cluster *c, const char *path, const int64_t *now,
			    const int64_t *old, struct field_errs *fe)
{
	if (now && !(old && *old == *now) && !adm_gate(c, "MigrationStallDetection"))
		fe_cause(fe, INVALID, path,
			 "maxDowntimeMs cannot be modified without enabling the "
			 "MigrationStallDetection feature gate");
}

static const int64_t *max_downtime(const KubeVirt *kv)
{
	const MigrationConfiguration *mc = migrations(kv);

	return mc && mc->has_maxDowntimeMs ? &mc->maxDowntimeMs : NULL;
}

static void check_downtime(const KubeVirt *kv, const KubeVirt *old, struct field_errs *fe)
{
	struct adm_cluster c = {.config = kv->spec.configuration};

	adm_check_max_downtime(&c, "spec.configuration.migrations.maxDowntimeMs", max_downtime(kv),
			       max_downtime(old), fe);
}

static void check_migration_network(const MigrationConfiguration *mc, struct field_errs *fe)
{
	if (mc && !str_is_empty(mc->network) && !str_is_dns_label(mc->network))
		fe_cause(
			fe, INVALID, "spec.configuration.migrations.network",
			"'%.64s' is not a name that a node can have an address for: at most 63 of a-z, "
			"0-9 and '-'",
			mc->network);
}

static void check_ratio(const KubeVirtConfiguration *k, struct field_errs *fe)
{
	struct api_quantity q, one = api_quantity_of(1, API_Q_DECIMAL);
	const char *ratio = k ? k->additionalGuestMemoryOverheadRatio : NULL;

	if (!str_is_empty(ratio) && api_quantity_parse(ratio, &q, NULL) == RC_OK &&
	    api_quantity_cmp(&q, &one) < 0)
		fe_cause(fe, INVALID, "spec.configuration.additionalGuestMemoryOverheadRatio",
			 "ratio provided, %s, cannot be smaller than 1.0", ratio);
}

/* ---- what KubeVirt asks of settings that Ferry's schema refuses ---- */

/* The names of Go's crypto/tls, which KubeVirt's components are configured with. */
static const char *const ciphers[] = {
	"TLS_RSA_WITH_RC4_128_SHA",
	"TLS_RSA_WITH_3DES_EDE_CBC_SHA",
	"TLS_RSA_WITH_AES_128_CBC_SHA",
	"TLS_RSA_WITH_AES_256_CBC_SHA",
	"TLS_RSA_WITH_AES_128_CBC_SHA256",
	"TLS_RSA_WITH_AES_128_GCM_SHA256",
	"TLS_RSA_WITH_AES_256_GCM_SHA384",
	"TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
	"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
	"TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
	"TLS_ECDHE_RSA_WITH_RC4_128_SHA",
	"TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
	"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
	"TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
	"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
	"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
	"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
	"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
	"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
	NULL,
};

static void check_tls(const TLSConfiguration *t, struct field_errs *fe)
{
	static const char path[] = "spec.configuration.tlsConfiguration.ciphers";

	if (!t || !t->n_ciphers)
		return;
	for (size_t i = 0; i < t->n_ciphers; i++) {
		char at_[sizeof(path) + 24];

		snprintf(at_, sizeof(at_), "%s[%zu]", path, i);
		if (!is_one_of(t->ciphers[i], ciphers))
			fe_cause(fe, INVALID, at_, "%s is not a valid cipher", t->ciphers[i]);
	}
	if (str_is_empty(t->minTLSVersion) || str_eq(t->minTLSVersion, "VersionTLS13"))
		fe_cause(fe, INVALID, path,
			 "You cannot specify ciphers when "
			 "spec.configuration.tlsConfiguration.minTLSVersion is empty or "
			 "VersionTLS13");
}

static void check_patches(const CustomizeComponents *k, struct field_errs *fe)
{
	for (size_t i = 0; i < k->n_patches; i++) {
		const char *text = k->patches[i].patch ? k->patches[i].patch : "";
		struct json *parsed = NULL;
		char path[64];
		enum rc rc = js_parse(text, strlen(text), &parsed, NULL);

		js_unref(parsed);
		if (rc == RC_NOMEM)
			fe->rc = rc;
		if (rc != RC_BAD_REQUEST)
			continue;
		snprintf(path, sizeof(path), "spec.customizeComponents.patches[%zu].patch", i);
		fe_cause(fe, INVALID, path, "patch \"%s\" is not valid JSON", text);
	}
}

static void check_installation(const KubeVirtSpec *s, struct field_errs *fe)
{
	if (s->infra && s->infra->has_replicas && s->infra->replicas == 0)
		fe_cause(fe, INVALID, "spec.infra.replicas", "infra replica count can't be 0");
	if (s->customizeComponents)
		check_patches(s->customizeComponents, fe);
}

static enum rc check_delete(struct hook_ctx *ctx, const KubeVirt *kv, struct err *err)
{
	static const struct {
		const char *resource, *text;
	} workloads[] = {
		{"virtualmachineinstances.kubevirt.io", "Virtual Machine Instances"},
		{"virtualmachines.kubevirt.io", "Virtual Machines"},
	};

	if (!kv || !str_eq(kv->spec.uninstallStrategy, "BlockUninstallIfWorkloadsExist"))
		return RC_OK;
	for (size_t i = 0; i < ARRAY_SIZE(workloads); i++)
		if (adm_any(ctx, workloads[i].resource))
			return err_set(err, RC_BAD_REQUEST,
				       "Rejecting the uninstall request, since there are still %s "
				       "present. "
				       "Either delete all KubeVirt related workloads or change the "
				       "uninstall "
				       "strategy before uninstalling KubeVirt.",
				       workloads[i].text);
	return RC_OK;
}

enum rc kubevirt_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			  struct field_errs *fe, struct err *err)
{
	const KubeVirt *kv = obj;

	if (ctx->op == HOOK_DELETE)
		return check_delete(ctx, old, err);
	if (ctx->op == HOOK_CREATE && adm_any(ctx, "kubevirts.kubevirt.io"))
		return err_set(err, RC_BAD_REQUEST, "Kubevirt is already created");
	if (*ctx->subresource)
		return RC_OK;
	check_installation(&kv->spec, fe);
	if (!kv->spec.configuration)
		return RC_OK;
	check_tls(kv->spec.configuration->tlsConfiguration, fe);
	check_gate_lists(kv->spec.configuration->developerConfiguration, fe);
	check_downtime(kv, old, fe);
	check_migration_network(migrations(kv), fe);
	check_ratio(kv->spec.configuration, fe);
	return RC_OK;
}
