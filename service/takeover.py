"""Takeover: what must agree before a partition is read: offset, changelog, store, policies.

Pure checks on what was asked from broker and disk. In the order of the protocol: the committed
offset first, the ends of the logs after it, the store last.
"""

from dataclasses import replace
from typing import Final

from service.config import ServiceSettings
from service.errors import ExitCode, ExitError
from service.partition import Facts, Partition
from state.changelog import TOMBSTONES_KEPT_MS
from state.edit import Source
from state.run import FORMAT
from state.store import Position

STORE_AGE_MS_MAX: Final = TOMBSTONES_KEPT_MS // 2
"""Where nobody has set another `delete.retention.ms`."""


def store_fault(position: Position | None, facts: Facts, now_ms: int) -> str | None:
    """Why a store has to be wiped; None when its changelog tail is all that it lacks."""
    if position is None:
        return None
    if position.identity != facts.identity:
        return "it is a copy of another log or format"
    if not facts.changelog.start <= position.changelog_next <= facts.changelog.end:
        return "its changelog position lies outside the changelog"
    if position.input_next > (facts.committed_offset or 0):
        return "it is ahead of the committed offset"
    if is_too_old(position, now_ms, facts.tombstones_kept_ms):
        return "it is too old: the changelog may have dropped tombstones that it never saw"
    return None


def is_too_old(
    position: Position, now_ms: int, tombstones_kept_ms: int = TOMBSTONES_KEPT_MS
) -> bool:
    """Whether tombstones may be gone that came after the store was last level with its log.

    Half of the time for which the changelog keeps them is believed.
    """
    return now_ms - position.level_at_ms > tombstones_kept_ms // 2


def short_logs(partition: Partition, facts: Facts) -> list[Source]:
    """Of input and changelog, those that end before what was committed, and are the same topics."""
    told, identity, log = facts.metadata, facts.identity, partition.changelog
    found = []
    is_same = told is None or told.input_topic_id == identity.input_topic_id
    if is_same and facts.input.end < (facts.committed_offset or 0):
        found.append(partition.source)
    if (
        log
        and told
        and told.changelog_topic_id == identity.changelog_topic_id
        and facts.changelog.end <= told.last_offset
    ):
        found.append(log)
    return found


def check_settings(facts: Facts) -> None:
    """No internal topic has settings under which records or ids are lost, or exit 5."""
    if facts.problems:
        raise _contradiction("; ".join(map(str, facts.problems)))


def check_identity(partition: Partition, facts: Facts) -> None:
    """The committed offset and the changelog belong together, or exit 5."""
    told = facts.metadata
    if told is None:
        return
    name = partition.source
    if told.format > FORMAT:
        raise _contradiction(
            f"{name.topic}-{name.partition} was committed with state format {told.format}, "
            f"this version reads {FORMAT}; run the newer version."
        )
    # Before, another route may have passed its records on, and remembered nothing here.
    log = partition.changelog if told.changelog_topic_id else None
    if log and told.changelog_topic_id != facts.identity.changelog_topic_id:
        raise _contradiction(
            f"The changelog {log.topic} was deleted and made anew since the last "
            f"commit of {name.topic}-{name.partition}; {_RESET}"
        )
    if told.input_topic_id != facts.identity.input_topic_id:
        raise _contradiction(
            f"The input {name.topic} was deleted and made anew since the last commit; {_RESET}"
        )
    if log and facts.changelog.start > told.changelog_start:
        raise _contradiction(
            f"Records of the changelog {log.topic}-{log.partition} "
            f"below offset {facts.changelog.start} were deleted; {_RESET}"
        )


def check_changelog(partition: Partition, facts: Facts, changelog_next: int) -> None:
    """After the replay: everything that the offset metadata promises is there, or exit 5."""
    log = partition.changelog
    if log and facts.metadata is not None and changelog_next <= facts.metadata.last_offset:
        raise _contradiction(
            f"The changelog {log.topic}-{log.partition} ends at "
            f"{changelog_next}, but offset {facts.metadata.last_offset} was committed: it was "
            f"truncated; {_RESET}"
        )


def check_written(partition: Partition) -> None:
    """While it runs: the changelog took our records behind those that it had, or exit 5.

    To be called once it is known to be the same topic. What an aborted transaction has written may
    fill the gap, so a later takeover need not find it.
    """
    log = partition.changelog
    if log and partition.written_at is not None:
        raise _contradiction(
            f"The changelog {log.topic}-{log.partition} reached to {partition.changelog_next}, but "
            f"took a record at offset {partition.written_at}: it was truncated; {_RESET}"
        )


def start_offset(
    partition: Partition, facts: Facts, settings: ServiceSettings, *, remembered: bool
) -> tuple[int, bool]:
    """Where to read from, and whether the state has to be cleared first.

    `remembered` tells whether the replayed changelog holds anything, or, where there is none,
    whether the partition was read before.
    """
    name = f"{partition.source.topic}-{partition.source.partition}"
    clear = False
    if partition.inlet is None:  # what was passed on is decided, whatever holds for the inputs
        settings = replace(settings, on_missing_offset="earliest")
    if remembered and facts.metadata is None:
        if settings.on_reset_offset == "fail":
            raise _contradiction(
                f"The offset of {name} was reset by hand or has expired, but the state remembers "
                "ids; set service.on_reset_offset to keep_state or clear_state."
            )
        clear = settings.on_reset_offset == "clear_state"
    offset = facts.committed_offset
    if offset is None:
        return _by_policy(settings.on_missing_offset, "on_missing_offset", name, facts), clear
    if not facts.input.start <= offset <= facts.input.end:
        if partition.inlet is None:
            raise _contradiction(
                f"{name} has offsets {facts.input.start} to {facts.input.end}, its group is at "
                f"{offset}; reset the offsets of that group to the earliest, and set "
                "service.on_reset_offset to keep_state."
            )
        return _by_policy(settings.on_lost_offset, "on_lost_offset", name, facts), clear
    return offset, clear


def _by_policy(policy: str, setting: str, name: str, facts: Facts) -> int:
    if policy == "earliest":
        return facts.input.start
    if policy == "latest":
        return facts.input.end
    raise _contradiction(
        f"{name} has offsets {facts.input.start} to {facts.input.end}, the group is at "
        f"{facts.committed_offset}; set service.{setting} to earliest or latest."
    )


_RESET: Final = (
    "delete the group's offsets and set service.on_reset_offset to keep_state or clear_state."
)


def _contradiction(sentence: str) -> ExitError:
    return ExitError(ExitCode.CONTRADICTION, sentence)
