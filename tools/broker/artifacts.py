r"""Kafka distribution of the embedded broker: jars from Maven, pinned by checksums.

`RINGFENCE_KAFKA_VERSION` selects a version other than the default, of those in `checksums/`. To
add one, have Maven fill a folder, and store the output of `sha256sum *.jar` there:

    mvn --file tools/broker/pom.xml -Dkafka.version=… -DoutputDirectory=… \
        dependency:copy-dependencies
"""

import os
from pathlib import Path
from typing import Final

from tools.broker.errors import BrokerError
from tools.jars import RUN_FOLDER, Jars

KAFKA_VERSION: Final = "4.1.0"
_CHECKSUMS: Final = Path(__file__).with_name("checksums")


def versions() -> list[str]:
    """Return every version that has checksums, the oldest first."""
    names = (path.name.removesuffix(".sha256") for path in _CHECKSUMS.glob("*.sha256"))
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def kafka(version: str = "") -> Jars:
    """Return the jars of a version; without one, of the version that the environment selects."""
    version = version or os.environ.get("RINGFENCE_KAFKA_VERSION") or KAFKA_VERSION
    if version not in versions():
        message = (
            f"RINGFENCE_KAFKA_VERSION is {version!r}, for which {_CHECKSUMS} has no checksums:"
            f" set it to one of {', '.join(versions())}, or unset it."
        )
        raise BrokerError(message)
    return Jars(
        purpose="the broker",
        pom=Path(__file__).with_name("pom.xml"),
        checksums=_CHECKSUMS / f"{version}.sha256",
        folder=RUN_FOLDER / f"kafka-{version}",
        # Kafka 3 logs with Log4j 1, and Log4j 2 has classes of the same names.
        options=(f"-Dkafka.version={version}", *(["-Plog4j-1"] if version < "4" else [])),
    )
