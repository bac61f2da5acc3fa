#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "../admission/fake_hooks.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/subresources/subresources.h"

/* One call against a VM and a VMI; what is asked of the API server, or what is answered. */
struct row {
	const char *path;      /* "vm/start", "vmi/pause" */
	const char *spec;      /* of the VM; NULL: there is no VM */
	const char *vm_status; /* NULL: {} */
	const char *vmi;       /* {'spec': ..., 'status': ...}; NULL: there is no VMI */
	const char *body;      /* double quotes; NULL: empty */
	int status;	       /* of an answer without a request; 0: a request is made */
	const char *text; /* the answer's message, or "METHOD target body" without the prefix */
};

#define ON_VM	 "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"a\": "
#define ON_VMI	 "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"a\": "
#define PATCH_VM "PATCH /virtualmachines/a {\"metadata\":{\"resourceVersion\":\"7\"},\"spec\":"
#define PATCH_STATUS                                                                 \
	"PATCH /virtualmachines/a/status {\"metadata\":{\"resourceVersion\":\"7\"}," \
	"\"status\":{\"stateChangeRequests\":"
#define PATCH_VMI "PATCH /virtualmachineinstances/a {\"spec\":{\"terminationGracePeriodSeconds\":"
#define RECOVERY                                                                           \
	"VM recovery required: Volume migration failed, leaving some volumes pointing to " \
	"non-consistent targets; manual intervention is needed to reassign them to their " \
	"original volumes."

#define SHOWN ", 'ferry': {'cpuModel': 'max', 'video': 'vga'}"
static const char shown[] = "{'spec': {}, 'status': {'phase': 'Running'" SHOWN "}}";
static const char hidden[] =
	"{'spec': {'domain': {'devices': {'autoattachGraphicsDevice': false}}}, 'status': {'phase': "
	"'Running'" SHOWN "}}";

/* All that is decided here was: the node would be asked. */
#define NO_NODES    "Internal error occurred: this server has no connection to nodes"

#define UNREADABLE  "Can not unmarshal Request body to struct, error: "
#define NO_DURATION "must be a duration such as \"5m0s\", of at most 1000000 seconds"
#define FREEZE(t_)  "{\"unfreezeTimeout\":\"" t_ "\"}"

#define NO_UPGRADE  "a port is a websocket: ask with Upgrade: websocket"
#define NOT_YET	    "this subresource is not supported by Ferry yet"
#define BAD_PORT    "port must be a number in 1..65535"
#define NO_GUEST(p_)                                                                              \
	"Unable to connect to VirtualMachineInstance because phase is " p_ " instead of Running " \
	"or Scheduled"
#define ADD(name_) "{\"name\": \"" name_ "\", \"disk\": {}, \"volumeSource\": {}}"

static const char with_volumes[] =
	"{'runStrategy': 'Always', 'template': {'spec': {'volumes': [{'name': 'fixed', "
	"'persistentVolumeClaim': {'claimName': 'c'}}, {'name': 'plugged', 'dataVolume': {'name': "
	"'d', 'hotpluggable': true}}]}}}";
static const char with_address[] =
	"{'spec': {}, 'status': {'phase': 'Running', 'interfaces': [{'ipAddress': '10.244.1.2'}]}}";
static const char with_agent[] =
	"{'spec': {}, 'status': {'phase': 'Running', 'conditions': [{'type': 'AgentConnected', "
	"'status': 'True'}]}}";
static const char running[] = "{'spec': {}, 'status': {'phase': 'Running'}}";
static const char succeeded[] = "{'spec': {}, 'status': {'phase': 'Succeeded'}}";
static const char failed[] = "{'spec': {}, 'status': {'phase': 'Failed'}}";
static const char halted[] = "{'runStrategy': 'Halted'}";
static const char always[] = "{'runStrategy': 'Always'}";
static const char manual[] = "{'runStrategy': 'Manual'}";
static const char rerun[] = "{'runStrategy': 'RerunOnFailure'}";
static const char once[] = "{'runStrategy': 'Once'}";
static const char queued[] = "{'stateChangeRequests': [{'action': 'Start'}]}";

static const char created[] = "{'created': true}";
static const char unmarked[] = "{'status': {'phase': 'Running', 'nodeName': 'node-1'}}";
static const char marked[] =
	"{'status': {'phase': 'Running', 'nodeName': 'node-1', 'evacuationNodeName': 'node-1'}}";
static const char tainted[] =
	"{'status': {'phase': 'Running', 'nodeName': 'node-1', 'evacuationNodeName': 'tainted'}}";

#define UNMARK(query_, mark_)                                                                  \
	"PATCH /virtualmachineinstances/a" query_ " [{\"op\":\"test\",\"path\":"               \
	"\"/status/evacuationNodeName\",\"value\":\"" mark_ "\"},{\"op\":\"remove\",\"path\":" \
	"\"/status/evacuationNodeName\"}]"

