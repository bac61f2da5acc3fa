/* Who is where: forwarding entries and neighbours are made equal to what was told. */
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "podnet_int.h"

/* What one MAC's entries should be. */
struct want {
	struct net_mac mac;
	struct in_addr address; /* none: no neighbour */
	struct in_addr node;	/* none: it is here (left alone) */
	bool has_fdb;		/* seen in the VXLAN device with the right node */
	bool has_port;		/* seen behind the VXLAN port of the bridge */
	bool has_neigh;
};

struct flood {
	struct in_addr node;
	bool has;
};

struct program {
	struct podnet *p;
	struct map by_mac; /* -> struct want, borrowed */
	struct map by_address;
	struct want *wants;
	size_t n_wants;
	struct flood *floods;
	size_t n_floods;
	/* Entries to take away, collected while the kernel's lists are read. */
	struct net_fdb *gone;
	size_t n_gone, cap_gone;
	struct in_addr *gone_neigh;
	size_t n_gone_neigh, cap_gone_neigh;
};

static void program_fini(struct program *g)
{
	map_fini(&g->by_mac);
	map_fini(&g->by_address);
	mem_free(g->wants);
	mem_free(g->floods);
	mem_free(g->gone);
	mem_free(g->gone_neigh);
}

static enum rc want_add(struct program *g, struct net_mac mac, struct in_addr address,
			struct in_addr node, struct err *err)
{
	char m[NET_MAC_TEXT], a[NET_IP4_TEXT];
	struct want *w = &g->wants[g->n_wants++];
	enum rc rc;

	*w = (struct want){.mac = mac, .address = address, .node = node};
	rc = map_set(&g->by_mac, net_mac_format(mac, m), w);
	if (!rc && !net_ip4_is_none(address))
		rc = map_set(&g->by_address, net_ip4_format(address, a), w);
	return rc ? err_set(err, rc, "no memory for forwarding") : RC_OK;
}

/* The node that has the VM, by the binding or by what a later hand-over told. */
static struct in_addr place_of(struct podnet *p, const struct podnet_binding *b)
{
	char m[NET_MAC_TEXT];
	struct in_addr node = b->underlay;

	pthread_mutex_lock(&p->places_lock);
	const struct podnet_place *pl = map_get(&p->places, net_mac_format(b->mac, m));

	if (pl && pl->epoch > b->epoch)
		node = pl->underlay;
	else if (
		pl) /* the binding has caught up; a later VM with this MAC starts from epoch 1 again */
		map_del(&p->places, m);
	pthread_mutex_unlock(&p->places_lock);
	return node;
}

/* What was told of MACs that have no binding any more: their VMs are gone. */
static void forget_places(struct program *g)
{
	struct podnet *p = g->p;
	bool again = true;

	pthread_mutex_lock(&p->places_lock);
	while (again) {
		char m[NET_MAC_TEXT] = "";

		MAP_FOREACH(it, &p->places)
			if (!map_get(&g->by_mac, it->key))
				(void)snprintf(m, sizeof(m), "%s", it->key);

		again = m[0] && map_del(&p->places, m);
	}
	pthread_mutex_unlock(&p->places_lock);
}

static enum rc want_bindings(struct program *g, const struct podnet_binding *b, size_t n,
			     struct err *err)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < n && !rc; i++) {
		struct in_addr node = place_of(g->p, &b[i]);

		if (node.s_addr == g->p->cfg.underlay.s_addr)
			node.s_addr = 0;
		rc = want_add(g, b[i].mac, b[i].address, node, err);
	}
	return rc;
}

static enum rc want_peers(struct program *g, const struct podnet_peer *peers, size_t n,
			  struct err *err)
{
	const struct podnet_config *c = &g->p->cfg;
	enum rc rc = RC_OK;

	for (size_t i = 0; i < n && !rc; i++) {
		if (peers[i].underlay.s_addr == c->underlay.s_addr)
			continue;
		g->floods[g->n_floods++].node = peers[i].underlay;
		rc = want_add(g, net_mac_of_ip4(peers[i].segment), peers[i].segment,
			      peers[i].underlay, err);
		if (!rc && peers[i].is_gateway && !c->is_gateway)
			rc = want_add(g, c->gateway_mac, c->gateway, peers[i].underlay, err);
	}
	return rc;
}

static enum rc gone_add(struct program *g, const struct net_fdb *f, struct err *err)
{
	if (!mem_grow((void **)&g->gone, &g->cap_gone, g->n_gone, sizeof(*g->gone)))
		return err_set(err, RC_NOMEM, "no memory for forwarding");
	g->gone[g->n_gone++] = *f;
	return RC_OK;
}

static enum rc see_flood(struct program *g, const struct net_fdb *f, struct err *err)
{
	for (size_t i = 0; i < g->n_floods; i++)
		if (g->floods[i].node.s_addr == f->dst.s_addr) {
			g->floods[i].has = true;
			return RC_OK;
		}
	return gone_add(g, f, err);
}

