#include "net/capture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "net/ns.h"
#include "net_int.h"

#define FRAME_MAX    (sizeof(struct virtio_net_hdr) + 14 + 4 + 65535)
#define RING_DEFAULT (4 * MIB)
#define SOCKET_BYTES (8 * 1024 * 1024) /* what the kernel holds while our thread is not scheduled */
#define ROUND_FRAMES 64		       /* taken with the lock held once */

/* A frame in the ring: this header, then its bytes, padded to 8 and never split.  Not wrapped:
 * frames lie in [head, tail).  Wrapped: in [head, wrap) and [0, tail).  The ring holds at least
 * four of the largest frames. */
struct frame {
	usec_t when;
	size_t n;
	uint8_t bytes[];
};

enum mode { MODE_RECORD, MODE_FORWARD };

struct tap_counter;

struct capture {
	int fd; /* sees frames that leave by dev, and sends: what it sends it does not see */
	int to_out, to_dev; /* link indexes */
	int wake_fd;	    /* eventfd: is_ending or must_resend */
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock; /* everything below */
	bool is_ending;
	bool must_resend; /* the ring's frames from `since` on, before any newer ones */
	enum mode mode;
	usec_t since;  /* forwarding: frames from here on ... */
	uint64_t from; /* ... or from this number on */
	uint8_t *ring;
	size_t size;
	size_t head, tail, wrap;
	bool is_wrapped;
	size_t n_frames;
	struct tap_counter *tap; /* NULL: not known */
	bool has_lost;		 /* the ring dropped a frame to make room ... */
	usec_t lost_until;	 /* ... the newest of which is this old */
	struct net_capture_stats stats;
	uint8_t frame[FRAME_MAX];
};

/* ---- the ring ---- */

static size_t frame_bytes(size_t n)
{
	return (sizeof(struct frame) + n + 7) & ~(size_t)7;
}

static struct frame *frame_at(struct capture *c, size_t at)
{
	return (void *)(c->ring + at);
}

/* Where the frame after this one starts (or would start). */
static size_t frame_next(struct capture *c, size_t at)
{
	size_t next = at + frame_bytes(frame_at(c, at)->n);

	return c->is_wrapped && next == c->wrap ? 0 : next;
}

static void ring_drop_oldest(struct capture *c)
{
	size_t next = frame_next(c, c->head);

	c->has_lost = true;
	c->lost_until = frame_at(c, c->head)->when;
	if (next == 0)
		c->is_wrapped = false;
	c->head = next;
	if (--c->n_frames == 0) {
		c->head = c->tail = 0;
		c->is_wrapped = false;
	}
}

/* Makes the tail a place with room for this much, at the cost of the oldest frames. */
static void ring_make_room(struct capture *c, size_t need)
{
	for (;;) {
		if (c->is_wrapped ? c->head - c->tail >= need : c->size - c->tail >= need)
			return;
		if (!c->is_wrapped && c->head >= need) {
			c->is_wrapped = true;
			c->wrap = c->tail;
			c->tail = 0;
			return;
		}
		ring_drop_oldest(c);
	}
}

static void ring_put(struct capture *c, const void *bytes, size_t n, usec_t when)
{
	size_t need = frame_bytes(n);

	ring_make_room(c, need);

	struct frame *f = frame_at(c, c->tail);

	f->when = when;
	f->n = n;
	memcpy(f->bytes, bytes, n);
	c->tail += need;
	c->n_frames++;
}

/* ---- sockets ---- */

/* Outgoing frames for this MAC: the kernel drops the rest before they cost a wake-up. */
static enum rc filter_set(int fd, struct net_mac mac, struct err *err)
{
	uint32_t hi = (uint32_t)mac.b[0] << 24 | (uint32_t)mac.b[1] << 16 |
		      (uint32_t)mac.b[2] << 8 | mac.b[3];
	uint32_t lo = (uint32_t)mac.b[4] << 8 | mac.b[5];
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, hi, 0, 3),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, lo, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0x40000),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog prog = {ARRAY_SIZE(code), code};

	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) < 0)
		return err_set_sys(err, errno, "cannot filter captured frames");
	return RC_OK;
}

static enum rc socket_open(struct capture *c, const struct net_capture_config *cfg, struct err *err)
{
	int one = 1, bytes = SOCKET_BYTES;
	struct sockaddr_ll a = {.sll_family = AF_PACKET,
				.sll_protocol = htons(ETH_P_ALL),
				.sll_ifindex = c->to_dev};

	c->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return err_set_sys(err, errno, "cannot open a packet socket");

	enum rc rc = filter_set(c->fd, cfg->dest, err);

