
3.0.0

Kubernetes2v1.33.0"ÇŠ
Â
/apis/x.dev/v1/gadgets§"Â
xDev_v1list Gadget*listXDevV1Gadget2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

Êboolean2?
=
continuequeryToken of the previous answer.R
	Êstring2F
D
fieldSelectorqueryOnly objects with these fields.R
	Êstring2F
D
labelSelectorqueryOnly objects with these labels.R
	Êstring29
7
limitqueryMost items of one answer.R

Êinteger2M
K
resourceVersionquery$Version to read at or to watch from.R
	Êstring2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	Êstring2L
J
sendInitialEventsquery A watch begins with what exists.R

Êboolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

Êinteger2:
8
watchqueryChanges instead of a list.R

ÊbooleanBUS
200L
J
OKD
B
application/json.
,*
(#/components/schemas/dev.x.v1.GadgetListj
x-kubernetes-action"list"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}2ù
xDev_v1post Gadget*createXDevV1Gadget2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
fieldManagerquery!Name of whoever makes the change.R
	Êstring2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	Êstring:ˆ
…€
>
application/json*
(&
$#/components/schemas/dev.x.v1.Gadget
>
application/yaml*
(&
$#/components/schemas/dev.x.v1.GadgetBVT
201M
K
Created@
>
application/json*
(&
$#/components/schemas/dev.x.v1.Gadgetj
x-kubernetes-action"post"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}:©
xDev_v1deletecollection Gadget*deleteXDevV1CollectionGadget2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

Êboolean2?
=
continuequeryToken of the previous answer.R
	Êstring2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2F
D
fieldSelectorqueryOnly objects with these fields.R
	Êstring2G
E
gracePeriodSecondsquerySeconds for shutting down.R

Êinteger2F
D
labelSelectorqueryOnly objects with these labels.R
	Êstring29
7
limitqueryMost items of one answer.R

Êinteger2F
D
propagationPolicyqueryWhat happens to dependants.R
	Êstring2M
K
resourceVersionquery$Version to read at or to watch from.R
	Êstring2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	Êstring2L
J
sendInitialEventsquery A watch begins with what exists.R

Êboolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

Êinteger2:
8
watchqueryChanges instead of a list.R

Êboolean:Î
ËÆ
a
application/jsonM
KI
G#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions
a
application/yamlM
KI
G#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsBmk
200d
b
OK\
Z
application/jsonF
DB
@#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj+
x-kubernetes-action"deletecollection"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}j8
6
prettyquery"true": indented output.R
	Êstring
¬
/apis/x.dev/v1/gadgets/{name}Š"ñ
xDev_v1
get Gadget*readXDevV1GadgetBQO
200H
F
OK@
>
application/json*
(&
$#/components/schemas/dev.x.v1.Gadgetj
x-kubernetes-action"get"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}*ó
xDev_v1
put Gadget*replaceXDevV1Gadget2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
fieldManagerquery!Name of whoever makes the change.R
	Êstring2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	Êstring:ˆ
…€
>
application/json*
(&
$#/components/schemas/dev.x.v1.Gadget
>
application/yaml*
(&
$#/components/schemas/dev.x.v1.GadgetBQO
200H
F
OK@
>
application/json*
(&
$#/components/schemas/dev.x.v1.Gadgetj
x-kubernetes-action"put"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}:¾
xDev_v1delete Gadget*deleteXDevV1Gadget2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
gracePeriodSecondsquerySeconds for shutting down.R

Êinteger2F
D
propagationPolicyqueryWhat happens to dependants.R
	Êstring:Ì
ÉÆ
a
application/jsonM
KI
G#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions
a
application/yamlM
KI
G#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsBmk
200d
b
OK\
Z
application/jsonF
DB
@#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj!
x-kubernetes-action
"delete"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}Rî
xDev_v1patch Gadget*patchXDevV1Gadget2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
fieldManagerquery!Name of whoever makes the change.R
	Êstring2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	Êstring2R
P
forcequery2Take fields over from other managers (apply only).R

Êboolean:­
ª¥
e
application/apply-patch+yamlE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch
d
application/json-patch+jsonE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch
e
application/merge-patch+jsonE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch
o
&application/strategic-merge-patch+jsonE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.PatchBQO
200H
F
OK@
>
application/json*
(&
$#/components/schemas/dev.x.v1.Gadgetj 
x-kubernetes-action	"patch"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}j2
0
namepathName of the object. R
	Êstringj8
6
prettyquery"true": indented output.R
	Êstring
„
/apis/x.dev/v1/healthk"i
xDev_v1Of the cluster, for everybody.*v1HealthB42
200+
)
OK#
!
application/json

	Êobject
—
,/apis/x.dev/v1/namespaces/{namespace}/expandæ*³
xDev_v1Of a namespace.*v1Expand:D
B>
<
application/json(
&$
"#/components/schemas/dev.x.v1.ItemBG,
200%
#
OK


text/plain

	Êstring
401

Unauthorizedj.
,
	namespacepath
Namespace. R
	Êstring
˜
,/apis/x.dev/v1/namespaces/{namespace}/thingsç"È
xDev_v1
list Thing*listXDevV1NamespacedThing2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

Êboolean2?
=
continuequeryToken of the previous answer.R
	Êstring2F
D
fieldSelectorqueryOnly objects with these fields.R
	Êstring2F
D
labelSelectorqueryOnly objects with these labels.R
	Êstring29
7
limitqueryMost items of one answer.R

Êinteger2M
K
resourceVersionquery$Version to read at or to watch from.R
	Êstring2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	Êstring2L
J
sendInitialEventsquery A watch begins with what exists.R

Êboolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

Êinteger2:
8
watchqueryChanges instead of a list.R

ÊbooleanBTR
200K
I
OKC
A
application/json-
+)
'#/components/schemas/dev.x.v1.ThingListj
x-kubernetes-action"list"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}2ü
xDev_v1
post Thing*createXDevV1NamespacedThing2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
fieldManagerquery!Name of whoever makes the change.R
	Êstring2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	Êstring:…
