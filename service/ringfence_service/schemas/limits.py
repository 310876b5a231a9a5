"""Limits of decoding: what one payload or one schema may ask of a worker.

Each has the same value for every format and every route. What exceeds one is undecodable, or is a
schema that cannot be used, so it concerns the records that contain it and no others.
"""

from typing import Final

DEPTH_MAX: Final = 500
"""How many objects, arrays, records and maps may be nested in each other, in JSON, Avro and the
text of an Avro schema. The Java interceptor has the same limit, so both find the same ids. It is
below what Python's default recursion limit permits. Protobuf's own limit of 100 is that of every
implementation, and stays.
"""
CONTAINERS_MIN: Final = 10_000
"""Records, arrays and maps that an Avro payload may have beside those that its bytes allow.

A small payload of a usual schema may have more of them than bytes.
"""
CONTAINERS_PER_BYTE: Final = 4
"""An Avro payload of n bytes may have `CONTAINERS_MIN + CONTAINERS_PER_BYTE * n` records, arrays
and maps. A record has no bytes of its own, so a schema may wrap a byte in any number of them.
Schemas that people write stay below one for each byte, apart from small payloads.
"""
DECIMAL_BYTES_MAX: Final = 1_000
"""Bytes of a decimal that becomes text: 2,408 digits. The time for it grows with their square, and
Python refuses more than 4,300 digits."""
NAME_CHARS_MAX: Final = 1_000
"""Characters of an Avro type's full name. Each use of a name costs time for all its characters."""
SCHEMA_CHARS_MAX: Final = 1_048_576
"""Characters of a schema with all schemas that it refers to. The parser of .proto files takes some
7 seconds of CPU time for them. A registry on Kafka keeps each schema as one record, which has 1 MiB
at most by default.
"""
