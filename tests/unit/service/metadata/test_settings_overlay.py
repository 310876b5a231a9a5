"""Overlay: what is set lies over the file, and is held to the file's rules."""

from dataclasses import replace

import pytest

from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import ApiSettings, Config, RouteSettings, ServiceSettings
from ringfence_service.metadata.overlay import apply_overlay, fixed_faults, keys_of
from ringfence_service.metadata.settings import SettingsOverlay, differences, overlay_of

FILE = Config(
    KafkaSettings({}, {}, {}, {}),
    ServiceSettings(),
    ApiSettings(),
    (
        RouteSettings(name="a", inputs=("a",), output="out"),
        RouteSettings(name="b", inputs=("b",), missing_id="stamp"),
    ),
    AddressBook.of({"#": {"id_cache_size": 20}, "x": {"strategy": "window"}}),
)


def config(overlay: SettingsOverlay) -> Config:
    effective, faults = apply_overlay(FILE, overlay)
    assert faults == []
    return effective.config


def faults(overlay: SettingsOverlay) -> list[tuple[tuple[str, ...], str]]:
    return [(fault.path, str(fault.problem)) for fault in apply_overlay(FILE, overlay)[1]]


def test_an_empty_one_leaves_the_file() -> None:
    assert config(SettingsOverlay()) == FILE


def test_an_entry_stands_in_place_of_the_files_whole_and_in_its_place() -> None:
    found = config(SettingsOverlay(routes={"c": {"inputs": ["c"]}, "b": {"inputs": ["b"]}}))
    assert [route.name for route in found.routes] == ["a", "b", "c"]
    assert found.routes[1].missing_id == "pass"  # what it does not give is the default


def test_null_takes_an_entry_away() -> None:
    found = config(
        SettingsOverlay(routes={"b": None}, addresses={"x": None, "y": {"id_cache_size": 1}})
    )
    assert [route.name for route in found.routes] == ["a"]
    assert set(found.addresses.patterns) == {"#", "y"}
    assert found.addresses.settings("x").strategy == "ring"


def test_a_route_can_be_set_exactly_as_it_is_shown() -> None:
    told = {route.name: keys_of(route) for route in FILE.routes}
    assert config(SettingsOverlay(routes=told)).routes == FILE.routes


def test_what_is_taken_back_is_no_entry_any_more_unless_the_file_has_it() -> None:
    overlay = SettingsOverlay(paused=("c", "a")).with_route("c", {"inputs": ["c"]}, in_file=False)
    assert (overlay.routes, overlay.paused) == ({"c": {"inputs": ["c"]}}, ("c", "a"))
    assert overlay.with_route("c", None, in_file=False) == SettingsOverlay(paused=("a",))
    assert overlay.with_route("a", None, in_file=True).routes["a"] is None
    assert SettingsOverlay().with_address("x", None, in_file=True).addresses == {"x": None}
    assert overlay.with_pause("c", paused=False).with_pause("b", paused=True).paused == ("a", "b")


def test_only_routes_that_are_there_are_paused() -> None:
    effective, found = apply_overlay(FILE, SettingsOverlay(paused=("a", "gone")))
    assert effective.paused == {"a"}
    assert [fault.path for fault in found] == [("paused",)]


@pytest.mark.parametrize(
    ("overlay", "path", "sentence"),
    [
        (
            SettingsOverlay(routes={"c": {"inputs": ["x"], "output": "b"}}),
            ("routes", "c"),
            "cannot be an input",
        ),
        (
            SettingsOverlay(routes={"c": {"inputs": ["by-address"], "scope": "partition"}}),
            ("routes", "c", "inputs"),
            "changelog",
        ),
        (
            SettingsOverlay(routes={"c": {"name": "d", "inputs": ["c"]}}),
            ("routes", "c", "name"),
            "the name of a route cannot change",
        ),
        (SettingsOverlay(routes={"a": None, "b": None}), ("routes",), "nothing to read"),
        (
            SettingsOverlay(addresses={"y": {"strategy": 1}}),
            ("addresses", "y", "strategy"),
            "must be",
        ),
        (
            SettingsOverlay(addresses={"y": {"no-key": 1}}),
            ("addresses", "y", "no-key"),
            "not a setting",
        ),
        (SettingsOverlay(paused=("gone",)), ("paused",), '"gone", which is not a route'),
    ],
)
def test_what_a_file_may_not_say_may_not_be_set(
    overlay: SettingsOverlay, path: tuple[str, ...], sentence: str
) -> None:
    assert any(at == path and sentence in told for at, told in faults(overlay))


def test_what_is_wrong_with_the_files_own_routes_is_no_entry_that_was_set() -> None:
    written = replace(FILE, routes=(replace(FILE.routes[0], output="b"), FILE.routes[1]))
    (fault,) = apply_overlay(written, SettingsOverlay(routes={"c": {"inputs": ["c"]}}))[1]
    assert (fault.path, len(fault.problem.paths)) == (("routes",), 2)


def test_an_input_may_be_named_as_the_changelog_of_addresses_where_only_one_is_written() -> None:
    carried = {"inputs": ["by-address"]}
    assert config(SettingsOverlay(routes={"c": carried})).routes[-1].name == "c"
    decided = {**carried, "scope": "partition"}
    assert len(config(SettingsOverlay(routes={"a": None, "b": None, "c": decided})).routes) == 1


@pytest.mark.parametrize("key", ["scope", "address", "id"])
def test_what_is_fixed_is_fixed_while_the_route_exists(key: str) -> None:
    value = {"scope": "partition", "address": "all", "id": "{key}"}[key]
    given = {**keys_of(FILE.routes[0]), key: value}
    other = config(SettingsOverlay(routes={"a": given}))
    (fault,) = fixed_faults(FILE, other)
    assert fault.path == ("routes", "a", key)
    assert fixed_faults(replace(FILE, routes=FILE.routes[1:]), other) == []


@pytest.mark.parametrize(
    "told",
    [
        *(None, [], {"routes": []}, {"routes": {"a": {}, "b": 1}}, {"addresses": 1}),
        *({"paused": ["a", 1]}, {"paused": "a"}),
    ],
)
def test_what_is_no_overlay_is_none(told: object) -> None:
    assert overlay_of(told) is None


def test_differences_name_what_changed() -> None:
    before = SettingsOverlay(
        {"a": {"inputs": ["a"], "id": "{key}", "output": "o"}, "b": {}, "c": {}}, {}, ("a",)
    )
    after = SettingsOverlay(
        {"a": {"inputs": ["x"], "address": "all", "output": "o"}, "b": None},
        {"#": {"id_cache_size": 5}},
        ("b",),
    )
    assert differences(before, after) == (
        "routes.\"a\": address unset → all, id {key} → unset, inputs ['a'] → ['x']",
        'routes."b": deleted',
        'routes."c": override removed',
        'addresses."#": set',
        "paused: b",
        "resumed: a",
    )
