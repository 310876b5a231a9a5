"""Files that differ while instances are replaced: what one passes on, another has no route for."""

from dataclasses import replace

import pytest

from ringfence_client.headers import DUPLICATE_ID, DeadLetter
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.tasks import Hop, Task
from ringfence_service.kafka.topics import config_topic, fallback
from ringfence_service.metadata.file_routes import GroupFileRoutes, InstanceFileRoutes
from ringfence_service.metadata.record import read
from ringfence_service.metadata.settings import SettingsOverlay
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.transaction import TransactionAbortedError
from ringfence_state.model import PartitionId
from tests.fakes.clients import FakeClients
from tests.loop.test_two_hops import ROUTE
from tests.simulation.disk import Disk
from tests.support.living import GROUP, Living, turn_until_running, waiting_for
from tests.unit.service.processor.test_active_settings import put, put_raw

MORE = RouteSettings(name="more", inputs=("^mo.*",), address="{key}", output="more.unique")
MORE_KEYS = {"inputs": ["more"], "address": "{key}", "output": "more.unique"}
OLD, NEW = (ROUTE,), (ROUTE, MORE)
NOWHERE = fallback(GROUP)


class Rolling:
    """Instances with a file each; the older one alone reads by-address, unless a test says more."""

    def __init__(self, first: tuple[RouteSettings, ...] = OLD) -> None:
        self.living = Living(ROUTE, by_address_partitions=2)
        for name in ("more", "more.unique", "more.dlq"):
            self.living.cluster.create_topic(name, 1)
        self.deciding = self.started("0", first, Hop.ADDRESSES)
        turn_until_running(self.deciding)

    def started(self, instance: str, routes: tuple[RouteSettings, ...], hop: Hop) -> Loop:
        living = self.living
        service = replace(living.config.service, instance=instance)
        config = replace(living.config, service=service, routes=routes)
        clients = FakeClients(living.cluster, GROUP, instance, part=Task(0, hop))
        return Loop(
            config,
            clients,
            Disk(living.cluster.step),
            living.clock,
            living.watch,
            living.retry_policy,
        )

    def carried(self, instance: str, routes: tuple[RouteSettings, ...], *ids: str) -> None:
        """An instance with this file starts, and passes these on."""
        carrying = self.started(instance, routes, Hop.INPUTS)
        turn_until_running(carrying)
        self.send(*ids)
        turns(carrying)
        carrying.close(leaves=True)

    def send(self, *ids: str) -> None:
        for each in ids:
            name = each.encode()
            self.living.write(name, (DUPLICATE_ID, name), key=name, topic="more")

    def decided_by(self, instance: str, routes: tuple[RouteSettings, ...]) -> Loop:
        """The instance that decides is replaced."""
        self.deciding.close(leaves=True)
        self.deciding = self.started(instance, routes, Hop.ADDRESSES)
        turn_until_running(self.deciding)
        turns(self.deciding)
        return self.deciding

    @property
    def outcome(self) -> tuple[list[str], list[str]]:
        """What went out of the route, and what went to the dead letters of none."""
        living = self.living
        letters = living.values(NOWHERE) if living.cluster.log(NOWHERE, 0) else []
        return sorted(living.values("more.unique")), letters


def turns(loop: Loop, count: int = 4) -> None:
    for _ in range(count):
        loop.turn()


@pytest.mark.row(34)
def test_what_a_newer_file_has_a_route_for_waits_until_this_instance_has_it_too() -> None:
    rolling = Rolling()
    rolling.carried("1", NEW, "a", "b", "c")
    turns(rolling.deciding)
    assert rolling.outcome == ([], [])
    said = waiting_for(rolling.living) or ""
    assert "instance 1 has a route for more" in said
    assert "replace this instance" in said
    rolling.decided_by("0", NEW)
    assert rolling.outcome == (["a", "b", "c"], [])


@pytest.mark.row(34)
def test_an_instance_that_starts_again_with_its_older_file_waits_as_before() -> None:
    rolling = Rolling()
    rolling.carried("1", NEW, "a")
    rolling.decided_by("0", OLD)
    assert rolling.outcome == ([], [])
    rolling.decided_by("0", NEW)
    assert rolling.outcome == (["a"], [])


@pytest.mark.row(34)
def test_a_route_that_a_newer_file_takes_away_holds_up_nobody_who_has_that_file() -> None:
    rolling = Rolling(NEW)
    rolling.carried("1", NEW, "a")
    turns(rolling.deciding)
    rolling.carried("1", NEW, "b")
    rolling.decided_by("0", OLD)
    assert rolling.outcome == (["a"], ["b"])
    assert waiting_for(rolling.living) is None
    rolling.carried("1", NEW, "c")
    rolling.decided_by("0", NEW)
    assert rolling.outcome == (["a", "c"], ["b"])


@pytest.mark.row(34)
def test_an_instance_with_a_new_name_and_an_older_file_is_not_taken_for_the_newest() -> None:
    """As a pod that is added from an older revision, or one whose name is random."""
    rolling = Rolling()
    rolling.carried("1", NEW, "a")
    rolling.decided_by("7", OLD)
    assert rolling.outcome == ([], [])
    assert "instance 1 has a route for more" in (waiting_for(rolling.living) or "")
    rolling.decided_by("8", NEW)
    assert rolling.outcome == (["a"], [])


