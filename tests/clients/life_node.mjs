// The life of a VM with @kubernetes/client-node and its informers: run by test_clients.py, which says what its environment is.
import fs from 'node:fs';
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';
import {WebSocketHandler} from '@kubernetes/client-node/dist/web-socket-handler.js';
import WebSocket from 'isomorphic-ws';

const NS = process.env.CLIENT_NAMESPACE, USER = process.env.CLIENT_USER_NAME, NAME = 'life';
const API = {group: 'kubevirt.io', version: 'v1', namespace: NS};
const PHASES = ['Pending', 'Scheduling', 'Scheduled', 'Running'];
const MERGE = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
const JSON_PATCH = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.JsonPatch);
const APPLY = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.ServerSideApply);

const admin = new k8s.KubeConfig(), user = new k8s.KubeConfig();
admin.loadFromFile(process.env.CLIENT_ADMIN);
user.loadFromFile(process.env.CLIENT_USER);
const custom = user.makeApiClient(k8s.CustomObjectsApi), core = user.makeApiClient(k8s.CoreV1Api);
const generic = k8s.KubernetesObjectApi.makeApiClient(user);

// What an informer has told of a kind; waiters are asked anew at each event.
class Store {
	constructor(plural, list) {
		this.plural = plural;
		this.list = list ?? (() => custom.listNamespacedCustomObject({...API, plural}));
		const path = list ? `/api/v1/namespaces/${NS}/${plural}` : `/apis/kubevirt.io/v1/namespaces/${NS}/${plural}`;
		this.informer = k8s.makeInformer(user, path, this.list);
		this.events = [];
		this.waiters = new Set();
		for (const verb of ['add', 'update', 'delete'])
			this.informer.on(verb, (o) => {
				this.events.push([verb, o]);
				this.ask();
			});
		this.informer.on('error', (e) => {
			this.error = e;
			this.ask();
		});
	}

	ask() {
		for (const w of [...this.waiters])
			w();
	}

	get(name = NAME) {
		return this.informer.get(name, NS);
	}

	all() {
		return this.informer.list(NS) ?? [];
	}

	wait(test, what, seconds = 90) {
		return new Promise((resolve, reject) => {
			const end = (done, value) => {
				clearTimeout(timer);
				this.waiters.delete(look);
				done(value);
			};
			const look = () => {
				try {
					const found = test(this);
					if (found)
						end(resolve, found);
					else if (this.error)
						end(reject, this.error);
				} catch (e) {
					end(reject, e);
				}
			};
			const timer = setTimeout(() => end(reject, new Error(
				`${what}: not so after ${seconds} s: ${JSON.stringify(this.all()).slice(-2000)}`)), seconds * 1000);
			this.waiters.add(look);
			look();
		});
	}

