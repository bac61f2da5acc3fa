"""What a scrape tells, and that it asks nobody: not the guest, not QEMU, not the API server."""
import http.client
import os
import re
import subprocess
import time

import ferrytest as ft
from conftest import migrations, node_of, other

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"^({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9.]+(?:e[+-]?[0-9]+)?|NaN|[+-]Inf)$")


def parse(text):
    """{(name, frozenset of labels): value}; raises where the text is not Prometheus' format 0.0.4."""
    out, family, closed, types = {}, None, set(), {}
    assert text.endswith("\n")
    for line in text.splitlines():
        m = re.match(rf"^# (HELP|TYPE) ({NAME}) (.+)$", line)
        if m:
            if m[1] == "TYPE":
                assert m[2] not in types and m[3] in ("counter", "gauge", "histogram", "summary", "untyped"), line
                types[m[2]] = m[3]
            if m[2] != family:
                assert m[2] not in closed, f"{m[2]} does not stand together"
                closed.add(family)
                family = m[2]
            continue
        m = SAMPLE.match(line)
        assert m, f"no sample: {line!r}"
        pairs = re.findall(rf"({LABEL})", m[2] or "")
        names = [p.split("=")[0] for p in pairs]
        assert len(set(names)) == len(names), f"a label stands twice: {line}"
        key = (m[1], frozenset(pairs))
        assert key not in out, f"twice: {line}"
        name = m[1]
        if types.get(family) == "histogram":
            name = re.sub("_(bucket|sum|count)$", "", name)
        if name != family:
            assert name not in closed, f"{name} does not stand together"
            closed.add(family)
            family = name
        out[key] = float(m[3])
    return out


def scrape(cluster, address, port):
    conn = http.client.HTTPSConnection(address, port, context=cluster.api.ctx, timeout=5)
    conn.request("GET", "/metrics")
    r = conn.getresponse()
    text = r.read().decode()
    conn.close()
    assert r.status == 200 and r.getheader("Content-Type").startswith("text/plain"), (r.status, text)
    return parse(text)


def node(cluster, name):
    return scrape(cluster, f"{ft.UNDERLAY}.{10 + int(name.split('-')[1])}", 8186)


def controller(cluster):
    return scrape(cluster, f"{ft.UNDERLAY}.1", 8443)


def value(metrics, family, /, **labels):
    want = {f'{k}="{v}"' for k, v in labels.items()}
    found = [v for (n, have), v in metrics.items() if n == family and want <= have]
    assert len(found) <= 1, (family, labels)
    return found[0] if found else None


def test_disks_and_vcpus_are_counted_while_somebody_scrapes(cluster, make_vm):
    """The first of this file: nobody has scraped before."""
    api = cluster.api
    # it takes its first disk for the one it starts from, and writes to the last
    address = make_vm("counted", disks=[{"name": n, "disk": {"bus": "virtio"}} for n in ("first", "work")],
                      volumes=[{"name": n, "emptyDisk": {"capacity": "32Mi"}} for n in ("first", "work")])
    where = node_of(api, "counted")
    g = ft.Guest(address)
    assert ft.launcher_of(cluster, where, "counted")["usageCommands"] == 0

    def told(family, **labels):
        return value(node(cluster, where), family, name="counted", namespace="default", node=where, **labels)

    def written(drive):
        return told("kubevirt_vmi_storage_write_traffic_bytes_total", drive=drive)
    ft.poll(lambda: written("work") == 0, 30, "the launcher was asked for the disks")
    g.command(f"disk {8 << 20}")
    ft.poll(lambda: (written("work") or 0) >= 8 << 20, 60, "what the guest wrote is counted")
    assert written("first") == 0
    assert told("kubevirt_vmi_storage_iops_write_total", drive="work") > 0
    assert told("kubevirt_vmi_storage_write_times_seconds_total", drive="work") > 0
    assert told("kubevirt_vmi_storage_iops_read_total", drive="work") > 0
    ran = ft.poll(lambda: told("kubevirt_vmi_vcpu_seconds_total", id="0", state="running"), 20, "the vCPU's thread")
    assert 0 < ran < told("kubevirt_vmi_cpu_usage_seconds_total") + 10
    assert told("kubevirt_vmi_vcpu_delay_seconds_total", id="0") >= 0
    assert ft.launcher_of(cluster, where, "counted")["usageCommands"] > 0