	if (rc)
		return rc;
	if (setsockopt(c->fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) < 0 ||
	    setsockopt(c->fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof(one)) < 0 ||
	    setsockopt(c->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0 ||
	    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) < 0)
		return err_set_sys(err, errno, "cannot set up capturing on '%s'", cfg->dev);
	/* Bound last: nothing gets in before the filter is there. */
	if (bind(c->fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return err_set_sys(err, errno, "cannot capture on '%s'", cfg->dev);
	return RC_OK;
}

/* ---- taking and sending ---- */

static usec_t frame_time(struct msghdr *m)
{
	struct timespec t;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
			memcpy(&t, CMSG_DATA(c), sizeof(t));
			return clock_usec(&t);
		}
	return clock_realtime();
}

static void send_frame(struct capture *c, int index, const void *bytes, size_t n)
{
	struct sockaddr_ll a = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = index};

	if (sendto(c->fd, bytes, n, MSG_NOSIGNAL, (struct sockaddr *)&a, sizeof(a)) == (ssize_t)n)
		c->stats.n_forwarded++;
	else
		c->stats.n_failed++;
}

/* Lock held.  False: nothing there. */
static bool take_one(struct capture *c, bool may_send)
{
	char control[128];
	struct iovec v = {c->frame, sizeof(c->frame)};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(c->fd, &m, 0);

	if (n < 0)
		return false;
	c->stats.n_seen++;

	usec_t when = frame_time(&m);

	/* Kept in both modes: a hand-over may still be given up. */
	ring_put(c, c->frame, (size_t)n, when);
	if (may_send && c->mode == MODE_FORWARD)
		send_frame(c, c->to_out, c->frame, (size_t)n);
	return true;
}

/* Lock held. */
static void send_since(struct capture *c, int index, usec_t since, uint64_t from)
{
	uint64_t number = c->stats.n_seen - c->n_frames;
	size_t at = c->head;

	for (size_t i = 0; i < c->n_frames; i++, number++, at = frame_next(c, at)) {
		const struct frame *f = frame_at(c, at);

		if (f->when >= since || number >= from)
			send_frame(c, index, f->bytes, f->n);
	}
}

/* Lock held.  What the kernel still holds is older than what comes next: into the ring first. */
static void resend(struct capture *c)
{
	while (take_one(c, false))
		;
	send_since(c, c->to_out, c->since, c->from);
	c->must_resend = false;
}

/* ---- what the tap's reader has not taken ----
 *
 * in the tap       = frames put in (all) - frames taken out (the tap's own counter)
 * on their way     = frames captured - frames put in (unicast), less what that difference is at rest: some
 *                    captured frames end in the pod itself.  At rest is the least of the last half to whole
 *                    second.
 */
#define REST_BUCKET   (500 * USEC_PER_MSEC)
#define REST_EVERY    (20 * USEC_PER_MSEC)
#define UNREAD_MARGIN 16 /* frames that come while it is counted */

struct tap_counter {
	struct net *net;
	int all, unicast; /* sockets that see frames go into the tap and keep none */
	char name[NET_IFNAME];
	uint64_t n_all, n_unicast;
	uint64_t n_out_before;
	int64_t rest[2]; /* least difference: this bucket's, the last one's */
	usec_t bucket_end, next;
};

static enum rc counting_socket(const char *dev, int index, bool only_unicast, int *out,
			       struct err *err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 3),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, only_unicast ? 1 : 0, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, 1),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog prog = {ARRAY_SIZE(code), code};
	struct sockaddr_ll a = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = index};
	int bytes = 0; /* the least that the kernel allows: a full queue is counted all the same */
	CLEANUP(fd_closep)
	int s = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (s < 0)
		return err_set_sys(err, errno, "cannot open a packet socket");
	if (setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) < 0 ||
	    setsockopt(s, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) < 0 ||
	    bind(s, (struct sockaddr *)&a, sizeof(a)) < 0)
		return err_set_sys(err, errno, "cannot count frames on '%s'", dev);
	*out = STEAL_FD(s);
	return RC_OK;
}

static struct tap_counter *tap_counter_free(struct tap_counter *t)
{
	if (!t)
		return NULL;
	net_free(t->net);
	fd_close(t->all);
	fd_close(t->unicast);
	return mem_free(t);
}
DEFINE_CLEANUP(struct tap_counter *, tap_counter_free);

static enum rc tap_counter_new(struct tap_counter **out, int ns_fd, const char *tap,
			       struct err *err)
{
	CLEANUP(net_ns_leave)
	int old = -1;
	CLEANUP(tap_counter_freep)
	struct tap_counter *t = mem_alloc(sizeof(*t));
	struct net_link l = {0};
	enum rc rc;

