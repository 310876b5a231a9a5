"""Before a partition is read: offset, changelog and store agree, or a policy says what to do."""

import pytest

from ringfence_service.config.model import ServiceSettings
from ringfence_service.config.tasks import Hop
from ringfence_service.dedup.partition import LogRange, TakeoverFacts
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.processor.takeover import (
    check_changelog,
    check_identity,
    short_logs,
    start_offset,
    store_fault,
)
from ringfence_state.model import PartitionId
from ringfence_state.offset_metadata import TOMBSTONES_KEPT_MS, OffsetMetadata
from ringfence_state.segment import FORMAT
from ringfence_state.store import StorePosition
from tests.support.deciding import IDENTITY, NOW_MS, World
from tests.support.helpers import ending, rows

STORE_AGE_MS_MAX = TOMBSTONES_KEPT_MS // 2
OURS = OffsetMetadata(
    19, FORMAT, IDENTITY.input_topic_id, IDENTITY.changelog_topic_id, changelog_start=5
)
FACTS = TakeoverFacts(50, OURS, LogRange(10, 100), LogRange(5, 20), IDENTITY)
STORE = StorePosition(IDENTITY, 50, 20, NOW_MS)
PARTITION = World().partition


def test_a_partition_that_only_passed_its_records_on_begins_to_decide() -> None:
    carried = OURS._replace(last_offset=-1, changelog_topic_id="", changelog_start=0)
    check_identity(PARTITION, FACTS._replace(metadata=carried))


@rows(
    ("position", "fault"),
    {
        "new": (None, None),
        "current": (STORE, None),
        "behind": (STORE._replace(input_next=3, changelog_next=5), None),
        "cluster": (STORE._replace(identity=IDENTITY._replace(cluster_id="x")), "another log"),
        "input": (STORE._replace(identity=IDENTITY._replace(input_topic_id="x")), "another log"),
        "changelog": (
            STORE._replace(identity=IDENTITY._replace(changelog_topic_id="x")),
            "another log",
        ),
        "format": (STORE._replace(identity=IDENTITY._replace(format=FORMAT + 1)), "another log"),
        "before the start": (STORE._replace(changelog_next=4), "outside"),
        "after the end": (STORE._replace(changelog_next=21), "outside"),
        "ahead of the offset": (STORE._replace(input_next=51), "ahead"),
        "just young enough": (STORE._replace(level_at_ms=NOW_MS - STORE_AGE_MS_MAX), None),
        "too old": (STORE._replace(level_at_ms=NOW_MS - STORE_AGE_MS_MAX - 1), "too old"),
    },
)
def test_a_store_is_wiped_for(position: StorePosition | None, fault: str | None) -> None:
    found = store_fault(position, FACTS, NOW_MS)
    assert (found is None) == (fault is None)
    assert (fault or "") in (found or "")


@pytest.mark.parametrize("knows", [False, True])
def test_a_store_that_knows_something_is_ahead_of_no_offset_at_all(*, knows: bool) -> None:
    store, facts = STORE._replace(input_next=int(knows)), FACTS._replace(committed_offset=None)
    assert (store_fault(store, facts, NOW_MS) is not None) is knows


@rows(
    ("facts", "short"),
    {
        "as long": (FACTS._replace(committed_offset=100), []),
        "a new input": (TakeoverFacts(None, None, LogRange(0, 0), LogRange(0, 0), IDENTITY), []),
        "input": (FACTS._replace(committed_offset=101), [PARTITION.source]),
        "input of others": (TakeoverFacts(101, None, *FACTS[2:]), [PARTITION.source]),
        "changelog": (FACTS._replace(changelog=LogRange(5, 19)), [PARTITION.changelog]),
        "another input": (
            FACTS._replace(committed_offset=101, metadata=OURS._replace(input_topic_id="x")),
            [],
        ),
        "another changelog": (
            FACTS._replace(
                changelog=LogRange(5, 19), metadata=OURS._replace(changelog_topic_id="x")
            ),
            [],
        ),
    },
)
def test_logs_are_short_that_end_before_what_was_committed(
    facts: TakeoverFacts, short: list[PartitionId]
) -> None:
    assert short_logs(PARTITION, facts) == short


