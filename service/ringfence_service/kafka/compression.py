"""Compression: how the producer compresses, and whether a large record then fits its topic.

A broker compares a batch as it was sent. What a publisher compressed may fit the next topic only
when it is compressed again, so the producer compresses for as long as there are such records
(ADR 28). Invariant: a codec that the configuration sets is used as it is, and no other.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

_BATCH_BYTES: Final = 128
"""A batch header, the lengths in a record, and what two versions of zlib may differ by."""

_CHUNK_BYTES: Final = 64 * 1024
"""How much gzip gets at once: a record that does not fit is given up this soon after its limit."""
_GZIP_FORMAT: Final = 31
"""For zlib."""

_SAMPLES: Final = 3
_SAMPLE_BYTES: Final = 2 * 1024
"""Enough to find what is compressed or encrypted already: gzip would waste 24 ns for each byte."""

_KEPT_S: Final = 10.0
"""How long the producer compresses after the last record that needs it: it is replaced to change.

Two changes and the transaction that is read again cost tenths of a second, and compression some
10 ns for each byte, so records of the kind cost little whether they are rare or frequent.
"""

_TIGHT_S: Final = 5.0
"""How long it compresses at the highest level, which takes ten times the CPU time of the default.

In that time the batch that was refused is read again.
"""


class Codec(NamedTuple):
    """A codec, and its `compression.level`: -1 is its default."""

    name: str
    level: int = -1


FAST: Final = Codec("gzip", 1)
"""Every client can read gzip. This level takes a third of the time of the default."""
GZIP: Final = Codec("gzip")
"""It makes JSON a tenth smaller than the fast level does."""
ZSTD: Final = Codec("zstd")
TIGHTEST: Final = Codec("zstd", 12)
"""The highest level that librdkafka takes."""
_BY_STRENGTH: Final = (None, FAST, GZIP, ZSTD, TIGHTEST)
CODECS: Final = (GZIP.name, ZSTD.name)
"""Names of all that may be chosen."""


class UncompressedError(Exception):
    """A record fits its topic only when compressed, and the producer does not compress so yet."""


class Compression:
    """How one process compresses what it produces; `configured` is its codec, which may be `none`.

    Only `begin` reads a clock: a decision depends on records and settings alone.
    """

    def __init__(self, configured: str | None = None) -> None:
        self._configured = configured
        self._chosen: Codec | None = None
        self._is_needed = False
        """Whether a record has needed the codec since the last `begin`."""
        self._needed_s = self._tight_s = 0.0
        self._is_exhausted = False
        """Whether the highest level was of no use either."""

    @property
    def is_configured(self) -> bool:
        """Whether the configuration sets a codec: only the broker knows what fits."""
        return self._configured not in {None, "none"}

    @property
    def is_off(self) -> bool:
        """Whether the configuration says that nothing is compressed."""
        return self._configured == "none"

    @property
    def codec(self) -> Codec | None:
        """The codec that was chosen, for the next transaction; None if none was."""
        return self._chosen

    def needed_for(self, parts: Sequence[bytes], limit: int, *, may_be_zstd: bool) -> Codec | None:
        """Return the codec with which a record fits into `limit` bytes; None if none is known to.

        `parts` are key, value and headers. What gzip does not make small enough may fit with zstd;
        `may_be_zstd` says whether the broker is to be asked. A record that is not known to have
        come compressed is not tried if samples of it do not shrink.
        """
        if self.is_off:
            return None
        if may_be_zstd and self._has_zstd:
            return ZSTD
        room = limit - _BATCH_BYTES
        longest = max(parts, key=len)
        if may_be_zstd or len(longest) <= room or _shrinks(longest):
            for codec in (FAST, GZIP):
                if _fits(parts, room, codec):
                    return codec
        return ZSTD if may_be_zstd else None

    def use(self, codec: Codec) -> bool:
        """Note that a record needs a codec; return whether the producer compresses so already."""
        self._is_needed = True
        if _BY_STRENGTH.index(self._chosen) >= _BY_STRENGTH.index(codec):
            return True
        self._chosen = codec
        return False

    def strengthen(self) -> bool:
        """Choose a stronger codec after a broker refused a record for its size.

        Returns False if nothing is left to choose.
        """
        self._is_exhausted = self._is_exhausted or self._chosen == TIGHTEST
        if self._configured is not None or self._is_exhausted:
            return False
        self._chosen, self._is_needed = TIGHTEST if self._has_zstd else ZSTD, True
        return True

    def begin(self, now_s: float) -> None:
        """Begin a transaction whose first records are decided; stop what is not needed any more."""
        if self._is_needed:
            self._is_needed, self._needed_s = False, now_s
        elif now_s - self._needed_s > _KEPT_S:
            self._chosen, self._is_exhausted = None, False
        if self._chosen != TIGHTEST:
            self._tight_s = now_s
        elif now_s - self._tight_s > _TIGHT_S:
            self._chosen = ZSTD

    @property
    def _has_zstd(self) -> bool:
        return self._chosen is not None and self._chosen.name == ZSTD.name


def _fits(parts: Iterable[bytes], limit: int, gzip: Codec) -> bool:
    """Whether gzip packs parts into this many bytes, as librdkafka calls it; stops beyond them."""
    packer, size = zlib.compressobj(gzip.level, wbits=_GZIP_FORMAT), 0
    for chunk in _chunks(parts):
        size += len(packer.compress(chunk))
        if size > limit:
            return False
    return size + len(packer.flush()) <= limit


def _shrinks(contents: bytes) -> bool:
    """Whether gzip makes samples of large contents smaller."""
    starts = range(0, len(contents), max(len(contents) // _SAMPLES, _SAMPLE_BYTES))
    samples = b"".join(contents[start : start + _SAMPLE_BYTES] for start in starts)
    return len(zlib.compress(samples, FAST.level, _GZIP_FORMAT)) < len(samples)


def _chunks(parts: Iterable[bytes]) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(part), _CHUNK_BYTES):
            yield view[start : start + _CHUNK_BYTES]
