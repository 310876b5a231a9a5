"""A record as the binding would not send it: with a header name of any bytes."""

import ctypes
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka
import pytest


def send_raw(client: Mapping[str, str], name: str, header: bytes) -> None:
    """A header name that the binding refuses, or would cut; its library sends what it is given."""
    package = Path(confluent_kafka.__file__).parent
    found = [*package.parent.glob("confluent_kafka.libs/librdkafka*.so*")]
    if not found:
        pytest.skip("librdkafka does not lie beside its binding, as it does in a Linux wheel")
    library = ctypes.CDLL(str(found[0]))
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    conf, said = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    for key, value in client.items():
        assert library.rd_kafka_conf_set(conf, key.encode(), value.encode(), said, 512) == 0
    producer = ctypes.c_void_p(library.rd_kafka_new(0, conf, said, 512))
    assert producer.value, said.value
    library.rd_kafka_headers_new.restype = ctypes.c_void_p
    headers = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(1)))
    size = ctypes.c_ssize_t(len(header))
    assert not library.rd_kafka_header_add(headers, header, size, b"value", ctypes.c_ssize_t(5))
    topic_tag, value_tag, flags_tag, headers_tag, end_tag = map(ctypes.c_int, (1, 4, 7, 10, 0))
    refused = library.rd_kafka_producev(
        *(producer, topic_tag, name.encode(), flags_tag, ctypes.c_int(2)),
        *(value_tag, b"raw", ctypes.c_size_t(3)),
        *(headers_tag, headers, end_tag),
    )
    assert refused == 0
    assert library.rd_kafka_flush(producer, 20_000) == 0
    library.rd_kafka_destroy(producer)
