"""Kafka's own command-line tools, as programs that a page names."""

import shlex
from pathlib import Path
from typing import Final

from tools.broker.artifacts import KAFKA_VERSION, kafka
from tools.jars import RUN_FOLDER, Jars, java_command

_HERE: Final = Path(__file__).parent
_JARS: Final = Jars(
    purpose="Kafka's tools",
    pom=_HERE / "pom.xml",
    checksums=_HERE / "jars.sha256",
    folder=RUN_FOLDER / f"kafka-tools-{KAFKA_VERSION}",
    options=(f"-Dkafka.version={KAFKA_VERSION}",),
)
_CLASSES: Final = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}


def install(program: str, folder: Path) -> None:
    """Put a tool into a folder, under the name that it has in Kafka's distribution."""
    jars = f"{_JARS.fetched()}/*:{kafka(KAFKA_VERSION).fetched()}/*"
    command = [java_command(), "-XX:TieredStopAtLevel=1", "-cp", jars, _CLASSES[program]]
    path = folder / program
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', "utf-8")
    path.chmod(0o755)
