
2.0

Kubernetesv1.33.0B™Ëş
/apis/x.dev/v1/gadgetsã°
xDev_v1list Gadget*listXDevV1Gadget2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ6
4
200-
+
OK%
#
!#/definitions/dev.x.v1.GadgetListj
x-kubernetes-action"list"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}"·
xDev_v1post Gadget*createXDevV1Gadget2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB3
1
/bodybody *
#/definitions/dev.x.v1.GadgetJ7
5
201.
,
Created!

#/definitions/dev.x.v1.Gadgetj
x-kubernetes-action"post"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}*º

xDev_v1deletecollection Gadget*deleteXDevV1CollectionGadget2application/json:application/json:application/yamlBJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBF
DB@query'"All": check everything, store nothing."dryRun2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanBV
T
Rbodybody *B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj+
x-kubernetes-action"deletecollection"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}J7
531query"true": indented output."pretty2string‹
/apis/x.dev/v1/gadgets/{name}éé
xDev_v1
get Gadget*readXDevV1Gadget2application/json:*/*J2
0
200)
'
OK!

#/definitions/dev.x.v1.Gadgetj
x-kubernetes-action"get"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}±
xDev_v1
put Gadget*replaceXDevV1Gadget2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB3
1
/bodybody *
#/definitions/dev.x.v1.GadgetJ2
0
200)
'
OK!

#/definitions/dev.x.v1.Gadgetj
x-kubernetes-action"put"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}*Ù
xDev_v1delete Gadget*deleteXDevV1Gadget2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBT
R
Pbodybody*B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj!
x-kubernetes-action
"delete"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}Bş
xDev_v1patch Gadget*patchXDevV1Gadget2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+json:&application/strategic-merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ2
0
200)
'
OK!

#/definitions/dev.x.v1.Gadgetj 
x-kubernetes-action	"patch"jU
x-kubernetes-group-version-kind20{"group":"x.dev","kind":"Gadget","version":"v1"}J1
/-"+pathName of the object."name*stringJ7
531query"true": indented output."pretty2string…
/apis/x.dev/v1/healthlj
xDev_v1Of the cluster, for everybody.*v1Health2application/json:*/*J

200

OK
²
object‘
,/apis/x.dev/v1/namespaces/{namespace}/expandà®
xDev_v1Of a namespace.*v1Expand2
text/plain:application/jsonB1
/
-bodybody *
#/definitions/dev.x.v1.ItemJ7

200

OK
²
string

401

UnauthorizedJ-
+)"'path
Namespace."	namespace*stringÕ
,/apis/x.dev/v1/namespaces/{namespace}/things¤¶
xDev_v1
list Thing*listXDevV1NamespacedThing2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ5
3
200,
*
OK$
"
 #/definitions/dev.x.v1.ThingListj
x-kubernetes-action"list"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}"¼
xDev_v1
post Thing*createXDevV1NamespacedThing2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB2
0
.bodybody *
#/definitions/dev.x.v1.ThingJ6
4
201-
+
Created 

#/definitions/dev.x.v1.Thingj
x-kubernetes-action"post"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}*Á

xDev_v1deletecollection Thing*%deleteXDevV1CollectionNamespacedThing2application/json:application/json:application/yamlBJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBF
DB@query'"All": check everything, store nothing."dryRun2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanBV
T
Rbodybody *B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj+
x-kubernetes-action"deletecollection"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}J-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringÀ
3/apis/x.dev/v1/namespaces/{namespace}/things/{name}ˆï
xDev_v1	get Thing*readXDevV1NamespacedThing2application/json:*/*J1
/
200(
&
OK 

#/definitions/dev.x.v1.Thingj
x-kubernetes-action"get"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}¶
xDev_v1	put Thing*replaceXDevV1NamespacedThing2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB2
0
.bodybody *
#/definitions/dev.x.v1.ThingJ1
/
200(
&
OK 

#/definitions/dev.x.v1.Thingj
x-kubernetes-action"put"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}*à
xDev_v1delete Thing*deleteXDevV1NamespacedThing2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBT
R
Pbodybody*B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj!
x-kubernetes-action
"delete"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}BÜ
xDev_v1patch Thing*patchXDevV1NamespacedThing2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ1
/
200(
&
OK 

#/definitions/dev.x.v1.Thingj 
x-kubernetes-action	"patch"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringê
@/apis/x.dev/v1/namespaces/{namespace}/things/{name}/look/closely¥À
xDev_v1
A picture.*v1Look2	image/png:*/*BP
NLJquery,Wake the screen by moving the pointer first."
moveCursor2booleanJ?
$
200

