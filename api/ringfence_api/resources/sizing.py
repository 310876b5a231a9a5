"""Schemas of sizing plans: the cache size that a rate and a retry window need."""

from typing import Annotated, Any, Final, NamedTuple, Self
from urllib.parse import quote

from pydantic import BeforeValidator, Field

from ringfence_api.schemas import Document, Given, Held
from ringfence_service.config.addresses import LITERAL_MARKER, AddressSettings
from ringfence_service.config.model import FastPath
from ringfence_service.formatting import duration_ms
from ringfence_service.queries import sizing
from ringfence_service.queries.addresses import AddressAnswer
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.sizing import AcceptRates, RequiredSize, RingUsage

_WILD: Final = frozenset("*#()")


def _duration_ms(given: object) -> int:
    text = str(given) if isinstance(given, int | float | str) and given is not True else ""
    found = duration_ms(text) if len(text) <= 64 else None
    if found is None or not 0 < found <= sizing.RETRY_WINDOW_MS_MAX:
        raise ValueError(
            "a duration is a number of seconds, or text such as PT30M or 30m, of at most a year"
        )
    return found


class Need(Given):
    """The rate and the retry window that an address must cover."""

    retry_window: Annotated[
        int,
        BeforeValidator(_duration_ms, json_schema_input_type=str | float),
    ] = Field(
        description="The longest delay of a duplicate: seconds, or text such as `PT30M` or `30m`."
    )
    messages_per_second: float | None = Field(
        default=None,
        gt=0,
        le=sizing.RATE_MAX,
        allow_inf_nan=False,
        description="Accepted messages per second, on the whole address; by default measured.",
    )


class Request(Document):
    """A request to this API."""

    method: str = Field(description="The HTTP method.")
    path: str = Field(description="The path.")
    body: dict[str, Any] = Field(description="The JSON body.")


