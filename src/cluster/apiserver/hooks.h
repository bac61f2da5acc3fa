/* src/cluster/apiserver/hooks.h - the hooks' interface stands in lib/hook, where src/virt may see it. */
#include "hook/hook.h"