OK
binary²
string

401

UnauthorizedJ1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*string˜
8/apis/x.dev/v1/namespaces/{namespace}/things/{name}/pokeÛ"½
xDev_v1
post Thing*createXDevV1NamespacedThingPoke2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB1
/
-bodybody *
#/definitions/dev.x.v1.ItemJ5
3
201,
*
Created

#/definitions/dev.x.v1.Itemj
x-kubernetes-action"post"jS
x-kubernetes-group-version-kind0.{"group":"x.dev","kind":"Item","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringã
?/apis/x.dev/v1/namespaces/{namespace}/things/{name}/port/{port}Ÿ‡
xDev_v1)Hidden, with parts of the path behind it.*v1thing-Port2*/*:*/*J9

101

Switching Protocols

401

UnauthorizedJ1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ1
/-"+pathPort in the guest."port*integerº
J/apis/x.dev/v1/namespaces/{namespace}/things/{name}/port/{port}/{protocol}ë“
xDev_v1)Hidden, with parts of the path behind it.*v1thing-PortWithProtocol2*/*:*/*J9

101

Switching Protocols

401

UnauthorizedJ1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ1
/-"+pathPort in the guest."port*integerJ>
<:"8pathtcp or udp; tcp when absent."protocol*stringõ
8/apis/x.dev/v1/namespaces/{namespace}/things/{name}/push¸Ó
xDev_v1A body that may be absent.*v1Push2application/json:application/jsonB/
-
+bodybody*
#/definitions/dev.x.v1.ItemJO
4
202-
+
Accepted

#/definitions/dev.x.v1.Item

401

UnauthorizedJ1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringö
:/apis/x.dev/v1/namespaces/{namespace}/things/{name}/status·õ
xDev_v1	get Thing*readXDevV1NamespacedThingStatus2application/json:*/*J1
/
200(
&
OK 

#/definitions/dev.x.v1.Thingj
x-kubernetes-action"get"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}¼
xDev_v1	put Thing*"replaceXDevV1NamespacedThingStatus2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB2
0
.bodybody *
#/definitions/dev.x.v1.ThingJ1
/
200(
&
OK 

#/definitions/dev.x.v1.Thingj
x-kubernetes-action"put"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}Bâ
xDev_v1patch Thing* patchXDevV1NamespacedThingStatus2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ1
/
200(
&
OK 

#/definitions/dev.x.v1.Thingj 
x-kubernetes-action	"patch"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string’
/apis/x.dev/v1/thingsø¼
xDev_v1
list Thing*listXDevV1ThingForAllNamespaces2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ5
3
200,
*
OK$
"
 #/definitions/dev.x.v1.ThingListj
x-kubernetes-action"list"jT
x-kubernetes-group-version-kind1/{"group":"x.dev","kind":"Thing","version":"v1"}J7
531query"true": indented output."pretty2string”
/apis/x.dev/v1beta1/healthvt
xDev_v1beta1Of the cluster, for everybody.*v1beta1Health2application/json:*/*J

200

OK
²
object 
1/apis/x.dev/v1beta1/namespaces/{namespace}/expandê¸
xDev_v1beta1Of a namespace.*v1beta1Expand2
text/plain:application/jsonB1
/
-bodybody *
#/definitions/dev.x.v1.ItemJ7

200

OK
²
string

401