static const struct row rows[] = {
	/* start */
	{"vm/start", NULL, NULL, NULL, NULL, 404, "virtualmachine.kubevirt.io \"a\" not found"},
	{"vm/start", halted, NULL, NULL, NULL, 0, PATCH_VM "{\"runStrategy\":\"Always\"}}"},
	{"vm/start", "{'running': false}", NULL, NULL, NULL, 0, PATCH_VM "{\"running\":true}}"},
	{"vm/start", halted, NULL, NULL, "{\"paused\":true}", 0,
	 PATCH_STATUS
	 "[{\"action\":\"Start\",\"data\":{\"paused\":\"true\"}}],\"startFailure\":null}}"},
	{"vm/start", manual, NULL, NULL, NULL, 0,
	 PATCH_STATUS "[{\"action\":\"Start\"}],\"startFailure\":null}}"},
	{"vm/start", manual, NULL, succeeded, NULL, 0,
	 PATCH_STATUS "[{\"action\":\"Stop\",\"uid\":\"u-a\"},{\"action\":\"Start\"}],"
		      "\"startFailure\":null}}"},
	{"vm/start", rerun, NULL, succeeded, NULL, 0,
	 PATCH_STATUS "[{\"action\":\"Stop\",\"uid\":\"u-a\"},{\"action\":\"Start\"}],"
		      "\"startFailure\":null}}"},
	{"vm/start", rerun, NULL, failed, NULL, 409,
	 ON_VM "RerunOnFailure does not support starting VM from failed state"},
	{"vm/start", always, NULL, NULL, NULL, 409,
	 ON_VM "Always does not support manual start requests"},
	{"vm/start", once, NULL, NULL, NULL, 409,
	 ON_VM "Once does not support manual start requests"},
	{"vm/start", manual, NULL, running, NULL, 409, ON_VM "VM is already running"},
	{"vm/start", manual, queued, NULL, NULL, 500,
	 "Internal error occurred: unable to complete request: stop/start already underway"},
	{"vm/start", manual,
	 "{'conditions': [{'type': 'ManualRecoveryRequired', 'status': 'True'}]}", NULL, NULL, 409,
	 ON_VM RECOVERY},
	{"vm/start", halted, NULL, NULL, "{", 400, NULL},
	{"vm/start", halted, NULL, NULL, "{\"dryRun\":[\"All\"]}", 0,
	 "PATCH /virtualmachines/a?dryRun=All {\"metadata\":{\"resourceVersion\":\"7\"},\"spec\":"
	 "{\"runStrategy\":\"Always\"}}"},
	/* stop */
	{"vm/stop", always, NULL, running, NULL, 0, PATCH_VM "{\"runStrategy\":\"Halted\"}}"},
	{"vm/stop", "{'running': true}", NULL, NULL, NULL, 0, PATCH_VM "{\"running\":false}}"},
	{"vm/stop", once, NULL, NULL, NULL, 0, PATCH_VM "{\"runStrategy\":\"Halted\"}}"},
	{"vm/stop", manual, NULL, running, NULL, 0,
	 PATCH_STATUS "[{\"action\":\"Stop\",\"uid\":\"u-a\"}],\"startFailure\":null}}"},
	{"vm/stop", rerun, queued, running, NULL, 0, /* a lone Stop replaces */
	 PATCH_STATUS "[{\"action\":\"Stop\",\"uid\":\"u-a\"}],\"startFailure\":null}}"},
	{"vm/stop", manual, NULL, NULL, NULL, 409, ON_VM "VM is not running"},
	{"vm/stop", rerun, NULL, failed, NULL, 409, ON_VM "VM is not running"},
	{"vm/stop", halted, NULL, NULL, NULL, 409, ON_VM "VM is not running"},
	{"vm/stop", halted, NULL, running, NULL, 409,
	 ON_VM "Halted only supports manual stop requests with a shorter graceperiod"},
	{"vm/stop", halted, NULL, running, "{\"gracePeriod\":60}", 409,
	 ON_VM "Halted only supports manual stop requests with a shorter graceperiod"},
	{"vm/stop", halted, NULL, running, "{\"gracePeriod\":0}", 0, PATCH_VMI "0}}"},
	{"vm/stop", always, NULL, running, "{\"gracePeriod\":5}", 0, PATCH_VMI "5}}"},
	{"vm/stop", always, NULL, running, "{\"gracePeriod\":-1}", 400,
	 "gracePeriod has to be greater or equal to 0"},
	/* restart */
	{"vm/restart", always, NULL, running, NULL, 0,
	 PATCH_STATUS "[{\"action\":\"Stop\",\"uid\":\"u-a\"},{\"action\":\"Start\"}],"
		      "\"startFailure\":null}}"},
	{"vm/restart", halted, NULL, running, NULL, 409,
	 ON_VM "RunStategy Halted does not support manual restart requests"},
	{"vm/restart", once, NULL, running, NULL, 409,
	 ON_VM "RunStategy Once does not support manual restart requests"},
	{"vm/restart", always, NULL, NULL, NULL, 409, ON_VM "VM is not running: Halted"},
	{"vm/restart", always, queued, running, NULL, 500,
	 "Internal error occurred: unable to complete request: stop/start already underway"},
	{"vm/restart", always, "{'conditions': [{'type': 'VolumesChange', 'status': 'True'}]}",
	 running, NULL, 409, ON_VM RECOVERY},
	{"vm/restart", always, NULL, running, "{\"gracePeriodSeconds\":5}", 400,
	 "For force restart, only gracePeriod=0 is supported for now"},
	{"vm/restart", always, NULL, running, "{\"gracePeriodSeconds\":-1}", 400,
	 "gracePeriod has to be greater or equal to 0"},
	{"vm/restart", always, NULL, running, "{\"gracePeriodSeconds\":0}", 0, PATCH_VMI "1}}"},
	/* migrate */
	{"vm/migrate", always, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vm/migrate", always, NULL, "{'status': {'phase': 'Scheduled'}}", NULL, 409,
	 ON_VM "VM is not running"},
	{"vm/migrate", always, NULL, running, "{\"addedNodeSelector\":{\"k\":\"v\"}}", 0,
	 "POST /virtualmachineinstancemigrations {\"apiVersion\":\"kubevirt.io/v1\",\"kind\":"
	 "\"VirtualMachineInstanceMigration\",\"metadata\":{\"generateName\":\"kubevirt-migrate-vm-"
	 "\","
	 "\"namespace\":\"default\"},\"spec\":{\"vmiName\":\"a\",\"addedNodeSelector\":{\"k\":"
	 "\"v\"}}}"},
	/* pause, unpause: what is decided before the node is asked */
	{"vmi/pause", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/pause", NULL, NULL, succeeded, NULL, 409, ON_VMI "VMI is not running"},
	{"vmi/pause", NULL, NULL,
	 "{'status': {'phase': 'Running', 'conditions': [{'type': 'Paused', 'status': 'True'}]}}",
	 NULL, 409, ON_VMI "VMI is already paused"},
	{"vmi/pause", NULL, NULL,
	 "{'spec': {'livenessProbe': {'httpGet': {}}}, 'status': {'phase': 'Running'}}", NULL, 403,
	 "virtualmachineinstance.kubevirt.io \"a\" is forbidden: Pausing VMIs with a "
	 "non-GuestAgentPing "
	 "LivenessProbe is not supported"},
	{"vmi/pause", NULL, NULL, running, "{\"dryRun\":[\"All\"]}", 200, ""},
	{"vmi/unpause", NULL, NULL, running, NULL, 409, ON_VMI "VMI is not paused"},
	/* console: what is decided before the node is asked */
	{"vmi/console", NULL, NULL, failed, NULL, 409, ON_VMI "VMI is in failed status"},
	{"vmi/console", NULL, NULL, "{'status': {'phase': 'Scheduled'}}", NULL, 400,
	 "VMI is not running"},
	{"vmi/console", NULL, NULL,
	 "{'spec': {'domain': {'devices': {'autoattachSerialConsole': false}}},"
	 " 'status': {'phase': 'Running'}}",
	 NULL, 400, "No serial consoles are present."},
	/* evacuate/cancel */
	{"vmi/evacuate/cancel", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/evacuate/cancel", NULL, NULL, running, NULL, 200, ""}, /* nothing to cancel */
	{"vmi/evacuate/cancel", NULL, NULL, unmarked, "{", 200, ""}, /* KubeVirt looks no further */
	{"vmi/evacuate/cancel", NULL, NULL, marked, NULL, 0, UNMARK("", "node-1")},
	{"vmi/evacuate/cancel", NULL, NULL, marked, "{\"dryRun\":[\"All\"]}", 0,
	 UNMARK("?dryRun=All", "node-1")},
	{"vmi/evacuate/cancel", NULL, NULL, marked, "{\"evacuationNodeName\":\"node-7\"}", 0,
	 UNMARK("", "node-7")},
	{"vmi/evacuate/cancel", NULL, NULL, marked, "{", 400, NULL},
	{"vmi/evacuate/cancel", NULL, NULL, tainted, NULL, 400,
	 "Node \"tainted\" has NodeDrainTaintKey \"kubevirt.io/drain:NoSchedule\""},
	{"vmi/evacuate/cancel", NULL, NULL,
	 "{'status': {'phase': 'Running', 'nodeName': 'tainted'}}", NULL, 400,
	 "Node \"tainted\" has NodeDrainTaintKey \"kubevirt.io/drain:NoSchedule\""},
	{"vmi/evacuate/cancel", NULL, NULL,
	 "{'status': {'phase': 'Running', 'nodeName': 'gone', 'evacuationNodeName': 'gone'}}", NULL,
	 500, "Internal error occurred: nodes \"gone\" not found"},
	{"vm/evacuate/cancel", NULL, NULL, marked, NULL, 404,
	 "virtualmachine.kubevirt.io \"a\" not found"},
	{"vm/evacuate/cancel", always, NULL, marked, NULL, 409, ON_VM "VMI is not started"},
	{"vm/evacuate/cancel", always, created, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vm/evacuate/cancel", always, created, marked, NULL, 500,
	 "Internal error occurred: unable to retrieve vmi [a] for vm: <nil>"},
	/* refused by name */
	{"vmi/usbredir", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/vsock", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	/* the display */
	{"vmi/vnc", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/vnc", NULL, NULL, hidden, NULL, 400, "No graphics devices are present."},
	{"vmi/vnc", NULL, NULL, running, NULL, 400,
	 "No graphics devices are present."}, /* of before */
	{"vmi/vnc", NULL, NULL, "{'status': {'phase': 'Scheduling'}}", NULL, 400,
	 "VMI is not running"},
	{"vmi/vnc", NULL, NULL, failed, NULL, 400, "VMI is not running"},
	{"vmi/vnc", NULL, NULL, shown, NULL, 400,
	 "a display is a websocket: ask with Upgrade: websocket"},
	{"vmi/vnc?preserveSession=true", NULL, NULL, shown, NULL, 400,
	 "a display is a websocket: ask with Upgrade: websocket"},
	{"vmi/vnc?preserveSession=maybe", NULL, NULL, shown, NULL, 400,
	 "query parameter 'preserveSession' must be true or false"},
	{"vmi/vnc/screenshot", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/vnc/screenshot", NULL, NULL, hidden, NULL, 400, "No graphics devices are present."},
	{"vmi/vnc/screenshot", NULL, NULL, succeeded, NULL, 400, "VMI is not running"},
	{"vmi/vnc/screenshot?moveCursor=2", NULL, NULL, shown, NULL, 400,
	 "query parameter 'moveCursor' must be true or false"},
	{"vmi/vnc/screenshot", NULL, NULL, shown, NULL, 500,
	 "Internal error occurred: this server has no connection to nodes"},
	{"vmi/usbredir", NULL, NULL, running, NULL, 400, "Not configured with USB Redirection"},
	{"vmi/vsock", NULL, NULL, running, NULL, 400, "VSOCK is not attached."},
	{"vmi/guestosinfo", NULL, NULL, running, NULL, 409,
	 ON_VMI "VMI does not have guest agent connected"},
	/* without function: what is looked at first, then the reason */
	{"vm/addvolume", NULL, NULL, NULL, ADD("v"), 404,
	 "virtualmachine.kubevirt.io \"a\" not found"},
	{"vm/addvolume", always, NULL, NULL, NULL, 400, UNREADABLE "EOF"},
	{"vm/addvolume", always, NULL, NULL, "[]", 400, UNREADABLE "not an object"},
	{"vm/addvolume", always, NULL, NULL, "{}", 400, "AddVolumeOptions requires name to be set"},
	{"vm/addvolume", always, NULL, NULL, "{\"name\": \"v\"}", 400,
	 "AddVolumeOptions requires disk to not be nil"},
	{"vm/addvolume", always, NULL, NULL, "{\"name\": \"v\", \"disk\": {}}", 400,
	 "AddVolumeOptions requires VolumeSource to not be nil"},
	{"vm/addvolume", with_volumes, NULL, NULL, ADD("fixed"), 409,
	 ON_VM "Unable to add volume [fixed] because volume with that name already exists"},
	{"vm/addvolume", with_volumes, NULL, NULL, ADD("more"), 501, NOT_YET},
	{"vm/removevolume", NULL, NULL, NULL, "{}", 404,
	 "virtualmachine.kubevirt.io \"a\" not found"},
	{"vm/removevolume", with_volumes, NULL, NULL, "{\"name\": \"none\"}", 409,
	 ON_VM "Unable to remove volume [none] because it does not exist"},
	{"vm/removevolume", with_volumes, NULL, NULL, "{\"name\": \"fixed\"}", 409,
	 ON_VM "Unable to remove volume [fixed] because it is not hotpluggable"},
	{"vm/removevolume", with_volumes, NULL, NULL, "{\"name\": \"plugged\"}", 501, NOT_YET},
	{"vmi/addvolume", NULL, NULL, NULL, ADD("v"), 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/addvolume", NULL, NULL, running, ADD("v"), 501, NOT_YET},
	{"vmi/removevolume", NULL, NULL, running, "{\"name\": \"v\"}", 409,
	 ON_VMI "Unable to remove volume [v] because it does not exist"},
	{"vm/memorydump", NULL, NULL, NULL, "{}", 404,
	 "virtualmachine.kubevirt.io \"a\" not found"},
	{"vm/memorydump", always, NULL, NULL, NULL, 400, UNREADABLE "EOF"},
	{"vm/memorydump", always, NULL, NULL, "{\"claimName\": \"c\"}", 501, NOT_YET},
	{"vm/removememorydump", NULL, NULL, NULL, NULL, 404,
	 "virtualmachine.kubevirt.io \"a\" not found"},
	{"vm/removememorydump", always, NULL, NULL, NULL, 501, NOT_YET},
	{"vm/objectgraph", NULL, NULL, NULL, NULL, 404,
	 "virtualmachine.kubevirt.io \"a\" not found"},
	{"vmi/objectgraph", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/objectgraph", NULL, NULL, running, NULL, 501, NOT_YET},
	{"vmi/backup", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/backup", NULL, NULL, succeeded, NULL, 400, NO_GUEST("Succeeded")},
	{"vmi/redefine-checkpoint", NULL, NULL, running, NULL, 501, NOT_YET},
	{"vmi/sev/fetchcertchain", NULL, NULL, failed, NULL, 400, NO_GUEST("Failed")},
	{"vmi/sev/querylaunchmeasurement", NULL, NULL, running, NULL, 501, NOT_YET},
	{"vmi/sev/setupsession", NULL, NULL, "{'status': {'phase': 'Scheduled'}}", NULL, 501,
	 NOT_YET},
	{"vmi/sev/injectlaunchsecret", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vm/portforward/22", NULL, NULL, NULL, NULL, 404,
	 "virtualmachine.kubevirt.io \"a\" not found"},
	{"vm/portforward/22", always, NULL, running, NULL, 409, ON_VM "VMI is not started"},
	{"vm/portforward/22", always, created, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vm/portforward/22", always, created, with_address, NULL, 400, NO_UPGRADE},
	{"vmi/portforward/22", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/portforward", NULL, NULL, with_address, NULL, 400, "port must not be empty"},
	{"vmi/portforward/0", NULL, NULL, with_address, NULL, 400, BAD_PORT},
	{"vmi/portforward/65536", NULL, NULL, with_address, NULL, 400, BAD_PORT},
	{"vmi/portforward/22x", NULL, NULL, with_address, NULL, 400, BAD_PORT},
	{"vmi/portforward/-1", NULL, NULL, with_address, NULL, 400, BAD_PORT},
	{"vmi/portforward/00000000000000000022", NULL, NULL, with_address, NULL, 400, BAD_PORT},
	{"vmi/portforward/22/sctp", NULL, NULL, with_address, NULL, 400,
	 "protocol must be tcp or udp"},
	{"vmi/portforward/22", NULL, NULL, running, NULL, 400, "no network interfaces are present"},
	{"vmi/portforward/22", NULL, NULL,
	 "{'status': {'phase': 'Running', 'conditions': [{'type': 'Paused', 'status': 'True'}]}}",
	 NULL, 409, ON_VMI "VMI is paused"},
	{"vmi/portforward/53/udp", NULL, NULL, with_address, NULL, 400, NO_UPGRADE},
	/* the guest's agent */
	{"vmi/guestosinfo", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/userlist", NULL, NULL, running, NULL, 409,
	 ON_VMI "VMI does not have guest agent connected"},
	{"vmi/filesystemlist", NULL, NULL, succeeded, NULL, 409,
	 ON_VMI "VMI does not have guest agent connected"},
	{"vmi/guestosinfo", NULL, NULL, with_agent, NULL, 500, NO_NODES},
	{"vmi/userlist", NULL, NULL, with_agent, NULL, 500, NO_NODES},
	{"vmi/filesystemlist", NULL, NULL, with_agent, NULL, 500, NO_NODES},
	{"vmi/freeze", NULL, NULL, NULL, FREEZE("5m0s"), 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/freeze", NULL, NULL, succeeded, FREEZE("5m0s"), 409, ON_VMI "VM is not running"},
	{"vmi/freeze", NULL, NULL, running, FREEZE("5m0s"), 409,
	 ON_VMI "VMI does not have guest agent connected"},
	{"vmi/freeze", NULL, NULL, with_agent, FREEZE("5m0s"), 500, NO_NODES},
	{"vmi/freeze", NULL, NULL, with_agent, FREEZE("1h2.5m3s4ms5us6ns"), 500, NO_NODES},
	{"vmi/freeze", NULL, NULL, with_agent, FREEZE("0"), 500, NO_NODES},
	{"vmi/freeze", NULL, NULL, with_agent, NULL, 400, UNREADABLE "EOF"},
	{"vmi/freeze", NULL, NULL, with_agent, "{", 400, NULL},
	{"vmi/freeze", NULL, NULL, with_agent, "{}", 400,
	 UNREADABLE "unfreezeTimeout: is required"},
	{"vmi/freeze", NULL, NULL, with_agent, "{\"unfreezeTimeout\": 5}", 400,
	 UNREADABLE "unfreezeTimeout: " NO_DURATION},
	{"vmi/freeze", NULL, NULL, with_agent, FREEZE(""), 400,
	 UNREADABLE "unfreezeTimeout: " NO_DURATION},
	{"vmi/freeze", NULL, NULL, with_agent, FREEZE("-5s"), 400,
	 UNREADABLE "unfreezeTimeout: " NO_DURATION},
	{"vmi/freeze", NULL, NULL, with_agent, FREEZE("5"), 400,
	 UNREADABLE "unfreezeTimeout: " NO_DURATION},
	{"vmi/freeze", NULL, NULL, with_agent, FREEZE("5 s"), 400,
	 UNREADABLE "unfreezeTimeout: " NO_DURATION},
	{"vmi/freeze", NULL, NULL, with_agent, FREEZE("1.2.3s"), 400,
	 UNREADABLE "unfreezeTimeout: " NO_DURATION},
	{"vmi/freeze", NULL, NULL, with_agent, FREEZE("999999h"), 400,
	 UNREADABLE "unfreezeTimeout: " NO_DURATION},
	{"vmi/unfreeze", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/unfreeze", NULL, NULL, succeeded, NULL, 409, ON_VMI "VMI is not running"},
	{"vmi/unfreeze", NULL, NULL, running, NULL, 409,
	 ON_VMI "VMI does not have guest agent connected"},
	{"vmi/unfreeze", NULL, NULL, with_agent, NULL, 500, NO_NODES},
	/* reset, softreboot: what is decided before the node is asked */
	{"vmi/reset", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/reset", NULL, NULL, "{'status': {'phase': 'Scheduling'}}", NULL, 500,
	 "Internal error occurred: Failed to reset non-running VMI with phase Scheduling: Unable to "
	 "connect to VirtualMachineInstance because phase is Scheduling instead of Running or "
	 "Scheduled"},
	{"vmi/reset", NULL, NULL, running, NULL, 500, NO_NODES},
	{"vmi/softreboot", NULL, NULL, NULL, NULL, 404,
	 "virtualmachineinstance.kubevirt.io \"a\" not found"},
	{"vmi/softreboot", NULL, NULL, succeeded, NULL, 409, ON_VMI "VM is not running"},
	{"vmi/softreboot", NULL, NULL,
	 "{'status': {'phase': 'Running', 'conditions': [{'type': 'Paused', 'status': 'True'}]}}",
	 NULL, 409, ON_VMI "VMI is paused"},
	{"vmi/softreboot", NULL, NULL,
	 "{'spec': {'domain': {'features': {'acpi': {'enabled': false}}}}, 'status': {'phase': "
	 "'Running'}}",
	 NULL, 409, ON_VMI "VMI neither have the agent connected nor the ACPI feature enabled"},
	{"vmi/softreboot", NULL, NULL,
	 "{'spec': {'domain': {'features': {'acpi': {'enabled': false}}}}, 'status': {'phase': "
	 "'Running', 'conditions': [{'type': 'AgentConnected', 'status': 'True'}]}}",
	 NULL, 500, NO_NODES},
	{"vmi/softreboot", NULL, NULL, running, NULL, 500, NO_NODES},
};

/* "portforward/22" is portforward, and the rest is "22". */
static const char *rest_of(const char *path)
{
	const char *rest = strstr(path, "/portforward/");

	return rest ? rest + strlen("/portforward/") : "";
}

/* n: of the path without a query */
static bool is_path(const struct api_subresource *h, const char *path, size_t n)
{
	return h->takes_rest ? str_has_prefix(path, h->path)
			     : strlen(h->path) == n && strncmp(path, h->path, n) == 0;
}

static const struct subres_hook *hook_of(const char *path)
{
	bool is_vm = str_has_prefix(path, "vm/");

	path = strchr(path, '/') + 1;
	size_t n = strcspn(path, "?");

	for (size_t i = 0; i < n_virt_subres; i++)
		if (is_path(virt_subres[i].at, path, n) &&
		    str_eq(virt_subres[i].at->resource,
			   is_vm ? "virtualmachines" : "virtualmachineinstances"))
			return &virt_subres[i];
	fail_msg("no subresource %s", path);
	return NULL;
}

static void add_objects(struct hook_env *env, const char *spec, const char *status, const char *vmi)
{
	char text[1024];

	env_add(env, "nodes",
		"{'metadata': {'name': 'node-1'}, 'spec': {'taints': [{'key': "
		"'kubevirt.io/drain', 'effect': 'NoExecute'}]}}");
	env_add(env, "nodes",
		"{'metadata': {'name': 'tainted'}, 'spec': {'taints': [{'key': "
		"'kubevirt.io/drain', 'effect': 'NoSchedule'}]}}");
	if (spec) {
		snprintf(text, sizeof(text),
			 "{'metadata': {'name': 'a', 'namespace': 'default', 'resourceVersion': "
			 "'7'},"
			 " 'spec': %s, 'status': %s}",
			 spec, status ? status : "{}");
		env_add(env, "virtualmachines.kubevirt.io", text);
	}
	if (vmi) {
		snprintf(text, sizeof(text),
			 "{'metadata': {'name': 'a', 'namespace': 'default', 'uid': 'u-a'}, %s",
			 vmi + 1);
		env_add(env, "virtualmachineinstances.kubevirt.io", text);
	}
}

/* "PATCH /apis/kubevirt.io/v1/namespaces/default/x ..." without the constant part. */
static void shorten(char *request)
{
	static const char prefix[] = "/apis/kubevirt.io/v1/namespaces/default";
	char *p = strstr(request, prefix);

	assert_non_null(p);
	memmove(p, p + strlen(prefix), strlen(p + strlen(prefix)) + 1);
}

static void check_row(size_t i)
{
	const struct row *r = &rows[i];
	struct hook_env env;
	struct hook_call call = {.env = &env,
				 .ns = "default",
				 .name = "a",
				 .body = r->body,
				 .rest = rest_of(r->path)};
	const char *query = strchr(r->path, '?');

	call.query = query ? query + 1 : NULL;
	env_init(&env);
	add_objects(&env, r->spec, r->vm_status, r->vmi);
	hook_of(r->path)->handle(&call);
	if (r->status) {
		if (call.status != r->status || env.n_requests)
			fail_msg("row %zu: %d %s %s", i, call.status, call.text, env.requests[0]);
		if (r->text)
			assert_string_equal(call.text, r->text);
	} else {
		if (env.n_requests != 1)
			fail_msg("row %zu: no request: %d %s", i, call.status, call.text);
		shorten(env.requests[0]);
		assert_string_equal(env.requests[0], r->text);
		assert_false(call.is_answered);
		if (call.cancel)
			call.cancel(&call); /* the client leaves: nothing leaks */
		assert_null(call.data);
	}
	env_fini(&env);
}

static void every_call_has_its_code_text_and_effect(void **state)
{
	size_t live = mem_live_blocks();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check_row(i);
	assert_int_equal(mem_live_blocks(), live);
}

static void volumes_of_a_vmi_are_its_vms_business(void **state)
{
	struct hook_env env;
	struct hook_call call = {.env = &env, .ns = "default", .name = "a", .body = ADD("v")};
	struct hook_call off = call, legacy = call;

	(void)state;
	env_init(&env);
	env_add(&env, "virtualmachineinstances.kubevirt.io",
		"{'metadata': {'name': 'a', 'namespace': 'default', 'ownerReferences': [{'kind': "
		"'VirtualMachine', 'uid': 'u-vm'}]}, 'status': {'phase': 'Running'}}");
	hook_of("vmi/addvolume")->handle(&call);
	assert_int_equal(call.status, 400);
	assert_string_equal(call.text, "VMI default/a is owned by a VM");
	env.config = json_of("{'developerConfiguration': {'disabledFeatureGates': "
			     "['DeclarativeHotplugVolumes']}}");
	hook_of("vmi/addvolume")->handle(&off);
	assert_int_equal(off.status, 400);
	assert_string_equal(off.text, "Enable DeclarativeHotplugVolumes or HotplugVolumes feature "
				      "gate to use this API.");
	js_unref(env.config);
	env.config = json_of("{'developerConfiguration': {'featureGates': ['HotplugVolumes']}}");
	hook_of("vmi/addvolume")->handle(&legacy);
	assert_int_equal(legacy.status, 501);
	env_fini(&env);
}

static void success_is_202_and_a_conflict_is_tried_again(void **state)
{
	struct hook_env env;
	struct hook_call call = {.env = &env, .ns = "default", .name = "a"};

	(void)state;
	env_init(&env);
	add_objects(&env, manual, NULL, NULL);
	hook_of("vm/start")->handle(&call);
	for (int i = 0; i < 3; i++)
		call_deliver(&call, 409, "{'message': 'the object has been modified'}");
	assert_int_equal(env.n_requests, 4);
	assert_false(call.is_answered);
	call_deliver(&call, 200, "{}");
	assert_int_equal(call.status, 202);
	assert_string_equal(call.text, "");
	env_fini(&env);
}

static void conflict_does_not_last_for_ever(void **state)
{
	struct hook_env env;
	struct hook_call call = {.env = &env, .ns = "default", .name = "a"};

	(void)state;
	env_init(&env);
	add_objects(&env, manual, NULL, NULL);
	hook_of("vm/start")->handle(&call);
	while (!call.is_answered)
		call_deliver(&call, 409, "{'message': 'the object has been modified'}");
	assert_int_equal(call.status, 409);
	assert_int_equal(env.n_requests, 8);
	env_fini(&env);
}

static void forced_restart_shortens_the_grace_period_first_and_takes_it_back(void **state)
{
	struct hook_env env;
	struct hook_call call = {
		.env = &env, .ns = "default", .name = "a", .body = "{\"gracePeriodSeconds\":0}"};

	(void)state;
	env_init(&env);
	add_objects(
		&env, always, NULL,
		"{'spec': {'terminationGracePeriodSeconds': 180}, 'status': {'phase': 'Running'}}");
	hook_of("vm/restart")->handle(&call);
	call_deliver(&call, 200, "{}");
	assert_int_equal(env.n_requests, 2);
	assert_non_null(strstr(env.requests[1], "virtualmachines/a/status"));
	call_deliver(&call, 500, "{'message': 'no'}");
	assert_int_equal(env.n_requests, 3);
	shorten(env.requests[2]);
	assert_string_equal(env.requests[2], PATCH_VMI "180}}");
	call_deliver(&call, 200, "{}");
	assert_int_equal(call.status, 500);
	env_fini(&env);
}

static void refused_migration_is_an_internal_error_with_the_webhooks_text(void **state)
{
	struct hook_env env;
	struct hook_call call = {.env = &env, .ns = "default", .name = "a"};

	(void)state;
	env_init(&env);
	add_objects(&env, always, NULL, running);
	hook_of("vm/migrate")->handle(&call);
	call_deliver(&call, 400, "{'message': 'admission webhook said no'}");
	assert_int_equal(call.status, 500);
	assert_string_equal(call.text, "Internal error occurred: admission webhook said no");
	env_fini(&env);
}

static void cancel_of_an_evacuation_ends_with_200_or_tells_why_not(void **state)
{
	struct hook_env env;
	struct hook_call call = {.env = &env, .ns = "default", .name = "a"};
	struct hook_call again = call;

	(void)state;
	env_init(&env);
	env.config = json_of("{'migrations': {'nodeDrainTaintKey': 'x/leave'}}");
	env_add(&env, "nodes",
		"{'metadata': {'name': 'node-1'}, 'spec': {'taints': [{'key': "
		"'kubevirt.io/drain', 'effect': 'NoSchedule'}]}}");
	env_add(&env, "virtualmachines.kubevirt.io",
		"{'metadata': {'name': 'a', 'namespace': 'default', 'uid': 'u-vm'},"
		" 'status': {'created': true}}");
	env_add(&env, "virtualmachineinstances.kubevirt.io",
		"{'metadata': {'name': 'a', 'namespace': 'default', 'ownerReferences': [{'uid': "
		"'u-vm'}]}, 'status': {'nodeName': 'node-1', 'evacuationNodeName': 'node-1'}}");
	hook_of("vm/evacuate/cancel")->handle(&call);
	call_deliver(&call, 200, "{}");
	assert_int_equal(call.status, 200);
	assert_string_equal(call.text, "");
	hook_of("vmi/evacuate/cancel")->handle(&again);
	call_deliver(&again, 422, "{'message': 'the test failed'}");
	assert_int_equal(again.status, 500);
	assert_string_equal(again.text, "Internal error occurred: the test failed");
	env_fini(&env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_has_its_code_text_and_effect),
		cmocka_unit_test(volumes_of_a_vmi_are_its_vms_business),
		cmocka_unit_test(success_is_202_and_a_conflict_is_tried_again),
		cmocka_unit_test(conflict_does_not_last_for_ever),
		cmocka_unit_test(forced_restart_shortens_the_grace_period_first_and_takes_it_back),
		cmocka_unit_test(cancel_of_an_evacuation_ends_with_200_or_tells_why_not),
		cmocka_unit_test(refused_migration_is_an_internal_error_with_the_webhooks_text),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("subresources", tests, NULL, NULL);
}
