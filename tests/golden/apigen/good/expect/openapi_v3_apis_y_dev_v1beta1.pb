
3.0.0

Kubernetes2v1.33.0"÷¶
¥
/apis/y.dev/v1beta1/cupsó"⁄
yDev_v1beta1list Cup*"listYDevV1beta1CupForAllNamespaces2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

 boolean2?
=
continuequeryToken of the previous answer.R
	 string2F
D
fieldSelectorqueryOnly objects with these fields.R
	 string2F
D
labelSelectorqueryOnly objects with these labels.R
	 string29
7
limitqueryMost items of one answer.R

 integer2M
K
resourceVersionquery$Version to read at or to watch from.R
	 string2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	 string2L
J
sendInitialEventsquery A watch begins with what exists.R

 boolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

 integer2:
8
watchqueryChanges instead of a list.R

 booleanBWU
200N
L
OKF
D
application/json0
.,
*#/components/schemas/dev.y.v1beta1.CupListj
x-kubernetes-action"list"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}j8
6
prettyquery"true": indented output.R
	 string
∞
//apis/y.dev/v1beta1/namespaces/{namespace}/asks¸2è
yDev_v1beta1post Ask*createYDevV1beta1NamespacedAsk2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string:å
âÑ
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Ask
@
application/yaml,
*(
&#/components/schemas/dev.y.v1beta1.AskBXV
201O
M
CreatedB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Askj
x-kubernetes-action"post"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Ask","version":"v1beta1"}j.
,
	namespacepath
Namespace. R
	 stringj8
6
prettyquery"true": indented output.R
	 string
√
//apis/y.dev/v1beta1/namespaces/{namespace}/cupsè"‘
yDev_v1beta1list Cup*listYDevV1beta1NamespacedCup2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

 boolean2?
=
continuequeryToken of the previous answer.R
	 string2F
D
fieldSelectorqueryOnly objects with these fields.R
	 string2F
D
labelSelectorqueryOnly objects with these labels.R
	 string29
7
limitqueryMost items of one answer.R

 integer2M
K
resourceVersionquery$Version to read at or to watch from.R
	 string2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	 string2L
J
sendInitialEventsquery A watch begins with what exists.R

 boolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

 integer2:
8
watchqueryChanges instead of a list.R

 booleanBWU
200N
L
OKF
D
application/json0
.,
*#/components/schemas/dev.y.v1beta1.CupListj
x-kubernetes-action"list"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}2è
yDev_v1beta1post Cup*createYDevV1beta1NamespacedCup2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string:å
âÑ
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Cup
@
application/yaml,
*(
&#/components/schemas/dev.y.v1beta1.CupBXV
201O
M
CreatedB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Cupj
x-kubernetes-action"post"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}:π
yDev_v1beta1deletecollection Cup*(deleteYDevV1beta1CollectionNamespacedCup2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

 boolean2?
=
continuequeryToken of the previous answer.R
	 string2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2F
D
fieldSelectorqueryOnly objects with these fields.R
	 string2G
E
gracePeriodSecondsquerySeconds for shutting down.R

 integer2F
D
labelSelectorqueryOnly objects with these labels.R
	 string29
7
limitqueryMost items of one answer.R

 integer2F
D
propagationPolicyqueryWhat happens to dependants.R
	 string2M
K
resourceVersionquery$Version to read at or to watch from.R
	 string2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	 string2L
J
sendInitialEventsquery A watch begins with what exists.R

 boolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

 integer2:
8
watchqueryChanges instead of a list.R

 boolean:Œ
À∆
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
x-kubernetes-action"deletecollection"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}j.
,
	namespacepath
Namespace. R
	 stringj8
6
prettyquery"true": indented output.R
	 string
Œ
6/apis/y.dev/v1beta1/namespaces/{namespace}/cups/{name}ì"É
yDev_v1beta1get Cup*readYDevV1beta1NamespacedCupBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Cupj
x-kubernetes-action"get"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}*â
yDev_v1beta1put Cup*replaceYDevV1beta1NamespacedCup2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string:å
âÑ
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Cup
@
application/yaml,
*(
&#/components/schemas/dev.y.v1beta1.CupBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Cupj
x-kubernetes-action"put"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}:Œ
yDev_v1beta1
delete Cup*deleteYDevV1beta1NamespacedCup2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
gracePeriodSecondsquerySeconds for shutting down.R

 integer2F
D
propagationPolicyqueryWhat happens to dependants.R
	 string:Ã
…∆
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
"delete"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}Rè
yDev_v1beta1	patch Cup*patchYDevV1beta1NamespacedCup2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string2R
P
forcequery2Take fields over from other managers (apply only).R

 boolean:º
