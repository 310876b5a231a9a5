"""Wrong values are refused before anything is installed, and the refusal names the key.

Helm says all at once what the schema refuses, so many wrong values are given at once.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART_DIR, EVERYTHING, FULL, HELM_TEST, MINIMAL, Helm, RefusedError

pytestmark = HELM_TEST

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text("utf-8"))


def refusal(helm: Helm, values: dict[str, Any], value_set: Path = MINIMAL) -> str:
    with pytest.raises(RefusedError) as refused:
        helm.render(value_set, values)
    return str(refused.value)


def put(tree: Any, path: Sequence[str], value: object) -> Any:
    """Return a copy of a tree in which a value stands at a path, which may lead through lists."""
    if not path:
        return value
    first, *rest = path
    if first.isdigit():
        every = [*(tree or [])]
        every += [{"inputs": ["a"]}] * (int(first) + 1 - len(every))
        return [put(each, rest, value) if n == int(first) else each for n, each in enumerate(every)]
    found: dict[str, Any] = tree if isinstance(tree, dict) else {}
    return {**found, first: put(found.get(first), rest, value)}


def test_every_wrong_value_is_refused_with_its_path(helm: Helm) -> None:
    waiting, missed = TABLE["wrong"], []
    while waiting:
        values: dict[str, Any] = {}
        later, given = [], set[str]()
        for path, value in waiting:
            if path in given:
                later.append([path, value])
                continue
            given.add(path)
            values = put(values, path.strip("/").split("/"), value)
        told = refusal(helm, values)
        missed += [path for path in given if not {f"at '{path}'", f"at '{path}/"} & set(ats(told))]
        waiting = later
    assert missed == []


def ats(told: str) -> Iterator[str]:
    """The places that a refusal names, each whole and as the beginning of what is below."""
    for line in told.splitlines():
        if "at '" in line and "validation failed" not in line:
            path = line.partition("at '")[2].partition("'")[0]
            yield f"at '{path}'"
            while path:
                path = path.rpartition("/")[0]
                yield f"at '{path}/"


def sections(tree: object, path: str = "") -> Iterator[str]:
    """The path of every place in a value set that holds keys of the chart's own."""
    if isinstance(tree, dict):
        yield path
        for name, value in tree.items():
            if f"{path}/{name}" not in TABLE["free"]:
                yield from sections(value, f"{path}/{name}")
    elif isinstance(tree, list) and tree and isinstance(tree[0], dict):
        yield from sections(tree[0], f"{path}/0")


def test_an_unknown_key_is_refused_by_name_wherever_it_stands(helm: Helm) -> None:
    files = (CHART_DIR / "values.yaml", FULL, EVERYTHING)
    trees = [yaml.safe_load(file.read_text()) for file in files]
    paths = {path for tree in trees for path in sections(tree)} | {"/config/addresses/a"}
    assert len(paths) > 50
    unknown = [*TABLE["unknown"], *(f"{path}/nobodys" for path in paths)]
    wrong = trees[-1]
    for path in unknown:
        wrong = put(wrong, path.strip("/").split("/"), "x")
    told, missed = refusal(helm, wrong), []
    for path in unknown:
        parent, _, name = path.rpartition("/")
        lines = [each for each in told.splitlines() if f"at '{parent}': additional prop" in each]
        missed += [] if any(f"'{name}'" in line for line in lines) else [path]
    assert missed == []


def test_what_has_no_default_is_asked_for_all_at_once_with_the_commands_that_go_on(
    helm: Helm,
) -> None:
    told = refusal(helm, {}, CHART_DIR / "values.yaml")
    for missing in ("image.repository is", "bootstrap.servers", "config.routes is", "api.auth is"):
        assert missing in told
    assert "docker push" in told
    assert "ringfence token ada --roles admin" in told
    assert "kubectl --namespace streams create secret generic ringfence-api" in told


@pytest.mark.parametrize("case", TABLE["sentences"], ids=lambda case: case["sentence"])
def test_what_does_not_go_together_is_refused_in_a_sentence(
    helm: Helm, case: dict[str, Any]
) -> None:
    assert case["sentence"] in refusal(helm, case["values"])
