"""`ringfence plan`: computes, without a service, how many ids an address has to remember.

The formula is that of `POST …:plan` (`ringfence_service.queries.sizing`). Where that measures the
rate and knows the partitions of a running service, this takes both from the command line.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final, get_args

from ringfence_service.cli.cells import Cell, count, size, span
from ringfence_service.cli.page import Facts, Page, Title
from ringfence_service.cli.screen import CommandOutput
from ringfence_service.config.addresses import AddressSettings, pattern_fault
from ringfence_service.config.keys import InvalidValueError, keys_of
from ringfence_service.config.model import FastPath, Scope, ServiceSettings
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.formatting import duration, plural, short_duration_ms
from ringfence_service.native.path import chosen
from ringfence_service.queries import sizing
from ringfence_service.queries.sizing import AcceptRates
from ringfence_state.strategies.registry import DEFAULT, STRATEGIES

_SCOPES: Final = get_args(Scope)
_PLANNED: Final = tuple(name for name in STRATEGIES if AddressSettings(strategy=name).size_of_ids)
_DEFAULT_MEMORY_MB: Final = ServiceSettings().cache_memory_mb
_DEL: Final = "\x7f"
_DEVIATIONS: Final = 6
"""By how many standard deviations the largest share of ids may exceed the mean: by more once in
10^9.
"""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The options of one call, as the user wrote them."""

    rate: float
    """Accepted messages per second of the address."""
    window: str
    """The longest delay of a duplicate, as `30m`."""
    strategy: str = DEFAULT
    scope: str = "address"
    partitions: int | None = None
    """Partitions over which scope `partition` or `id` spreads the address; None: the default."""
    busiest: float | None = None
    """Accepted messages per second of the busiest of them; None: evenly spread."""
    pattern: str = "#"
    """The pattern of the addresses that the plan is for."""


def plan(request: PlanRequest, screen: CommandOutput) -> None:
    """Show the size, its cost, and the settings to write; raise ExitError for a wrong option."""
    found = planned(request)
    screen.show(found, lambda: _page(found))
    if screen.as_json:
        return
    for line in ("", *found["toml"].splitlines()):
        screen.line(line)
    default = f"{found['setting']} = {found['default']:,}"
    if found["default_is_enough"]:
        screen.note(f"The default, {default}, is enough; write less only to save memory.")
    if _path() == "python" and found["cache_memory_mb"] > _DEFAULT_MEMORY_MB:
        screen.note("The compiled fast path would keep 3 bytes of an id in memory.")


