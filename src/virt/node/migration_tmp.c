#include "virt/node/migration.h"
#include "virt/node/vm_int.h"
void mig_source_kick(struct vm *vm){(void)vm;}
void mig_source_event(struct vm *vm, const char *name, const struct json *data){(void)vm;(void)name;(void)data;}
struct mig_source *mig_source_free(struct mig_source *m){(void)m;return NULL;}
void mig_target_kick(struct vm *vm){(void)vm;}
void mig_target_event(struct vm *vm, const char *name, const struct json *data){(void)vm;(void)name;(void)data;}
struct mig_target *mig_target_free(struct mig_target *m){(void)m;return NULL;}
void mig_target_request(struct vmhost *h, const char *vmi_uid, const char *what, const char *from, const struct json *body, mig_answer_fn fn, void *arg){(void)h;(void)vmi_uid;(void)what;(void)from;(void)body;fn(RC_UNSUPPORTED,"not yet",NULL,arg);}
