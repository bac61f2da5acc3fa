#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "virt/admission/admission_int.h"

/* What is behind a feature gate, devices and credentials that Ferry's schema refuses, and what may be there only
 * once: rules 22, 35, 37, 40, 43, 45 and 46 of KubeVirt's VMI webhook. */

#define ANN_SIDECARS "hooks.kubevirt.io/hookSidecars"

/* ---- volumes ------------------------------------------------------------------------------------- */

static void check_one_of(struct check *c, size_t n, const char *what)
{
	if (n > 1)
		fe_cause(c->fe, INVALID, at(c, "volumes"), "%s must have max one %s volume set",
			 at(c, "volumes"), what);
}

static void check_singles(struct check *c)
{
	const VirtualMachineInstanceSpec *s = c->spec;
	size_t accounts = 0, metrics = 0, dumps = 0;

	for (size_t i = 0; i < s->n_volumes; i++) {
		const Volume *v = &s->volumes[i];

		accounts += v->serviceAccount != NULL;
		metrics += v->downwardMetrics != NULL;
		dumps += v->memoryDump != NULL;
		if (v->serviceAccount && !str_is_empty(s->serviceAccountName) &&
		    !str_eq(v->serviceAccount->serviceAccountName, s->serviceAccountName))
			fe_cause(c->fe, INVALID, at(c, "serviceAccountName"),
				 "%s \"%s\" and serviceAccount volume \"%s\" must reference the "
				 "same service account",
				 at(c, "serviceAccountName"), s->serviceAccountName,
				 v->serviceAccount->serviceAccountName
					 ? v->serviceAccount->serviceAccountName
					 : "");
	}
	check_one_of(c, accounts, "serviceAccount");
	check_one_of(c, metrics, "downwardMetric");
	check_one_of(c, dumps, "memory dump");
	if (metrics && !adm_gate(c->cluster, "DownwardMetrics"))
		fe_cause(c->fe, INVALID, at(c, "volumes"),
			 "downwardMetrics disks are not allowed: DownwardMetrics feature gate is "
			 "not enabled.");
}

static const Volume *volume_of(const struct check *c, const char *name)
{
	for (size_t i = 0; i < c->spec->n_volumes; i++)
		if (str_eq(c->spec->volumes[i].name, name))
			return &c->spec->volumes[i];
	return NULL;
}

/* ---- gates ----------------------------------------------------------------------------------------- */

static void check_folders(struct check *c)
{
	const Devices *devs = &c->spec->domain.devices;

	for (size_t i = 0; i < devs->n_filesystems; i++) {
		const Volume *v = volume_of(c, devs->filesystems[i].name);

		if (devs->filesystems[i].virtiofs && v &&
		    (v->persistentVolumeClaim || v->dataVolume) &&
		    !adm_gate(c->cluster, "EnableVirtioFsStorageVolumes"))
			fe_cause(c->fe, INVALID, at(c, "domain.devices.filesystems"),
				 "virtiofs is not allowed: virtiofs feature gate is not enabled "
				 "for PVC");
	}
}

static void check_reservations(struct check *c)
{
	const PersistentReservationConfiguration *p =
		c->cluster->config->persistentReservationConfiguration;
	const Devices *devs = &c->spec->domain.devices;

	for (size_t i = 0; i < devs->n_disks; i++)
		if (devs->disks[i].lun && devs->disks[i].lun->reservation &&
		    !(p && API_GET(p, enabled, false)))
			fe_cause(c->fe, INVALID,
				 at(c, "domain.devices.disks[%zu].lun.reservation", i),
				 "persistent reservation is not enabled in kubevirt config");
}

