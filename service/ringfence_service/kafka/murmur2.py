"""Murmur2 as Java clients partition by it, for processes without a Kafka client.

Far slower than the client's own function, which everything else uses.
"""

from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_WORD_BYTES: Final = 4
"""The hash takes words of 32 bits."""


def murmur2(key: bytes, partition_count: int) -> int:
    """Return the partition of a key, as `confluent_kafka.murmur2` does."""
    whole = len(key) - len(key) % _WORD_BYTES
    hashed = _SEED ^ len(key)
    for at in range(0, whole, _WORD_BYTES):
        word = int.from_bytes(key[at : at + _WORD_BYTES], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        hashed = hashed * _MULTIPLIER & _WORD ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _WORD
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _WORD
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % partition_count
