"""The sections of the configuration as frozen values, each key with its bounds and its default.

Names are the keys of the file. A value here was checked; nothing else in the service checks again.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from service.rules import Choice, Flag, Folder, OnlyNow, Text, Texts, Whole

TOPIC_SHAPE: Final = r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}"
"""What Kafka takes as the name of a topic."""

EXPRESSION_MARKER: Final = "^"
"""An input that starts with it is a regular expression."""

MissingOffset = Literal["earliest", "latest", "fail"]
LostOffset = Literal["fail", "earliest", "latest"]
ResetOffset = Literal["fail", "keep_state", "clear_state"]
ManagedBy = Literal["rest", "file"]
MissingId = Literal["pass", "stamp", "dead_letter"]

_NAME = r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]"
_GROUP = Text(_NAME + r"{1,180}", "a name of 1 to 180 letters, digits, dots, `_` and `-`")
_INSTANCE = Text(_NAME + r"{1,60}", "text of 1 to 60 letters, digits, dots, `_` and `-`")
_ROUTE_NAME = Text(r"[^\x00-\x1f/]{1,249}", "a name of 1 to 249 characters without `/`")
_INPUT = Text(
    rf"{TOPIC_SHAPE}|\^.{{1,1000}}",
    "a topic name or one regular expression that starts with ^",
)
_TOPIC = Text(TOPIC_SHAPE, "a topic name (1 to 249 letters, digits, dots, `_` and `-`)")
_TEMPLATE = Text(r".{1,1000}", "text of 1 to 1000 characters")
_ANY_TEXT = Text(r".*", "text")
_HOST = Text(r"[^\s/]{1,255}", "a host name or an address to listen on")

_ONE_WORKER = OnlyNow(Whole(1, 64), 1, "write workers = 1 and start one instance per worker")
_ONE_COUNT = OnlyNow(Whole(1, 10_000), 12, 'remove it: it serves scope = "address" only')
_NO_URL = OnlyNow(_ANY_TEXT, "", "remove it: instances do not forward to each other yet")
_SCOPE = Choice(
    ("partition",),
    later=("address",),
    later_mend='write scope = "partition"',
)
_HEADER_IDS = OnlyNow(_ANY_TEXT, "", 'write id = "" and let publishers set the header _DUPL_ID')


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """`[service]`: the consumer group, its batches, its clocks, its state."""

    group_id: Annotated[str, _GROUP] = "ringfence"
    instance: Annotated[str, _INSTANCE] = "0"
    workers: Annotated[int, _ONE_WORKER] = 1
    state_dir: Annotated[Path, Folder()] = Path("./state-data")
    batch_records_max: Annotated[int, Whole(1, 1_000_000)] = 10_000
    batch_bytes_max: Annotated[int, Whole(1024 * 1024, 1024**3)] = 64 * 1024 * 1024
    batch_wait_ms: Annotated[int, Whole(1, 10_000)] = 20
    transaction_timeout_ms: Annotated[int, Whole(1_000, 900_000)] = 10_000
    session_timeout_ms: Annotated[int, Whole(1_000, 1_800_000)] = 10_000
    cache_memory_mb: Annotated[int, Whole(1, 1_048_576)] = 256
    by_address_partitions: Annotated[int, _ONE_COUNT] = 12
    internal_replication: Annotated[int, Whole(1, 100, besides=(-1,))] = -1
    create_topics: Annotated[bool, Flag()] = False
    on_missing_offset: Annotated[MissingOffset, Choice(("earliest", "latest", "fail"))] = "earliest"
    on_lost_offset: Annotated[LostOffset, Choice(("fail", "earliest", "latest"))] = "fail"
    on_reset_offset: Annotated[ResetOffset, Choice(("fail", "keep_state", "clear_state"))] = "fail"
    managed_by: Annotated[ManagedBy, Choice(("rest", "file"))] = "rest"


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """`[api]`: where the admin API listens; port 0 is any free one."""

    host: Annotated[str, _HOST] = "127.0.0.1"
    port: Annotated[int, Whole(0, 65_535)] = 8080
    advertised_url: Annotated[str, _NO_URL] = ""
    peer_token_file: Annotated[str, _NO_URL] = ""


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """One of `[[routes]]`: which inputs, which address, which targets."""

    name: Annotated[str, _ROUTE_NAME] = ""
    inputs: Annotated[tuple[str, ...], Texts(_INPUT)] = ()
    scope: Annotated[Literal["partition"], _SCOPE] = "partition"
    address: Annotated[str, _TEMPLATE] = "{topic}"
    id: Annotated[str, _HEADER_IDS] = ""
    output: Annotated[str, _TEMPLATE] = "{topic}.unique"
    dead_letter: Annotated[str, _TEMPLATE] = "{topic}.dlq"
    allowed_outputs: Annotated[tuple[str, ...], Texts(_TOPIC)] = ()
    missing_id: Annotated[MissingId, Choice(("pass", "stamp", "dead_letter"))] = "pass"
    on_partitions_added: Annotated[Literal["fail", "keep"], Choice(("fail", "keep"))] = "fail"
