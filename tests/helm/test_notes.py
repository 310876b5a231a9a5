"""What Helm says when it has installed: commands that name what there is, and what to mind."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART_DIR, EVERYTHING, HELM_TEST, MINIMAL, Helm

pytestmark = HELM_TEST

INSTALL = ("install", "demo", str(CHART_DIR), "--values", str(MINIMAL), "--dry-run=client")


def notes(helm: Helm, values: dict[str, Any] | None = None) -> str:
    return helm.run(*INSTALL, values=values).partition("NOTES:")[2]


def commands(text: str) -> list[str]:
    return re.findall(r"^ +(kubectl .*)$", text, re.MULTILINE)


def test_three_commands_lead_to_the_first_duplicate_and_one_to_the_console(helm: Helm) -> None:
    told = notes(helm)
    assert re.findall(r"^(\d)\. ", told, re.MULTILINE) == ["1", "2", "3"]
    rollout, check, try_out, console = commands(told)
    assert " rollout status " in rollout
    assert " ringfence check " in check
    assert " ringfence try orders " in try_out
    assert " port-forward " in console


def test_the_commands_name_objects_that_exist(helm: Helm) -> None:
    names = {
        f"{found['kind'].lower()}/{found['metadata']['name']}"
        for found in yaml.safe_load_all(helm.run("template", *INSTALL[1:5]))
    }
    for command in commands(notes(helm)):
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


def test_what_is_tried_is_said_to_be_real(helm: Helm) -> None:
    assert "who reads orders gets both" in notes(helm)


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


def test_a_user_that_has_the_rights_of_the_service_is_not_told_to_try(helm: Helm) -> None:
    strimzi = {"cluster": "c", "user": {"enabled": True}}
    told = notes(helm, {"strimzi": strimzi})
    assert not [command for command in commands(told) if "ringfence try" in command]
    assert "may\n   neither write orders nor read" in told
    assert commands(told)[2].endswith(" -- ringfence status")
    free = {"strimzi": {**strimzi, "user": {"enabled": True, "authorization": ""}}}
    assert " ringfence try orders " in commands(notes(helm, free))[2]


def test_an_expression_is_no_topic_and_so_one_is_asked_for(helm: Helm) -> None:
    told = notes(helm, {"config": {"routes": [{"inputs": ["^flights"]}]}})
    assert "TOPIC is one that ^flights fits" in told
    assert "ringfence try TOPIC " in told


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "Nobody is asked who he is"),
        ({}, "Outside of this namespace nobody does"),
        (
            {"config": {"api": {"auth": "tokens"}}, "api": {"existingSecret": "who"}},
            "set api.peerTokenKey",
        ),
        ({"replicas": 3}, "3 instance(s)"),
        ({"autoscaling": {"by": "cpu"}}, "1 to 4 instance(s)"),
    ],
)
def test_what_is_to_be_minded_is_told(helm: Helm, values: dict[str, Any], sentence: str) -> None:
    assert sentence in notes(helm, values)


def test_who_asks_and_shares_a_secret_hears_no_warning(helm: Helm) -> None:
    told = notes(helm, yaml.safe_load(EVERYTHING.read_text()))
    assert "Nobody is asked" not in told
    assert "peerTokenKey" not in told
    assert "https://127.0.0.1:8080/" in told