UnauthorizedJ-
+)"'path
Namespace."	namespace*stringù
E/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/look/closely¯Ê
xDev_v1beta1
A picture.*v1beta1Look2	image/png:*/*BP
NLJquery,Wake the screen by moving the pointer first."
moveCursor2booleanJ?
$
200

OK
binary²
string

401

UnauthorizedJ1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*string§
=/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/pokeå"Ç
xDev_v1beta1
post Thing*$createXDevV1beta1NamespacedThingPoke2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB1
/
-bodybody *
#/definitions/dev.x.v1.ItemJ5
3
201,
*
Created

#/definitions/dev.x.v1.Itemj
x-kubernetes-action"post"jS
x-kubernetes-group-version-kind0.{"group":"x.dev","kind":"Item","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringò
D/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/port/{port}©‘
xDev_v1beta1)Hidden, with parts of the path behind it.*v1beta1thing-Port2*/*:*/*J9

101

Switching Protocols

401

UnauthorizedJ1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ1
/-"+pathPort in the guest."port*integerÉ
O/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/port/{port}/{protocol}õ
xDev_v1beta1)Hidden, with parts of the path behind it.*v1beta1thing-PortWithProtocol2*/*:*/*J9

101

Switching Protocols

401

UnauthorizedJ1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ1
/-"+pathPort in the guest."port*integerJ>
<:"8pathtcp or udp; tcp when absent."protocol*string„
=/apis/x.dev/v1beta1/namespaces/{namespace}/things/{name}/pushÂİ
xDev_v1beta1A body that may be absent.*v1beta1Push2application/json:application/jsonB/
-
+bodybody*
#/definitions/dev.x.v1.ItemJO
4
202-
+
Accepted

#/definitions/dev.x.v1.Item

401

UnauthorizedJ1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringÊ
*/apis/y.dev/v1/namespaces/{namespace}/pots›³
yDev_v1list Pot*listYDevV1NamespacedPot2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ8
6
200/
-
OK'
%
##/definitions/dev.y.v1beta1.PotListj
x-kubernetes-action"list"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}"¼
yDev_v1post Pot*createYDevV1NamespacedPot2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.PotJ9
7
2010
.
Created#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"post"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}*»

