"""Targets and checkpoints on S3: runs that are killed in mid-batch give what a local folder has."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final
from uuid import uuid4

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from tests.spark.judging import rows
from tests.spark.ledger import Ledger
from tests.spark.s3 import BUCKET, JOBS, Driver, Job, copy, open_store
from tests.spark.test_cluster import CONFIGURATION, ORDERS, RETURNS, arrow
from tests.spark.test_reconcile import commit, config_file, write
from tests.support.waiting import eventually
from tests.unit.pipeline.backfill.histories import history
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.long]

LAKE: Final = f"s3a://{BUCKET}"
SECOND: Final = f"{1:020}.json"
"""The second commit of a Delta table."""
AMID: Final = (
    # The files of a batch are written, and the table does not list them.
    f"tables/messages/_delta_log/{SECOND}",
    # The table lists a batch, and the checkpoint does not know that.
    "tables/checkpoints/dead_letters/commits/0 ",
    # A batch is decided and its state is saved, and its verdicts are not listed.
    f"stream/verdicts/_delta_log/{SECOND}",
    # Only some files of the draft have their names.
    "batch/draft/part-00001-",
)


def jobs(place: str, broker: Broker, ledger: Ledger, folder: Path) -> Sequence[Job]:
    """The jobs that are killed, and their arguments, with targets in a folder."""
    topics = {"messages": [ledger.output], "dead_letters": [ledger.dead_letter]}
    decided = {"config": str(folder / "history.toml"), "table": f"{place}/history"}
    of_tables = {"servers": broker.bootstrap_servers, "topics": topics, "most": 150}
    return (
        ("tabulate", {**of_tables, "target": f"{place}/tables"}),
        ("decide", {**decided, "target": f"{place}/stream", "most": 500}),
        ("decide_at_once", {**decided, "target": f"{place}/batch", "accepted": f"{place}/unique"}),
    )


@pytest.mark.timeout(1_200)  # two sessions of their own, on a machine that may be busy
def test_what_is_killed_on_s3_goes_on_to_what_a_local_folder_has(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    group = f"g-{uuid4().hex[:8]}"
    ledger = Ledger(f"s3-{uuid4().hex[:8]}", records=800, ring=100, partitions=2, seed=2)
    faults = ledger.spoil(4)
    write(broker, ledger.topic, [lane.inputs for lane in ledger.lanes])
    write(broker, ledger.output, [rows(lane.outputs) for lane in ledger.lanes])
    write(broker, ledger.dead_letter, [rows(lane.letters) for lane in ledger.lanes])
    ends = {(ledger.topic, n): len(lane.inputs) for n, lane in enumerate(ledger.lanes)}
    commit(broker, group, ends)
    config = config_file(tmp_path, broker, group, ledger)
    random = Random(1)
    records = history(random, "ring", ORDERS, 700) + history(random, "window", RETURNS, 700)
    (tmp_path / "history.toml").write_text(CONFIGURATION)
    pq.write_table(arrow(records), tmp_path / "records.parquet")
    load = ("copy", {"table": str(tmp_path / "records.parquet"), "to": f"{LAKE}/history"})
    amid = jobs(LAKE, broker, ledger, tmp_path)
    proof = {"config": str(config), "servers": broker.bootstrap_servers}
    proof |= {"tables": f"{LAKE}/tables", "findings": f"{LAKE}/proof"}
    with open_store(tmp_path / "s3") as store:
        store.gate.shut(*AMID)
        with Driver(tmp_path / "killed", store.settings, [load], amid) as driver:

            def is_amid() -> bool:
                driver.check()
                return store.gate.held == set(AMID)

            eventually(is_amid, driver)
            driver.kill()
        store.gate.shut()
        with Driver(tmp_path / "again", store.settings, amid, [("prove", proof)]) as driver:
            *found, proved = driver.answers()
    assert proved == {kind: sorted(places) for kind, places in faults.items()}
    place = str(tmp_path / "local")
    copy(spark, str(tmp_path / "records.parquet"), f"{place}/history")
    assert found == [
        JOBS[name](spark, **given) for name, given in jobs(place, broker, ledger, tmp_path)
    ]
