
3.0.0

Kubernetes2v1.33.0"õ
“
/apis/x.dev/v1beta1/healthu"s
xDev_v1beta1Of the cluster, for everybody.*v1beta1HealthB42
200+
)
OK#
!
application/json

	Êobject
¦
1/apis/x.dev/v1beta1/namespaces/{namespace}/expandð*½
xDev_v1beta1Of a namespace.*v1beta1Expand:D
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
ü
E/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/look/closely²"Ë
xDev_v1beta1
A picture.*v1beta1Look2Q
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
é
=/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/poke§2†
xDev_v1beta1
post Thing*$createXDevV1beta1NamespacedThingPoke2G
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
ë
D/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/port/{port}¢"‡
xDev_v1beta1)Hidden, with parts of the path behind it.*v1beta1thing-PortB9
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
Ã
O/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/port/{port}/{protocol}ï"“
xDev_v1beta1)Hidden, with parts of the path behind it.*v1beta1thing-PortWithProtocolB9
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
”
=/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/pushÒ*ë
xDev_v1beta1A body that may be absent.*v1beta1Push:B
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
	Êstring*í
ê
5
dev.x.v1.Empty#
!Êobject’Its presence says it.
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
u
io.meta.v1.DeleteOptionsY
WÊobjectú7
5
gracePeriodSeconds
Êinteger’Seconds.šint64’Body of a delete.