π¥
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
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.PatchBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Cupj 
x-kubernetes-action	"patch"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Cup","version":"v1beta1"}j2
0
namepathName of the object. R
	 stringj.
,
	namespacepath
Namespace. R
	 stringj8
6
prettyquery"true": indented output.R
	 string
¥
</apis/y.dev/v1beta1/namespaces/{namespace}/cups/{name}/scaleÛ"ê
yDev_v1beta1get Cup*!readYDevV1beta1NamespacedCupScaleBXV
200O
M
OKG
E
application/json1
/-
+#/components/schemas/dev.y.v1beta1.TheScalej
x-kubernetes-action"get"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}*†
yDev_v1beta1put Cup*$replaceYDevV1beta1NamespacedCupScale2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string:ñ
ìé
E
application/json1
/-
+#/components/schemas/dev.y.v1beta1.TheScale
E
application/yaml1
/-
+#/components/schemas/dev.y.v1beta1.TheScaleBXV
200O
M
OKG
E
application/json1
/-
+#/components/schemas/dev.y.v1beta1.TheScalej
x-kubernetes-action"put"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}Rú
yDev_v1beta1	patch Cup*"patchYDevV1beta1NamespacedCupScale2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string2R
P
forcequery2Take fields over from other managers (apply only).R

 boolean:º
π¥
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
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.PatchBXV
200O
M
OKG
E
application/json1
/-
+#/components/schemas/dev.y.v1beta1.TheScalej 
x-kubernetes-action	"patch"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}j2
0
namepathName of the object. R
	 stringj.
,
	namespacepath
Namespace. R
	 stringj8
6
prettyquery"true": indented output.R
	 string
√
//apis/y.dev/v1beta1/namespaces/{namespace}/potsè"‘
yDev_v1beta1list Pot*listYDevV1beta1NamespacedPot2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

 boolean2?
=
continuequeryToken of the previous answer.R
	 string2F
D
fieldSelectorqueryOnly objects with these fields.R
	 string2F
D
labelSelectorqueryOnly objects with these labels.R
	 string29
7
limitqueryMost items of one answer.R

 integer2M
K
resourceVersionquery$Version to read at or to watch from.R
	 string2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	 string2L
J
sendInitialEventsquery A watch begins with what exists.R

 boolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

 integer2:
8
watchqueryChanges instead of a list.R

 booleanBWU
200N
L
OKF
D
application/json0
.,
*#/components/schemas/dev.y.v1beta1.PotListj
x-kubernetes-action"list"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}2è
yDev_v1beta1post Pot*createYDevV1beta1NamespacedPot2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string:å
âÑ
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Pot
@
application/yaml,
*(
&#/components/schemas/dev.y.v1beta1.PotBXV
201O
M
CreatedB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Potj
x-kubernetes-action"post"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}:π
yDev_v1beta1deletecollection Pot*(deleteYDevV1beta1CollectionNamespacedPot2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

 boolean2?
=
continuequeryToken of the previous answer.R
	 string2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2F
D
fieldSelectorqueryOnly objects with these fields.R
	 string2G
E
gracePeriodSecondsquerySeconds for shutting down.R

 integer2F
D
labelSelectorqueryOnly objects with these labels.R
	 string29
7
limitqueryMost items of one answer.R

 integer2F
D
propagationPolicyqueryWhat happens to dependants.R
	 string2M
K
resourceVersionquery$Version to read at or to watch from.R
	 string2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	 string2L
J
sendInitialEventsquery A watch begins with what exists.R

 boolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

 integer2:
8
watchqueryChanges instead of a list.R

 boolean:Œ
À∆
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
x-kubernetes-action"deletecollection"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}j.
,
	namespacepath
Namespace. R
	 stringj8
6
prettyquery"true": indented output.R
	 string
Œ
6/apis/y.dev/v1beta1/namespaces/{namespace}/pots/{name}ì"É
yDev_v1beta1get Pot*readYDevV1beta1NamespacedPotBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Potj
x-kubernetes-action"get"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}*â
yDev_v1beta1put Pot*replaceYDevV1beta1NamespacedPot2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string:å
âÑ
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Pot
@
application/yaml,
*(
&#/components/schemas/dev.y.v1beta1.PotBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Potj
x-kubernetes-action"put"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}:Œ
yDev_v1beta1
delete Pot*deleteYDevV1beta1NamespacedPot2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
gracePeriodSecondsquerySeconds for shutting down.R

 integer2F
D
propagationPolicyqueryWhat happens to dependants.R
	 string:Ã
…∆
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
"delete"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}Rè
yDev_v1beta1	patch Pot*patchYDevV1beta1NamespacedPot2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string2R
P
forcequery2Take fields over from other managers (apply only).R

 boolean:º
