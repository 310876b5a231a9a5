"""The image of the Spark jobs: a real topic becomes tables in it, and nothing is fetched.

As a job in one process, and as Spark on Kubernetes starts it: a driver that continues what the job
has begun, and an executor that looks for its driver.
"""

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.broker.world import World
from tests.image.conftest import built_or_skipped
from tools.broker.cluster import Broker
from tools.broker.config import free_port
from tools.image.buildah import Container
from tools.spark_archive import INTERPRETED, QUICK

pytestmark = [pytest.mark.image, pytest.mark.timeout(1800)]

USER: Final = 10001
TARGET: Final = "/var/lib/ringfence/tables"
CLIENT: Final = "/etc/client.properties"


PROPERTIES: Final = """
spark.master local[2]
spark.driver.host 127.0.0.1
spark.ui.enabled false
spark.sql.shuffle.partitions 3
spark.databricks.delta.snapshotPartitions 2
"""
"""What Spark puts into the pod of a driver, but for Kubernetes."""
FIRST: Final = 1_500
"""How many records the job finds; the driver finds as many more."""
SOON: Final = ("--env", f"SPARK_SUBMIT_OPTS={QUICK} {INTERPRETED}")
NAMED: Final = ("--env", "SPARK_LOCAL_IP=127.0.0.1")
"""A pod finds its own name in /etc/hosts, a container of buildah's nowhere."""
PATIENT: Final = "default.api.timeout.ms = 120000\nrequest.timeout.ms = 60000\n"
"""Of Java's client: a machine with much else to do answers late."""
EXECUTOR: Final = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "history-exec-1",
    "SPARK_JAVA_OPT_0": "-Dspark.driver.port=1",
}


class Job(NamedTuple):
    """A container of the image, and how the image begins."""

    container: Container
    entrypoint: list[str]

    def run(self, *words: str, options: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.container.command(*self.entrypoint, *words, options=(*options, *NAMED, *SOON)),
            env=self.container.buildah.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    image = built_or_skipped("spark")
    made = image.buildah.container(image.name)
    yield Job(made, image.buildah.config(image.name)["Entrypoint"])
    made.remove()


@pytest.fixture(scope="module")
def world(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """What a service has decided, which continues with what is sent to it."""
    folder = tmp_path_factory.mktemp("world")
    with World(kafka.client_properties, folder, f"spark-image-{time.time_ns()}") as world:
        world.create()
        service = world.service(free_port(0))
        service.start()
        world.send(FIRST)
        world.wait_decided()
        yield world
        world.conclude(service)


def test_a_job_makes_tables_and_a_driver_continues_them_with_the_properties_given_to_spark(
    job: Job, world: World, tmp_path: Path
) -> None:
    folder, properties = folder_of(tmp_path), tmp_path / "spark.properties"
    properties.write_text(PROPERTIES)
    properties.chmod(0o644)
    made = counted(tabled(job, folder, world))
    assert made.keys() == {"messages", "dead_letters"}
    assert all(added == total > 0 for added, total in made.values())
    assert sum(added for added, _ in made.values()) == FIRST
    world.send()
    world.wait_decided()
    told = ("driver", "--properties-file", "/opt/spark/conf/spark.properties")
    main = ("--class", "org.apache.spark.deploy.PythonRunner", "local:///opt/ringfence/job.py")
    options = (
        *("-v", f"{properties}:/opt/spark/conf/spark.properties:ro"),
        *("--env", "SPARK_DRIVER_BIND_ADDRESS=127.0.0.1"),
    )
    continued = counted(tabled(job, folder, world, *told, *main, options=options))
    assert sum(added for added, _ in continued.values()) == world.sent - FIRST
    for name, (added, total) in continued.items():
        assert total == made[name][1] + added, "what was there stays, and nothing is added again"
    assert len(list((folder / "messages" / "_delta_log").glob("*.json"))) >= 2


def test_an_executor_looks_for_its_driver(job: Job) -> None:
    variables = [word for name, value in EXECUTOR.items() for word in ("--env", f"{name}={value}")]
    done = job.run("executor", options=variables)
    assert done.returncode != 0
    assert "Failed to connect to /127.0.0.1:1" in done.stdout + done.stderr


def folder_of(tmp_path: Path) -> Path:
    """One that the user of the image may write to."""
    folder = tmp_path / "tables"
    folder.mkdir(exist_ok=True)
    subprocess.run(["chown", f"{USER}:{USER}", folder], check=True)
    return folder


def counted(rows: Sequence[Sequence[str]]) -> dict[str, tuple[int, int]]:
    """How many records a run has added to each table, and how many there are."""
    return {name: (int(added), int(total)) for name, added, total in rows}


def tabled(
    job: Job, folder: Path, world: World, *before: str, options: Sequence[str] = ()
) -> list[list[str]]:
    """Run the job as the image has it; the rows of the table that it prints."""
    servers = str(world.client["bootstrap.servers"])
    client = folder.with_name("client.properties")
    client.write_text(PATIENT)
    client.chmod(0o644)
    done = job.run(
        *(*before, "tables", "--bootstrap-servers", servers, "--command-config", CLIENT),
        *("--outputs", world.output, "--dead-letters", world.letters, "--target", TARGET),
        options=("-v", f"{folder}:{TARGET}", "-v", f"{client}:{CLIENT}:ro", *options),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = [line.replace(",", "").split("│") for line in done.stdout.splitlines()]
    return [[cell.strip() for cell in row[1:4]] for row in rows if len(row) == 5]
