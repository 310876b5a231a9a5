"""Which route gives an output its address."""

from pathlib import Path

from ringfence_pipeline.config import read_config
from ringfence_pipeline.outputs import address_rules
from ringfence_pipeline.reconcile.scope import planned
from ringfence_pipeline.tables import AddressRule

ROUTES = """
[kafka]
"bootstrap.servers" = "b:1"
[[routes]]
inputs = ["a", "b"]
[[routes]]
inputs = ["c"]
address = "of.{key}"
output = "shared"
[[routes]]
inputs = ["d"]
address = "of.{key}"
output = "shared"
[[routes]]
inputs = ["e", "f"]
address = "in.{topic}"
output = "both"
"""
TOPICS = {"a", "b", "c", "d", "e", "f", "a.unique", "b.unique", "shared", "both"}


def test_an_output_has_the_address_of_its_route_unless_it_has_several(tmp_path: Path) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_text(ROUTES, "utf-8")
    rules = address_rules(planned(read_config(file), TOPICS))
    assert set(map(repr, rules)) == {
        repr(AddressRule("{topic}", {"a.unique": "a", "b.unique": "b"})),
        repr(AddressRule("of.{key}", {"shared": ""})),
    }