π¥
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
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.PatchBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Potj 
x-kubernetes-action	"patch"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}j2
0
namepathName of the object. R
	 stringj.
,
	namespacepath
Namespace. R
	 stringj8
6
prettyquery"true": indented output.R
	 string
¥
</apis/y.dev/v1beta1/namespaces/{namespace}/pots/{name}/scaleÛ"ê
yDev_v1beta1get Pot*!readYDevV1beta1NamespacedPotScaleBXV
200O
M
OKG
E
application/json1
/-
+#/components/schemas/dev.y.v1beta1.TheScalej
x-kubernetes-action"get"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}*†
yDev_v1beta1put Pot*$replaceYDevV1beta1NamespacedPotScale2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string:ñ
ìé
E
application/json1
/-
+#/components/schemas/dev.y.v1beta1.TheScale
E
application/yaml1
/-
+#/components/schemas/dev.y.v1beta1.TheScaleBXV
200O
M
OKG
E
application/json1
/-
+#/components/schemas/dev.y.v1beta1.TheScalej
x-kubernetes-action"put"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}Rú
yDev_v1beta1	patch Pot*"patchYDevV1beta1NamespacedPotScale2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string2R
P
forcequery2Take fields over from other managers (apply only).R

 boolean:º
π¥
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
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.PatchBXV
200O
M
OKG
E
application/json1
/-
+#/components/schemas/dev.y.v1beta1.TheScalej 
x-kubernetes-action	"patch"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}j2
0
namepathName of the object. R
	 stringj.
,
	namespacepath
Namespace. R
	 stringj8
6
prettyquery"true": indented output.R
	 string
ñ
=/apis/y.dev/v1beta1/namespaces/{namespace}/pots/{name}/status‘"â
yDev_v1beta1get Pot*"readYDevV1beta1NamespacedPotStatusBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Potj
x-kubernetes-action"get"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}*è
yDev_v1beta1put Pot*%replaceYDevV1beta1NamespacedPotStatus2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string:å
âÑ
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Pot
@
application/yaml,
*(
&#/components/schemas/dev.y.v1beta1.PotBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Potj
x-kubernetes-action"put"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}Rï
yDev_v1beta1	patch Pot*#patchYDevV1beta1NamespacedPotStatus2G
E
dryRunquery'"All": check everything, store nothing.R
	 string2G