yDev_v1deletecollection Pot*#deleteYDevV1CollectionNamespacedPot2application/json:application/json:application/yamlBJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBF
DB@query'"All": check everything, store nothing."dryRun2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanBV
T
Rbodybody *B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj+
x-kubernetes-action"deletecollection"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}J-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string²
1/apis/y.dev/v1/namespaces/{namespace}/pots/{name}üì
yDev_v1get Pot*readYDevV1NamespacedPot2application/json:*/*J4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"get"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}¶
yDev_v1put Pot*replaceYDevV1NamespacedPot2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.PotJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"put"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}*Ú
yDev_v1
delete Pot*deleteYDevV1NamespacedPot2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBT
R
Pbodybody*B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj!
x-kubernetes-action
"delete"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}BÙ
yDev_v1	patch Pot*patchYDevV1NamespacedPot2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj 
x-kubernetes-action	"patch"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string–
7/apis/y.dev/v1/namespaces/{namespace}/pots/{name}/scaleÚş
yDev_v1get Pot*readYDevV1NamespacedPotScale2application/json:*/*J9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej
x-kubernetes-action"get"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}Í
yDev_v1put Pot*replaceYDevV1NamespacedPotScale2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB:
8
6bodybody *&
$#/definitions/dev.y.v1beta1.TheScaleJ9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej
x-kubernetes-action"put"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}Bë
yDev_v1	patch Pot*patchYDevV1NamespacedPotScale2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej 
x-kubernetes-action	"patch"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringî
8/apis/y.dev/v1/namespaces/{namespace}/pots/{name}/status±ò
yDev_v1get Pot*readYDevV1NamespacedPotStatus2application/json:*/*J4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"get"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}¼
yDev_v1put Pot* replaceYDevV1NamespacedPotStatus2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.PotJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"put"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}Bß
yDev_v1	patch Pot*patchYDevV1NamespacedPotStatus2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj 
x-kubernetes-action	"patch"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string
/apis/y.dev/v1/potsõ¹
yDev_v1list Pot*listYDevV1PotForAllNamespaces2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ8
6
200/
-
OK'
%
##/definitions/dev.y.v1beta1.PotListj
x-kubernetes-action"list"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}J7
531query"true": indented output."pretty2string†
0/apis/y.dev/v1alpha1/namespaces/{namespace}/potsÑÅ
yDev_v1alpha1list Pot*listYDevV1alpha1NamespacedPot2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ8
6
200/
-
OK'
%
##/definitions/dev.y.v1beta1.PotListj
x-kubernetes-action"list"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}"Î
yDev_v1alpha1post Pot*createYDevV1alpha1NamespacedPot2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.PotJ9
7
2010
.
Created#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"post"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}*Í

yDev_v1alpha1deletecollection Pot*)deleteYDevV1alpha1CollectionNamespacedPot2application/json:application/json:application/yamlBJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBF
DB@query'"All": check everything, store nothing."dryRun2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanBV
T
Rbodybody *B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj+
x-kubernetes-action"deletecollection"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}J-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string€
7/apis/y.dev/v1alpha1/namespaces/{namespace}/pots/{name}Äş
yDev_v1alpha1get Pot*readYDevV1alpha1NamespacedPot2application/json:*/*J4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"get"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}È
yDev_v1alpha1put Pot* replaceYDevV1alpha1NamespacedPot2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.PotJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"put"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}*ì
yDev_v1alpha1
delete Pot*deleteYDevV1alpha1NamespacedPot2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBT
R
Pbodybody*B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj!
x-kubernetes-action
"delete"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}Bë
yDev_v1alpha1	patch Pot*patchYDevV1alpha1NamespacedPot2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj 
x-kubernetes-action	"patch"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringÀ
=/apis/y.dev/v1alpha1/namespaces/{namespace}/pots/{name}/scaleşŠ
yDev_v1alpha1get Pot*"readYDevV1alpha1NamespacedPotScale2application/json:*/*J9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej
x-kubernetes-action"get"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}Ù
yDev_v1alpha1put Pot*%replaceYDevV1alpha1NamespacedPotScale2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB:
8
6bodybody *&
$#/definitions/dev.y.v1beta1.TheScaleJ9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej
x-kubernetes-action"put"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}B÷
yDev_v1alpha1	patch Pot*#patchYDevV1alpha1NamespacedPotScale2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej 
x-kubernetes-action	"patch"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringª
>/apis/y.dev/v1alpha1/namespaces/{namespace}/pots/{name}/statusç„
yDev_v1alpha1get Pot*#readYDevV1alpha1NamespacedPotStatus2application/json:*/*J4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"get"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}Î
yDev_v1alpha1put Pot*&replaceYDevV1alpha1NamespacedPotStatus2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.PotJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"put"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}Bñ
yDev_v1alpha1	patch Pot*$patchYDevV1alpha1NamespacedPotStatus2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj 
x-kubernetes-action	"patch"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string¥
/apis/y.dev/v1alpha1/pots‡Ë
yDev_v1alpha1list Pot*#listYDevV1alpha1PotForAllNamespaces2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ8
6
200/
-
OK'
%
##/definitions/dev.y.v1beta1.PotListj
x-kubernetes-action"list"jX
x-kubernetes-group-version-kind53{"group":"y.dev","kind":"Pot","version":"v1alpha1"}J7
531query"true": indented output."pretty2string¡
/apis/y.dev/v1beta1/cups„È
yDev_v1beta1list Cup*"listYDevV1beta1CupForAllNamespaces2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ8
6
200/
-
OK'
%
##/definitions/dev.y.v1beta1.CupListj
x-kubernetes-action"list"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}J7
531query"true": indented output."pretty2stringê
//apis/y.dev/v1beta1/namespaces/{namespace}/asks¶"Ë
yDev_v1beta1post Ask*createYDevV1beta1NamespacedAsk2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.AskJ9
7
2010
.
Created#
!
#/definitions/dev.y.v1beta1.Askj
x-kubernetes-action"post"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Ask","version":"v1beta1"}J-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringü
//apis/y.dev/v1beta1/namespaces/{namespace}/cupsÈÂ
yDev_v1beta1list Cup*listYDevV1beta1NamespacedCup2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ8
6
200/
-
OK'
%
##/definitions/dev.y.v1beta1.CupListj
x-kubernetes-action"list"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}"Ë
yDev_v1beta1post Cup*createYDevV1beta1NamespacedCup2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.CupJ9
7
2010
.
Created#
!
#/definitions/dev.y.v1beta1.Cupj
x-kubernetes-action"post"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}*Ê