@pytest.mark.row(34)
def test_a_new_name_counts_as_others_with_the_same_routes() -> None:
    rolling = Rolling(NEW)
    rolling.carried("1", NEW, "a")
    turns(rolling.deciding)
    rolling.carried("1", NEW, "b")
    rolling.carried("2", OLD)  # the first time, so nobody knows how new its file is
    rolling.decided_by("7", OLD)
    assert rolling.outcome == (["a"], [])
    rolling.carried("0", OLD)  # it had the route, so its file is newer
    turns(rolling.deciding)
    assert rolling.outcome == (["a"], ["b"])


@pytest.mark.row(34)
def test_what_is_left_of_an_update_that_was_rolled_back_becomes_dead_letters() -> None:
    rolling = Rolling()
    rolling.carried("1", NEW, "a")
    turns(rolling.deciding)
    assert rolling.outcome == ([], [])
    rolling.carried("1", OLD)
    turns(rolling.deciding)
    assert rolling.outcome == ([], ["a"])
    (letter,) = rolling.living.cluster.records(NOWHERE)
    cause = dict(letter.headers or [])[DeadLetter.CAUSE] or b""
    assert b"belongs to no route any more" in cause


def test_a_route_that_was_set_over_rest_counts_as_it_is_set_whatever_files_say() -> None:
    rolling = Rolling()
    rolling.carried("1", NEW, "a")
    put(rolling.living, SettingsOverlay(routes={"more": None}))
    turns(rolling.deciding)
    assert rolling.outcome == ([], ["a"])


@pytest.mark.row(34)
def test_settings_that_do_not_hold_here_may_have_the_route_that_is_wanting() -> None:
    rolling = Rolling()
    put_raw(rolling.living, 1, {"format": 2, "routes": {"more": MORE_KEYS}})
    rolling.carried("1", NEW, "a")
    turns(rolling.deciding)
    assert rolling.outcome == ([], [])
    assert "run the newer version" in (waiting_for(rolling.living) or "")


def test_what_was_carried_by_settings_that_this_process_has_not_read_is_not_given_up() -> None:
    rolling = Rolling()
    put(rolling.living, SettingsOverlay(routes={"more": MORE_KEYS}))
    with pytest.raises(TransactionAbortedError) as aborted:
        rolling.deciding.decider("k", PartitionId("more", 0))
    assert aborted.value.fault.waits_for is None  # it only has to read
    rolling.carried("1", OLD, "a")
    turns(rolling.deciding)
    assert rolling.outcome == (["a"], [])


def test_the_routes_of_a_file_are_written_when_they_change_and_not_at_every_start() -> None:
    living = Living(ROUTE)

    def started(*routes: RouteSettings) -> list[object]:
        living.config = replace(living.config, routes=routes)
        living.loop().close()
        records = living.cluster.records(config_topic(GROUP))
        return [read(record.value) for record in records if b"file-routes" in (record.key or b"")]

    first = {"inputs": {"orders": ["orders"]}}
    assert started(ROUTE) == [first | {"first": True}]
    more = {"inputs": {"orders": ["orders"], "more": ["^mo.*"]}}
    assert started(*NEW)[1:] == started(*NEW)[1:] == [more]
    assert started(replace(MORE, name="other", scope="partition"))[1:] == [more, {"inputs": {}}]


A, B = {"r": ("a",)}, {"r": ("b",)}
FIRST = True


@pytest.mark.parametrize(
    ("written", "newer"),
    [
        ([], None),
        ([("1", A, FIRST)], "1"),
        ([("1", B, FIRST)], None),
        ([("1", A, FIRST), ("0", B, not FIRST)], None),
        ([("0", B, not FIRST), ("1", A, FIRST)], "1"),
        ([("0", A, not FIRST)], None),
        # Nobody knows how new a file is that comes with a new name, unless others have the same.
        ([("1", A, FIRST), ("0", B, FIRST)], "1"),
        ([("2", B, not FIRST), ("1", A, FIRST), ("0", B, FIRST)], "1"),
        ([("1", A, FIRST), ("2", B, not FIRST), ("0", B, FIRST)], None),
        ([("2", B, not FIRST), ("1", A, FIRST), ("3", B, not FIRST), ("0", B, FIRST)], None),
        ([("1", A, FIRST), ("2", B, FIRST), ("0", B, FIRST)], "1"),
    ],
)
def test_of_two_files_the_one_that_was_written_later_is_newer(
    written: list[tuple[str, dict[str, tuple[str, ...]], bool]], newer: str | None
) -> None:
    files = GroupFileRoutes()
    for offset, (instance, inputs, is_first) in enumerate(written):
        record = InstanceFileRoutes(instance, inputs).record(is_first=is_first)
        assert files.take(record.key, record.value, offset)
    assert files.newer("0", "a", ()) == newer


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{}", b'{"inputs":[]}'])
def test_what_tells_no_routes_counts_as_none(value: bytes | None) -> None:
    files = GroupFileRoutes()
    assert files.take(b'["file-routes","1"]', value, 7)
    assert files.has(InstanceFileRoutes("1", {}))
    assert files.newer("0", "orders", ()) is None
    assert not files.take(b'["file-routes"]', value, 8)