‚~
=
application/json)
'%
##/components/schemas/dev.x.v1.Thing
=
application/yaml)
'%
##/components/schemas/dev.x.v1.ThingBUS
201L
J
Created?
=
application/json)
'%
##/components/schemas/dev.x.v1.Thingj
x-kubernetes-action"post"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}:°
xDev_v1deletecollection Thing*%deleteXDevV1CollectionNamespacedThing2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

Êboolean2?
=
continuequeryToken of the previous answer.R
	Êstring2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2F
D
fieldSelectorqueryOnly objects with these fields.R
	Êstring2G
E
gracePeriodSecondsquerySeconds for shutting down.R

Êinteger2F
D
labelSelectorqueryOnly objects with these labels.R
	Êstring29
7
limitqueryMost items of one answer.R

Êinteger2F
D
propagationPolicyqueryWhat happens to dependants.R
	Êstring2M
K
resourceVersionquery$Version to read at or to watch from.R
	Êstring2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	Êstring2L
J
sendInitialEventsquery A watch begins with what exists.R

Êboolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

Êinteger2:
8
watchqueryChanges instead of a list.R

Êboolean:Î
ËÆ
a
application/jsonM
KI
G#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions
a
application/yamlM
KI
G#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsBmk
200d
b
OK\
Z
application/jsonF
DB
@#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj+
x-kubernetes-action"deletecollection"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}j.
,
	namespacepath
Namespace. R
	Êstringj8
6
prettyquery"true": indented output.R
	Êstring
—
3/apis/x.dev/v1/namespaces/{namespace}/things/{name}ß"÷
xDev_v1	get Thing*readXDevV1NamespacedThingBPN
200G
E
OK?
=
application/json)
'%
##/components/schemas/dev.x.v1.Thingj
x-kubernetes-action"get"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}*ö
xDev_v1	put Thing*replaceXDevV1NamespacedThing2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
fieldManagerquery!Name of whoever makes the change.R
	Êstring2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	Êstring:…
‚~
=
application/json)
'%
##/components/schemas/dev.x.v1.Thing
=
application/yaml)
'%
##/components/schemas/dev.x.v1.ThingBPN
200G
E
OK?
=
application/json)
'%
##/components/schemas/dev.x.v1.Thingj
x-kubernetes-action"put"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}:Å
xDev_v1delete Thing*deleteXDevV1NamespacedThing2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
gracePeriodSecondsquerySeconds for shutting down.R

Êinteger2F
D
propagationPolicyqueryWhat happens to dependants.R
	Êstring:Ì