/* Sidecars are asked for by an annotation: no field of the schema refuses them. */
static void check_sidecars(struct check *c)
{
	static const char gone[] = "spec";
	size_t n = strlen(c->root) - strlen(gone);

	if (!api_map_has(&c->meta->annotations, ANN_SIDECARS))
		return;
	char path[256];

	snprintf(path, sizeof(path), "%.*smetadata.annotations[" ANN_SIDECARS "]", (int)n, c->root);
	if (adm_gate(c->cluster, "Sidecar"))
		fe_cause(c->fe, NOT_SUPPORTED, path,
			 "hook sidecars are not supported by Ferry yet");
	else
		fe_cause(c->fe, INVALID, path,
			 "sidecar feature gate is not enabled in kubevirt-config, invalid entry %s",
			 path);
}

static void check_gated_devices(struct check *c)
{
	const Devices *devs = &c->spec->domain.devices;

	if (devs->n_hostDevices && !adm_gate(c->cluster, "HostDevices"))
		fe_cause(c->fe, INVALID, at(c, "domain.devices.hostDevices"),
			 "Host Devices feature gate is not enabled in kubevirt-config");
	if (devs->autoattachVSOCK && !adm_gate(c->cluster, "VSOCK"))
		fe_cause(c->fe, INVALID, at(c, "domain.devices.autoattachVSOCK"),
			 "VSOCK feature gate is not enabled in kubevirt-config");
}

/* ---- networks --------------------------------------------------------------------------------------- */

static void check_default_network(struct check *c)
{
	size_t defaults = 0, pods = 0;

	for (size_t i = 0; i < c->spec->n_networks; i++) {
		const Network *n = &c->spec->networks[i];

		defaults += n->multus && n->multus->default_;
		pods += n->pod != NULL;
	}
	if (defaults > 1)
		fe_cause(c->fe, INVALID, at(c, "networks"),
			 "Multus CNI should only have one default network");
	if (defaults && pods)
		fe_cause(c->fe, INVALID, at(c, "networks"),
			 "Pod network cannot be defined when Multus default network is defined");
}

static void check_private_options(struct check *c, const DHCPOptions *o, size_t i)
{
	const char *path = at(c, "domain.devices.interfaces[%zu].dhcpOptions.privateOptions", i);
	bool is_out = false, is_twice = false;

	for (size_t k = 0; k < o->n_privateOptions; k++) {
		int64_t option = o->privateOptions[k].option;

		is_out = is_out || option < 224 || option > 254;
		for (size_t m = 0; m < k; m++)
			is_twice = is_twice || o->privateOptions[m].option == option;
	}
	if (is_out)
		fe_cause(c->fe, INVALID, path,
			 "provided DHCPPrivateOptions are out of range, must be in range 224 to "
			 "254");
	if (is_twice)
		fe_cause(c->fe, INVALID, path,
			 "Found Duplicates: you have provided duplicate DHCPPrivateOptions");
}

static void check_dhcp(struct check *c)
{
	const Devices *devs = &c->spec->domain.devices;

	for (size_t i = 0; i < devs->n_interfaces; i++) {
		const DHCPOptions *o = devs->interfaces[i].dhcpOptions;
		struct in_addr ip;
		bool ok = true;

		if (!o)
			continue;
		check_private_options(c, o, i);
		for (size_t k = 0; k < o->n_ntpServers; k++)
			ok = ok && inet_pton(AF_INET, o->ntpServers[k], &ip) == 1;
		if (!ok)
			fe_cause(c->fe, INVALID,
				 at(c, "domain.devices.interfaces[%zu].dhcpOptions.ntpServers", i),
				 "NTP servers must be a list of valid IPv4 addresses.");
	}
}

/* ---- devices ------------------------------------------------------------------------------------------ */

static void check_sound(struct check *c, const SoundDevice *s)
{
	const char *path = at(c, "domain.devices.sound");

	if (!str_is_empty(s->model) && !str_eq(s->model, "ich9") && !str_eq(s->model, "ac97"))
		fe_cause(c->fe, INVALID, path,
			 "Sound device type is not supported. Options: 'ich9' or 'ac97'");
	if (str_is_empty(s->name))
		fe_cause(c->fe, INVALID, path, "Sound device requires a name field.");
}

