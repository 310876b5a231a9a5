"""Jars of the Kafka connector and Delta Lake, with checked SHA-256 sums.

`jars.sha256` names them; a folder must have all of them with these sums. A folder that the user
names is only checked. Otherwise a checkout has its own folder, which Maven fills once, so that no
session downloads anything when it starts.
"""

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.steps import say

CHECKOUT_JARS: Final = Path(__file__).parents[2] / ".run" / "spark-jars"
_POM: Final = Path(__file__).with_name("jars.pom.xml")
_SUMS: Final = Path(__file__).with_name("jars.sha256")
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_MAVEN_TIMEOUT_S: Final = 600
"""How long the download may take; the user waits for it once for each checkout.

Long enough for a slow network. A repository that does not answer ends the command here.
"""


def connector_jars(folder: Path | None) -> tuple[Path, ...]:
    """Return the paths of the jars in `folder`, or in the checkout's own, filled if needed.

    Raises PipelineError for a missing or wrong jar, and when Maven fails.
    """
    if folder is not None:
        return _checked(folder)
    if not all((CHECKOUT_JARS / name).is_file() for name in checksums()):
        _fetch(CHECKOUT_JARS)
    return _checked(CHECKOUT_JARS)


def checksums() -> dict[str, str]:
    """Return the SHA-256 of each jar, by its file name."""
    lines = (line.split() for line in _SUMS.read_text(encoding="ascii").splitlines())
    return {name: digest for digest, name in lines}


def _checked(folder: Path) -> tuple[Path, ...]:
    for name, expected in checksums().items():
        jar = folder / name
        if not jar.is_file():
            raise PipelineError(
                f"{folder} has no {name}: put the jars of {_SUMS.name} there", exit_code=USAGE
            )
        if hashlib.sha256(jar.read_bytes()).hexdigest() != expected:
            raise PipelineError(
                f"{jar} does not have the checksum of {_SUMS.name}: delete it and fetch it again",
                exit_code=USAGE,
            )
    return tuple((folder / name).resolve() for name in checksums())


def _fetch(folder: Path) -> None:
    say("fetching the jars of Spark's Kafka connector and of Delta Lake with Maven, once")
    folder.mkdir(parents=True, exist_ok=True)
    # Fetched beside the folder and then renamed, so that concurrent runs never see partial jars.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="spark-jars-") as scratch:
        command = ["mvn", "-B", "-q", "-f", str(_POM), _COPY, f"-DoutputDirectory={scratch}"]
        try:
            subprocess.run(
                [*command, "-DexcludeTransitive=true"],
                check=True,
                capture_output=True,
                text=True,
                timeout=_MAVEN_TIMEOUT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stdout", "") or ""
            raise PipelineError(
                f"Maven could not fetch the Spark jars into {folder}: {error} {output[-2000:]}",
                exit_code=USAGE,
            ) from error
        for jar in Path(scratch).glob("*.jar"):
            jar.replace(folder / jar.name)
