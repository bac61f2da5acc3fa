// The life of a VM with client-go: dynamic client, informers, rest for subresources.  Run by test_clients.py, which
// says what its environment is.  KubeVirt's own client is not needed: its paths are these.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"
)

const name = "life"

var (
	ns   = os.Getenv("CLIENT_NAMESPACE")
	user = os.Getenv("CLIENT_USER_NAME")
	ctx  = context.Background()
)

func kubevirt(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: resource}
}

// What goes wrong in a step ends it: step() tells it.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Errorf(format, args...))
	}
}

func field(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(o.Object, path...)
	return text
}

// Informers of what a client of KubeVirt looks at; any event wakes those who wait.
type stores struct {
	sync.Mutex
	cond    *sync.Cond
	of      map[string]cache.SharedIndexInformer
	deleted []string
	phases  []string // of the VMI, each once
	err     error
}

func (s *stores) poke(resource string, obj any, isDeleted bool) {
	s.Lock()
	defer s.Unlock()
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if o, ok := obj.(*unstructured.Unstructured); ok {
		if isDeleted {
			s.deleted = append(s.deleted, resource+"/"+o.GetName())
		}
		phase := field(o, "status", "phase")
		if resource == "virtualmachineinstances" && phase != "" && !slices.Contains(s.phases, phase) {
			s.phases = append(s.phases, phase)
		}
	}
	s.cond.Broadcast()
}

func (s *stores) add(resource string, informer cache.SharedIndexInformer) {
	must(informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		s.Lock()
		defer s.Unlock()
		s.err = err
		s.cond.Broadcast()
	}))
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.poke(resource, o, false) },
		UpdateFunc: func(_, o any) { s.poke(resource, o, false) },
		DeleteFunc: func(o any) { s.poke(resource, o, true) },
	})
	must(err)
	s.of[resource] = informer
}

func (s *stores) get(resource string) *unstructured.Unstructured {
	o, found, _ := s.of[resource].GetStore().GetByKey(ns + "/" + name)
	if !found {
		return nil
	}
	return o.(*unstructured.Unstructured)
}

func (s *stores) list(resource string) (all []*unstructured.Unstructured) {
	for _, o := range s.of[resource].GetStore().List() {
		all = append(all, o.(*unstructured.Unstructured))
	}
	return all
}

// Until test() is true, which is asked after each event.
func (s *stores) wait(what string, seconds int, test func() bool) {
	late := false
	timer := time.AfterFunc(time.Duration(seconds)*time.Second, func() {
		s.Lock()
		defer s.Unlock()
		late = true
		s.cond.Broadcast()
	})
	defer timer.Stop()
	s.Lock()
	defer s.Unlock()
	for !test() {
		if s.err != nil {
			panic(fmt.Errorf("%s: an informer's watch: %w", what, s.err))
		}
		if late {
			text, _ := json.Marshal(s.get("virtualmachineinstances"))
			panic(fmt.Errorf("%s: not so after %d s; the VMI: %.2000s", what, seconds, text))
		}
		s.cond.Wait()
	}
}

type life struct {
	admin, typed *kubernetes.Clientset
	config       *rest.Config
	dyn          dynamic.Interface
	s            stores
	stop         chan struct{}
}

func (l *life) namespace() {
	_, err := l.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
	must(err)
	for _, role := range []string{"admin", "kubevirt.io:migrate"} {
		_, err = l.admin.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(role, ":", "-")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		}, metav1.CreateOptions{})
		must(err)
	}
}

func (l *life) rights() {
	_, err := l.dyn.Resource(kubevirt("virtualmachines")).Namespace("default").List(ctx, metav1.ListOptions{})
	check(apierrors.IsForbidden(err), "another namespace: %v", err)
	review, err := l.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authv1.SelfSubjectAccessReview{
		Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{
			Namespace: ns, Verb: "create", Group: "kubevirt.io", Resource: "virtualmachines"}}}, metav1.CreateOptions{})
	must(err)
	check(review.Status.Allowed, "may not create VMs: %v", review.Status)
	groups, resources, err := l.typed.Discovery().ServerGroupsAndResources()
	must(err)
	check(len(groups) > 0 && len(resources) > 0, "nothing is discovered")
}

func (l *life) vms() dynamic.ResourceInterface {
	return l.dyn.Resource(kubevirt("virtualmachines")).Namespace(ns)
}

