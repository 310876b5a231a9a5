"""The extension `ringfence_native`: whether it can be used here, and if not, why.

It finds librdkafka where confluent_kafka has loaded it, and refuses every version of which the
layout is not known. Executors of Spark, which import this with the rules, do not have that client.
"""

from functools import cache
from importlib.metadata import version as version_of
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

VERIFIED: Final = ("2.16.1",)
"""The versions of confluent_kafka whose handles begin with the client's address.

Whole versions: a later patch may have another layout, and an address that is read from the wrong
place crashes the process before it can be compared with anything.
"""

INTERFACE: Final = 10
"""What the code here calls; an extension that is left from another version has another number."""


class Loaded(NamedTuple):
    """The extension, or why there is none."""

    module: ModuleType | None
    why: str = ""


@cache
def loaded() -> Loaded:
    """Load the extension once, and bind it to the librdkafka of this process."""
    import confluent_kafka  # noqa: PLC0415 - executors of Spark load nothing

    version = version_of("confluent-kafka")
    if version not in VERIFIED:
        verified = ", ".join(VERIFIED)
        return Loaded(
            None, f"confluent-kafka {version} is not among the verified versions: {verified}"
        )
    try:
        import ringfence_native  # noqa: PLC0415 - it is optional
    except ImportError as error:
        return Loaded(None, f"the extension is not built: {error}")
    if getattr(ringfence_native, "INTERFACE", 0) != INTERFACE:
        return Loaded(None, f"{ringfence_native.__file__} was built for another version")
    try:
        found = ringfence_native.bind(str(_library(Path(confluent_kafka.__file__).parent)))
    except (ImportError, OSError) as error:
        return Loaded(None, str(error))
    if found != confluent_kafka.libversion()[1]:
        return Loaded(None, f"librdkafka is {found:#x}, and another one for confluent-kafka")
    return Loaded(ringfence_native)


def _library(package: Path) -> Path:
    """Return the librdkafka that the wheel of confluent_kafka, in this folder, brings along."""
    for folder in (package.parent / "confluent_kafka.libs", package / ".libs"):
        for path in sorted(folder.glob("librdkafka*.so*")):
            return path.resolve()
    raise OSError(f"no librdkafka beside {package}")