@rows(
    ("told", "sentence"),
    {
        "not ours": (None, None),
        "agrees": (OURS, None),
        "a newer format": (OURS._replace(format=FORMAT + 1), "newer version"),
        "another changelog": (
            OURS._replace(changelog_topic_id="x"),
            "g.changelog.orders was deleted",
        ),
        "another input": (OURS._replace(input_topic_id="x"), "input orders was deleted"),
        "a beginning that is gone": (
            OURS._replace(changelog_start=4),
            "g.changelog.orders-1 below offset 5 were deleted",
        ),
    },
)
def test_offset_and_logs_belong_together(told: OffsetMetadata | None, sentence: str | None) -> None:
    facts = FACTS._replace(metadata=told)
    if sentence is None:
        check_identity(PARTITION, facts)
        return
    with ending(ExitCode.CONTRADICTION, sentence):
        check_identity(PARTITION, facts)


def test_a_changelog_that_ends_before_what_was_committed_was_truncated() -> None:
    check_changelog(PARTITION, FACTS, 20)
    check_changelog(PARTITION, FACTS._replace(metadata=None), 0)
    check_changelog(PARTITION, FACTS._replace(metadata=OURS._replace(last_offset=-1)), 0)
    with ending(ExitCode.CONTRADICTION, "truncated"):
        check_changelog(PARTITION, FACTS, 19)


RESET_KEEP = ServiceSettings(on_reset_offset="keep_state")
RESET_CLEAR = ServiceSettings(on_reset_offset="clear_state")


@rows(
    ("facts", "settings", "remembered", "start"),
    {
        "committed": (FACTS, ServiceSettings(), True, (50, False)),
        "new": (FACTS._replace(metadata=None), ServiceSettings(), False, (50, False)),
        "reset": (FACTS._replace(metadata=None), ServiceSettings(), True, None),
        "reset, keep": (FACTS._replace(metadata=None), RESET_KEEP, True, (50, False)),
        "reset, clear": (FACTS._replace(metadata=None), RESET_CLEAR, True, (50, True)),
        "reset, nothing to clear": (FACTS._replace(metadata=None), RESET_CLEAR, False, (50, False)),
        "expired, clear": (
            TakeoverFacts(None, None, LogRange(10, 100), LogRange(5, 20), IDENTITY),
            RESET_CLEAR,
            True,
            (10, True),
        ),
        "missing": (TakeoverFacts(None, None, *FACTS[2:]), ServiceSettings(), False, (10, False)),
        "missing, latest": (
            TakeoverFacts(None, None, *FACTS[2:]),
            ServiceSettings(on_missing_offset="latest"),
            False,
            (100, False),
        ),
        "missing, fail": (
            TakeoverFacts(None, None, *FACTS[2:]),
            ServiceSettings(on_missing_offset="fail"),
            False,
            None,
        ),
        "lost": (FACTS._replace(committed_offset=9), ServiceSettings(), True, None),
        "first": (FACTS._replace(committed_offset=10), ServiceSettings(), True, (10, False)),
        "at end": (FACTS._replace(committed_offset=100), ServiceSettings(), True, (100, False)),
        "beyond the end": (FACTS._replace(committed_offset=101), ServiceSettings(), True, None),
        "lost, earliest": (
            FACTS._replace(committed_offset=9),
            ServiceSettings(on_lost_offset="earliest"),
            True,
            (10, False),
        ),
        "lost, latest": (
            FACTS._replace(committed_offset=9),
            ServiceSettings(on_lost_offset="latest"),
            True,
            (100, False),
        ),
    },
)
def test_reading_starts_at(
    facts: TakeoverFacts,
    settings: ServiceSettings,
    *,
    remembered: bool,
    start: tuple[int, bool] | None,
) -> None:
    if start is not None:
        assert start_offset(PARTITION, facts, settings, remembered=remembered) == start
        return
    with ending(ExitCode.CONTRADICTION, r"set service\.on_"):
        start_offset(PARTITION, facts, settings, remembered=remembered)


@pytest.mark.parametrize("policy", ["latest", "fail"])
def test_what_was_passed_on_and_never_read_is_read_from_its_beginning(policy: str) -> None:
    passed_on = World(hop=Hop.ADDRESSES).partition
    facts = FACTS._replace(committed_offset=None, metadata=None)
    settings = ServiceSettings(on_missing_offset=policy)  # type: ignore[arg-type]  # a Literal
    assert start_offset(passed_on, facts, settings, remembered=False) == (10, False)


@pytest.mark.parametrize("offset", [9, 101])
def test_what_was_passed_on_and_is_gone_is_never_skipped(offset: int) -> None:
    passed_on = World(hop=Hop.ADDRESSES).partition
    lenient = ServiceSettings(on_lost_offset="latest")
    with pytest.raises(ExitError, match=r"earliest, and set service\.on_reset_offset"):
        start_offset(passed_on, FACTS._replace(committed_offset=offset), lenient, remembered=True)