yDev_v1beta1deletecollection Cup*(deleteYDevV1beta1CollectionNamespacedCup2application/json:application/json:application/yamlBJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBF
DB@query'"All": check everything, store nothing."dryRun2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanBV
T
Rbodybody *B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj+
x-kubernetes-action"deletecollection"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}J-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringó
6/apis/y.dev/v1beta1/namespaces/{namespace}/cups/{name}¸û
yDev_v1beta1get Cup*readYDevV1beta1NamespacedCup2application/json:*/*J4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Cupj
x-kubernetes-action"get"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}Å
yDev_v1beta1put Cup*replaceYDevV1beta1NamespacedCup2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.CupJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Cupj
x-kubernetes-action"put"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}*é
yDev_v1beta1
delete Cup*deleteYDevV1beta1NamespacedCup2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBT
R
Pbodybody*B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj!
x-kubernetes-action
"delete"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}Bè
yDev_v1beta1	patch Cup*patchYDevV1beta1NamespacedCup2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Cupj 
x-kubernetes-action	"patch"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string¹
</apis/y.dev/v1beta1/namespaces/{namespace}/cups/{name}/scaleøˆ
yDev_v1beta1get Cup*!readYDevV1beta1NamespacedCupScale2application/json:*/*J9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej
x-kubernetes-action"get"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}×
yDev_v1beta1put Cup*$replaceYDevV1beta1NamespacedCupScale2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB:
8
6bodybody *&
$#/definitions/dev.y.v1beta1.TheScaleJ9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej
x-kubernetes-action"put"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}Bõ
yDev_v1beta1	patch Cup*"patchYDevV1beta1NamespacedCupScale2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej 
x-kubernetes-action	"patch"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringü
//apis/y.dev/v1beta1/namespaces/{namespace}/potsÈÂ
yDev_v1beta1list Pot*listYDevV1beta1NamespacedPot2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ8
6
200/
-
OK'
%
##/definitions/dev.y.v1beta1.PotListj
x-kubernetes-action"list"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}"Ë
yDev_v1beta1post Pot*createYDevV1beta1NamespacedPot2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.PotJ9
7
2010
.
Created#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"post"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}*Ê

