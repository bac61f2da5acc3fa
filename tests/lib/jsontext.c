#include "lib/jsontext.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "json/json.h"

struct json *json_of(const char *text)
{
	CLEANUP(mem_freep) char *copy = mem_strdup(text);
	struct json *j = NULL;
	struct err err = {0};

	if (!copy)
		return NULL;
	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	if (js_parse(copy, strlen(copy), &j, &err))
		fail_msg("%s in %s", err.msg, text);
	return j;
}