	if (!t)
		return err_set(err, RC_NOMEM, "no memory for counting frames");
	t->all = t->unicast = -1;
	(void)snprintf(t->name, sizeof(t->name), "%s", tap);
	rc = net_ns_enter(ns_fd, &old, err);
	if (!rc)
		rc = net_open(&t->net, -1, err);
	if (!rc)
		rc = net_link_get(t->net, tap, &l, err);
	if (!rc)
		rc = counting_socket(tap, l.index, false, &t->all, err);
	if (!rc)
		rc = counting_socket(tap, l.index, true, &t->unicast, err);
	if (rc)
		return rc;
	t->n_out_before = l.n_sent;
	t->rest[0] = t->rest[1] = INT64_MAX;
	*out = STEAL(t);
	return RC_OK;
}

static bool count_more(int fd, uint64_t *n)
{
	struct tpacket_stats s = {0};
	socklen_t len = sizeof(s);

	if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &s, &len) < 0)
		return false;
	*n += s.tp_packets; /* dropped ones included; reading resets it */
	return true;
}

/* Remembers what the difference between captured and put in is at rest. */
static void backlog_sample(struct tap_counter *t, uint64_t n_captured)
{
	usec_t now = clock_monotonic();

	if (now < t->next || !count_more(t->unicast, &t->n_unicast))
		return;
	t->next = now + REST_EVERY;
	if (now >= t->bucket_end) {
		t->rest[1] = t->rest[0];
		t->rest[0] = INT64_MAX;
		t->bucket_end = now + REST_BUCKET;
	}
	t->rest[0] = MIN(t->rest[0], (int64_t)(n_captured - t->n_unicast));
}

static bool backlog_count(struct tap_counter *t, uint64_t n_captured, uint64_t *n)
{
	struct net_link l;

	if (net_link_get(t->net, t->name, &l, NULL) || !count_more(t->all, &t->n_all) ||
	    !count_more(t->unicast, &t->n_unicast))
		return false;

	uint64_t out = l.n_sent - t->n_out_before;
	int64_t rest = MIN(t->rest[0], t->rest[1]);
	int64_t ahead = (int64_t)(n_captured - t->n_unicast);

	*n = t->n_all > out ? t->n_all - out : 0;
	if (rest != INT64_MAX && ahead > rest)
		*n += (uint64_t)(ahead - rest);
	return true;
}

static struct capture *capture_destroy(struct capture *c);

static void *capture_thread(void *arg)
{
	struct capture *c = arg;
	struct pollfd p[2] = {{.fd = c->fd, .events = POLLIN},
			      {.fd = c->wake_fd, .events = POLLIN}};
	bool goes_on = true;
	uint64_t n;

	while (goes_on) {
		/* No deadline: the thread's work is to wait, and wake_fd ends it. */
		if (poll(p, 2, -1) < 0)
			continue; /* EINTR; nothing else can happen to two descriptors of our own */
		if (p[1].revents && read(c->wake_fd, &n, sizeof(n)) < 0)
			continue;
		pthread_mutex_lock(&c->lock);
		if (c->must_resend)
			resend(c);
		for (unsigned i = 0; i < ROUND_FRAMES && take_one(c, true); i++)
			;
		if (c->tap && c->mode == MODE_RECORD)
			backlog_sample(c->tap, c->stats.n_seen);
		goes_on = !c->is_ending;
		pthread_mutex_unlock(&c->lock);
	}
	capture_destroy(c);
	return NULL;
}

static enum rc thread_start(struct capture *c, struct err *err)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);

	int e = pthread_create(&c->thread, NULL, capture_thread, c);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e)
		return err_set_sys(err, e, "cannot start the capture thread");
	c->has_thread = true;
	return RC_OK;
}

enum rc net_capture_start(struct capture **out, const struct net_capture_config *cfg,
			  struct err *err)
{
	CLEANUP(net_ns_leave)
	int old = -1;
	CLEANUP(net_freep)
	struct net *n = NULL;
	CLEANUP(net_capture_freep)
	struct capture *c = mem_alloc(sizeof(*c));
	enum rc rc;

	if (!c)
		return err_set(err, RC_NOMEM, "no memory for capturing");
	c->fd = c->wake_fd = -1;
	c->from = UINT64_MAX;
	pthread_mutex_init(&c->lock, NULL);
	c->size = MAX(cfg->ring_bytes ? cfg->ring_bytes : RING_DEFAULT, 4 * FRAME_MAX) & ~(size_t)7;
	c->ring = mem_realloc(NULL, c->size); /* not zeroed: untouched pages cost nothing */
	if (!c->ring)
		return err_set(err, RC_NOMEM, "no memory for capturing");
	rc = net_ns_enter(cfg->ns_fd, &old, err);
	if (!rc)
		rc = net_open(&n, -1, err);
	if (!rc)
		rc = net_ifindex(n, cfg->out_dev, &c->to_out, err);
	if (!rc)
		rc = net_ifindex(n, cfg->dev, &c->to_dev, err);
	if (!rc)
		rc = socket_open(c, cfg, err);
	if (rc)
		return rc;
	if (cfg->tap) {
		rc = tap_counter_new(&c->tap, cfg->tap_ns_fd, cfg->tap, err);
		if (rc)
			return rc;
	}
	c->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (c->wake_fd < 0)
		return err_set_sys(err, errno, "cannot make an eventfd");
	rc = thread_start(c, err);
	if (rc)
		return rc;
	*out = STEAL(c);
	return RC_OK;
}

