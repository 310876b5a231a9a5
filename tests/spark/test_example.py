"""The notebook of the documentation runs from its first cell to its last."""

from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from ringfence_client.headers import DeadLetter
from tests.support.waiting import LIMIT_S
from tools.broker.cluster import Broker
from tools.notebook import code_cells, read, run

pytestmark = [pytest.mark.spark, pytest.mark.broker]

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "read_output.ipynb"


def test_the_notebook_reads_what_was_committed(
    spark: SparkSession,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"notebook-{uuid4().hex[:8]}.{kind}" for kind in ("unique", "dlq")]
    admin = AdminClient(dict(broker.client_properties))
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(LIMIT_S)
    producer = Producer({**broker.client_properties, "transactional.id": names[0]})
    producer.init_transactions(LIMIT_S)
    for is_kept in (True, False):
        producer.begin_transaction()
        for number in range(7):
            flight = b'{"carrier": "%b"}' % (b"UA" if number < 4 else b"DL")
            headers: list[tuple[str, str | bytes | None]] = [("_DUPL_ID", b"%d" % number)]
            producer.produce(names[0], flight, b"k", headers=headers)
            why = [*headers, (str(DeadLetter.REASON), b"duplicate"), (str(DeadLetter.ID), b"x9")]
            producer.produce(names[1], flight, b"k", headers=why)
        assert producer.flush(LIMIT_S) == 0
        (producer.commit_transaction if is_kept else producer.abort_transaction)(LIMIT_S)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("OUTPUT", names[0])
    monkeypatch.setenv("DEAD_LETTERS", names[1])
    found, printed = run(NOTEBOOK)
    shown = "".join(printed)
    assert found["spark"] is spark
    assert "7 messages" in shown
    assert "|     UA|    4|" in shown
    assert "|duplicate|" in shown
    assert "1 rows for 1 keys" in shown
    # The last of the committed seven; the aborted ones have the same key.
    assert found["kept"].select("offset").collect() == [(6,)]


def test_the_notebook_is_kept_with_what_its_cells_showed() -> None:
    cells = code_cells(read(NOTEBOOK))
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    silent = [
        cell["id"] for cell in cells if "show(" in "".join(cell["source"]) and not cell["outputs"]
    ]
    assert silent == []