ÉÆ
a
application/jsonM
KI
G#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions
a
application/yamlM
KI
G#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsBmk
200d
b
OK\
Z
application/jsonF
DB
@#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj!
x-kubernetes-action
"delete"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}Rƒ
xDev_v1patch Thing*patchXDevV1NamespacedThing2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
fieldManagerquery!Name of whoever makes the change.R
	Êstring2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	Êstring2R
P
forcequery2Take fields over from other managers (apply only).R

Êboolean:¼
¹´
e
application/apply-patch+yamlE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch
d
application/json-patch+jsonE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch
e
application/merge-patch+jsonE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.PatchBPN
200G
E
OK?
=
application/json)
'%
##/components/schemas/dev.x.v1.Thingj 
x-kubernetes-action	"patch"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}j2
0
namepathName of the object. R
	Êstringj.
,
	namespacepath
Namespace. R
	Êstringj8
6
prettyquery"true": indented output.R
	Êstring
í
@/apis/x.dev/v1/namespaces/{namespace}/things/{name}/look/closely¨"Á
xDev_v1
A picture.*v1Look2Q
O

moveCursorquery,Wake the screen by moving the pointer first.R

ÊbooleanBO4
200-
+
OK%
#
	image/png

Êstringšbinary
401

Unauthorizedj2
0
namepathName of the object. R
	Êstringj.
,
	namespacepath
Namespace. R
	Êstring
Ú
8/apis/x.dev/v1/namespaces/{namespace}/things/{name}/poke2ü
xDev_v1
post Thing*createXDevV1NamespacedThingPoke2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
fieldManagerquery!Name of whoever makes the change.R
	Êstring2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	Êstring:ƒ
€|
<
application/json(
&$
"#/components/schemas/dev.x.v1.Item
<
application/yaml(
&$
"#/components/schemas/dev.x.v1.ItemBTR
201K
I
Created>
<
application/json(
&$
"#/components/schemas/dev.x.v1.Itemj
x-kubernetes-action"post"jS
x-kubernetes-group-version-kind0.{"group":"x.dev","kind":"Item","version":"v1"}j2
0
namepathName of the object. R
	Êstringj.
,
	namespacepath
Namespace. R
	Êstringj8
6
prettyquery"true": indented output.R
	Êstring
Û
?/apis/x.dev/v1/namespaces/{namespace}/things/{name}/port/{port}—"}
xDev_v1)Hidden, with parts of the path behind it.*v1thing-PortB9
101

Switching Protocols
401

Unauthorizedj2
0
namepathName of the object. R
	Êstringj.
,
	namespacepath
Namespace. R
	Êstringj2
0
portpathPort in the guest. R

Êinteger
´
J/apis/x.dev/v1/namespaces/{namespace}/things/{name}/port/{port}/{protocol}å"‰
xDev_v1)Hidden, with parts of the path behind it.*v1thing-PortWithProtocolB9
101

Switching Protocols
401

Unauthorizedj2
0
namepathName of the object. R
	Êstringj.
,
	namespacepath
Namespace. R
	Êstringj2
0
portpathPort in the guest. R

Êintegerj?
=
protocolpathtcp or udp; tcp when absent. R
	Êstring
…
8/apis/x.dev/v1/namespaces/{namespace}/things/{name}/pushÈ*á
xDev_v1A body that may be absent.*v1Push:B
@>
<
application/json(
&$
"#/components/schemas/dev.x.v1.ItemBnS
202L
J
Accepted>
<
application/json(
&$
"#/components/schemas/dev.x.v1.Item
401

Unauthorizedj2
0
namepathName of the object. R
	Êstringj.
,
	namespacepath
Namespace. R
	Êstring
è
:/apis/x.dev/v1/namespaces/{namespace}/things/{name}/status©"ı
xDev_v1	get Thing*readXDevV1NamespacedThingStatusBPN
200G
E
OK?
=
application/json)
'%
##/components/schemas/dev.x.v1.Thingj
x-kubernetes-action"get"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}*ü
xDev_v1	put Thing*"replaceXDevV1NamespacedThingStatus2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
fieldManagerquery!Name of whoever makes the change.R
	Êstring2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	Êstring:…
‚~
=
application/json)
'%
##/components/schemas/dev.x.v1.Thing
=
application/yaml)
'%
##/components/schemas/dev.x.v1.ThingBPN
200G
E
OK?
=
application/json)
'%
##/components/schemas/dev.x.v1.Thingj
x-kubernetes-action"put"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}R‰
xDev_v1patch Thing* patchXDevV1NamespacedThingStatus2G
E
dryRunquery'"All": check everything, store nothing.R
	Êstring2G