static enum rc reached_back(const struct capture *c, usec_t since, struct err *err)
{
	if (!c->has_lost || c->lost_until < since)
		return RC_OK;
	return err_set(err, RC_EXPIRED,
		       "the capture ring was too small to reach back %llu us further",
		       (unsigned long long)(c->lost_until - since));
}

static void wake(struct capture *c)
{
	uint64_t one = 1;

	/* Cannot fail: a counter that would overflow has woken the thread long ago. */
	if (write(c->wake_fd, &one, sizeof(one)) < 0)
		return;
}

enum rc net_capture_forward(struct capture *c, usec_t since, uint64_t *n_unread, struct err *err)
{
	uint64_t unread = 0;

	pthread_mutex_lock(&c->lock);
	while (take_one(c, true)) /* so that the numbers mean the same frames as the counts */
		;
	if (c->tap && backlog_count(c->tap, c->stats.n_seen, &unread))
		c->from = c->stats.n_seen - MIN(unread + UNREAD_MARGIN, c->stats.n_seen);
	c->mode = MODE_FORWARD;
	c->since = since;
	c->must_resend = true;

	enum rc rc = reached_back(c, since, err);

	pthread_mutex_unlock(&c->lock);
	wake(c);
	if (n_unread)
		*n_unread = unread;
	return rc;
}

enum rc net_capture_replay(struct capture *c, usec_t since, struct err *err)
{
	pthread_mutex_lock(&c->lock);
	while (take_one(c, false))
		;
	c->mode = MODE_RECORD;
	c->must_resend = false;

	enum rc rc = reached_back(c, since, err);

	send_since(c, c->to_dev, since, c->from);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

void net_capture_stats(struct capture *c, struct net_capture_stats *out)
{
	struct tpacket_stats s = {0};
	socklen_t n = sizeof(s);

	pthread_mutex_lock(&c->lock);
	if (getsockopt(c->fd, SOL_PACKET, PACKET_STATISTICS, &s, &n) == 0)
		c->stats.n_overrun += s.tp_drops; /* reading resets the kernel's counter */
	c->stats.oldest = c->n_frames == 0 ? 0 : frame_at(c, c->head)->when;
	*out = c->stats;
	pthread_mutex_unlock(&c->lock);
}

static struct capture *capture_destroy(struct capture *c)
{
	fd_close(c->fd);
	fd_close(c->wake_fd);
	pthread_mutex_destroy(&c->lock);
	tap_counter_free(c->tap);
	mem_free(c->ring);
	return mem_free(c);
}

/* Closing a packet socket waits for the kernel's readers, some 20 ms each: the thread does it. */
struct capture *net_capture_free(struct capture *c)
{
	if (!c)
		return NULL;
	if (!c->has_thread)
		return capture_destroy(c);

	pthread_t thread = c->thread;

	pthread_mutex_lock(&c->lock);
	c->is_ending = true;
	c->must_resend = false;
	c->mode = MODE_RECORD; /* nothing is sent any more once this returns */
	wake(c);
	pthread_mutex_unlock(&c->lock);
	pthread_detach(thread);
	return NULL;
}

enum rc net_frame_send(int ns_fd, const char *dev, const void *frame, size_t len, unsigned n,
		       struct err *err)
{
	CLEANUP(net_ns_leave)
	int old = -1;
	CLEANUP(net_freep)
	struct net *net = NULL;
	CLEANUP(fd_closep)
	int s = -1;
	struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
	enum rc rc = net_ns_enter(ns_fd, &old, err);

	if (!rc)
		rc = net_open(&net, -1, err);
	if (!rc)
		rc = net_ifindex(net, dev, &a.sll_ifindex, err);
	if (rc)
		return rc;
	s = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0); /* protocol 0: receives nothing */
	if (s < 0)
		return err_set_sys(err, errno, "cannot open a packet socket");
	for (unsigned i = 0; i < n; i++)
		if (sendto(s, frame, len, 0, (struct sockaddr *)&a, sizeof(a)) != (ssize_t)len)
			return err_set_sys(err, errno, "cannot send a frame on '%s'", dev);
	return RC_OK;
}
