"""The faults that a service on Kafka has to live with, row by row, and what holds in each.

A test that proves a row is marked with it: `@pytest.mark.row(10)`. Our own faults are provoked in
the simulation, external faults on a real broker. `test_rows` fails when a row has no test.
"""

from collections.abc import Mapping
from typing import Final

ROWS: Final[Mapping[int, str]] = {
    1: "killed before a transaction begins",
    2: "killed after it began",
    3: "killed while it is written",
    4: "killed after the flush",
    5: "killed after the offsets were sent",
    6: "killed inside the commit",
    7: "killed after the commit, before the store has it",
    8: "killed after the store has it",
    9: "killed in a restore, in a wipe, after a resize",
    10: "stopped for longer than every timeout, then awake again",
    11: "two processes with one name",
    12: "the machine is lost, its volume is moved, or an old copy of it comes back",
    13: "instances join and leave all the time, while others restore too",
    14: "a broker is restarted, cleanly and hard; coordinators and leaders move",
    15: "a broker stands still; connections are cut or slow around the end of a transaction",
    16: "the broker is away for longer than a message may take",
    17: "the disk is full: for the write-ahead log, at the opening, at a write",
    18: "a file of the store is torn or rotten, or the folder cannot be written",
    19: "the changelog is deleted, recreated, truncated, has foreign records or more partitions",
    20: "offsets are set back, ahead, deleted; the input is truncated, or has more partitions",
    21: "a transaction hangs in the input, or in the changelog",
    22: "headers that are no text, too many, too long; ids that are empty, null, repeated",
    23: "null and empty keys and values, odd times, records at the limit of their size",
    24: "a target is missing, cannot be written, takes less, has fewer partitions",
    25: "rights are revoked while it runs: on a topic, the group, the transactional id",
    26: "the clock is set an hour ahead, and back",
    27: "the client's queue is full",
    28: "another version wrote the state: an older is read, a newer is refused",
    29: "a request of a transaction outlives its connection, and arrives later or twice",
    30: "loading what addresses remember takes longer, or more memory, than a transaction may",
    31: "an input, a changelog or by-address is deleted and created again while it is read",
    32: "a broker reports for a moment less of a log than it has",
    33: "a record whose checks fail in a way that nobody foresaw",
    34: "a rolling update adds or removes a route while both versions decide",
    35: "a writer of the metadata topic is fenced after its record was committed",
    36: "each of three brokers is restarted, killed or stands still in turn",
    37: "the broker is another version of Kafka",
    38: "the schema registry is away, or lacks a schema",
    39: "a batch of an input unpacks to more than the client takes",
}