	// The informer has what a list has.  Typed objects have dates where a watch has text, and print them with milliseconds;
	// a list says the kind of its pods once, a watch with each.
	async isAsListed(seconds = 20) {
		const end = Date.now() + seconds * 1000;
		const whole = (list, o) => ({...o, kind: o.kind ?? list.kind.replace(/List$/, ''), apiVersion: o.apiVersion ?? list.apiVersion});
		const byName = (list, items) => JSON.parse(JSON.stringify(Object.fromEntries(
			items.map((o) => [o.metadata.name, whole(list, o)]))).replace(/(:\d\d)\.000Z"/g, '$1Z"'));
		for (;;) {
			const list = await this.list();
			const listed = byName(list, list.items), seen = byName(list, this.all());
			try {
				assert.deepEqual(seen, listed);
				return Object.keys(listed).length;
			} catch (e) {
				if (Date.now() > end)
					throw e;
				await new Promise((r) => setTimeout(r, 200)); // an event may be under way
			}
		}
	}
}

async function refused(code, call) {
	try {
		await call();
	} catch (e) {
		assert.equal(e.code, code, e);
		return typeof e.body === 'string' ? JSON.parse(e.body) : e.body;
	}
	assert.fail('it was not refused');
}

async function put(plural, what, body, want) {
	const path = `/apis/subresources.kubevirt.io/v1/namespaces/${NS}/${plural}/${NAME}/${what}`;
	const options = await user.applyToFetchOptions({method: 'PUT', headers: {}});
	const fetch = (await import('node-fetch')).default;
	const r = await fetch(user.getCurrentCluster().server + path,
		{...options, method: 'PUT', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body ?? {})});
	assert.equal(r.status, want, await r.text());
}

let vm, vmi, vmim, pods;
const patchVM = (body, how, more = {}) =>
	custom.patchNamespacedCustomObject({...API, plural: 'virtualmachines', name: NAME, body, ...more}, how);
const isVM = (status) => vm.wait((s) => s.get()?.status?.printableStatus === status, `the VM is ${status}`);
const isRunning = (but) => vmi.wait((s) => s.get()?.status?.phase === 'Running' && s.get().metadata.uid !== but && s.get(),
	'the VMI runs');
const isPaused = (s) => (s.get().status.conditions ?? []).some((c) => c.type === 'Paused');
const isElsewhere = (before) => vmi.wait((s) => s.get().status.nodeName !== before.status.nodeName && s.get(),
	'the VMI is elsewhere', 180);
const succeeded = () => {
	const phases = vmim.all().map((m) => m.status?.phase);
	assert(!phases.includes('Failed'), JSON.stringify(vmim.all()));
	return phases.filter((p) => p === 'Succeeded').length;
};

const steps = {
	async namespace() {
		await admin.makeApiClient(k8s.CoreV1Api).createNamespace({body: {metadata: {name: NS}}});
		for (const role of ['admin', 'kubevirt.io:migrate'])
			await admin.makeApiClient(k8s.RbacAuthorizationV1Api).createNamespacedRoleBinding({namespace: NS, body: {
				metadata: {name: role.replace(':', '-')},
				roleRef: {apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: role},
				subjects: [{apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: USER}]}});
	},

	async rights() {
		const told = await refused(403, () => custom.listNamespacedCustomObject({...API, namespace: 'default', plural: 'virtualmachines'}));
		assert.match(told.message, /cannot list resource "virtualmachines"/);
		const review = await user.makeApiClient(k8s.AuthorizationV1Api).createSelfSubjectAccessReview({body: {spec: {
			resourceAttributes: {namespace: NS, verb: 'create', group: 'kubevirt.io', resource: 'virtualmachines'}}}});
		assert.equal(review.status.allowed, true);
	},

	async create() {
		vm = new Store('virtualmachines');
		vmi = new Store('virtualmachineinstances');
		vmim = new Store('virtualmachineinstancemigrations');
		pods = new Store('pods', () => core.listNamespacedPod({namespace: NS}));
		for (const s of [vm, vmi, vmim, pods])
			await s.informer.start();
		const file = k8s.loadYaml(fs.readFileSync(process.env.CLIENT_VM, 'utf8'));
		file.metadata.namespace = NS;
		const made = await generic.create(file);
		assert(made.metadata.uid && made.spec.runStrategy === 'Always');
	},

	async running() {
		await isRunning();
		await isVM('Running');
		const phases = [...new Set(vmi.events.map(([, o]) => o.status?.phase).filter(Boolean))];
		assert.deepEqual(vmi.get().status.phaseTransitionTimestamps.map((p) => p.phase), PHASES);
		assert.deepEqual(phases, PHASES.filter((p) => phases.includes(p))); // two may come in one write
		assert.equal(phases[0], 'Pending');
	},

	async patch() {
		await patchVM({metadata: {labels: {tier: 'web'}, annotations: {why: 'a merge'}}}, MERGE);
		await patchVM([{op: 'test', path: '/metadata/annotations/why', value: 'a merge'},
			{op: 'remove', path: '/metadata/annotations/why'}], JSON_PATCH);
		await vm.wait((s) => s.get().metadata.labels?.tier === 'web' && !s.get().metadata.annotations?.why,
			'the informer tells of the patches');
		const found = await custom.listNamespacedCustomObject({...API, plural: 'virtualmachines', labelSelector: 'tier=web'});
		assert.deepEqual(found.items.map((o) => o.metadata.name), [NAME]);
	},

	async conflict() {
		const old = await generic.read({apiVersion: 'kubevirt.io/v1', kind: 'VirtualMachine', metadata: {name: NAME, namespace: NS}});
		await patchVM({metadata: {labels: {newer: 'yes'}}}, MERGE);
		old.metadata.labels.newer = 'no';
		assert.match((await refused(409, () => generic.replace(old))).message, /the object has been modified/);
	},

	async apply() {
		const apply = (tier, fieldManager, force) => patchVM({apiVersion: 'kubevirt.io/v1', kind: 'VirtualMachine',
			metadata: {name: NAME, annotations: {'example.org/tier': tier}}}, APPLY, {fieldManager, force});
		await apply('gold', 'one', false);
		assert.match((await refused(409, () => apply('silver', 'two', false))).message, /conflict with "one"/);
		const made = await apply('silver', 'two', true);
		assert.equal(made.metadata.annotations['example.org/tier'], 'silver');
		const again = await apply('silver', 'two', false);
		assert.deepEqual(again.metadata.managedFields, made.metadata.managedFields);
	},

	async pause() {
		await put('virtualmachineinstances', 'pause', {}, 200);
		await vmi.wait(isPaused, 'the VMI is paused');
		await isVM('Paused');
		await put('virtualmachineinstances', 'unpause', {}, 200);
		await vmi.wait((s) => !isPaused(s), 'the VMI is not paused');
		await isVM('Running');
	},

	// The client's own handler asks for Kubernetes' protocols; its hook takes a socket that asks for KubeVirt's.
	async console() {
		let said = '', hear;
		const heard = new Promise((resolve) => { hear = resolve; });
		const handler = new WebSocketHandler(user, (uri, _, options) => new WebSocket(uri, ['plain.kubevirt.io'], options));
		const ws = await handler.connect(`/apis/subresources.kubevirt.io/v1/namespaces/${NS}/virtualmachineinstances/${NAME}/console`);
		ws.onmessage = ({data}) => {
			said += data.toString();
			if (said.includes('tick '))
				hear();
		};
		const late = setTimeout(() => { ws.terminate(); hear(); }, 90000);
		await heard;
		clearTimeout(late);
		assert.equal(ws.protocol, 'plain.kubevirt.io');
		ws.close();
		assert(said.includes('tick '), said);
	},

	async migrate() {
		const before = await isRunning();
		await custom.createNamespacedCustomObject({...API, plural: 'virtualmachineinstancemigrations', body: {
			apiVersion: 'kubevirt.io/v1', kind: 'VirtualMachineInstanceMigration', metadata: {generateName: 'by-node-'},
			spec: {vmiName: NAME}}});
		await vmim.wait(() => succeeded() === 1, 'the move succeeds', 180);
		const after = await isElsewhere(before);
		assert(after.status.migrationState.completed && after.metadata.uid === before.metadata.uid);
	},

	async evict() {
		const before = await isRunning();
		const {items} = await core.listNamespacedPod({namespace: NS, labelSelector: `vm.kubevirt.io/name=${NAME}`});
		const [pod] = items.filter((p) => p.status.phase === 'Running' && p.spec.nodeName === before.status.nodeName);
		const name = pod.metadata.name;
		const told = await refused(429, () => core.createNamespacedPodEviction({name, namespace: NS, body: {metadata: {name}}}));
		assert.match(told.message, /evacuation/);
		await isElsewhere(before);
		await vmim.wait(() => succeeded() === 2, "the evacuation's move succeeds", 60);
	},

	async stop() {
		await put('virtualmachines', 'stop', {}, 202);
		await vmi.wait((s) => !s.get(), 'the VMI is gone');
		await isVM('Stopped');
		assert.equal(vm.get().spec.runStrategy, 'Halted');
	},

	async start() {
		await put('virtualmachines', 'start', {}, 202);
		await isRunning();
	},

	async restart() {
		const {uid} = (await isRunning()).metadata;
		await put('virtualmachines', 'restart', {gracePeriodSeconds: 0}, 202);
		await isRunning(uid);
		await isVM('Running');
	},

	async compare() {
		const counts = [];
		for (const s of [vm, vmi, vmim, pods])
			counts.push(await s.isAsListed());
		assert.deepEqual(counts.slice(0, 3), [1, 1, 2]);
		assert(counts[3] >= 1, `${counts}`);
	},

	async delete() {
		assert.deepEqual([await vm.isAsListed(), await vmi.isAsListed(), await vmim.isAsListed()], [1, 1, 0]); // moves end with their VMI
		await custom.deleteNamespacedCustomObject({...API, plural: 'virtualmachines', name: NAME, body: {propagationPolicy: 'Foreground'}});
		await vm.wait((s) => !s.get(), 'the VM is gone');
		await vmi.wait((s) => !s.get(), 'the VMI is gone');
		assert.equal(vm.events.at(-1)[0], 'delete');
		assert.equal(await vm.isAsListed() + await vmi.isAsListed(), 0);
		for (const s of [vm, vmi, vmim, pods])
			await s.informer.stop();
	},
};

for (const name of process.env.CLIENT_STEPS.split(' ')) {
	try {
		await steps[name]();
	} catch (e) {
		console.log(`FAIL ${name}: ${e.stack ?? e}`);
		process.exit(1);
	}
	console.log(`ok ${name}`);
}
process.exit(0);
