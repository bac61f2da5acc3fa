/* lib/base/list.h - intrusive doubly linked list; the head is a link to itself.
 *
 * An unlinked link has next == NULL, so membership can be asked.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include "base/macro.h"

struct list {
	struct list *next;
	struct list *prev;
};

static inline void list_init(struct list *head)
{
	head->next = head->prev = head;
}

static inline bool list_is_empty(const struct list *head)
{
	return head->next == head;
}

static inline bool list_is_linked(const struct list *link)
{
	return link->next != NULL;
}

static inline void list_push_tail(struct list *head, struct list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void list_push_head(struct list *head, struct list *link)
{
	link->next = head->next;
	link->prev = head;
	head->next->prev = link;
	head->next = link;
}

/* Fine on an unlinked link. */
static inline void list_remove(struct list *link)
{
	if (!link->next)
		return;
	link->next->prev = link->prev;
	link->prev->next = link->next;
	link->next = link->prev = NULL;
}

/* NULL when empty; the link is removed. */
static inline struct list *list_pop_head(struct list *head)
{
	if (list_is_empty(head))
		return NULL;
	struct list *link = head->next;

	list_remove(link);
	return link;
}

#define LIST_ENTRY(link_, type_, member_) CONTAINER_OF(link_, type_, member_)
#define LIST_FOREACH(it_, head_) \
	for (struct list *it_ = (head_)->next; it_ != (head_); it_ = it_->next)
/* it_ may be removed (and freed) inside the body. */
#define LIST_FOREACH_SAFE(it_, tmp_, head_)                                       \
	for (struct list *it_ = (head_)->next, *tmp_ = it_->next; it_ != (head_); \
	     it_ = tmp_, tmp_ = it_->next)

#endif
