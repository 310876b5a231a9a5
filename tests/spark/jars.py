"""Jars of the tests: what a user adds to a session for S3 and for Avro, and a server of S3."""

from pathlib import Path
from typing import Final

from tools.jars import RUN_FOLDER, Jars

SERVER: Final = "s3proxy-4.1.0-jar-with-dependencies.jar"
AVRO: Final = "spark-avro_2.13-4.0.0.jar"
JARS: Final = Jars(
    purpose="the tests of Spark",
    pom=Path(__file__).with_name("jars.pom.xml"),
    checksums=Path(__file__).with_name("jars.sha256"),
    folder=RUN_FOLDER / "spark-test-jars",
)


def for_s3() -> list[Path]:
    """Return the paths of Hadoop's file system for S3 and the modules of the AWS SDK."""
    others = {SERVER, AVRO}
    return sorted(each for each in JARS.fetched().glob("*.jar") if each.name not in others)
