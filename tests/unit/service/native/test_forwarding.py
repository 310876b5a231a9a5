"""Where records with scope `id` go: compiled code and Python give each the same partition."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_client.headers import EXPIRES_AT, GROUP, PUBLISHER, Headers
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.record import name_of
from ringfence_service.dedup.repartition import ID_NAMES
from ringfence_service.dedup.repartition_keys import BY_ID, RepartitionKeys, prefix_of
from ringfence_service.dedup.route import InputPartition, InputRoute
from ringfence_service.kafka.topics import RepartitionTopic
from ringfence_service.native.records import Records
from tests.fakes.native import as_produced, piece_of
from tests.support.deciding import SOURCE, record
from tests.support.native import needs_native

pytestmark = needs_native

ROUTE = RouteSettings(name="orders", inputs=("orders",), scope="id")
KEYS = RepartitionKeys(
    InputPartition(SOURCE, InputRoute.bind(ROUTE, SOURCE.topic), 3), AddressBook.of({})
)
NAMES = st.sampled_from(
    ["_DUPL_ID", "_AMQ_DUPL_ID", "_HQ_DUPL_ID", GROUP, EXPIRES_AT, PUBLISHER, "other"]
)
VALUES = st.none() | st.binary(max_size=70) | st.sampled_from([b"", b"7", b"c/t/0/5", b"x" * 65])
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=3)


@settings(max_examples=500, deadline=None)
@given(columns=st.lists(HEADERS, min_size=1, max_size=5), partitions=st.integers(1, 100))
def test_a_record_that_compiled_code_forwards_has_the_partition_of_its_key(
    columns: list[Headers], partitions: int
) -> None:
    topic = RepartitionTopic("out", partitions)
    messages = [record(at, *headers) for at, headers in enumerate(columns)]
    records = Records.of(piece_of(messages, columns, [SOURCE] * len(columns)))
    target = prefix_of("orders", BY_ID), topic.partition_of(KEYS.without_name("orders"))
    rules = {None: target}, None, "out", name_of(SOURCE), ID_NAMES, partitions
    row = 0
    while row < len(records):
        end = records.forward(row, *rules)
        sent = list(as_produced([(records.part(row, end),)])) if row < end else []
        expected = [
            topic.partition_of(KEYS.of(message, headers))
            for message, headers in zip(messages[row:end], columns[row:end], strict=True)
        ]
        assert [output[3] for output in sent] == expected
        row = end + 1


def test_a_record_with_one_id_needs_no_python() -> None:
    columns: list[Headers] = [[("_DUPL_ID", b"c/t/0/5")], [("other", b"")], [("_HQ_DUPL_ID", b"")]]
    messages = [record(at, *headers) for at, headers in enumerate(columns)]
    records = Records.of(piece_of(messages, columns, [SOURCE] * 3))
    rules = {None: (b"orders\0i", 1)}, None, "out", name_of(SOURCE), ID_NAMES, 12
    assert records.forward(0, *rules) == 3
