/* tests/unit/kube/fake.h - a scripted API server: requests pile up, the test answers them one by one. */
#ifndef TESTS_KUBE_FAKE_H
#define TESTS_KUBE_FAKE_H

#include "kube/kube.h"

enum { FAKE_MAX = 256 };

struct fake_op {
	struct fake *fake;
	char method[8];
	char path[512];
	char type[64];
	char body[4096];
	kube_done_fn done; /* also a stream's end */
	kube_data_fn data; /* NULL: a request */
	void *arg;
	bool open; /* not answered, not cancelled */
	bool cancelled;
};

struct fake {
	struct fake_op ops[FAKE_MAX];
	size_t n;	 /* ever started */
	unsigned refuse; /* the next ones fail to start */
};

extern const struct kube_transport fake_transport;

/* The newest operation still open whose "METHOD path" starts with prefix; fails the test when none. */
struct fake_op *fake_find(struct fake *f, const char *prefix);
size_t fake_open(const struct fake *f); /* operations still open */
void fake_answer(struct fake_op *op, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);
void fake_fail(struct fake_op *op, enum rc rc);
/* One watch event: {"type":type,"object":<text>}. */
void fake_event(struct fake_op *op, const char *type, const char *fmt, ...) PRINTF_LIKE(3, 4);
void fake_bytes(struct fake_op *op, const char *text);
void fake_end(struct fake_op *op); /* the server closes the stream */

#endif