static enum rc see_fdb(const struct net_fdb *f, void *arg, struct err *err)
{
	struct program *g = arg;
	char m[NET_MAC_TEXT];

	if (f->kind == NET_FDB_FLOOD)
		return see_flood(g, f, err);

	struct want *w = map_get(&g->by_mac, net_mac_format(f->mac, m));

	if (!w)
		return gone_add(g, f, err);
	if (f->kind == NET_FDB_PORT)
		w->has_port = true;
	else
		w->has_fdb = f->dst.s_addr == w->node.s_addr;
	return RC_OK;
}

static enum rc see_neigh(struct in_addr a, struct net_mac mac, void *arg, struct err *err)
{
	struct program *g = arg;
	char t[NET_IP4_TEXT];
	struct want *w = map_get(&g->by_address, net_ip4_format(a, t));

	if (w) {
		w->has_neigh = net_mac_equal(w->mac, mac);
		return RC_OK;
	}
	if (!mem_grow((void **)&g->gone_neigh, &g->cap_gone_neigh, g->n_gone_neigh, sizeof(a)))
		return err_set(err, RC_NOMEM, "no memory for neighbours");
	g->gone_neigh[g->n_gone_neigh++] = a;
	return RC_OK;
}

static enum rc apply_gone(struct program *g, struct err *err)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < g->n_gone && !rc; i++)
		rc = net_fdb_del(g->p->net, &g->gone[i], err);
	for (size_t i = 0; i < g->n_gone_neigh && !rc; i++)
		rc = net_neigh_del(g->p->net, PODNET_BRIDGE, g->gone_neigh[i], err);
	return rc;
}

static enum rc apply_wants(struct program *g, struct err *err)
{
	struct net *n = g->p->net;
	enum rc rc = RC_OK;

	for (size_t i = 0; i < g->n_floods && !rc; i++) {
		struct net_fdb f = {
			.kind = NET_FDB_FLOOD, .dev = PODNET_VXLAN, .dst = g->floods[i].node};

		if (!g->floods[i].has)
			rc = net_fdb_set(n, &f, err);
	}
	for (size_t i = 0; i < g->n_wants && !rc; i++) {
		const struct want *w = &g->wants[i];
		struct net_fdb remote = {
			.kind = NET_FDB_REMOTE, .dev = PODNET_VXLAN, .mac = w->mac, .dst = w->node};
		struct net_fdb port = {.kind = NET_FDB_PORT, .dev = PODNET_VXLAN, .mac = w->mac};

		/* The node first: a frame must never leave for a node that is not told yet. */
		if (!net_ip4_is_none(w->node) && !w->has_fdb)
			rc = net_fdb_set(n, &remote, err);
		if (!rc && !net_ip4_is_none(w->node) && !w->has_port)
			rc = net_fdb_set(n, &port, err);
		if (!rc && !net_ip4_is_none(w->address) && !w->has_neigh)
			rc = net_neigh_set(n, PODNET_BRIDGE, w->address, w->mac, err);
	}
	return rc;
}

enum rc podnet_program(struct podnet *p, const struct podnet_peer *peers, size_t n_peers,
		       const struct podnet_binding *bindings, size_t n_bindings, struct err *err)
{
	CLEANUP(program_fini) struct program g = {.p = p};
	enum rc rc;

	map_init(&g.by_mac, NULL);
	map_init(&g.by_address, NULL);
	g.wants = mem_calloc(2 * n_peers + n_bindings + 1, sizeof(*g.wants));
	g.floods = mem_calloc(n_peers + 1, sizeof(*g.floods));
	if (!g.wants || !g.floods)
		return err_set(err, RC_NOMEM, "no memory for forwarding");
	rc = want_peers(&g, peers, n_peers, err);
	if (!rc)
		rc = want_bindings(&g, bindings, n_bindings, err);
	if (!rc)
		forget_places(&g);
	if (!rc)
		rc = net_fdb_list(p->net, PODNET_VXLAN, see_fdb, &g, err);
	if (!rc)
		rc = net_neigh_list(p->net, PODNET_BRIDGE, see_neigh, &g, err);
	if (!rc)
		rc = apply_gone(&g, err);
	if (!rc)
		rc = apply_wants(&g, err);
	return rc;
}

enum rc podnet_place(struct podnet *p, struct net_mac mac, struct in_addr underlay, int64_t epoch,
		     struct err *err)
{
	char m[NET_MAC_TEXT];
	struct podnet_place *pl = mem_alloc(sizeof(*pl));
	enum rc rc;

	if (!pl)
		return err_set(err, RC_NOMEM, "no memory for a VM's place");
	*pl = (struct podnet_place){underlay, epoch};
	pthread_mutex_lock(&p->places_lock);
	rc = map_set(&p->places, net_mac_format(mac, m), pl);
	pthread_mutex_unlock(&p->places_lock);
	if (rc) {
		mem_free(pl);
		return err_set(err, rc, "no memory for a VM's place");
	}
	return RC_OK;
}