E
fieldManagerquery!Name of whoever makes the change.R
	Êstring2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	Êstring2R
P
forcequery2Take fields over from other managers (apply only).R

Êboolean:¼
¹´
e
application/apply-patch+yamlE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch
d
application/json-patch+jsonE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch
e
application/merge-patch+jsonE
CA
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.PatchBPN
200G
E
OK?
=
application/json)
'%
##/components/schemas/dev.x.v1.Thingj 
x-kubernetes-action	"patch"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}j2
0
namepathName of the object. R
	Êstringj.
,
	namespacepath
Namespace. R
	Êstringj8
6
prettyquery"true": indented output.R
	Êstring
¥
/apis/x.dev/v1/things‹"Î
xDev_v1
list Thing*listXDevV1ThingForAllNamespaces2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

Êboolean2?
=
continuequeryToken of the previous answer.R
	Êstring2F
D
fieldSelectorqueryOnly objects with these fields.R
	Êstring2F
D
labelSelectorqueryOnly objects with these labels.R
	Êstring29
7
limitqueryMost items of one answer.R

Êinteger2M
K
resourceVersionquery$Version to read at or to watch from.R
	Êstring2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	Êstring2L
J
sendInitialEventsquery A watch begins with what exists.R

Êboolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

Êinteger2:
8
watchqueryChanges instead of a list.R

ÊbooleanBTR
200K
I
OKC
A
application/json-
+)
'#/components/schemas/dev.x.v1.ThingListj
x-kubernetes-action"list"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}j8
6
prettyquery"true": indented output.R
	Êstring*¿,
¼,
5
dev.x.v1.Empty#
!Êobject’Its presence says it.
…
dev.x.v1.Gadgetñ
îÊobjectúÜ
.

apiVersion 
Êstring’Group and version.