func (l *life) create() {
	l.s.cond = sync.NewCond(&l.s)
	l.s.of = map[string]cache.SharedIndexInformer{}
	f := dynamicinformer.NewFilteredDynamicSharedInformerFactory(l.dyn, 0, ns, nil)
	for _, r := range []string{"virtualmachines", "virtualmachineinstances", "virtualmachineinstancemigrations"} {
		l.s.add(r, f.ForResource(kubevirt(r)).Informer())
	}
	pods := informers.NewSharedInformerFactoryWithOptions(l.typed, 0, informers.WithNamespace(ns))
	l.s.add("pods", pods.Core().V1().Pods().Informer())
	l.stop = make(chan struct{})
	f.Start(l.stop)
	pods.Start(l.stop)
	for resource, is := range f.WaitForCacheSync(l.stop) {
		check(is, "%v is not synced", resource)
	}
	pods.WaitForCacheSync(l.stop)
	text, err := os.ReadFile(os.Getenv("CLIENT_VM"))
	must(err)
	vm := &unstructured.Unstructured{}
	must(yaml.Unmarshal(text, &vm.Object))
	made, err := l.vms().Create(ctx, vm, metav1.CreateOptions{FieldValidation: "Strict"})
	must(err)
	check(made.GetUID() != "" && field(made, "spec", "runStrategy") == "Always", "made: %v", made)
}

func (l *life) isVM(status string) {
	l.s.wait("the VM is "+status, 90, func() bool {
		return field(l.s.get("virtualmachines"), "status", "printableStatus") == status
	})
}

func (l *life) isRunning(but types.UID) *unstructured.Unstructured {
	var vmi *unstructured.Unstructured
	l.s.wait("the VMI runs", 90, func() bool {
		vmi = l.s.get("virtualmachineinstances")
		return field(vmi, "status", "phase") == "Running" && vmi.GetUID() != but
	})
	return vmi
}

func (l *life) running() {
	l.isRunning("")
	l.isVM("Running")
	seen := l.s.phases // two may come in one write
	for _, phase := range []string{"Pending", "Scheduling", "Scheduled", "Running"} {
		if len(seen) > 0 && seen[0] == phase {
			seen = seen[1:]
		}
	}
	check(len(seen) == 0 && l.s.phases[0] == "Pending", "phases that were seen: %v", l.s.phases)
}

func (l *life) patch() {
	_, err := l.vms().Patch(ctx, name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"tier":"web"},"annotations":{"why":"a merge"}}}`), metav1.PatchOptions{})
	must(err)
	_, err = l.vms().Patch(ctx, name, types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/annotations/why","value":"a merge"},
		{"op":"remove","path":"/metadata/annotations/why"}]`), metav1.PatchOptions{})
	must(err)
	l.s.wait("the informer tells of the patches", 30, func() bool {
		vm := l.s.get("virtualmachines")
		_, has := vm.GetAnnotations()["why"]
		return vm.GetLabels()["tier"] == "web" && !has
	})
	found, err := l.vms().List(ctx, metav1.ListOptions{LabelSelector: "tier=web", Limit: 1})
	must(err)
	check(len(found.Items) == 1, "by label: %v", found.Items)
}

