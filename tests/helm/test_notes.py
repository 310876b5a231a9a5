"""What Helm says when it has installed: commands that name what there is. The text: test_golden."""

import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.helm.chart import (
    CHART_DIR,
    EVERYTHING,
    HELM_TEST,
    MINIMAL,
    Helm,
    by_value_set,
    installed,
)

pytestmark = HELM_TEST


def commands(text: str) -> list[str]:
    return re.findall(r"^ +(kubectl .*)$", text, re.MULTILINE)


@by_value_set
def test_the_commands_name_objects_that_exist(helm: Helm, value_set: Path) -> None:
    found = installed(helm, value_set)
    names = {name.lower() for name in found.texts}
    told = commands(found.notes)
    assert len(told) >= 3
    for command in told:
        (target,) = re.findall(r"(?:statefulset|service)/\S+", command)
        assert target in names


def upgraded(helm: Helm, folder: Path, values: dict[str, Any]) -> str:
    """What an upgrade tells: in an object, since without a cluster Helm prints no notes of one."""
    chart = Path(shutil.copytree(CHART_DIR, folder / "ringfence"))
    told = 'told: {{ include (print $.Template.BasePath "/NOTES.txt") . | toJson }}\n'
    (chart / "templates" / "told.yaml").write_text(told)
    alone = ("--is-upgrade", "--show-only", "templates/told.yaml")
    text = helm.run("template", "demo", str(chart), "--values", str(MINIMAL), *alone, values=values)
    return str(yaml.safe_load(text)["told"])


def test_an_upgrade_sends_nothing_to_the_input_and_shows_what_is_done_now(
    helm: Helm, tmp_path: Path
) -> None:
    rollout, check, status, console = commands(upgraded(helm, tmp_path / "open", {}))
    assert (" rollout status " in rollout, " check " in check) == (True, True)
    assert status.endswith(" -- ringfence status")
    assert " port-forward " in console
    everything = yaml.safe_load(EVERYTHING.read_text())
    told = upgraded(helm, tmp_path / "closed", everything)
    assert "ringfence status" not in told, "nobody is let in without a token"
    assert "what it counts, in the console." in told
