"""Documents of the API, their places, and how long lists of them are read."""

from typing import Any, Final, NamedTuple
from urllib.parse import quote

Document = dict[str, Any]
"""A document of the API, as it came."""

PAGE_MAX: Final = 1_000


class Read(NamedTuple):
    """A document, and the tag of what was read."""

    document: Document
    etag: str | None


def path_of(*segments: str) -> str:
    """A path of segments that may hold any character; one of dots is none to walk up."""
    return "/" + "/".join(_segment(each) for each in segments)


def _segment(text: str) -> str:
    return text.replace(".", "%2E") if text in {".", ".."} else quote(text, safe=":")
