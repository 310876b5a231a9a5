"""The chart's README explains the values that there are, as values.yaml explains them."""

import pytest
import yaml

from tests.helm.chart import CHART_DIR
from tools.chart.values import Value, values_of
from tools.errors import ToolError

pytestmark = pytest.mark.helm


def test_every_value_of_the_file_has_its_row() -> None:
    text = (CHART_DIR / "values.yaml").read_text("utf-8")
    rows = values_of(text)
    for row in rows:
        found = yaml.safe_load(text)
        for name in row.path.replace("bootstrap.servers", "bootstrap servers").split("."):
            found = found[name.replace(" ", ".")]
        assert found == (yaml.safe_load(row.default) if row.default else "")
    assert {row.path.split(".")[0] for row in rows} == yaml.safe_load(text).keys()


def test_a_comment_stands_beside_its_value_or_above() -> None:
    text = "a:\n  # of two\n  # lines\n  b: 1\n  c: {d: 2}  # beside\n# far off\n\n# near\ne: []\n"
    assert values_of(text) == [
        Value("a.b", "1", "of two lines"),
        Value("a.c", "{d: 2}", "beside"),
        Value("e", "[]", "near"),
    ]


def test_a_value_without_a_comment_is_reported() -> None:
    with pytest.raises(ToolError, match=r"a\.b has no description"):
        values_of("# a section\na:\n  b: 1\n")