func (l *life) conflict() {
	old, err := l.vms().Get(ctx, name, metav1.GetOptions{})
	must(err)
	_, err = l.vms().Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"newer":"yes"}}}`), metav1.PatchOptions{})
	must(err)
	old.SetLabels(map[string]string{"newer": "no"})
	_, err = l.vms().Update(ctx, old, metav1.UpdateOptions{})
	check(apierrors.IsConflict(err), "an old version: %v", err)
	must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		vm, err := l.vms().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		vm.SetLabels(map[string]string{"newer": "no"})
		_, err = l.vms().Update(ctx, vm, metav1.UpdateOptions{})
		return err
	}))
}

func (l *life) apply() {
	apply := func(tier, manager string, force bool) (*unstructured.Unstructured, error) {
		return l.vms().Apply(ctx, name, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
			"metadata": map[string]any{"name": name, "annotations": map[string]any{"example.org/tier": tier}},
		}}, metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	_, err := apply("gold", "one", false)
	must(err)
	_, err = apply("silver", "two", false)
	check(apierrors.IsConflict(err) && strings.Contains(err.Error(), `conflict with "one"`), "no conflict: %v", err)
	vm, err := apply("silver", "two", true)
	must(err)
	check(vm.GetAnnotations()["example.org/tier"] == "silver", "applied: %v", vm.GetAnnotations())
	again, err := apply("silver", "two", false)
	must(err)
	check(reflect.DeepEqual(again.GetManagedFields(), vm.GetManagedFields()) && again.GetGeneration() == vm.GetGeneration(),
		"applied again: %v", again)
}

func (l *life) sub(resource, what string) *rest.Request {
	return l.typed.RESTClient().Put().AbsPath("/apis/subresources.kubevirt.io/v1/namespaces", ns, resource, name, what)
}

func (l *life) put(resource, what string, want int) {
	code := 0
	r := l.sub(resource, what).Body([]byte("{}")).SetHeader("Content-Type", "application/json").Do(ctx)
	must(r.StatusCode(&code).Error())
	check(code == want, "%s: %d", what, code)
}

func (l *life) isPaused() bool {
	conditions, _, _ := unstructured.NestedSlice(l.s.get("virtualmachineinstances").Object, "status", "conditions")
	for _, c := range conditions {
		if c.(map[string]any)["type"] == "Paused" {
			return true
		}
	}
	return false
}

func (l *life) pause() {
	l.put("virtualmachineinstances", "pause", 200)
	l.s.wait("the VMI is paused", 30, l.isPaused)
	l.isVM("Paused")
	l.put("virtualmachineinstances", "unpause", 200)
	l.s.wait("the VMI is not paused", 30, func() bool { return !l.isPaused() })
	l.isVM("Running")
}

func (l *life) console() {
	rt, holder, err := websocket.RoundTripperFor(l.config)
	must(err)
	url := l.sub("virtualmachineinstances", "console").URL()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url.String(), nil)
	must(err)
	conn, err := websocket.Negotiate(rt, holder, req, "plain.kubevirt.io")
	must(err)
	defer conn.Close()
	must(conn.SetReadDeadline(time.Now().Add(90 * time.Second)))
	said := ""
	for !strings.Contains(said, "tick ") {
		_, data, err := conn.ReadMessage()
		check(err == nil, "after %q: %v", said, err)
		said += string(data)
	}
}

func (l *life) isElsewhere(before *unstructured.Unstructured) *unstructured.Unstructured {
	var vmi *unstructured.Unstructured
	l.s.wait("the VMI is elsewhere", 180, func() bool {
		vmi = l.s.get("virtualmachineinstances")
		return field(vmi, "status", "nodeName") != field(before, "status", "nodeName")
	})
	return vmi
}

func (l *life) succeeded() (n int) {
	for _, m := range l.s.list("virtualmachineinstancemigrations") {
		phase := field(m, "status", "phase")
		check(phase != "Failed", "a move failed: %v", m)
		if phase == "Succeeded" {
			n++
		}
	}
	return n
}

func (l *life) migrate() {
	before := l.isRunning("")
	_, err := l.dyn.Resource(kubevirt("virtualmachineinstancemigrations")).Namespace(ns).Create(ctx, &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
			"metadata": map[string]any{"generateName": "by-go-"}, "spec": map[string]any{"vmiName": name}}}, metav1.CreateOptions{})
	must(err)
	l.s.wait("the move succeeds", 180, func() bool { return l.succeeded() == 1 })
	after := l.isElsewhere(before)
	completed, _, _ := unstructured.NestedBool(after.Object, "status", "migrationState", "completed")
	check(completed && after.GetUID() == before.GetUID(), "after the move: %v", after)
}

func (l *life) evict() {
	before := l.isRunning("")
	pods, err := l.typed.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "vm.kubevirt.io/name=" + name})
	must(err)
	told := false
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodRunning || p.Spec.NodeName != field(before, "status", "nodeName") {
			continue
		}
		err = l.typed.CoreV1().Pods(ns).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: ns}})
		check(apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "evacuation"), "evicted: %v", err)
		told = true
	}
	check(told, "no pod of the VM: %v", pods.Items)
	l.isElsewhere(before)
	l.s.wait("the evacuation's move succeeds", 60, func() bool { return l.succeeded() == 2 })
}

func (l *life) halt() {
	l.put("virtualmachines", "stop", 202)
	l.s.wait("the VMI is gone", 90, func() bool { return l.s.get("virtualmachineinstances") == nil })
	l.isVM("Stopped")
	check(field(l.s.get("virtualmachines"), "spec", "runStrategy") == "Halted", "stopped, but not halted")
}

func (l *life) start() {
	l.put("virtualmachines", "start", 202)
	l.isRunning("")
}

func (l *life) restart() {
	uid := l.isRunning("").GetUID()
	must(l.sub("virtualmachines", "restart").Body([]byte(`{"gracePeriodSeconds":0}`)).SetHeader("Content-Type", "application/json").Do(ctx).Error())
	l.isRunning(uid)
	l.isVM("Running")
}

func (l *life) isAsListed(resource string) (n int) {
	l.s.wait("the informer has what a list has of "+resource, 30, func() bool {
		listed, err := l.dyn.Resource(kubevirt(resource)).Namespace(ns).List(ctx, metav1.ListOptions{})
		must(err)
		n = len(listed.Items)
		have := map[string]map[string]any{}
		for _, o := range l.s.list(resource) {
			have[o.GetName()] = o.Object
		}
		for _, o := range listed.Items {
			if !reflect.DeepEqual(have[o.GetName()], o.Object) {
				return false
			}
		}
		return n == len(have)
	})
	return n
}

func (l *life) compare() {
	check(l.isAsListed("virtualmachines") == 1 && l.isAsListed("virtualmachineinstances") == 1, "not one VM and one VMI")
	check(l.isAsListed("virtualmachineinstancemigrations") == 2, "not two moves")
	differ := ""
	defer func() {
		if r := recover(); r != nil {
			panic(fmt.Errorf("%v: %s", r, differ))
		}
	}()
	l.s.wait("the informer has the pods that a list has", 30, func() bool {
		listed, err := l.typed.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		must(err)
		have := l.s.of["pods"].GetStore()
		for i := range listed.Items {
			want := &listed.Items[i]
			want.TypeMeta = metav1.TypeMeta{} // typed objects have none when they come by themselves
			p, found, _ := have.Get(want)
			if !found {
				return false
			}
			pod := p.(*corev1.Pod).DeepCopy()
			pod.TypeMeta = metav1.TypeMeta{}
			if !reflect.DeepEqual(pod, want) {
				differ = fmt.Sprintf("informer: %+v\nlist: %+v", pod, want)
				return false
			}
		}
		return len(listed.Items) > 0 && len(have.List()) == len(listed.Items)
	})
}

func (l *life) delete() {
	check(l.isAsListed("virtualmachines") == 1 && l.isAsListed("virtualmachineinstances") == 1 &&
		l.isAsListed("virtualmachineinstancemigrations") == 0, "not a VM, its VMI, and no move")
	policy := metav1.DeletePropagationForeground
	must(l.vms().Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}))
	l.s.wait("the VM and its VMI are gone", 90, func() bool {
		return l.s.get("virtualmachines") == nil && l.s.get("virtualmachineinstances") == nil
	})
	check(strings.Contains(strings.Join(l.s.deleted, " "), "virtualmachines/"+name), "no event of the end: %v", l.s.deleted)
	check(l.isAsListed("virtualmachines")+l.isAsListed("virtualmachineinstances") == 0, "something is left")
	close(l.stop)
}

func step(name string, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("FAIL %s: %v", name, r)
		}
	}()
	f()
	return nil
}

func run() error {
	admin, err := clientcmd.BuildConfigFromFlags("", os.Getenv("CLIENT_ADMIN"))
	if err != nil {
		return err
	}
	l := &life{admin: kubernetes.NewForConfigOrDie(admin)}
	if l.config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("CLIENT_USER")); err != nil {
		return err
	}
	l.typed = kubernetes.NewForConfigOrDie(l.config)
	l.dyn = dynamic.NewForConfigOrDie(l.config)
	steps := map[string]func(){"namespace": l.namespace, "rights": l.rights, "create": l.create, "running": l.running,
		"patch": l.patch, "conflict": l.conflict, "apply": l.apply, "pause": l.pause, "console": l.console,
		"migrate": l.migrate, "evict": l.evict, "compare": l.compare, "stop": l.halt, "start": l.start,
		"restart": l.restart, "delete": l.delete}
	for _, s := range strings.Fields(os.Getenv("CLIENT_STEPS")) {
		if steps[s] == nil {
			return errors.New("FAIL " + s + ": no such step")
		}
		if err := step(s, steps[s]); err != nil {
			return err
		}
		fmt.Println("ok " + s)
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
