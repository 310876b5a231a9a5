"""The programs that Go builds for these tests share what they are made of: it is compiled once."""

import re
from pathlib import Path

import pytest

from tools.helm.build import HELM
from tools.kubernetes.build import KUBERNETES
from tools.promtool.build import PROMTOOL

pytestmark = pytest.mark.helm

APART = {"github.com/fsnotify/fsnotify"}
"""Small, and hardly anything is made of it."""


def pinned(folder: Path) -> dict[str, str]:
    text = (folder / "go.mod").read_text("utf-8")
    found = re.findall(r"^(?:require |\t)(\S+\.\S+/?\S*) (v\S+)", text, re.MULTILINE)
    replaced = re.findall(r"^\t?(?:replace )?(\S+) => \1 (v\S+)", text, re.MULTILINE)
    return dict(found) | dict(replaced)


def test_what_two_programs_are_made_of_has_one_version() -> None:
    of_kubernetes = pinned(KUBERNETES.folder)
    for program in (HELM, PROMTOOL):
        own = pinned(program.folder)
        shared = (own.keys() & of_kubernetes.keys()) - APART
        assert len(shared) > 30
        apart = {name: (own[name], of_kubernetes[name]) for name in shared}
        assert {name: two for name, two in apart.items() if two[0] != two[1]} == {}, program.name
