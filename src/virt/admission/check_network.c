#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"

/* Networks and interfaces: rules 38-44 of KubeVirt's VMI webhook; devices: rule 45. */

static const Network *network_of(const struct check *c, const char *name)
{
	for (size_t i = 0; i < c->spec->n_networks; i++)
		if (str_eq(c->spec->networks[i].name, name))
			return &c->spec->networks[i];
	return NULL;
}

static bool is_name(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && *s != '-' && *s != '_')
			return false;
	return true;
}

static void check_binding(struct check *c, const Interface *n, const Network *net, size_t i)
{
	const char *path = at(c, "domain.devices.interfaces[%zu].name", i);
	const NetworkConfiguration *config = c->cluster->config->network;
	int bindings = !!n->bridge + !!n->slirp + !!n->masquerade + !!n->sriov + !!n->macvtap +
		       !!n->passt + !!n->passtBinding + !!n->binding;

	if (n->slirp)
		fe_cause(c->fe, INVALID, at(c, "domain.devices.interfaces[%zu].slirp", i),
			 "Slirp interface support has been discontinued since v1.3");
	if (n->passt)
		fe_cause(c->fe, INVALID, at(c, "domain.devices.interfaces[%zu].passt", i),
			 "Passt network binding has been discontinued since v1.3");
	if (n->macvtap)
		fe_cause(c->fe, INVALID, at(c, "domain.devices.interfaces[%zu].macvtap", i),
			 "Macvtap network binding has been discontinued since v1.3");
	if (bindings != 1)
		fe_cause(c->fe, INVALID, at(c, "domain.devices.interfaces[%zu]", i),
			 "logical %s interface must have exactly one binding method or binding "
			 "plugin",
			 n->name);
	if (n->masquerade && net && !net->pod)
		fe_cause(c->fe, INVALID, path,
			 "Masquerade interface only implemented with pod network");
	if (n->passtBinding && net && !net->pod)
		fe_cause(c->fe, INVALID, path,
			 "PasstBinding interface only implemented with pod network");
	if (n->bridge && net && net->pod && config &&
	    !API_GET(config, permitBridgeInterfaceOnPodNetwork, true))
		fe_cause(
			c->fe, INVALID, path,
			"Bridge on pod network configuration is not enabled under kubevirt-config");
	if (n->masquerade && n->macAddress && !strcasecmp(n->macAddress, "02:00:00:00:00:00"))
		fe_cause(c->fe, INVALID, at(c, "domain.devices.interfaces[%zu].macAddress", i),
			 "The requested MAC address is reserved for the in-pod bridge. "
			 "Please choose another one.");
}

/* Six or more pairs of hexadecimal digits with ':' or '-' between; 0: malformed, else its bytes. */
static size_t mac_bytes(const char *s)
{
	size_t n = 0;

	for (;;) {
		if (!isxdigit((unsigned char)s[0]) || !isxdigit((unsigned char)s[1]))
			return 0;
		n++;
		if (!s[2])
			return n;
		if (s[2] != ':' && s[2] != '-')
			return 0;
		s += 3;
	}
}

bool adm_mac_is_valid(const char *mac)
{
	return mac_bytes(mac) == 6;
}

/* The lowest bit of the first byte, in its second digit. */
static bool is_multicast(const char *mac)
{
	return strchr("13579bdfBDF", mac[1]) != NULL;
}

static void check_mac(struct check *c, const Interface *n, size_t i)
{
	const char *path = at(c, "domain.devices.interfaces[%zu].macAddress", i);
	size_t bytes;

	if (str_is_empty(n->macAddress))
		return;
	bytes = mac_bytes(n->macAddress);
	if (bytes < 6)
		fe_cause(c->fe, INVALID, path, "interface %s has malformed MAC address (%s).",
			 n->name, n->macAddress);
	else if (bytes > 6)
		fe_cause(c->fe, INVALID, path, "interface %s has too long MAC address (%s).",
			 n->name, n->macAddress);
	else if (is_multicast(n->macAddress))
		fe_cause(c->fe, INVALID, path, "interface %s has a multicast MAC address (%s).",
			 n->name, n->macAddress);
	else if (strspn(n->macAddress, "0:-") == strlen(n->macAddress))
		fe_cause(c->fe, INVALID, path, "interface %s has an empty MAC address (%s).",
			 n->name, n->macAddress);
}

