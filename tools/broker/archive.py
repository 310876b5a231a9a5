"""Class-data archive of Kafka's classes, with which a broker starts in two thirds of the time.

It is written once, beside the jars, by a broker that starts, stops and dumps its loaded classes.
"""

import tempfile
from pathlib import Path

from tools.broker.artifacts import kafka
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine


def main() -> None:
    """Write the archive unless it exists."""
    jars = kafka()
    jars.fetched()
    if jars.archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=jars.archive.parent) as folder:
        dump = Path(folder) / jars.archive.name
        machine = Machine(heap_mb=512, short_lived=True, archive=dump)
        with EmbeddedBroker(Path(folder) / "broker", machine=machine):
            pass
        dump.rename(jars.archive)


if __name__ == "__main__":
    main()
