"""What the chart makes of each value set is what was read and agreed to: tests/helm/golden.

`RINGFENCE_GOLDEN=write pytest tests/helm/test_golden.py` writes it, and its diff is to be read.
What is as in the least value set is not repeated; rules and dashboard have tests of their own.
"""

import os
import re
from pathlib import Path

from tests.helm.chart import HELM_TEST, MINIMAL, Helm, Installed, by_value_set, installed

pytestmark = HELM_TEST

GOLDEN = Path(__file__).parent / "golden"
OF_OTHER_TESTS = ("PrometheusRule/demo-ringfence", "ConfigMap/demo-ringfence-dashboard")


def told(found: Installed, least: Installed) -> str:
    """The objects by kind and name, without the comments of the templates."""
    known = {} if found == least else least.texts
    ours = {
        name: text
        for name, text in sorted(found.texts.items())
        if known.get(name) != text and name not in OF_OTHER_TESTS
    }
    gone = [f"# not here: {name}\n" for name in sorted(known.keys() - found.texts.keys())]
    plain = [re.sub(r"^ *(#.*)?\n", "", text, flags=re.MULTILINE) for text in ours.values()]
    return "".join(gone) + "---\n".join(plain)


@by_value_set
def test_each_value_set_makes_what_was_agreed_to(helm: Helm, value_set: Path) -> None:
    found = installed(helm, value_set)
    name = value_set.stem.removesuffix("-values")
    for file, text in {
        GOLDEN / f"{name}.yaml": told(found, installed(helm, MINIMAL)),
        GOLDEN / f"{name}.notes.txt": found.notes,
    }.items():
        if os.environ.get("RINGFENCE_GOLDEN") == "write":
            file.write_text(text, "utf-8")
        assert text == file.read_text("utf-8"), f"{file.name}: see the head of this file"