def planned(request: PlanRequest) -> dict[str, Any]:
    """Return the plan as the document of `--json`; raise ExitError for a wrong option."""
    settings = _settings(request.strategy)
    window_ms = _window_ms(request.window)
    partitions = _partitions(request)
    rates = _rates(request, window_ms, partitions)
    time_key = settings.remembered_by.time_key
    needed = sizing.sized(rates, window_ms, partitions, _path(), is_window=bool(time_key))
    both = f"--rate {request.rate:,.10g} and --window {request.window}"
    if needed is None:
        raise _wrong(
            f"{both} need more than {sizing.SIZE_MAX:,} ids on one partition; shorten the window, "
            "or spread the messages over more addresses or, with --scope partition or id, over "
            "more --partitions."
        )
    memory_mb = max(_DEFAULT_MEMORY_MB, sizing.round_up(needed.cache_memory_mb))
    if not _may_be(memory_mb):
        raise _wrong(
            f"{both} need {memory_mb:,} MiB of memory, more than cache_memory_mb may be; shorten "
            f"the window{', use --strategy ring,' if time_key else ''} or give each part of the "
            "inputs a service.group_id of its own."
        )
    fault = pattern_fault(request.pattern)
    if fault is not None:
        raise _wrong(f"--address {request.pattern!r} is not a pattern: {fault}; correct it.")
    shares = partitions if request.scope == "id" and not time_key else 1
    if needed.size * shares > sizing.SIZE_MAX:
        raise _wrong(
            f"{both} need {needed.size * shares:,} ids on all partitions, and id_cache_size may be "
            f"{sizing.SIZE_MAX:,}; shorten the window, or use --strategy window."
        )
    default: int = getattr(settings, settings.size_of_ids)
    lasts_ms: float = getattr(settings, time_key) if time_key else math.inf
    return {
        "strategy": request.strategy,
        "scope": request.scope,
        "retry_window_ms": window_ms,
        "messages_per_second": rates.total,
        "busiest_partition_messages_per_second": rates.busiest,
        "partitions": partitions,
        "ids_needed": needed.ids_needed,
        "safety_factor": sizing.SAFETY,
        "setting": settings.size_of_ids,
        "recommended": needed.size * shares,
        "default": default,
        "default_is_enough": default >= needed.size * shares and lasts_ms >= window_ms,
        "default_reach_ms": min(sizing.reach_ms(-(-default // shares), rates) or 0, lasts_ms),
        "memory_bytes": needed.memory_bytes,
        "disk_bytes": needed.disk_bytes,
        "changelog_bytes": needed.changelog_bytes,
        "restore_ms": needed.restore_ms,
        "load_ms": needed.load_ms,
        "measured_id_bytes": sizing.ID_BYTES,
        "cache_memory_mb": memory_mb,
        "toml": _toml(request, settings, needed.size * shares, memory_mb, window_ms),
    }


def _path() -> FastPath:
    """Return the fast path that a service runs here by default."""
    return chosen(ServiceSettings().fast_path).name


def _settings(strategy: str) -> AddressSettings:
    """Return the default settings of a strategy that has a size in ids."""
    usable = " or ".join(f"--strategy {name}" for name in _PLANNED)
    if strategy not in STRATEGIES:
        raise _wrong(f"--strategy {strategy!r} is none of {', '.join(STRATEGIES)}; write {usable}.")
    settings = AddressSettings(strategy=strategy)
    if not settings.remembers:
        raise _wrong(f"--strategy {strategy} remembers nothing; write {usable}.")
    if not settings.size_of_ids:
        key = settings.remembered_by.size_key
        raise _wrong(
            f"--strategy {strategy} remembers numbers of publishers, so its size depends on "
            f"neither rate nor time: set {key} to the number of publishers, or write {usable}."
        )
    return settings


def _partitions(request: PlanRequest) -> int:
    """Return how many partitions decide the address."""
    if request.scope == "id":
        return request.partitions or ServiceSettings().by_address_partitions
    return request.partitions or 1


def _rates(request: PlanRequest, window_ms: int, partitions: int) -> AcceptRates:
    """Return the rates of the address and of its busiest deciding partition.

    With scope `id` a hash spreads ids, so that shares differ by chance.
    """
    if not 0 < request.rate <= sizing.RATE_MAX:
        raise _wrong(
            f"--rate {request.rate:,.10g} cannot be planned for; write accepted messages per "
            f"second, above 0 and up to {sizing.RATE_MAX:,.0f}."
        )
    if request.scope not in _SCOPES:
        raise _wrong(f"--scope {request.scope!r} is neither {' nor '.join(_SCOPES)}; write one.")
    is_spread = request.partitions is not None or request.busiest is not None
    if request.scope == "address" and is_spread:
        raise _wrong(
            "With scope address one partition decides all messages of an address: leave out "
            "--partitions and --busiest, or add --scope partition."
        )
    if request.scope == "id" and request.busiest is not None:
        raise _wrong("With scope id a hash of the ids spreads messages: leave out --busiest.")
    evenly = request.rate / partitions
    if request.scope == "id":
        ids = max(1.0, evenly * window_ms / 1000)
        return AcceptRates(request.rate, min(request.rate, evenly * (1 + _DEVIATIONS / ids**0.5)))
    busiest = evenly if request.busiest is None else request.busiest
    if not evenly <= busiest <= request.rate:
        raise _wrong(
            f"--busiest {busiest:,.10g} does not fit --rate {request.rate:,.10g} on "
            f"{plural(partitions, 'partition')}; write {evenly:,.10g} to {request.rate:,.10g}."
        )
    return AcceptRates(request.rate, busiest)


def _window_ms(text: str) -> int:
    found = short_duration_ms(text)
    if found is None or not 0 < found <= sizing.RETRY_WINDOW_MS_MAX:
        longest = sizing.RETRY_WINDOW_MS_MAX // 86_400_000
        raise _wrong(
            f"--window {text!r} is not a duration of up to {longest} days; write 30s, 90m, 2h or "
            "7d."
        )
    return found


def _may_be(memory_mb: int) -> bool:
    """Return whether this is a valid `cache_memory_mb`."""
    try:
        keys_of(ServiceSettings)["cache_memory_mb"].read(memory_mb)
    except InvalidValueError:
        return False
    return True


def _toml(
    request: PlanRequest,
    settings: AddressSettings,
    size_of_ids: int,
    memory_mb: int,
    window_ms: int,
) -> str:
    """Return the settings to write: those of the address, and the memory that they need."""
    by = settings.remembered_by
    lines = []
    if memory_mb > _DEFAULT_MEMORY_MB:
        shared = "times workers" if request.scope == "address" else "shared by all workers"
        lines += ["[service]", f"cache_memory_mb = {memory_mb}   # {shared}", ""]
    # JSON escapes what TOML does, except for DEL.
    name = json.dumps(request.pattern, ensure_ascii=False).replace(_DEL, "\\u007f")
    lines.append(f"[addresses.{name}]")
    if request.strategy != DEFAULT:
        lines.append(f'strategy = "{request.strategy}"')
    if by.time_key:
        lines.append(f"{by.time_key} = {window_ms}")
    return "\n".join([*lines, f"{by.size_key} = {size_of_ids}"])


def _page(document: dict[str, Any]) -> Page:
    partitions, rate = document["partitions"], document["messages_per_second"]
    busiest = document["busiest_partition_messages_per_second"]
    spread: list[tuple[str, Cell]] = [
        ("partitions that decide", count(partitions)),
        ("busiest, per second", _rate(busiest)),
    ]
    rows: list[tuple[str, Cell]] = [
        ("retry window", span(document["retry_window_ms"])),
        ("messages per second", _rate(rate)),
        *(() if document["scope"] == "address" else spread),
        ("ids needed", count(document["ids_needed"])),
        ("recommended", count(document["recommended"], "strong")),
        ("default", count(document["default"])),
        ("default covers", span(document["default_reach_ms"])),
        ("memory", size(document["memory_bytes"])),
        ("disk", size(document["disk_bytes"])),
        ("changelog", size(document["changelog_bytes"])),
        ("restore", span(document["restore_ms"])),
        ("first load", span(document["load_ms"])),
    ]
    is_divided = document["scope"] == "id" and document["strategy"] == DEFAULT
    each = "" if partitions == 1 or is_divided else " on each partition"
    head = (
        f"{document['setting']} = {document['recommended']:,}{each} recognises copies up to "
        f"{duration(document['retry_window_ms'])} late"
    )
    return [Title(head), Facts([(name, cell._replace(right=False)) for name, cell in rows])]


def _rate(per_second: float) -> Cell:
    return Cell(str(per_second), f"{per_second:,.1f}")


def _wrong(sentence: str) -> ExitError:
    return ExitError(ExitCode.USAGE, sentence)