class SizingPlan(Document):
    """The size that an address needs, its cost, and the request that sets it."""

    address: str = Field(description="The address.")
    strategy: str = Field(
        description="The strategy that recognises duplicates, such as `ring` or `window`."
    )
    retry_window_ms: int = Field(description="The longest delay of a duplicate, in ms.")
    messages_per_second: float = Field(
        description="Rate of accepted messages of the whole address."
    )
    busiest_partition_messages_per_second: float = Field(
        description="Rate of accepted messages of the busiest partition."
    )
    rate_is_observed: bool = Field(
        description="Whether the rate was measured; false if it was given."
    )
    partitions: int = Field(
        description="Number of partitions that hold state of the address, each its own."
    )
    ids_needed: int = Field(description="Ids that the busiest partition needs, without reserve.")
    safety_factor: float = Field(description="Factor between the needed and the recommended size.")
    setting: str = Field(description="The setting: `id_cache_size` or `window_size`.")
    recommended: int = Field(description="Recommended size, in ids per deciding partition.")
    present: int = Field(description="Current size, in ids per deciding partition.")
    is_enough: bool = Field(description="Whether the current size is sufficient.")
    present_reach_ms: int | None = Field(
        description="How far back the current size remembers at this rate, in ms."
    )
    horizon_ms: int | None = Field(
        description="How far back the address remembers now, in ms; null until an id was evicted."
    )
    memory_bytes: int = Field(
        description="Memory on all partitions at the recommended size, in bytes."
    )
    disk_bytes: int = Field(
        description="Disk space on all partitions at the recommended size, in bytes."
    )
    changelog_bytes: int = Field(
        description="Size of the changelog per broker replica at the recommended size, in bytes."
    )
    restore_ms: int = Field(
        description="Time in which one worker restores the recommended size from the changelog "
        "when its disk is lost, in ms."
    )
    load_ms: int = Field(
        description="Time by which loading the recommended size delays the first records after a "
        "start, in ms."
    )
    measured_id_bytes: int = Field(description="Length of an id that the sizes in bytes assume.")
    request: Request | None = Field(
        description="The request that sets the size; null if the current size is sufficient."
    )
    complete: bool = Field(
        description="If false, another instance may hold more state of the address."
    )

    @classmethod
    def of(cls, answer: AddressAnswer, need: Need, path: FastPath | None = None) -> Self:
        """Calculate the plan. Raise NotPossible if the address has no size or no known rate.

        `path` is the fast path that runs; None if it is not known yet.
        """
        strategy = str(answer.settings["strategy"].value)
        keys = _SizeKeys.of(strategy)
        if not keys.size:
            raise NotPossible(_no_size(answer.address, strategy))
        rings = [
            RingUsage(each.ids_held or 0, each.oldest_time_ms, each.newest_time_ms)
            for each in answer.partitions
        ]
        rates, window_ms = _rates(answer.address, need, rings), need.retry_window
        size = sizing.sized(
            rates, window_ms, len(rings), path or "native", is_window=bool(keys.time)
        )
        if size is None:
            raise NotPossible(_too_large(answer.address))
        present = -(-int(answer.settings[keys.size].value) // answer.shares)
        is_enough = present >= size.ids_needed and _keeps(answer, keys, window_ms)
        return cls(
            address=answer.address,
            strategy=strategy,
            retry_window_ms=window_ms,
            messages_per_second=rates.total,
            busiest_partition_messages_per_second=rates.busiest,
            rate_is_observed=need.messages_per_second is None,
            partitions=len(rings),
            ids_needed=size.ids_needed,
            safety_factor=sizing.SAFETY,
            setting=keys.size,
            recommended=size.size,
            present=present,
            is_enough=is_enough,
            present_reach_ms=sizing.reach_ms(present, rates),
            horizon_ms=Held.of(answer.partitions).horizon_ms,
            memory_bytes=size.memory_bytes,
            disk_bytes=size.disk_bytes,
            changelog_bytes=size.changelog_bytes,
            restore_ms=size.restore_ms,
            load_ms=size.load_ms,
            measured_id_bytes=sizing.ID_BYTES,
            request=None if is_enough else _request(answer, keys, size, window_ms),
            complete=answer.complete,
        )


def _rates(address: str, need: Need, rings: list[RingUsage]) -> AcceptRates:
    if need.messages_per_second is not None:
        return sizing.asked(need.messages_per_second, rings)
    found = sizing.observed(rings)
    if found is None:
        sentence = (
            f"The rate of {address} is unknown, because it holds too few ids; "
            "send messages_per_second."
        )
        raise NotPossible(sentence)
    return found


class _SizeKeys(NamedTuple):
    """The settings that limit a strategy's ids in number and time; empty where nothing does."""

    size: str
    time: str

    @classmethod
    def of(cls, strategy: str) -> "_SizeKeys":
        settings = AddressSettings(strategy=strategy)
        return cls(settings.size_of_ids, settings.remembered_by.time_key)


def _keeps(answer: AddressAnswer, keys: _SizeKeys, window_ms: int) -> bool:
    """Return whether ids are held long enough; without a time setting they do not expire."""
    return not keys.time or int(answer.settings[keys.time].value) >= window_ms


def _request(answer: AddressAnswer, keys: _SizeKeys, size: RequiredSize, window_ms: int) -> Request:
    """Return the PUT that sets the size for this address only, and keeps its other settings."""
    address = answer.address
    opening, closing = LITERAL_MARKER
    pattern = f"{opening}{address}{closing}" if _WILD & set(address) else address
    settings = answer.settings.items()
    body: dict[str, Any] = {key: each.value for key, each in settings if each.pattern == pattern}
    body[keys.size] = max(size.size * answer.shares, int(answer.settings[keys.size].value))
    if keys.time:
        body[keys.time] = max(window_ms, int(answer.settings[keys.time].value))
    return Request(method="PUT", path=f"/v1/address-settings/{quote(pattern, safe='')}", body=body)


def _no_size(address: str, strategy: str) -> str:
    if not AddressSettings(strategy=strategy).remembers:
        return (
            f"The address {address} has strategy {strategy} and remembers no ids; "
            "set ring or window."
        )
    return (
        f"The address {address} has strategy {strategy}: it remembers the sequence numbers of "
        "publishers without a time limit; only ring and window have a size in ids."
    )


def _too_large(address: str) -> str:
    return (
        f"{address} would need more than {sizing.SIZE_MAX:,} ids on one partition; shorten the "
        "retry window, or spread the messages over more addresses or partitions."
    )