static void check_port(struct check *c, const Interface *n, size_t i, size_t p)
{
	const Port *port = &n->ports[p];
	const char *path = at(c, "domain.devices.interfaces[%zu].ports[%zu]", i, p);

	if (!port->has_port || port->port == 0)
		fe_cause(c->fe, REQUIRED, path, "Port field is mandatory.");
	else if (port->port < 0 || port->port > 65535)
		fe_cause(c->fe, INVALID, path, "Port field must be in range 0 < x < 65536.");
	if (!str_is_empty(port->protocol) && !str_eq(port->protocol, "TCP") &&
	    !str_eq(port->protocol, "UDP"))
		fe_cause(c->fe, INVALID,
			 at(c, "domain.devices.interfaces[%zu].ports[%zu].protocol", i, p),
			 "Unknown protocol, only TCP or UDP allowed");
	if (str_is_empty(port->name))
		return;
	for (size_t k = 0; k < p; k++)
		if (str_eq(n->ports[k].name, port->name))
			fe_cause(c->fe, DUPLICATE,
				 at(c, "domain.devices.interfaces[%zu].ports[%zu].name", i, p),
				 "Duplicate name of the port: %s", port->name);
	if (strlen(port->name) > 15 || !str_is_dns_label(port->name))
		fe_cause(c->fe, INVALID,
			 at(c, "domain.devices.interfaces[%zu].ports[%zu].name", i, p),
			 "Invalid name of the port: %s", port->name);
}

static void check_state(struct check *c, const Interface *n, const Network *net, size_t i)
{
	static const char *const states[] = {"absent", "up", "down", NULL};
	const char *path = at(c, "domain.devices.interfaces[%zu].state", i);

	if (str_is_empty(n->state))
		return;
	if (!is_one_of(n->state, states))
		fe_cause(c->fe, INVALID, path,
			 "logical %s interface state value is unsupported: %s", n->name, n->state);
	else if (n->sriov && !str_eq(n->state, "absent"))
		fe_cause(c->fe, INVALID, path,
			 "\"%s\" interface's state \"%s\" is not supported for SR-IOV NICs",
			 n->name, n->state);
	else if (str_eq(n->state, "absent") && !n->bridge)
		fe_cause(c->fe, INVALID, path,
			 "\"%s\" interface's state \"absent\" is supported only for bridge binding",
			 n->name);
	else if (str_eq(n->state, "absent") && net && net->pod)
		fe_cause(c->fe, INVALID, path,
			 "\"%s\" interface's state \"absent\" is not supported on default networks",
			 n->name);
}

static void check_boot(struct check *c, const Interface *n, size_t i)
{
	const Devices *devs = &c->spec->domain.devices;
	const char *path = at(c, "domain.devices.interfaces[%zu].bootOrder", i);

	if (!n->has_bootOrder)
		return;
	if (n->bootOrder < 1)
		fe_cause(c->fe, INVALID, path, "%s must have a boot order > 0, if supplied",
			 at(c, "domain.devices.interfaces[%zu]", i));
	for (size_t k = 0; n->bootOrder > 0 && k < devs->n_disks; k++)
		if (devs->disks[k].has_bootOrder && devs->disks[k].bootOrder == n->bootOrder)
			fe_cause(c->fe, INVALID, path,
				 "Boot order for %s already set for a different device.", path);
}

static void check_interface(struct check *c, size_t i)
{
	static const char *const models[] = {"e1000", "e1000e",	 "igb",	   "ne2k_pci",
					     "pcnet", "rtl8139", "virtio", NULL};
	const Devices *devs = &c->spec->domain.devices;
	const Interface *n = &devs->interfaces[i];
	const Network *net = network_of(c, n->name);
	const char *path = at(c, "domain.devices.interfaces[%zu].name", i);

	if (!net)
		fe_cause(c->fe, INVALID, path, "%s '%s' not found.", path, n->name);
	for (size_t k = 0; k < i; k++)
		if (str_eq(devs->interfaces[k].name, n->name))
			fe_cause(c->fe, DUPLICATE, path,
				 "Only one interface can be connected to one specific network");
	if (n->name && !is_name(n->name))
		fe_cause(c->fe, INVALID, path,
			 "Network interface name can only contain alphabetical characters, "
			 "numbers, dashes (-) "
			 "or underscores (_)");
	if (!str_is_empty(n->model) && !is_one_of(n->model, models))
		fe_cause(c->fe, NOT_SUPPORTED, at(c, "domain.devices.interfaces[%zu].model", i),
			 "interface %s uses model %s that is not supported.", path, n->model);
	check_binding(c, n, net, i);
	check_mac(c, n, i);
	check_state(c, n, net, i);
	check_boot(c, n, i);
	for (size_t p = 0; p < n->n_ports; p++)
		check_port(c, n, i, p);
}

