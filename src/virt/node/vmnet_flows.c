/* The ports filter's memory of flows that the guest opened, as text: "<set> <key in hex>
 * <lifetime> <left>" lines. */
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "net/nft.h"
#include "vmnet_int.h"

#define FLOWS_MAX      32768
#define LINE_MAX_BYTES 128

static const struct {
	const char *set;
	size_t n_key;
} sets[] = {[VMNET_FLOWS] = {"flows", VMNET_FLOW_KEY}, [VMNET_PEERS] = {"peers", VMNET_PEER_KEY}};
static_assert(ARRAY_SIZE(sets) == VMNET_FLOW_SET__MAX, "name every set");

struct dump {
	const char *set;
	struct sbuf *out;
};

static enum rc dump_one(const struct net_nft_elem *e, void *arg, struct err *err)
{
	const struct dump *d = arg;

	(void)err;
	sbuf_addf(d->out, "%s ", d->set);
	for (size_t i = 0; i < e->n_key; i++)
		sbuf_addf(d->out, "%02x", e->key[i]);
	sbuf_addf(d->out, " %llu %llu\n", (unsigned long long)e->timeout_ms,
		  (unsigned long long)e->expires_ms);
	return RC_OK;
}

enum rc vmnet_flows_dump(int ns_fd, struct sbuf *out, struct err *err)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < ARRAY_SIZE(sets) && !rc; i++) {
		struct dump d = {sets[i].set, out};
		struct err e = {0};

		rc = net_nft_set_list(ns_fd, "ip", VMNET_TABLE, sets[i].set, dump_one, &d, &e);
		if (rc == RC_NOT_FOUND)
			rc = RC_OK; /* the bridge binding has no filter */
		else if (rc)
			err_copy(err, &e);
	}
	if (!rc)
		rc = sbuf_rc(out);
	return rc;
}

static int hex_value(char c)
{
	const char *digits = "0123456789abcdef";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* "flows 11000000... 180000 171234" */
static bool parse_line(struct str line, size_t set, struct net_nft_elem *e)
{
	char text[LINE_MAX_BYTES];
	size_t n_name = strlen(sets[set].set);

	if (line.n >= sizeof(text) || line.n < n_name + 2 + 2 * sets[set].n_key)
		return false;
	memcpy(text, line.p, line.n);
	text[line.n] = '\0';
	memset(e, 0, sizeof(*e));
	e->n_key = sets[set].n_key;
	for (size_t i = 0; i < e->n_key; i++) {
		int hi = hex_value(text[n_name + 1 + 2 * i]),
		    lo = hex_value(text[n_name + 2 + 2 * i]);

		if (hi < 0 || lo < 0)
			return false;
		e->key[i] = (uint8_t)(hi << 4 | lo);
	}

	char *lifetime = text + n_name + 1 + 2 * e->n_key;
	char *left = *lifetime == ' ' ? strchr(lifetime + 1, ' ') : NULL;

	if (!left)
		return false;
	*left++ = '\0';
	/* No longer than the set's own entries live, whoever says so. */
	return !str_to_u64(lifetime + 1, VMNET_FLOW_MS, &e->timeout_ms, NULL) &&
	       !str_to_u64(left, VMNET_FLOW_MS, &e->expires_ms, NULL);
}

enum rc vmnet_flows_parse(const char *text, enum vmnet_flow_set set, struct net_nft_elem **out,
			  size_t *n_out, struct err *err)
{
	CLEANUP(mem_freep)
	struct net_nft_elem *elems = NULL;
	size_t n = 0, cap = 0, n_name = strlen(sets[set].set);
	struct str rest = str_of(text);

	while (rest.p && rest.n) {
		struct str line = str_split(&rest, '\n');

		if (line.n <= n_name || memcmp(line.p, sets[set].set, n_name) != 0 ||
		    line.p[n_name] != ' ')
			continue;
		if (n == FLOWS_MAX)
			return err_set(err, RC_TOO_BIG, "more than %d flows", FLOWS_MAX);
		if (!mem_grow((void **)&elems, &cap, n, sizeof(*elems)))
			return err_set(err, RC_NOMEM, "no memory for flows");
		if (!parse_line(line, set, &elems[n++]))
			return err_set(err, RC_BAD_REQUEST, "bad line in the list of flows: '%.*s'",
				       (int)MIN(line.n, 80), line.p);
	}
	*out = STEAL(elems);
	*n_out = n;
	return RC_OK;
}

enum rc vmnet_flows_load(int ns_fd, const char *text, struct err *err)
{
	enum rc rc = RC_OK;

	for (enum vmnet_flow_set i = 0; i < VMNET_FLOW_SET__MAX && !rc; i++) {
		CLEANUP(mem_freep)
		struct net_nft_elem *elems = NULL;
		size_t n = 0;

		rc = vmnet_flows_parse(text, i, &elems, &n, err);
		if (!rc && n)
			rc = net_nft_set_add(ns_fd, "ip", VMNET_TABLE, sets[i].set, elems, n, err);
	}
	return rc;
}
