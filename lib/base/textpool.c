#include "base/textpool.h"

#include <pthread.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

/* Theory of operation
 *
 * A text is taken in when it is seen for the second time.  What was seen is one tag per slot of a small table, which a
 * newer text overwrites: texts that every object has come back long before that, and a forgotten one costs
 * its holder a copy of its own, nothing else.
 */

struct shared {
	size_t refs;
	char text[];
};

enum { SEEN_SLOTS = 4096 };

static uint32_t seen[SEEN_SLOTS];
static struct map pool = {.borrows_keys = true}; /* text -> struct shared, of which it is a part */
static pthread_t owner;				 /* while the pool holds something */

static struct shared *shared_of(const char *text)
{
	return (struct shared *)(void *)((char *)text - offsetof(struct shared, text));
}

static bool was_seen(const char *s)
{
	uint64_t hash = str_hash(s, strlen(s));
	uint32_t *slot = &seen[hash % SEEN_SLOTS], tag = (uint32_t)(hash >> 32) | 1;
	bool was = *slot == tag;

	*slot = tag;
	return was;
}

static void give_back_empty(void)
{
	if (!pool.n)
		map_fini(&pool);
}

enum rc textpool_share(const char *s, const char **out)
{
	struct shared *t = map_get(&pool, s);
	size_t n = strlen(s) + 1;

	*out = NULL;
	assert(!pool.n || pthread_equal(owner, pthread_self()));
	if (t) {
		*out = textpool_ref(t->text);
		return RC_OK;
	}
	if (!was_seen(s))
		return RC_OK;
	t = mem_alloc(sizeof(*t) + n);
	if (!t)
		return RC_NOMEM;
	memcpy(t->text, s, n);
	if (!pool.n)
		owner = pthread_self();
	if (map_set(&pool, t->text, t)) {
		mem_free(t);
		give_back_empty();
		return RC_NOMEM;
	}
	*out = textpool_ref(t->text);
	return RC_OK;
}

char *textpool_ref(const char *shared)
{
	struct shared *t = shared_of(shared);

	t->refs++;
	return t->text;
}

void textpool_unref(const char *shared)
{
	struct shared *t = shared_of(shared);

	assert(t->refs && pthread_equal(owner, pthread_self()));
	if (--t->refs)
		return;
	map_take(&pool, t->text);
	mem_free(t);
	give_back_empty();
}
