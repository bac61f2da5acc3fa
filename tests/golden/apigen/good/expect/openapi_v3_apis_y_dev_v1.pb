
3.0.0

Kubernetes2v1.33.0"¬V
ë
*/apis/y.dev/v1/namespaces/{namespace}/pots‚"≈
yDev_v1list Pot*listYDevV1NamespacedPot2K
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
x-kubernetes-action"list"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}2Ä
yDev_v1post Pot*createYDevV1NamespacedPot2G
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
x-kubernetes-action"post"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}:™
yDev_v1deletecollection Pot*#deleteYDevV1CollectionNamespacedPot2K
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
x-kubernetes-action"deletecollection"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}j.
,
	namespacepath
Namespace. R
	 stringj8
6
prettyquery"true": indented output.R
	 string
ç
1/apis/y.dev/v1/namespaces/{namespace}/pots/{name}◊"Ù
yDev_v1get Pot*readYDevV1NamespacedPotBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Potj
x-kubernetes-action"get"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}*˙
yDev_v1put Pot*replaceYDevV1NamespacedPot2G
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
x-kubernetes-action"put"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}:ø
yDev_v1
delete Pot*deleteYDevV1NamespacedPot2G
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
"delete"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}RÄ
yDev_v1	patch Pot*patchYDevV1NamespacedPot2G
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
x-kubernetes-action	"patch"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}j2
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
ë
7/apis/y.dev/v1/namespaces/{namespace}/pots/{name}/scale’"Ü
yDev_v1get Pot*readYDevV1NamespacedPotScaleBXV
200O
M
OKG
E
application/json1
/-
+#/components/schemas/dev.y.v1beta1.TheScalej
x-kubernetes-action"get"jZ
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}*ñ
yDev_v1put Pot*replaceYDevV1NamespacedPotScale2G
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
x-kubernetes-group-version-kind75{"group":"autoscaling","kind":"Scale","version":"v1"}Rí
yDev_v1	patch Pot*patchYDevV1NamespacedPotScale2G
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
‰
8/apis/y.dev/v1/namespaces/{namespace}/pots/{name}/statusß"˙
yDev_v1get Pot*readYDevV1NamespacedPotStatusBSQ
200J
H
OKB
@
application/json,
*(
&#/components/schemas/dev.y.v1beta1.Potj
x-kubernetes-action"get"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}*Ä
yDev_v1put Pot* replaceYDevV1NamespacedPotStatus2G
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
x-kubernetes-action"put"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}RÜ
yDev_v1	patch Pot*patchYDevV1NamespacedPotStatus2G
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
x-kubernetes-action	"patch"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}j2
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
†
/apis/y.dev/v1/potsà"À
yDev_v1list Pot*listYDevV1PotForAllNamespaces2K
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
x-kubernetes-action"list"jR
x-kubernetes-group-version-kind/-{"group":"y.dev","kind":"Pot","version":"v1"}j8
6
prettyquery"true": indented output.R
	 string*Ë
Â
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