yDev_v1beta1deletecollection Pot*(deleteYDevV1beta1CollectionNamespacedPot2application/json:application/json:application/yamlBJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBF
DB@query'"All": check everything, store nothing."dryRun2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanBV
T
Rbodybody *B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj+
x-kubernetes-action"deletecollection"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}J-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2stringó
6/apis/y.dev/v1beta1/namespaces/{namespace}/pots/{name}¸û
yDev_v1beta1get Pot*readYDevV1beta1NamespacedPot2application/json:*/*J4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"get"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}Å
yDev_v1beta1put Pot*replaceYDevV1beta1NamespacedPot2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.PotJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"put"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}*é
yDev_v1beta1
delete Pot*deleteYDevV1beta1NamespacedPot2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@querySeconds for shutting down."gracePeriodSeconds2integerBE
CA?queryWhat happens to dependants."propagationPolicy2stringBT
R
Pbodybody*B
@#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptionsJN
L
200E
C
OK=
;
9#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Statusj!
x-kubernetes-action
"delete"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}Bè
yDev_v1beta1	patch Pot*patchYDevV1beta1NamespacedPot2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj 
x-kubernetes-action	"patch"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string¹
</apis/y.dev/v1beta1/namespaces/{namespace}/pots/{name}/scaleøˆ
yDev_v1beta1get Pot*!readYDevV1beta1NamespacedPotScale2application/json:*/*J9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej
x-kubernetes-action"get"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}×
yDev_v1beta1put Pot*$replaceYDevV1beta1NamespacedPotScale2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB:
8
6bodybody *&
$#/definitions/dev.y.v1beta1.TheScaleJ9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej
x-kubernetes-action"put"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}Bõ
yDev_v1beta1	patch Pot*"patchYDevV1beta1NamespacedPotScale2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ9
7
2000
.
OK(
&
$#/definitions/dev.y.v1beta1.TheScalej 
x-kubernetes-action	"patch"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string 
=/apis/y.dev/v1beta1/namespaces/{namespace}/pots/{name}/statusŞ
yDev_v1beta1get Pot*"readYDevV1beta1NamespacedPotStatus2application/json:*/*J4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"get"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}Ë
yDev_v1beta1put Pot*%replaceYDevV1beta1NamespacedPotStatus2application/json:application/json:application/yamlBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringB5
3
1bodybody *!
#/definitions/dev.y.v1beta1.PotJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj
x-kubernetes-action"put"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}Bî
yDev_v1beta1	patch Pot*#patchYDevV1beta1NamespacedPotStatus2application/json:application/apply-patch+yaml:application/json-patch+json:application/merge-patch+jsonBF
DB@query'"All": check everything, store nothing."dryRun2stringBF
DB@query!Name of whoever makes the change."fieldManager2stringB_
][Yquery7Ignore, Warn or Strict: what happens to unknown fields."fieldValidation2stringBQ
OMKquery2Take fields over from other managers (apply only)."force2booleanBN
L
Jbodybody *:
8#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.PatchJ4
2
200+
)
OK#
!
#/definitions/dev.y.v1beta1.Potj 
x-kubernetes-action	"patch"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}J1
/-"+pathName of the object."name*stringJ-
+)"'path
Namespace."	namespace*stringJ7
531query"true": indented output."pretty2string¡
/apis/y.dev/v1beta1/pots„È
yDev_v1beta1list Pot*"listYDevV1beta1PotForAllNamespaces2application/json:*/*BJ
HFDqueryMarks of progress in a watch."allowWatchBookmarks2booleanB>
<:8queryToken of the previous answer."continue2stringBE
CA?queryOnly objects with these fields."fieldSelector2stringBE
CA?queryOnly objects with these labels."labelSelector2stringB8
642queryMost items of one answer."limit2integerBL
JHFquery$Version to read at or to watch from."resourceVersion2stringBJ
HFDqueryHow resourceVersion is meant."resourceVersionMatch2stringBK
IGEquery A watch begins with what exists."sendInitialEvents2booleanBI
GECquery!Seconds after which a watch ends."timeoutSeconds2integerB9
753queryChanges instead of a list."watch2booleanJ8
6
200/
-
OK'
%
##/definitions/dev.y.v1beta1.PotListj
x-kubernetes-action"list"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}J7
531query"true": indented output."pretty2stringJî@
4
dev.x.v1.Empty""Its presence says it.²
object
å
dev.x.v1.GadgetÑ"(A core kind, cluster-wide, without spec.²
objectÊ¾
-

apiVersion"Group and version.²
string

kind"Kind.²
string
L
metadata@
##/definitions/io.meta.v1.ObjectMeta"Standard object metadata.
2
data*"Values.ª
byte²
string²
object
î
itemsä"Items.²
arrayº

