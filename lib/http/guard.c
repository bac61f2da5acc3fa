#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/tcp.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/server_int.h"

/* Theory of operation
 *
 * A connection is in one list by what it does; what a peer can draw out has a deadline there, looked at by one
 * timer: every TICK while something runs, every SLOW_TICK otherwise.  A request costs list moves and no timer.
 *
 * Nobody is known before his first request, so strangers are bounded together and by address.  Over a bound the
 * longest waiting of them goes: who is served in milliseconds gets in beside thousands that only hold a place.
 * Afterwards a connection belongs to its user.  Trusted peers count nowhere but in the whole, of which a share
 * is never given to others.
 *
 * To close a connection that libmicrohttpd is reading or writing is to shut its socket down: libmicrohttpd finds out
 * by itself, in the loop's next turn.
 */
static const usec_t TICK = USEC_PER_SEC, SLOW_TICK = 10 * USEC_PER_SEC;

const char *http_refusal_name(enum http_refusal why)
{
	static const char *const names[HTTP_REFUSED__MAX] = {
		[HTTP_REFUSED_SLOW_HEAD] = "slow-head",
		[HTTP_REFUSED_SLOW_BODY] = "slow-body",
		[HTTP_REFUSED_SLOW_READER] = "slow-reader",
		[HTTP_REFUSED_STRANGERS] = "too-many-strangers",
		[HTTP_REFUSED_ADDRESS] = "too-many-of-address",
		[HTTP_REFUSED_USER] = "too-many-of-user",
		[HTTP_REFUSED_CONNECTIONS] = "too-many-connections",
		[HTTP_REFUSED_BODIES] = "memory-bodies",
		[HTTP_REFUSED_ANSWERS] = "memory-answers",
	};

	return names[why];
}

/* ---- entries: an address, a user -------------------------------------------------------------------- */

static void entry_free(void *value)
{
	mem_free(value);
}

static struct guard_entry *entry_get(struct map *m, const char *key)
{
	struct guard_entry *e = map_get(m, key);

	if (!e) {
		e = mem_alloc(sizeof(*e));
		if (!e || map_set(m, key, e))
			return mem_free(e);
	}
	e->n++;
	return e;
}

static void entry_put(struct map *m, const char *key, struct guard_entry *e)
{
	if (e && --e->n == 0)
		map_del(m, key);
}

/* Who has a network of IPv6 has 2^64 addresses: those of a /64 are one. */
static void set_key(char key[GUARD_KEY], const struct sockaddr *sa)
{
	struct in6_addr net;

	snprintf(key, GUARD_KEY, "unix");
	if (sa && sa->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)sa)->sin_addr, key, GUARD_KEY);
	if (!sa || sa->sa_family != AF_INET6)
		return;
	net = ((const struct sockaddr_in6 *)sa)->sin6_addr;
	if (!IN6_IS_ADDR_V4MAPPED(&net))
		memset(&net.s6_addr[8], 0, 8);
	inet_ntop(AF_INET6, &net, key, GUARD_KEY);
}

/* ---- phases ----------------------------------------------------------------------------------------- */

static void arm(struct guard *g)
{
	if (g->is_fast)
		return;
	g->is_fast = true;
	ev_timer_rearm(g->timer, g->tick);
}

static void move(struct conn *k, enum conn_phase phase)
{
	struct guard *g = &k->server->guard;

	list_remove(&k->link);
	k->phase = phase;
	k->since = loop_now(k->server->loop);
	k->mark_at = 0;
	list_push_tail(&g->phases[phase], &k->link);
	arm(g);
}

void guard_phase(struct conn *k, enum conn_phase phase)
{
	if (!k->is_dropped)
		move(k, phase);
}

/* It counts no more, though libmicrohttpd has it until it has seen the end. */
static void uncount(struct conn *k)
{
	struct guard *g = &k->server->guard;

	list_remove(&k->link);
	if (k->is_stranger)
		g->n_strangers--;
	else if (k->is_trusted)
		g->n_trusted--;
	else
		g->n_others--;
	entry_put(&g->addresses, k->key, k->of_address);
	k->of_address = NULL;
}

static void count(struct guard *g, enum http_refusal why)
{
	g->refused[why]++;
}

static void drop(struct conn *k, enum http_refusal why)
{
	struct guard *g = &k->server->guard;

	log_debug("http: connection of %s is closed: %s", k->address, http_refusal_name(why));
	count(g, why);
	uncount(k);
	k->is_dropped = true;
	shutdown(k->fd, SHUT_RDWR);
}

/* ---- coming and going ------------------------------------------------------------------------------- */

/* The one that waits longest; key NULL: of any address. */
static struct conn *oldest(struct guard *g, enum conn_phase phase, const char *key)
{
	LIST_FOREACH(it, &g->phases[phase]) {
		struct conn *k = LIST_ENTRY(it, struct conn, link);

		if (!k->is_trusted && (!key || strcmp(k->key, key) == 0))
			return k;
	}
	return NULL;
}

