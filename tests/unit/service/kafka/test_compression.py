"""Which codec a large record needs, and for how long the producer compresses."""

import random
import zlib

import pytest

from ringfence_service.kafka.compression import FAST, GZIP, TIGHTEST, ZSTD, Codec, Compression
from tests.support.helpers import rows

LIMIT = 100_000
TEXT = b'{"order": 1, "lines": [1, 2, 3]}' * 10_000
LINES = b"".join(b"line %d;" % (number * 7919 % 100_003) for number in range(34_000))
"""What the default level of gzip packs, and not the fast one."""
NOISE = random.Random(1).randbytes(90_000)
FAR = NOISE * 3
"""It repeats beyond the 32 KiB in which gzip looks."""


def needed(compression: Compression, value: bytes, *, came_packed: bool = True) -> Codec | None:
    return compression.needed_for([b"key", value], LIMIT, may_be_zstd=came_packed)


@rows(
    ("value", "came_packed", "codec"),
    {
        "text": (TEXT, True, FAST),
        "text of an input that takes it as it is": (TEXT, False, FAST),
        "lines": (LINES, False, GZIP),
        "what only zstd packs": (FAR, True, ZSTD),
        "the same of an input that takes it as it is": (FAR, False, None),
        "nothing": (b"", True, FAST),
    },
)
def test_the_codec_is_the_first_that_makes_the_record_fit(
    value: bytes, codec: Codec | None, *, came_packed: bool
) -> None:
    assert needed(Compression(), value, came_packed=came_packed) == codec


def test_gzip_is_tried_up_to_the_limit_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of a gigabyte costs no more than what the topic takes of it."""
    tried = list[int]()
    genuine = zlib.compressobj

    class Counting:
        def __init__(self, level: int, wbits: int) -> None:
            self._genuine = genuine(level, wbits=wbits)
            tried.append(0)

        def compress(self, data: memoryview) -> bytes:
            tried[-1] += len(data)
            return self._genuine.compress(data)

    monkeypatch.setattr(zlib, "compressobj", Counting)
    parts = [NOISE] * 100
    assert Compression().needed_for(parts, LIMIT, may_be_zstd=False) is None
    assert tried
    assert max(tried) < 3 * LIMIT


def test_what_does_not_shrink_costs_its_samples_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zlib, "compressobj", None)
    noise = [b"key", NOISE * 2]
    assert Compression().needed_for(noise, LIMIT, may_be_zstd=False) is None


def test_a_long_value_that_does_not_shrink_leaves_room_for_headers_that_do() -> None:
    parts = [b"key", NOISE, b"name", TEXT]
    assert Compression().needed_for(parts, LIMIT, may_be_zstd=False) == FAST


def test_text_of_which_a_part_does_not_shrink_is_tried() -> None:
    parts = [b"key", NOISE[: LIMIT // 2] + TEXT]
    assert Compression().needed_for(parts, LIMIT, may_be_zstd=False) == FAST


def test_nothing_is_compressed_where_the_configuration_says_so() -> None:
    compression = Compression("none")
    assert compression.is_off
    assert not compression.is_configured
    assert needed(compression, TEXT) is None
    assert not compression.strengthen()


def test_a_codec_that_is_configured_stays() -> None:
    compression = Compression("lz4")
    assert compression.is_configured
    assert not compression.strengthen()
    assert compression.codec is None


def test_the_producer_changes_once_for_all_records_that_need_no_more() -> None:
    compression = Compression()
    codecs = FAST, GZIP, ZSTD
    for number, codec in enumerate(codecs):
        assert not compression.use(codec)
        assert all(compression.use(weaker) for weaker in codecs[: number + 1])
        assert compression.codec == codec


def test_the_producer_stops_compressing_some_seconds_after_the_last_record_that_needs_it() -> None:
    compression = Compression()
    compression.use(FAST)
    for now_s in (100.0, 105.0, 110.0):
        compression.begin(now_s)
        assert compression.codec == FAST
    compression.use(FAST)
    compression.begin(111.0)
    compression.begin(121.0)
    assert compression.codec == FAST
    compression.begin(121.1)
    assert compression.codec is None


def test_a_transaction_whose_first_records_need_it_does_not_stop_it() -> None:
    compression = Compression()
    compression.use(GZIP)
    compression.begin(0.0)
    compression.use(GZIP)
    compression.begin(1000.0)
    assert compression.codec == GZIP


@pytest.mark.parametrize("before", [None, GZIP])
def test_a_refusal_leads_to_zstd_and_then_to_its_highest_level_for_a_few_seconds(
    before: Codec | None,
) -> None:
    compression = Compression()
    if before is not None:
        compression.use(before)
    compression.begin(0.0)
    assert compression.strengthen()
    compression.begin(1.0)
    assert compression.codec == ZSTD
    assert compression.strengthen()
    for now_s in (2.0, 5.0):
        compression.begin(now_s)
        assert compression.codec == TIGHTEST
    assert needed(compression, FAR) == ZSTD
    assert compression.use(ZSTD)
    compression.begin(6.1)
    assert compression.codec == ZSTD
    assert compression.strengthen(), "it was of use"


def test_the_highest_level_is_not_tried_again_where_it_was_of_no_use() -> None:
    compression = Compression()
    assert [compression.strengthen() for _ in range(4)] == [True, True, False, False]
    codecs = list[Codec | None]()
    for now_s in (0.0, 6.0, 67.0):
        compression.begin(now_s)
        codecs.append(compression.codec)
    assert codecs == [TIGHTEST, ZSTD, None]
    assert compression.strengthen(), "it was long ago"