static void check_devices_of_special_use(struct check *c)
{
	static const char *const panics[] = {"hyperv", "isa", "pvpanic", NULL};
	const DomainSpec *d = &c->spec->domain;

	if (d->devices.sound)
		check_sound(c, d->devices.sound);
	for (size_t i = 0; i < d->devices.n_panicDevices; i++)
		if (!str_is_empty(d->devices.panicDevices[i].model) &&
		    !is_one_of(d->devices.panicDevices[i].model, panics))
			fe_cause(c->fe, INVALID, at(c, "domain.devices.panicDevices[%zu].model", i),
				 "invalid PanicDeviceModel(%s)", d->devices.panicDevices[i].model);
	if (str_eq(d->ioThreadsPolicy, "supplementalPool") &&
	    !(d->ioThreads && d->ioThreads->supplementalPoolThreadCount > 0))
		fe_cause(c->fe, INVALID, at(c, "domain.ioThreads"),
			 "the number of iothreads needs to be set and positive for the dedicated "
			 "policy");
}

/* ---- access credentials -------------------------------------------------------------------------------- */

static void check_ssh_key(struct check *c, const SSHPublicKeyAccessCredential *k, size_t i)
{
	const SSHPublicKeyAccessCredentialPropagationMethod *m = k->propagationMethod;
	const char *path = at(c, "accessCredentials[%zu].sshPublicKey", i);
	int methods = m ? !!m->configDrive + !!m->noCloud + !!m->qemuGuestAgent : 0;
	bool drive = false, cloud = false;

	if (!k->source || !k->source->secret)
		fe_cause(c->fe, INVALID, path, "%s must have exactly one source set", path);
	if (methods != 1)
		fe_cause(c->fe, INVALID, path, "%s must have exactly one propagationMethod set",
			 path);
	for (size_t v = 0; v < c->spec->n_volumes; v++) {
		drive = drive || c->spec->volumes[v].cloudInitConfigDrive;
		cloud = cloud || c->spec->volumes[v].cloudInitNoCloud;
	}
	if (m && m->configDrive && !drive)
		fe_cause(c->fe, INVALID, path,
			 "%s requires a configDrive volume to exist when the configDrive "
			 "propagationMethod is in use.",
			 path);
	if (m && m->noCloud && !cloud)
		fe_cause(c->fe, INVALID, path,
			 "%s requires a noCloud volume to exist when the noCloud propagationMethod "
			 "is in use.",
			 path);
	if (m && m->qemuGuestAgent && !m->qemuGuestAgent->n_users)
		fe_cause(c->fe, INVALID, path,
			 "%s requires at least one user to be present in the users list", path);
}

static void check_credentials(struct check *c)
{
	for (size_t i = 0; i < c->spec->n_accessCredentials; i++) {
		const AccessCredential *a = &c->spec->accessCredentials[i];
		const char *path = at(c, "accessCredentials[%zu]", i);

		if (!a->sshPublicKey == !a->userPassword)
			fe_cause(c->fe, INVALID, path,
				 "%s must have exactly one access credential type set", path);
		if (a->sshPublicKey)
			check_ssh_key(c, a->sshPublicKey, i);
		path = at(c, "accessCredentials[%zu].userPassword", i);
		if (a->userPassword &&
		    (!a->userPassword->source || !a->userPassword->source->secret))
			fe_cause(c->fe, INVALID, path, "%s must have exactly one source set", path);
		if (a->userPassword && (!a->userPassword->propagationMethod ||
					!a->userPassword->propagationMethod->qemuGuestAgent))
			fe_cause(c->fe, INVALID, path,
				 "%s must have exactly one propagationMethod set", path);
	}
}

void check_gates(struct check *c)
{
	check_singles(c);
	check_folders(c);
	check_reservations(c);
	check_sidecars(c);
	check_gated_devices(c);
	check_default_network(c);
	check_dhcp(c);
	check_devices_of_special_use(c);
	check_credentials(c);
}