#/definitions/dev.x.v1.Itemú3
x-kubernetes-patch-strategy"merge,retainKeys"ú(
x-kubernetes-patch-merge-key"name"ú!
x-kubernetes-list-type"map"ú(
x-kubernetes-list-map-keys
["name"]úW
x-kubernetes-group-version-kind42[{"group":"x.dev","kind":"Gadget","version":"v1"}]
”
dev.x.v1.GadgetListü"A list of Gadget.šitems²
objectÊô
-

apiVersion"Group and version.²
string

kind"Kind.²
string
`
metadataT
;#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"Metadata of the list.
E
items<"The objects.²
arrayº!

#/definitions/dev.x.v1.Gadgetú[
x-kubernetes-group-version-kind86[{"group":"x.dev","kind":"GadgetList","version":"v1"}]
p
dev.x.v1.Inner^"Inside.²
objectÊG

on"Whether.²	
boolean
'
countint32"	How many.²	
integer
¤
dev.x.v1.Item’"An item.šname²
objectÊš

name"Name.²
string
,
default!int32"A C keyword.²	
integer

file"A file.²
string
0
none(
#/definitions/dev.x.v1.Empty"Nothing.úU
x-kubernetes-group-version-kind20[{"group":"x.dev","kind":"Item","version":"v1"}]
¦
dev.x.v1.Thing“"A thing.šspec²
objectÊš
-

apiVersion"Group and version.²
string

kind"Kind.²
string
L
metadata@
##/definitions/io.meta.v1.ObjectMeta"Standard object metadata.
;
spec3
 #/definitions/dev.x.v1.ThingSpec"What is wanted.
B
status8
"#/definitions/dev.x.v1.ThingStatus"What was observed.úV
x-kubernetes-group-version-kind31[{"group":"x.dev","kind":"Thing","version":"v1"}]

dev.x.v1.ThingListù"A list of Thing.šitems²
objectÊó
-

apiVersion"Group and version.²
string

kind"Kind.²
string
`
metadataT
;#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"Metadata of the list.
D
items;"The objects.²
arrayº 

#/definitions/dev.x.v1.ThingúZ
x-kubernetes-group-version-kind75[{"group":"x.dev","kind":"ThingList","version":"v1"}]
Ä	
dev.x.v1.ThingSpec­	"	The wish.šinner²
objectÊ‹	
ã
itemsÙ"Items.²
arrayº

#/definitions/dev.x.v1.Itemú(
x-kubernetes-patch-strategy	"merge"ú(
x-kubernetes-patch-merge-key"name"ú!
x-kubernetes-list-type"map"ú(
x-kubernetes-list-map-keys
["name"]
2
inner)
#/definitions/dev.x.v1.Inner"	By value.
4
mode,"How. One of: "", Fast, Slow-er.²
string
-
loose$"How else. One of: a, b.²
string
M
sizeE
;#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"Bytes.
_
shareV"Shares.ª?
=
;#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity²
object
4
flags+"Kept as JSON.ª
²	
boolean²
object
I
parts@"Kept as JSON too.ª

#/definitions/dev.x.v1.Item²
object
X
portP
=#/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString"Number or name.
7
numbers,"Numbers.²
arrayº
int64²	
integer
H
when@
7#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Time"When.

wait"	How long.²
string
&
ratiodouble"A ratio.²
number
7
raw0".Anything. Not supported by Ferry yet: refused.
?
never6"(Nothing. Refused: nothing could have it.²	
boolean
:
old3"%Historic. No effect here: it is gone.²	
boolean
f
dev.x.v1.ThingStatusN"The outcome.²
objectÊ2
0
phase'"Where it is. One of: A, B.²
string
î
dev.y.v1beta1.AskØ"A question.²
objectÊà
-

apiVersion"Group and version.²
string

kind"Kind.²
string
L
metadata@
##/definitions/io.meta.v1.ObjectMeta"Standard object metadata.
E
status;
%#/definitions/dev.y.v1beta1.AskStatus"What was observed.úY
x-kubernetes-group-version-kind64[{"group":"y.dev","kind":"Ask","version":"v1beta1"}]
—
dev.y.v1beta1.AskListı"A list of Ask.šitems²
objectÊö
-

apiVersion"Group and version.²
string

kind"Kind.²
string
`
metadataT
;#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"Metadata of the list.
G
items>"The objects.²
arrayº#
!
#/definitions/dev.y.v1beta1.Askú]
x-kubernetes-group-version-kind:8[{"group":"y.dev","kind":"AskList","version":"v1beta1"}]

dev.y.v1beta1.AskStatusd"The answer.²
objectÊI
G
text?"2What it says. Not supported by Ferry yet: refused.²
string
é
dev.y.v1beta1.CupÓ"A cup.šspec²
objectÊÙ
-

apiVersion"Group and version.²
string

kind"Kind.²
string
L
metadata@
##/definitions/io.meta.v1.ObjectMeta"Standard object metadata.
>
spec6
##/definitions/dev.y.v1beta1.PotSpec"What is wanted.úY
x-kubernetes-group-version-kind64[{"group":"y.dev","kind":"Cup","version":"v1beta1"}]
—
dev.y.v1beta1.CupListı"A list of Cup.šitems²
objectÊö
-

apiVersion"Group and version.²
string

kind"Kind.²
string
`
metadataT
;#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"Metadata of the list.
G
items>"The objects.²
arrayº#
!
#/definitions/dev.y.v1beta1.Cupú]
x-kubernetes-group-version-kind:8[{"group":"y.dev","kind":"CupList","version":"v1beta1"}]
ê
dev.y.v1beta1.PotÔ""A pot. Refused: nobody makes pots.šspec²
objectÊÙ
-

apiVersion"Group and version.²
string

kind"Kind.²
string
L
metadata@
##/definitions/io.meta.v1.ObjectMeta"Standard object metadata.
>
spec6
##/definitions/dev.y.v1beta1.PotSpec"What is wanted.ú½
x-kubernetes-group-version-kind™–[{"group":"y.dev","kind":"Pot","version":"v1beta1"},{"group":"y.dev","kind":"Pot","version":"v1alpha1"},{"group":"y.dev","kind":"Pot","version":"v1"}]
„
dev.y.v1beta1.PotListê"A list of Pot.šitems²
objectÊö
-

apiVersion"Group and version.²
string

kind"Kind.²
string
`
metadataT
;#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"Metadata of the list.
G
items>"The objects.²
arrayº#
!
#/definitions/dev.y.v1beta1.PotúÉ
x-kubernetes-group-version-kind¥¢[{"group":"y.dev","kind":"PotList","version":"v1beta1"},{"group":"y.dev","kind":"PotList","version":"v1alpha1"},{"group":"y.dev","kind":"PotList","version":"v1"}]
®
dev.y.v1beta1.PotSpec”"	The wish.²
objectÊ{
O
replicasCint32".How many. Not supported by Ferry yet: refused.²	
integer
(
lid!"Whether it has one.²	
boolean
_
dev.y.v1beta1.TheScaleE"	How many.²
objectÊ,
*
replicasint32"	How many.²	
integer
f
-io.k8s.apimachinery.pkg.api.resource.Quantity5"(A number with a suffix: 512Mi, 500m, 2G.²
string
¥
-io.k8s.apimachinery.pkg.apis.meta.v1.ListMetaó"Metadata of a list.²
objectÊÏ
1
continue%"Token for the next part.²
string
@
remainingItemCount*int64"Items in later parts.²	
integer
4
resourceVersion!"Version of the list.²
string
"
selfLink"	Historic.²
string
l
*io.k8s.apimachinery.pkg.apis.meta.v1.Patch>"1A patch, in the form that its content type names.²
object
Ğ
+io.k8s.apimachinery.pkg.apis.meta.v1.Status "+The outcome of a request without an object.²
objectÊ
-

apiVersion"Group and version.²
string

kind"Kind.²
string
)
code!int32"HTTP status.²	
integer
6
details+"What it is about, with causes.²
object
.
message#"A sentence for people.²
string
T
metadataH
;#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"	Metadata.
-
reason#"One word for programs.²
string
*
status "Success or Failure.²
stringúR
x-kubernetes-group-version-kind/-[{"group":"","kind":"Status","version":"v1"}]
b
)io.k8s.apimachinery.pkg.apis.meta.v1.Time5	date-time"A time as RFC 3339 writes it.²
string
`
/io.k8s.apimachinery.pkg.util.intstr.IntOrString-int-or-string"A number or text.²
string
r
io.meta.v1.DeleteOptionsV"Body of a delete.²
objectÊ5
3
gracePeriodSecondsint64"Seconds.²	
integer

io.meta.v1.ObjectMetaõ"	Metadata.²
objectÊÛ

name"Name.²
string
.
labels$"Labels.ª
²
string²
object
Œ

finalizers~"Who must act first.²
arrayº
²
stringú(
x-kubernetes-patch-strategy	"merge"ú!
x-kubernetes-list-type"set"