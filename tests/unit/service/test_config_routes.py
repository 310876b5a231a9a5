"""Routes: templates, targets that publishers steer, topics read and written, names."""

from pathlib import Path

import pytest

from service.config import load, load_lenient
from service.errors import Problem

HEAD = '[kafka]\n"bootstrap.servers" = "a:1"\n'
ORDERS = '[[routes]]\ninputs = ["orders"]\nscope = "partition"\n'


def problems(folder: Path, routes: str) -> list[Problem]:
    path = folder / "ringfence.toml"
    path.write_text(HEAD + routes, encoding="utf-8")
    return load_lenient(path, {})[1]


def only_problem(folder: Path, routes: str) -> str:
    (problem,) = problems(folder, routes)
    return str(problem)


@pytest.mark.parametrize(
    "line",
    [
        'address = "{topic}.{key}"',
        'address = "{header:customer}"',
        'dead_letter = "DLQ"',
        'dead_letter = "DLQ.{address}"',
        'output = "{address}.out"',
        'output = "{header:target}"\nallowed_outputs = ["a", "b"]',
        'address = "{key}"\ndead_letter = "DLQ.{address}"\nallowed_outputs = ["DLQ.a"]',
        'id = "{header:A}/{key}/{sha256:value}"',
        'missing_id = "stamp"',
        'name = "the orders"',
        'on_partitions_added = "keep"',
    ],
)
def test_a_route_may_say_this(tmp_path: Path, line: str) -> None:
    assert not problems(tmp_path, f"{ORDERS}{line}\n")


def test_a_route_that_names_no_scope_is_decided_by_address(tmp_path: Path) -> None:
    path = tmp_path / "ringfence.toml"
    path.write_text('[kafka]\n"bootstrap.servers" = "a:1"\n[[routes]]\ninputs = ["orders"]\n')
    assert [route.scope for route in load(path, {}).routes] == ["address"]


SHARED = 'name = "{0}"\ninputs = ["{0}"]\nscope = "{1}"\naddress = "{2}"\n'


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("all", "all", True),
        ("all", "none", False),
        ("{key}", "all", True),
        ("eu.{key}", "us.{key}", False),
        ("eu.{key}", "{header:a}.us", True),
        ("{topic}", "{topic}", False),
        ("{topic}.a", "{key}.b", False),
        ("{topic}.a", "b{key}a", False),
        ("{topic}.a", "a{key}a", True),
    ],
)
def test_routes_that_can_yield_one_address_have_one_scope(
    tmp_path: Path, one: str, other: str, *, meet: bool
) -> None:
    routes = [("a", "address", one), ("b", "partition", other)]
    text = "".join(f"[[routes]]\n{SHARED.format(*route)}" for route in routes)
    found = problems(tmp_path, text)
    assert ["can yield the same address" in str(problem) for problem in found] == [True] * meet


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('address = "{topc}"', "{topc} is unknown"),
        ('address = "{address}"', "{address} is unknown"),
        ('address = "{header:}"', "{header:} is unknown"),
        ('output = "{key}"', "{key} is unknown"),
        ('output = "{topic.unique"', "a brace has no partner"),
        ('output = "{topic}/unique"', "the name of a topic"),
        ('output = ""', "1 to 1000 characters"),
        ('id = "{value}"', "{value} is unknown"),
        ('id = "fixed"', "all records would have one id"),
        ('missing_id = "drop"', '"pass" or "stamp" or "dead_letter"'),
        ('output = "{header:target}"', "allowed_outputs"),
        ('address = "{key}"\noutput = "{address}"', "allowed_outputs"),
        ('address = "{header:a}"\ndead_letter = "DLQ.{address}"', "allowed_outputs"),
        ('output = "x"\ndead_letter = "x"', 'both "x"'),
        ('output = "orders"', "never an input"),
        ('allowed_outputs = ["a b"]', "a topic name"),
        ("allowed_output = []", "the nearest is allowed_outputs"),
    ],
)
def test_a_route_may_not_say_this(tmp_path: Path, line: str, text: str) -> None:
    told = only_problem(tmp_path, f"{ORDERS}{line}\n")
    assert 'routes["orders"].' in told
    assert text in told


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ('["^orders", "b"]', "mixes"),
        ('["^("]', "not a regular expression"),
        ('["ringfence.acks"]', "belong to Ringfence"),
        ('["a/b"]', "a topic name or one regular expression"),
        ('["a", "a"]', "no item comes twice"),
        ('"orders"', "a list"),
    ],
)
def test_inputs_are_names_or_one_expression(tmp_path: Path, inputs: str, text: str) -> None:
    found = problems(tmp_path, f'[[routes]]\ninputs = {inputs}\nscope = "partition"\n')
    assert text in str(found[0])


def test_a_route_without_inputs_and_a_file_without_routes_are_told(tmp_path: Path) -> None:
    assert "inputs is missing" in only_problem(tmp_path, '[[routes]]\nscope = "partition"\n')
    assert "[[routes]] is missing" in only_problem(tmp_path, "")


def test_one_route_may_not_read_what_another_writes(tmp_path: Path) -> None:
    second = '[[routes]]\ninputs = ["orders.unique"]\nscope = "partition"\n'
    told = only_problem(tmp_path, ORDERS + second)
    assert 'routes["orders.unique"].inputs' in told
    assert 'routes["orders"] writes' in told


def test_names_of_routes_are_unique(tmp_path: Path) -> None:
    second = '[[routes]]\nname = "orders"\ninputs = ["bills"]\nscope = "partition"\n'
    assert '2 routes have the name "orders"' in only_problem(tmp_path, ORDERS + second)