bool guard_accepts(struct http_server *s, const struct sockaddr *sa)
{
	struct guard *g = &s->guard;
	char key[GUARD_KEY];
	struct guard_entry *e;
	struct conn *victim = NULL;

	set_key(key, sa);
	e = map_get(&g->addresses, key);
	if (e && e->n >= g->address_max) {
		victim = oldest(g, CONN_NEW, key);
		victim = victim ? victim : oldest(g, CONN_IDLE, key);
		if (!victim) {
			count(g, HTTP_REFUSED_ADDRESS);
			return false;
		}
		drop(victim, HTTP_REFUSED_ADDRESS);
	} else if (g->n_strangers >= g->strangers_max) {
		victim = oldest(g, CONN_NEW, NULL);
		if (victim)
			drop(victim, HTTP_REFUSED_STRANGERS);
	}
	return true;
}

void guard_enter(struct conn *k, const struct sockaddr *sa)
{
	struct guard *g = &k->server->guard;

	set_key(k->key, sa);
	/* Out of memory: not bounded by its address, but with all other strangers. */
	k->of_address = entry_get(&g->addresses, k->key);
	k->is_stranger = true;
	g->n_strangers++;
	move(k, CONN_NEW);
}

void guard_leave(struct conn *k)
{
	if (!k->is_dropped)
		uncount(k);
	entry_put(&k->server->guard.users, k->user, k->of_user);
	mem_free(k->user);
}

static bool is_trusted(const struct conn *k)
{
	const struct guard *g = &k->server->guard;

	if (k->peer.is_unix)
		return true; /* whoever the file's mode lets in */
	return g->is_trusted ? g->is_trusted(&k->peer) : k->peer.has_cert;
}

static enum rc refuse(struct guard *g, enum http_refusal why, struct err *err)
{
	static const char *const texts[HTTP_REFUSED__MAX] = {
		[HTTP_REFUSED_USER] = "too many connections of this user are open",
		[HTTP_REFUSED_CONNECTIONS] = "too many connections are open",
		[HTTP_REFUSED_BODIES] = "too many bytes of requests are being handled: try again",
		[HTTP_REFUSED_ANSWERS] = "too many bytes of answers are on their way: try again",
	};

	count(g, why);
	return err_set(err, RC_BUSY, "%s", texts[why]);
}

enum rc guard_identify(struct conn *k, struct err *err)
{
	struct guard *g = &k->server->guard;
	struct conn *victim;

	if (!k->is_stranger || k->is_dropped)
		return RC_OK;
	k->user = k->peer.cn ? mem_strdup(k->peer.cn) : mem_printf("@%s", k->key);
	k->of_user = k->user ? entry_get(&g->users, k->user) : NULL;
	if (!k->of_user)
		return err_set(err, RC_NOMEM, "out of memory");
	k->is_stranger = false;
	k->is_trusted = is_trusted(k);
	g->n_strangers--;
	if (k->is_trusted) {
		g->n_trusted++;
		entry_put(&g->addresses, k->key, k->of_address);
		k->of_address = NULL;
		return RC_OK;
	}
	g->n_others++;
	if (k->of_user->n > g->user_max)
		return refuse(g, HTTP_REFUSED_USER, err);
	if (g->n_others <= g->others_max)
		return RC_OK;
	victim = oldest(g, CONN_IDLE, NULL);
	if (!victim)
		return refuse(g, HTTP_REFUSED_CONNECTIONS, err);
	drop(victim, HTTP_REFUSED_CONNECTIONS);
	return RC_OK;
}

/* ---- deadlines -------------------------------------------------------------------------------------- */

static void drop_older(struct guard *g, enum conn_phase phase, usec_t now, usec_t max)
{
	LIST_FOREACH_SAFE(it, tmp, &g->phases[phase]) {
		struct conn *k = LIST_ENTRY(it, struct conn, link);

		if (k->since + max > now)
			return; /* in the order of their beginning */
		drop(k, HTTP_REFUSED_SLOW_HEAD);
	}
}

static void check_bodies(struct guard *g, usec_t now)
{
	LIST_FOREACH_SAFE(it, tmp, &g->phases[CONN_BODY]) {
		struct conn *k = LIST_ENTRY(it, struct conn, link);
		uint64_t n = k->req ? k->req->n_received : 0;

		if (now > k->since + g->body_timeout + n * USEC_PER_SEC / LIMIT_RATE_FLOOR)
			drop(k, HTTP_REFUSED_SLOW_BODY);
	}
}

/* Bytes that the peer has confirmed; false: not TCP. */
static bool bytes_acked(int fd, uint64_t *out)
{
	struct tcp_info info;
	socklen_t n = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) ||
	    n < offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof(info.tcpi_bytes_acked))
		return false;
	*out = info.tcpi_bytes_acked;
	return true;
}

