"""A node is lost: it is switched off by the fence agent, and its VMs run elsewhere, each of them once."""
import contextlib
import os
import signal
import statistics
import time

import ferrytest as ft
import pytest
from conftest import own_cluster, running_elsewhere as running
from lostnode import agent, argv_of, copies, lose, outer, switch_on, watch_until_it_answers

NODES = 3
SILENCE = 4
RUNS = int(os.environ.get("FERRY_FENCE_RUNS", "1"))


@pytest.fixture(scope="module")
def boxes(images):
    """Three nodes that are fenced after four seconds by a program that ends a node's pid namespace."""
    with own_cluster("fencing", NODES) as c:
        agent(c)
        c.api.patch("FerryConfig", "ferry", {"spec": {"fencing": "Agent", "fenceAgent": {
            "program": "plug", "silenceSeconds": SILENCE, "timeoutSeconds": 10}}})
        yield c


@pytest.mark.parametrize("how", ["power", "agent"])
def test_a_lost_node_is_fenced_and_its_vm_answers_elsewhere(boxes, images, how):
    c, times = boxes, []
    with running(c, images, "lost") as vmi:
        for _ in range(RUNS):
            node = vmi["status"]["nodeName"]
            argv = argv_of(outer(c, node))
            epoch = (c.api.find("NodeFence", node) or {}).get("spec", {}).get("epoch", 0)
            time.sleep(11)  # one that is younger may have a pod that was only not seen yet
            lose(c, node, how)
            ran, answers, vmi = watch_until_it_answers(c, vmi, "lost", 60)
            times.append((ran, answers))
            fence = c.api.get("NodeFence", node)
            assert fence["spec"]["epoch"] == epoch + 1 and fence["status"]["epoch"] == epoch + 1
            assert fence["status"]["state"] == "Proven" and fence["status"]["exitCode"] == 0, fence
            assert fence["status"]["message"] == f"{node} is off"
            assert vmi["status"]["nodeName"] != node
            switch_on(c, node, argv)
            assert [n for n, _ in copies(c, "lost")] == [vmi["status"]["nodeName"]]
    for what, values in (("runs", sorted(t[0] for t in times)), ("answers", sorted(t[1] for t in times))):
        print(f"{how}: {len(values)} nodes lost, silence {SILENCE} s: the guest {what} after "
              f"median {statistics.median(values):.1f} s, p95 {values[int(len(values) * 0.95)]:.1f} s, "
              f"worst {values[-1]:.1f} s")
    assert min(t[0] for t in times) < 20


def test_without_a_proof_nothing_starts_elsewhere(boxes, images):
    c = boxes
    agent(c, fails=True)
    try:
        with running(c, images, "unproven") as vmi:
            node, uid = vmi["status"]["nodeName"], vmi["metadata"]["uid"]
            argv = argv_of(outer(c, node))
            lose(c, node, "agent")
            try:
                fence = c.api.wait("NodeFence", node, lambda f: f and f["status"].get("state") == "Failed" and
                                   f["status"]["epoch"] == f["spec"]["epoch"], 30)
                assert fence["status"]["exitCode"] == 3 and "the plug is stuck" in fence["status"]["message"], fence
                time.sleep(3)
                now = c.api.get("VirtualMachineInstance", "unproven")
                assert now["metadata"]["uid"] == uid and [n for n, _ in copies(c, "unproven")] == [node]
                assert ft.Guest(ft.vmi_address(vmi)).status()["bootID"]
                agent(c)  # the operator sees to the plug: the next try proves it
                _, _, now = watch_until_it_answers(c, vmi, "unproven", 90)
                assert now["status"]["nodeName"] != node
            finally:
                with contextlib.suppress(ProcessLookupError, OSError):
                    os.kill(c.pid(node), signal.SIGCONT)
            switch_on(c, node, argv)
    finally:
        agent(c)


def test_a_node_that_is_heard_of_in_time_is_left_alone(boxes, images):
    c = boxes
    with running(c, images, "brief") as vmi:
        node = vmi["status"]["nodeName"]
        before = c.api.find("NodeFence", node)
        pid = c.pid(node)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(SILENCE / 2 - 0.5)
        os.kill(pid, signal.SIGCONT)
        time.sleep(SILENCE + 1)
        assert c.api.find("NodeFence", node) == before
        assert c.api.get("VirtualMachineInstance", "brief")["metadata"]["uid"] == vmi["metadata"]["uid"]


def test_what_the_api_may_choose_is_a_name_of_a_program(boxes):
    for spec, why in (({"program": "../../bin/sh"}, "spec.fenceAgent.program"), ({"program": ".x"}, "fence agents"),
                      ({}, "program")):
        with pytest.raises(ft.ApiError) as e:
            boxes.api.patch("FerryConfig", "ferry", {"spec": {"fenceAgent": {"program": None, **spec}}})
        assert e.value.status == 422 and why in str(e.value), e.value
    with pytest.raises(ft.ApiError) as e:
        boxes.api.patch("FerryConfig", "ferry", {"spec": {"fencing": "Agent", "fenceAgent": None}})
    assert e.value.status == 422 and "fencing Agent needs the program that fences" in str(e.value), e.value
