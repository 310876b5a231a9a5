"""The rendered pod runs as a process: what the manifest expects of it, through all of its life."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

from tests.broker.proxy import Proxy, proxied
from tests.broker.workload import PARTITIONS
from tests.broker.world import World
from tests.helm.chart import Helm, Object, only
from tests.helm.pod import Pod
from tests.helm.prober import LIVENESS, PROBES, READINESS, STARTUP, Prober
from tests.helm.release import Release
from tests.support.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.embedded import EmbeddedBroker

pytestmark = [
    *(pytest.mark.helm, pytest.mark.broker, pytest.mark.timeout(1800)),
    pytest.mark.usefixtures("boxes"),
]

BEHIND: Final = 8_000
"""How many records have to wait for it to be called overloaded."""
OVERLOAD_S: Final = 3.0
REMEMBERED: Final = 20_000
"""Records before the restore: their changelog is long enough to be seen on a slow link."""
SLOW_S: Final = 0.1
"""How long each 64 KiB take on that link."""


@pytest.fixture
def world(kafka: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """With as many records as a test asks for, or hardly any."""
    group, count = f"pod-{time.time_ns()}", getattr(request, "param", 100)
    with World(kafka.client_properties, tmp_path, group, count=count) as own:
        own.create()
        yield own


def verify_served(prober: Prober, since_s: float, until_s: float) -> None:
    """All that time every probe held; too late were fewer answers in a row than it may miss."""
    for probe in PROBES:
        asked = prober.answers(probe, since_s)
        answers = [each for each in asked if each.at_s + each.took_s < until_s]
        assert len(answers) > 5, f"{probe} was hardly asked"
        assert {each.status for each in answers} <= {200, 0}, [a for a in answers if a.status]
        rows = [(status, len(list(row))) for status, row in groupby(a.status for a in answers)]
        missed = max((count for status, count in rows if status == 0), default=0)
        assert missed < prober.may_miss(probe), f"{probe}: {rows}"


def wait_gone(prober: Prober) -> None:
    """Until each probe was asked once more and found nobody."""
    eventually(lambda: all(prober.course(probe)[-1:] == [0] for probe in PROBES))


def verify_left(prober: Prober, pod: Pod) -> None:
    """Ready went away for good, however busy the machine is; alive it was to the end."""
    course = prober.course(READINESS, pod.told_s)
    assert 200 not in course[1:], f"it is ready again: {course}"
    assert prober.course(LIVENESS, pod.told_s) in ([200, 0], [0])


def test_the_root_of_a_pod_cannot_be_written_and_its_mounts_can(helm: Helm, world: World) -> None:
    (pod,) = Release(helm, world).pods
    refused = ["/", "/etc", "/usr", "/usr/bin", "/etc/ringfence", str(pod.code), sys.prefix]
    taken = ["/var/lib/ringfence", "/tmp", "/dev/shm"]  # noqa: S108 - the pod's own
    script = 'for at in "$@"; do touch "$at/written" && echo "$at"; done 2>/dev/null'
    assert pod.shell(script, *refused, *taken).split() == taken
    assert "Read-only file system" in pod.shell("touch /written 2>&1 || true")
    told = pod.shell("id -u; id -g; grep -E 'CapEff|NoNewPrivs' /proc/self/status").split()
    assert told == ["10001", "10001", "CapEff:", "0" * 16, "NoNewPrivs:", "1"]


def instead(objects: list[Object], one: Object) -> list[Object]:
    """A release whose pods run a container of `helm test` in the place of the service."""
    of_test, found = only(objects, "Pod")["spec"], deepcopy(objects)
    pod = only(found, "StatefulSet")["spec"]["template"]["spec"]
    pod |= {"volumes": of_test["volumes"], "securityContext": of_test["securityContext"]}
    pod["containers"] = [one | {"name": "ringfence"}]
    return found


def test_the_containers_of_helm_test_find_all_well(helm: Helm, world: World) -> None:
    release = Release(helm, world)
    (pod,) = release.pods
    check, ready = only(release.objects, "Pod")["spec"]["containers"]
    asked = ready["args"][-1]
    assert asked == "http://demo-ringfence.streams.svc:8081/readyz"
    ready["args"][-1] = f"http://127.0.0.1:{pod.probes.port}/readyz"
    beside = [
        Pod(instead(release.objects, one), world.folder, 7, release.secrets)
        for one in (check, ready)
    ]
    told = [each.run() for each in beside]
    assert "is good." in told[0], told[0]
    assert "Connection refused" in told[1], told[1]
    pod.start()
    pod.wait_until_ready()
    assert beside[1].run().startswith("200 ")
    for host, status in (("demo-ringfence.streams.svc:8080", 200), ("rebound.example:8080", 421)):
        assert pod.ask("/v1/info", headers={"Host": host}).status == status, "nobody is asked who"
    pod.delete()


def flood(world: World, pod: Pod) -> None:
    """Have many records wait for a pod until it has ended."""
    while not pod.ended:
        if world.sent - world.decided < BEHIND:
            world.send(BEHIND)


@pytest.mark.parametrize("world", [200_000], indirect=True)
def test_a_pod_that_is_overloaded_serves_its_probes_and_leaves_in_the_middle(
    helm: Helm, world: World, say: Callable[[str], None]
) -> None:
    (pod,) = Release(helm, world).pods
    with Prober(pod) as prober:
        pod.start()
        pod.wait_until_ready()
        eventually(lambda: prober.course(READINESS)[-1:] == [200], pod)
        loaded_s = time.monotonic()
        with ThreadPoolExecutor(1) as sender:
            flooded = sender.submit(flood, world, pod)
            time.sleep(OVERLOAD_S)  # noqa: TID251 - the overload has to last while the probes are asked
            took_s = pod.delete()
            flooded.result(60)
        wait_gone(prober)
        world.verify_nothing_is_open()
        behind = world.sent - world.decided
    assert behind > 0, "it was done before it was asked to leave: that is no overload"
    verify_served(prober, loaded_s, pod.told_s)
    verify_left(prober, pod)
    say(
        f"asked to leave with {behind} records waiting, it had left after {took_s:.2f} s; "
        f"the slowest answer to a probe took {prober.slowest_s():.2f} s"
    )
    pod.start()
    world.wait_decided()
    pod.delete()
    world.verify()
    world.verify_store(volume=pod.volume.name)


@pytest.fixture
def link(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, Proxy]]:
    """A broker, and a way to it that can be slow."""
    broker, proxy = proxied(tmp_path / "broker")
    with broker, proxy:
        yield broker, proxy


def test_a_pod_on_an_empty_volume_is_alive_and_not_ready_until_all_is_restored(
    helm: Helm,
    link: tuple[EmbeddedBroker, Proxy],
    tmp_path: Path,
    say: Callable[[str], None],
) -> None:
    broker, proxy = link
    through = {"bootstrap.servers": f"127.0.0.1:{proxy.port}"}
    with World(
        broker.client_properties, tmp_path, "restore", count=22_000, service_client=through
    ) as world:
        world.create()
        (pod,) = Release(helm, world).pods
        pod.start()
        world.send(REMEMBERED)
        world.wait_decided()
        pod.delete()
        shutil.rmtree(pod.volume)
        proxy.slow_s = SLOW_S
        with Prober(pod) as prober:
            began_s = time.monotonic()
            pod.start()
            # Asked while it restores: a partition that is assigned again later restores nothing.
            eventually(lambda: len(pod.restored) == PARTITIONS and all(pod.restored), pod)
            pod.wait_until_ready()
            ready_s = time.monotonic()
            eventually(lambda: prober.course(READINESS)[-1:] == [200], pod)
            proxy.slow_s = 0.0
            world.send()
            world.wait_decided()
            pod.delete()
            wait_gone(prober)
        verify_restore(prober, began_s)
        verify_left(prober, pod)
        say(f"ready after {ready_s - began_s:.1f} s of a restore on a slow link")
        world.verify()
        world.verify_store(volume=pod.volume.name)


def verify_restore(prober: Prober, began_s: float) -> None:
    """Started before it is ready, alive all the time, and not ready with the right words."""
    assert prober.course(LIVENESS) == [0, 200, 0], "alive from its first answer to its last"
    started = prober.first(STARTUP, 200)
    ready = prober.first(READINESS, 200)
    waited = [a for a in prober.answers(READINESS, started.at_s) if a.at_s < ready.at_s]
    told = [a for a in waited if "changelog records remain" in a.body]
    assert len(told) > 10, f"the restore was not seen: {waited[-3:]}"
    limit_s = prober.allowed_s(STARTUP)
    assert started.at_s - began_s < limit_s, f"the kubelet would have restarted it: {limit_s} s"