/* A reader must take what is there for him at some rate; a stream without anything to send waits for events. */
static void check_answers(struct guard *g, usec_t now)
{
	LIST_FOREACH_SAFE(it, tmp, &g->phases[CONN_ANSWER]) {
		struct conn *k = LIST_ENTRY(it, struct conn, link);
		uint64_t acked = 0;

		if (!k->req || (k->req->is_stream && http_stream_backlog(k->req) == 0) ||
		    !bytes_acked(k->fd, &acked)) {
			k->mark_at = 0;
		} else if (!k->mark_at) {
			k->mark_at = now;
			k->mark = acked;
		} else if (now >= k->mark_at + g->body_timeout) {
			uint64_t floor = (now - k->mark_at) * LIMIT_RATE_FLOOR / USEC_PER_SEC;

			if (acked - k->mark < floor) {
				drop(k, HTTP_REFUSED_SLOW_READER);
				continue;
			}
			k->mark_at = now;
			k->mark = acked;
		}
	}
}

static void on_sweep(void *arg)
{
	struct http_server *s = arg;
	struct guard *g = &s->guard;
	usec_t now = loop_now(s->loop);

	drop_older(g, CONN_NEW, now, g->head_timeout);
	drop_older(g, CONN_HEAD, now, g->head_timeout);
	/* libmicrohttpd's own time-out of idle connections begins anew with each byte. */
	drop_older(g, CONN_IDLE, now, g->idle_timeout + g->head_timeout);
	check_bodies(g, now);
	check_answers(g, now);
	g->is_fast =
		!list_is_empty(&g->phases[CONN_NEW]) || !list_is_empty(&g->phases[CONN_HEAD]) ||
		!list_is_empty(&g->phases[CONN_BODY]) || !list_is_empty(&g->phases[CONN_ANSWER]);
	if (g->is_fast)
		ev_timer_rearm(g->timer, g->tick);
	else if (!list_is_empty(&g->phases[CONN_IDLE]))
		ev_timer_rearm(g->timer, SLOW_TICK);
}

/* ---- memory ----------------------------------------------------------------------------------------- */

/* What others than trusted peers get of max: three quarters together, half of that each, or one thing at a time. */
static bool fits(const struct conn *k, size_t max, size_t all, size_t own, size_t n)
{
	if (k->is_trusted)
		return all + n <= max;
	return all + n <= max / 4 * 3 && (!own || own + n <= max / 8 * 3);
}

enum rc guard_take_body(struct http_req *r, size_t n, struct err *err)
{
	struct guard *g = &r->server->guard;
	struct guard_entry *e = r->conn->of_user;

	if (!e)
		return RC_OK; /* refused already */
	if (!fits(r->conn, g->bodies_max, g->bodies, e->bodies, n))
		return refuse(g, HTTP_REFUSED_BODIES, err);
	g->bodies += n;
	e->bodies += n;
	r->body_taken += n;
	return RC_OK;
}

enum rc guard_take_answer(struct http_req *r, size_t n, struct err *err)
{
	struct guard *g = &r->server->guard;
	struct guard_entry *e = r->conn->of_user;

	if (!e)
		return RC_OK;
	/* A little is everybody's: bounded by the number of connections. */
	if (r->answer_taken + n > GUARD_SMALL &&
	    !fits(r->conn, g->answers_max, g->answers, e->answers, n))
		return refuse(g, HTTP_REFUSED_ANSWERS, err);
	g->answers += n;
	e->answers += n;
	r->answer_taken += n;
	return RC_OK;
}

void guard_give_body(struct http_req *r)
{
	if (!r->body_taken)
		return;
	r->server->guard.bodies -= r->body_taken;
	r->conn->of_user->bodies -= r->body_taken;
	r->body_taken = 0;
}

void guard_give_answer(struct http_req *r, size_t n)
{
	n = MIN(n, r->answer_taken);
	if (!n)
		return;
	r->server->guard.answers -= n;
	r->conn->of_user->answers -= n;
	r->answer_taken -= n;
}

/* ---- life ------------------------------------------------------------------------------------------- */

enum rc guard_init(struct http_server *s, const struct http_server_config *config, unsigned max,
		   usec_t idle, struct err *err)
{
	struct guard *g = &s->guard;

	for (int i = 0; i < CONN__MAX; i++)
		list_init(&g->phases[i]);
	map_init(&g->addresses, entry_free);
	map_init(&g->users, entry_free);
	g->is_trusted = config->is_trusted;
	g->strangers_max = max / 4;
	g->others_max = max / 8 * 5;
	g->user_max = max / 16 * 5;
	g->address_max = max / 2;
	g->head_timeout = config->head_timeout ? config->head_timeout : LIMIT_HEAD_USEC;
	g->body_timeout = config->body_timeout ? config->body_timeout : LIMIT_BODY_USEC;
	g->idle_timeout = idle;
	g->tick = MIN(TICK, g->head_timeout / 4);
	g->bodies_max = config->bodies_max ? config->bodies_max : LIMIT_BODIES_BYTES;
	g->answers_max = config->answers_max ? config->answers_max : LIMIT_ANSWERS_BYTES;
	return ev_timer_after(s->loop, &g->timer, USEC_INFINITY, on_sweep, s, err);
}

void guard_fini(struct http_server *s)
{
	s->guard.timer = ev_src_free(s->guard.timer);
	map_fini(&s->guard.addresses);
	map_fini(&s->guard.users);
}