def test_what_a_vm_asks_for_its_network_and_its_open_console(cluster, make_vm):
    api = cluster.api
    address = make_vm("open", labels={"tier": "front"})
    who = {"name": "open", "namespace": "default"}

    def shown():
        c = controller(cluster)
        return c if value(c, "kubevirt_vmi_status_addresses", address=address, **who) else None
    c = ft.poll(shown, 20, "the address in the VMI's status")
    assert value(c, "kubevirt_vmi_status_addresses", vnic_name="default", type="ExternalInterface", **who) == 1
    assert value(c, "kubevirt_vm_resource_requests", resource="memory", unit="bytes", source="guest", **who) == 128 * 2**20
    assert value(c, "kubevirt_vm_resource_requests", resource="cpu", unit="cores", source="guest_effective", **who) == 1
    for family in ("kubevirt_vm_vnic_info", "kubevirt_vmi_vnic_info"):
        assert value(c, family, vnic_name="default", binding_type="core", network="pod networking", **who) == 1, family
    api.patch("VirtualMachine", "open", {"metadata": {"labels": {"team.example/owner": "a"}}})
    ft.poll(lambda: value(controller(cluster), "kubevirt_vm_labels", label_team_example_owner="a", **who), 20,
            "the VM's labels")

    def consoles():
        m = scrape(cluster, f"{ft.UNDERLAY}.1", 6443)
        return value(m, "kubevirt_console_active_connections", vmi="open", namespace="default")
    assert consoles() is None
    p = subprocess.Popen([f"{cluster.bin}/ferry", "console", "open", "--kubeconfig", cluster.kubeconfig],
                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ft.poll(lambda: consoles() == 1, 20, "the console is counted")
    finally:
        p.kill()
        p.wait()
    ft.poll(lambda: consoles() is None, 20, "until it ends")


def test_figures_follow_a_vm_and_its_move(cluster, make_vm):
    api = cluster.api
    address = make_vm("figures", labels={"app.kubernetes.io/name": "say-hi"})
    source = node_of(api, "figures")
    to = other(source)

    def sampled(where):
        m = node(cluster, where)
        cpu = value(m, "kubevirt_vmi_cpu_usage_seconds_total", name="figures", namespace="default", node=where)
        return m if cpu else None
    m = ft.poll(lambda: sampled(source), 20, "the node has looked at the VM")
    assert value(m, "kubevirt_vmi_memory_domain_bytes", name="figures",
                 kubernetes_vmi_label_app_kubernetes_io_name="say-hi") == 128 * 2**20
    assert value(m, "kubevirt_vmi_memory_resident_bytes", name="figures") > 2**20
    received = value(m, "kubevirt_vmi_network_receive_bytes_total", name="figures", interface="default")
    for _ in range(20):
        ft.Guest(address).status()
    ft.poll(lambda: value(node(cluster, source), "kubevirt_vmi_network_receive_bytes_total", name="figures",
                          interface="default") > received, 20, "what the guest received is counted")
    assert value(m, "kubevirt_vmi_migration_data_bytes_total", name="figures") is None
    assert value(node(cluster, to), "kubevirt_vmi_memory_domain_bytes", name="figures") is None
    c = controller(cluster)
    assert value(c, "kubevirt_vmi_info", name="figures", phase="running", node=source) == 1
    assert value(c, "kubevirt_vm_info", name="figures", status="running", status_group="running") == 1

    with migrations(api, bandwidthPerMigration="8Mi"):
        api.create(ft.migration("m-figures", "figures"))
        m = ft.poll(lambda: (lambda x: x if value(x, "kubevirt_vmi_migration_data_remaining_bytes", name="figures")
                             else None)(node(cluster, source)), 30, "the move shows")
        assert value(m, "kubevirt_vmi_migration_data_bytes_total", name="figures", node=source) >= 128 * 2**20
        assert value(m, "kubevirt_vmi_migration_memory_transfer_rate_bytes", name="figures") is not None
        assert value(controller(cluster), "kubevirt_vmi_migrations_in_running_phase") == 1
        obj = api.wait("VirtualMachineInstanceMigration", "m-figures", lambda v: ft.phase(v) in ft.FINAL, 120)
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    ft.poll(lambda: value(node(cluster, to), "kubevirt_vmi_memory_domain_bytes", name="figures"), 10, "it is there now")
    assert value(node(cluster, source), "kubevirt_vmi_migration_data_bytes_total", name="figures") is None
    ft.poll(lambda: value(node(cluster, source), "kubevirt_vmi_memory_domain_bytes", name="figures") is None, 10,
            "and no more here")
    c = controller(cluster)
    assert value(c, "kubevirt_vmi_migration_succeeded", vmi="figures", vmim="m-figures") == 1
    assert value(c, "kubevirt_vmi_migration_end_time_seconds", name="figures", status="Succeeded") > 1e9
    assert value(c, "kubevirt_vmi_migrations_in_running_phase") == 0
    assert 0 < value(c, "ferry_vmi_migration_pause_seconds", vmim="m-figures") < 60


def test_the_rate_of_writing_is_measured_and_a_move_is_foreseen_by_it(cluster, make_vm):
    """24 MiB written at half the limit: 24, 12 and fewer MiB follow the first pass, which knows of them."""
    api = cluster.api
    g = ft.Guest(make_vm("writes"))
    g.command("verify 24 1")
    ft.poll(lambda: g.status()["memChecks"], 60, "the guest has filled its memory")
    g.command("dirty 24 8")
    where = node_of(api, "writes")

    def rate():
        v = value(node(cluster, where), "kubevirt_vmi_dirty_rate_bytes_per_second", name="writes", node=where)
        return v if v and v > 4 * 2**20 else None
    assert ft.poll(rate, 90, "the rate of writing is measured") < 40 * 2**20  # a machine that is busy lets it catch up
    told, start = [], time.time()
    with migrations(api, bandwidthPerMigration="16Mi"):
        made = api.create(ft.migration("m-writes", "writes"))
        for when, _, obj in api.watch("VirtualMachineInstanceMigration", "m-writes",
                                      made["metadata"]["resourceVersion"], 120):
            if ft.phase(obj) in ft.FINAL:
                break
            left = obj.get("status", {}).get("ferry", {}).get("secondsLeft")
            if left is not None:
                told.append((when - start, when - start + left))
    took = when - start
    assert ft.phase(obj) == "Succeeded", obj["status"]
    late = [whole for at, whole in told if at > took / 3]
    assert late and all(0.6 * took < whole < 1.6 * took for whole in late), (took, told)


def test_twenty_scrapes_a_second_ask_nobody(cluster, make_vm):
    make_vm("asked", guest=False)
    where = node_of(cluster.api, "asked")
    ft.poll(lambda: value(node(cluster, where), "kubevirt_vmi_cpu_usage_seconds_total", name="asked"), 20,
            "the node has looked at the VM")

    def requests():
        """By verb; without what nodes and controllers send by the clock (leases, heartbeats) and our own."""
        m = scrape(cluster, f"{ft.UNDERLAY}.1", 6443)
        return sum(v for (n, labels), v in m.items() if n == "apiserver_request_total" and
                   ('verb="LIST"' in labels or 'verb="GET"' in labels or 'verb="list"' in labels or
                    'verb="get"' in labels))

    def window(scrapes):
        qmp, api, end = ft.qmp_commands(cluster, where, "asked"), requests(), time.monotonic() + 3
        for _ in range(60):
            if scrapes:
                node(cluster, where)
                controller(cluster)
            time.sleep(max(0.0, (end - time.monotonic()) / 60))
        return ft.qmp_commands(cluster, where, "asked") - qmp, requests() - api

    def asked():
        return ft.launcher_of(cluster, where, "asked")["usageCommands"]
    idle, before, busy = window(False), asked(), window(True)
    assert asked() - before <= 2  # each five seconds, however often somebody scrapes
    assert idle[0] == 0 and busy[0] == 0, (idle, busy)
    assert busy[1] <= idle[1] + 2, (idle, busy)