E
fieldManagerquery!Name of whoever makes the change.R
	 string2`
^
fieldValidationquery7Ignore, Warn or Strict: what happens to unknown fields.R
	 string2R
P
forcequery2Take fields over from other managers (apply only).R

 boolean:º
π¥
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
?#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.PatchBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Potj 
x-kubernetes-action	"patch"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}j2
0
namepathName of the object. R
	 stringj.
,
	namespacepath
Namespace. R
	 stringj8
6
prettyquery"true": indented output.R
	 string
¥
/apis/y.dev/v1beta1/potsó"⁄
yDev_v1beta1list Pot*"listYDevV1beta1PotForAllNamespaces2K
I
allowWatchBookmarksqueryMarks of progress in a watch.R

 boolean2?
=
continuequeryToken of the previous answer.R
	 string2F
D
fieldSelectorqueryOnly objects with these fields.R
	 string2F
D
labelSelectorqueryOnly objects with these labels.R
	 string29
7
limitqueryMost items of one answer.R

 integer2M
K
resourceVersionquery$Version to read at or to watch from.R
	 string2K
I
resourceVersionMatchqueryHow resourceVersion is meant.R
	 string2L
J
sendInitialEventsquery A watch begins with what exists.R

 boolean2J
H
timeoutSecondsquery!Seconds after which a watch ends.R

 integer2:
8
watchqueryChanges instead of a list.R

 booleanBWU
200N
L
OKF
D
application/json0
.,
*#/components/schemas/dev.y.v1beta1.PotListj
x-kubernetes-action"list"jW
x-kubernetes-group-version-kind42{"group":"y.dev","kind":"Pot","version":"v1beta1"}j8
6
prettyquery"true": indented output.R
	 string*˚#
¯#
ê
dev.y.v1beta1.Ask˙
˜ object˙Ä
.

apiVersion 
 stringíGroup and version.

kind
 stringíKind.
[
metadataO
M“.,
*#/components/schemas/io.meta.v1.ObjectMetaíStandard object metadata.
T
statusJ
H“0.
,#/components/schemas/dev.y.v1beta1.AskStatusíWhat was observed.íA question.¢Y
x-kubernetes-group-version-kind64[{"group":"y.dev","kind":"Ask","version":"v1beta1"}]
¥
dev.y.v1beta1.AskListö
ó∫items object˙ë
.

apiVersion 
 stringíGroup and version.

kind
 stringíKind.
o
metadatac
a“FD
B#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMetaíMetadata of the list.
Q
itemsH
F arrayÚ,
*(
&#/components/schemas/dev.y.v1beta1.AskíThe objects.íA list of Ask.¢]
x-kubernetes-group-version-kind:8[{"group":"y.dev","kind":"AskList","version":"v1beta1"}]
Å
dev.y.v1beta1.AskStatusf
d object˙J
H
text@
> stringí2What it says. Not supported by Ferry yet: refused.íThe answer.
ã
dev.y.v1beta1.Cupı
Ú∫spec object˙˘
.

apiVersion 
 stringíGroup and version.

kind
 stringíKind.
[
metadataO
M“.,
*#/components/schemas/io.meta.v1.ObjectMetaíStandard object metadata.
M
specE
C“.,
*#/components/schemas/dev.y.v1beta1.PotSpecíWhat is wanted.íA cup.¢Y
x-kubernetes-group-version-kind64[{"group":"y.dev","kind":"Cup","version":"v1beta1"}]
¥
dev.y.v1beta1.CupListö
ó∫items object˙ë
.

apiVersion 
 stringíGroup and version.

kind
 stringíKind.
o
metadatac
a“FD
B#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMetaíMetadata of the list.
Q
itemsH
F arrayÚ,
*(
&#/components/schemas/dev.y.v1beta1.CupíThe objects.íA list of Cup.¢]
x-kubernetes-group-version-kind:8[{"group":"y.dev","kind":"CupList","version":"v1beta1"}]
å
dev.y.v1beta1.Potˆ
Û∫spec object˙˘
.

apiVersion 
 stringíGroup and version.

kind
 stringíKind.
[
metadataO
M“.,
*#/components/schemas/io.meta.v1.ObjectMetaíStandard object metadata.
M
specE
C“.,
*#/components/schemas/dev.y.v1beta1.PotSpecíWhat is wanted.í"A pot. Refused: nobody makes pots.¢Ω
x-kubernetes-group-version-kindôñ[{"group":"y.dev","kind":"Pot","version":"v1beta1"},{"group":"y.dev","kind":"Pot","version":"v1alpha1"},{"group":"y.dev","kind":"Pot","version":"v1"}]
°
dev.y.v1beta1.PotListá
Ñ∫items object˙ë
.

apiVersion 
 stringíGroup and version.

kind
 stringíKind.
o
metadatac
a“FD
B#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMetaíMetadata of the list.
Q
itemsH
F arrayÚ,
*(
&#/components/schemas/dev.y.v1beta1.PotíThe objects.íA list of Pot.¢…
x-kubernetes-group-version-kind•¢[{"group":"y.dev","kind":"PotList","version":"v1beta1"},{"group":"y.dev","kind":"PotList","version":"v1alpha1"},{"group":"y.dev","kind":"PotList","version":"v1"}]
≥
dev.y.v1beta1.PotSpecô
ñ object˙~
Q
replicasE
C integerí.How many. Not supported by Ferry yet: refused.öint32
)
lid"
  booleaníWhether it has one.í	The wish.
b
dev.y.v1beta1.TheScaleH
F object˙.
,
replicas 
 integerí	How many.öint32í	How many.
¨
-io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta˙
˜ object˙‘
2
continue&
$ stringíToken for the next part.
B
remainingItemCount,
* integeríItems in later parts.öint64
5
resourceVersion"
  stringíVersion of the list.
#
selfLink
 stringí	Historic.íMetadata of a list.
m
*io.k8s.apimachinery.pkg.apis.meta.v1.Patch?
= objectí1A patch, in the form that its content type names.
È
+io.k8s.apimachinery.pkg.apis.meta.v1.Statusπ
∂ object˙¶
.

apiVersion 
 stringíGroup and version.

kind
 stringíKind.
+
code#
! integeríHTTP status.öint32
7
details,
* objectíWhat it is about, with causes.
/
message$
" stringíA sentence for people.
c
metadataW
U“FD
B#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMetaí	Metadata.
.
reason$
" stringíOne word for programs.
+
status!
 stringíSuccess or Failure.í+The outcome of a request without an object.¢R
x-kubernetes-group-version-kind/-[{"group":"","kind":"Status","version":"v1"}]
u
io.meta.v1.DeleteOptionsY
W object˙7
5
gracePeriodSeconds
 integeríSeconds.öint64íBody of a delete.
î
io.meta.v1.ObjectMeta˙
˜ object˙ﬁ

name
 stringíName.
/
labels%
# objectÇ

	 stringíLabels.
ç

finalizers
} arrayÚ

	 stringíWho must act first.¢(
x-kubernetes-patch-strategy	"merge"¢!
x-kubernetes-list-type"set"í	Metadata.