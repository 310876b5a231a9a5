"""Target: the topic and partition that a record goes to, accepted or not.

A record that itself names no allowed topic, or one that is absent, is rejected; a topic that the
configuration names and that is absent is the broker's fault, and waited for.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from ringfence.headers import Reason
from service.cluster import TopicInfo
from service.inlet import Inlet
from service.plan import BY_KEY
from service.record import Record
from service.rejection import RejectedError
from service.route import Headers, Template, UnrenderableError, is_legal_topic
from service.topics import Targets
from state.edit import Source

# A record in a batch of its own: batch header, record header and lengths, rounded down:
# what may still fit is for the broker to refuse.
_RECORD_OVERHEAD_BYTES: Final = 68


class TargetMissingError(Exception):
    """A topic is absent as far as is known: that is the broker's fault, not the record's."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


class Target(NamedTuple):
    """A topic, and where in it: the partition for records with a key, and for those without."""

    topic: str
    record_bytes_max: int
    keyed: int
    unkeyed: int

    def partition(self, key: bytes | None) -> int:
        """The partition of one record, or BY_KEY."""
        return self.unkeyed if key is None else self.keyed


@dataclass(frozen=True, slots=True)
class Placing:
    """What decides where records of all partitions go."""

    targets: Targets
    fallback: str
    compressing: bool
    """Only the broker knows then whether a record fits its topic."""
    refused: Mapping[tuple[Source, int], RejectedError]
    """Records that the broker refused by themselves, found by halving a batch."""
    homeless: AbstractSet[tuple[Source, int]]
    """Those of them that their dead-letter topic refused as well."""

    def output(self, inlet: Inlet, key: bytes | None, headers: Headers, address: str) -> Target:
        """Where an accepted record goes; RejectedError when it names no allowed topic."""
        return self.named(inlet, inlet.route.output, key, headers, address)

    def check_refusal(self, place: tuple[Source, int]) -> None:
        """RejectedError where the broker has refused the record before."""
        refusal = self.refused.get(place)
        if refusal is not None:
            raise refusal

    def failure(self, source: Source, offsets: Sequence[int]) -> RejectedError | None:
        """Why the checks of a record are not run again: it was alone when they failed.

        It is read alone again, since batches do not grow before it is passed.
        """
        refusal = self.refused.get((source, offsets[0]))
        is_failure = refusal is not None and refusal.why.reason is Reason.FAILED_CHECK
        return refusal if is_failure and len(offsets) == 1 else None

    def check_size(
        self, target: Target, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        """RejectedError where the record is known not to fit."""
        if self.compressing:
            return
        size = size_bytes(key, value, headers)
        if size > target.record_bytes_max:
            cause = f"{size} bytes with its headers; {target.topic} takes {target.record_bytes_max}"
            raise RejectedError(Reason.TOO_LARGE, cause)

    def dead_letter(
        self,
        inlet: Inlet,
        record: Record,
        letter: Headers,
        address: str | None,
        reason: Reason,
        blamed: tuple[Source, int],
    ) -> Target:
        """The route's own topic where it takes the letter whole, else the fallback.

        `blamed` is the place of the record which the broker refuses where it refuses the letter.
        """
        key, template = record.key(), inlet.route.dead_letter
        has_own = (
            reason is not Reason.NO_OUTPUT
            and blamed not in self.homeless
            and not (address is None and template.constant is None)
        )
        if has_own:
            with suppress(RejectedError):
                target = self.named(inlet, template, key, letter, address or "")
                if size_bytes(key, record.value(), letter) <= target.record_bytes_max:
                    return target
        return self._found(inlet, self.fallback)

    def named(
        self,
        inlet: Inlet,
        template: Template,
        key: bytes | None,
        headers: Headers,
        address: str,
    ) -> Target:
        """The topic of a template; RejectedError when the record names none that is allowed."""
        name = template.constant
        if name is None:
            try:
                name = template.render(key, headers, address)
            except UnrenderableError as error:
                raise RejectedError(Reason.NO_OUTPUT, str(error)) from None
            allowed = inlet.route.settings.allowed_outputs
            if not is_legal_topic(name) or name not in allowed:
                raise RejectedError(Reason.NO_OUTPUT, f"{name[:249]!r} is not an allowed output")
        return self._found(inlet, name, is_chosen=template.constant is None)

    def _found(self, inlet: Inlet, name: str, *, is_chosen: bool = False) -> Target:
        info = self.targets.find(name)
        if info is None:
            if is_chosen and self.targets.is_absent(name):
                raise RejectedError(Reason.NO_OUTPUT, f"the topic {name} does not exist")
            raise TargetMissingError(name)
        return _target(inlet, name, info)


def _target(inlet: Inlet, name: str, info: TopicInfo) -> Target:
    """The input's partition where both topics have as many, else by key, else folded."""
    number = inlet.source.partition
    keyed = number if info.partitions == inlet.partitions else BY_KEY
    return Target(name, info.record_bytes_max, keyed, number % info.partitions)


def size_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """What a record takes in a batch of its own, uncompressed; a little less than it really is."""
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, header in headers:
        size += 2 + len(name) + len(header or b"")
    return size
