r"""What an embedded broker is made of: an Apache Kafka from Maven, pinned by checksums.

`RINGFENCE_KAFKA_VERSION` chooses another version than the usual one, of those in `checksums/`. To
add one, have Maven fill a folder and write down there what `sha256sum *.jar` says of it:

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
    """Return every version that can be had, the oldest first."""
    names = (path.name.removesuffix(".sha256") for path in _CHECKSUMS.glob("*.sha256"))
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def kafka() -> Jars:
    """Return the jars of the version that the environment chooses."""
    version = os.environ.get("RINGFENCE_KAFKA_VERSION") or KAFKA_VERSION
    if version not in versions():
        message = (
            f"RINGFENCE_KAFKA_VERSION is {version!r}, of which {_CHECKSUMS} has no checksums:"
            f" set it to one of {', '.join(versions())}, or unset it."
        )
        raise BrokerError(message)
    return Jars(
        purpose="the broker",
        pom=Path(__file__).with_name("pom.xml"),
        checksums=_CHECKSUMS / f"{version}.sha256",
        folder=RUN_FOLDER / f"kafka-{version}",
        # Kafka 3 logs by Log4j 1, whose classes Log4j 2 has under the same names.
        options=(f"-Dkafka.version={version}", *(["-Plog4j-1"] if version < "4" else [])),
    )
