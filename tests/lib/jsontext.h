/* tests/lib/jsontext.h - JSON as tests write it: with single quotes. */
#ifndef TESTS_JSONTEXT_H
#define TESTS_JSONTEXT_H

struct json;

/* The value of text, in which ' stands for "; owned by the caller.  Fails the current cmocka test when it is no
 * JSON; NULL: out of memory. */
struct json *json_of(const char *text);

#endif