static bool has_interface(const struct check *c, const char *name)
{
	const Devices *devs = &c->spec->domain.devices;

	for (size_t i = 0; i < devs->n_interfaces; i++)
		if (str_eq(devs->interfaces[i].name, name))
			return true;
	return false;
}

static void check_networks(struct check *c)
{
	const VirtualMachineInstanceSpec *s = c->spec;
	unsigned pods = 0;

	for (size_t i = 0; i < s->n_networks; i++) {
		const Network *n = &s->networks[i];
		int sources = !!n->pod + !!n->multus + !!n->resourceClaim;

		pods += n->pod != NULL;
		for (size_t k = 0; k < i; k++)
			if (str_eq(s->networks[k].name, n->name))
				fe_cause(c->fe, DUPLICATE, at(c, "networks[%zu].name", i),
					 "Network with name \"%s\" already exists, every network "
					 "must have a "
					 "unique name",
					 n->name);
		if (sources == 0)
			fe_cause(c->fe, REQUIRED, at(c, "networks[%zu]", i),
				 "should have a network type");
		if (sources > 1)
			fe_cause(c->fe, REQUIRED, at(c, "networks[%zu]", i),
				 "should have only one network type");
		if (n->multus && str_is_empty(n->multus->networkName))
			fe_cause(c->fe, REQUIRED, at(c, "networks[%zu]", i),
				 "CNI delegating plugin must have a networkName");
		if (!has_interface(c, n->name))
			fe_cause(c->fe, REQUIRED, at(c, "networks[%zu].name", i),
				 "%s '%s' not found.", at(c, "networks[%zu].name", i), n->name);
	}
	if (pods > 1)
		fe_cause(c->fe, DUPLICATE, at(c, "domain.devices.interfaces"),
			 "more than one interface is connected to a pod network in %s",
			 at(c, "domain.devices.interfaces"));
}

void check_network(struct check *c)
{
	for (size_t i = 0; i < c->spec->domain.devices.n_interfaces; i++)
		check_interface(c, i);
	check_networks(c);
}

void check_devices(struct check *c)
{
	static const char *const io_policies[] = {"shared", "auto", "supplementalPool", NULL};
	static const char *const videos[] = {"vga", "cirrus", "virtio", "ramfb", "bochs", NULL};
	const DomainSpec *d = &c->spec->domain;
	const Devices *devs = &d->devices;

	for (size_t i = 0; i < devs->n_inputs; i++) {
		const Input *in = &devs->inputs[i];

		if (!str_is_empty(in->bus) && !str_eq(in->bus, "virtio") && !str_eq(in->bus, "usb"))
			fe_cause(c->fe, INVALID, at(c, "domain.devices.inputs[%zu].bus", i),
				 "Input device can have only virtio or usb bus.");
		if (!str_eq(in->type, "tablet"))
			fe_cause(c->fe, INVALID, at(c, "domain.devices.inputs[%zu].type", i),
				 "Input device can have only tablet type.");
	}
	if (!str_is_empty(d->ioThreadsPolicy) && !is_one_of(d->ioThreadsPolicy, io_policies))
		fe_cause(c->fe, INVALID, at(c, "domain.ioThreadsPolicy"),
			 "Invalid IOThreadsPolicy (%s)", d->ioThreadsPolicy);
	if (devs->video && !API_GET(devs, autoattachGraphicsDevice, true))
		fe_cause(c->fe, INVALID, at(c, "domain.devices.video"),
			 "Video configuration is not allowed when autoattachGraphicsDevice is set "
			 "to false");
	if (devs->video && !str_is_empty(devs->video->type) &&
	    !is_one_of(devs->video->type, videos))
		fe_cause(c->fe, INVALID, at(c, "domain.devices.video.type"),
			 "video model '%s' is not supported on amd64 architecture",
			 devs->video->type);
	if (devs->watchdog && devs->watchdog->diag288)
		fe_cause(c->fe, INVALID, at(c, "domain.devices.watchdog"),
			 "amd64 only supports I6300ESB watchdog device");
}
