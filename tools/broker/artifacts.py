"""What an embedded broker is made of: an Apache Kafka from Maven, pinned by checksums."""

from pathlib import Path
from typing import Final

from tools.jars import RUN_FOLDER, Jars

KAFKA_VERSION: Final = "4.1.0"
KAFKA: Final = Jars(
    purpose="the broker",
    pom=Path(__file__).with_name("pom.xml"),
    checksums=Path(__file__).with_name("jars.sha256"),
    folder=RUN_FOLDER / f"kafka-{KAFKA_VERSION}",
)
