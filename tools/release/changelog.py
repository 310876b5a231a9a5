"""Changelog reader: the section of a version is the text of its release notes."""

import re
from typing import NamedTuple

from tools.release.errors import RefusedError


class Section(NamedTuple):
    """What CHANGELOG.md says about a version."""

    version: str
    remark: str
    """The rest of its heading, such as `2026-11-26` or `not released`; empty if there is none."""
    body: str

    @property
    def notes(self) -> str:
        """The release notes, in Markdown."""
        return f"# Ringfence {self.version}\n\n{self.body}\n"

    @property
    def is_dated(self) -> bool:
        """Whether the heading has the day of the release."""
        return re.fullmatch(r"\d{4}-\d{2}-\d{2}", self.remark) is not None


def section(changelog: str, version: str) -> Section:
    """Return the section of a version; raise RefusedError if there is none or it is empty."""
    for text in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, body = text.partition("\n")
        name, _, remark = heading.strip().partition(" ")
        if name == version:
            if not body.strip():
                raise RefusedError(
                    f"The section {version} of CHANGELOG.md is empty: say what is new."
                )
            return Section(version, remark.strip("()"), body.strip())
    raise RefusedError(
        f"CHANGELOG.md has no section {version}: add `## {version} (date)`, and what is new."
    )