kind
Êstring’Kind.
[
metadataO
MÒ.,
*#/components/schemas/io.meta.v1.ObjectMeta’Standard object metadata.
4
data,
*Êobject‚

Êstringšbyte’Values.
ù
itemsï
ìÊarrayò(
&$
"#/components/schemas/dev.x.v1.Item’Items.¢3
x-kubernetes-patch-strategy"merge,retainKeys"¢(
x-kubernetes-patch-merge-key"name"¢!
x-kubernetes-list-type"map"¢(
x-kubernetes-list-map-keys
["name"]’(A core kind, cluster-wide, without spec.¢W
x-kubernetes-group-version-kind42[{"group":"x.dev","kind":"Gadget","version":"v1"}]
±
dev.x.v1.GadgetList™
–ºitemsÊobjectú
.

apiVersion 
Êstring’Group and version.

kind
Êstring’Kind.
o
metadatac
aÒFD
B#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta’Metadata of the list.
O
itemsF
DÊarrayò*
(&
$#/components/schemas/dev.x.v1.Gadget’The objects.’A list of Gadget.¢[
x-kubernetes-group-version-kind86[{"group":"x.dev","kind":"GadgetList","version":"v1"}]
t
dev.x.v1.Innerb
`ÊobjectúJ

on
Êboolean’Whether.
)
count 
Êinteger’	How many.šint32’Inside.
¹
dev.x.v1.Item§
¤ºnameÊobjectú­

name
Êstring’Name.
.
default#
!Êinteger’A C keyword.šint32

file
Êstring’A file.
?
none7
5Ò'%
##/components/schemas/dev.x.v1.Empty’Nothing.’An item.¢U
x-kubernetes-group-version-kind20[{"group":"x.dev","kind":"Item","version":"v1"}]
×
dev.x.v1.ThingÄ
ÁºspecÊobjectúÉ
.

apiVersion 
Êstring’Group and version.

kind
Êstring’Kind.
[
metadataO
MÒ.,
*#/components/schemas/io.meta.v1.ObjectMeta’Standard object metadata.
J
specB
@Ò+)
'#/components/schemas/dev.x.v1.ThingSpec’What is wanted.
Q
statusG
EÒ-+
)#/components/schemas/dev.x.v1.ThingStatus’What was observed.’A thing.¢V
x-kubernetes-group-version-kind31[{"group":"x.dev","kind":"Thing","version":"v1"}]
­
dev.x.v1.ThingList–
“ºitemsÊobjectú
.

apiVersion 
Êstring’Group and version.

kind
Êstring’Kind.
o
metadatac
aÒFD
B#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta’Metadata of the list.
N
itemsE
CÊarrayò)
'%
##/components/schemas/dev.x.v1.Thing’The objects.’A list of Thing.¢Z
x-kubernetes-group-version-kind75[{"group":"x.dev","kind":"ThingList","version":"v1"}]
®

dev.x.v1.ThingSpec—

”
ºinnerÊobjectúó	
î
itemsä
áÊarrayò(
&$
"#/components/schemas/dev.x.v1.Item’Items.¢(
x-kubernetes-patch-strategy	"merge"¢(
x-kubernetes-patch-merge-key"name"¢!
x-kubernetes-list-type"map"¢(
x-kubernetes-list-map-keys
["name"]
A
inner8
6Ò'%
##/components/schemas/dev.x.v1.Inner’	By value.
5
mode-
+Êstring’How. One of: "", Fast, Slow-er.
.
loose%
#Êstring’How else. One of: a, b.
\
sizeT
RÒFD
B#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity’Bytes.
i
share`
^Êobject‚H
FD
B#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity’Shares.
5
flags,
*Êobject‚


Êboolean’Kept as JSON.
S
partsJ
HÊobject‚(
&$
"#/components/schemas/dev.x.v1.Item’Kept as JSON too.
g
port_
]ÒHF
D#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString’Number or name.
9
numbers.
,Êarrayò

Êintegeršint64’Numbers.
W
whenO
MÒB@
>#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Time’When.

wait
Êstring’	How long.
(
ratio
Ênumber’A ratio.šdouble
:
raw3
1’.Anything. Not supported by Ferry yet: refused.
@
never7
5Êboolean’(Nothing. Refused: nothing could have it.
;
old4
2Êboolean’%Historic. No effect here: it is gone.’	The wish.
h
dev.x.v1.ThingStatusP
NÊobjectú3
1
phase(
&Êstring’Where it is. One of: A, B.’The outcome.
z
-io.k8s.apimachinery.pkg.api.resource.QuantityI
GÚ
	ÊstringÚ
	Ênumber’(A number with a suffix: 512Mi, 500m, 2G.
¬
-io.k8s.apimachinery.pkg.apis.meta.v1.ListMetaú
÷ÊobjectúÔ
2
continue&
$Êstring’Token for the next part.
B
remainingItemCount,
*Êinteger’Items in later parts.šint64
5
resourceVersion"
 Êstring’Version of the list.
#
selfLink
Êstring’	Historic.’Metadata of a list.
m
*io.k8s.apimachinery.pkg.apis.meta.v1.Patch?
=Êobject’1A patch, in the form that its content type names.
é
+io.k8s.apimachinery.pkg.apis.meta.v1.Status¹
¶Êobjectú¦
.

apiVersion 
Êstring’Group and version.

kind
Êstring’Kind.
+
code#
!Êinteger’HTTP status.šint32
7
details,
*Êobject’What it is about, with causes.
/
message$
"Êstring’A sentence for people.
c
metadataW
UÒFD
B#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta’	Metadata.
.
reason$
"Êstring’One word for programs.
+
status!
Êstring’Success or Failure.’+The outcome of a request without an object.¢R
x-kubernetes-group-version-kind/-[{"group":"","kind":"Status","version":"v1"}]
d
)io.k8s.apimachinery.pkg.apis.meta.v1.Time7
5Êstring’A time as RFC 3339 writes it.š	date-time
v
/io.k8s.apimachinery.pkg.util.intstr.IntOrStringC
AÚ

ÊintegerÚ
	Êstring’A number or text.šint-or-string
u
io.meta.v1.DeleteOptionsY
WÊobjectú7
5
gracePeriodSeconds
Êinteger’Seconds.šint64’Body of a delete.
”
io.meta.v1.ObjectMetaú
÷ÊobjectúŞ

name
Êstring’Name.
/
labels%
#Êobject‚

	Êstring’Labels.


finalizers
}Êarrayò

	Êstring’Who must act first.¢(
x-kubernetes-patch-strategy	"merge"¢!
x-kubernetes-list-type"set"’	Metadata.