"""The pages that users read name all that there is."""

from dataclasses import fields
from pathlib import Path

import pytest

from ringfence.headers import Reason
from service.addresses import AddressSettings
from service.errors import ExitCode
from service.sections import ApiSettings, RouteSettings, ServiceSettings

CONFIGURATION = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
KEYS = [
    field.name
    for section in (ServiceSettings, ApiSettings, RouteSettings, AddressSettings)
    for field in fields(section)
]


@pytest.mark.parametrize("name", [*KEYS, *Reason])
def test_every_key_and_every_reason_is_documented(name: str) -> None:
    assert f"`{name}`" in CONFIGURATION


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_is_documented(code: ExitCode) -> None:
    exit_codes = CONFIGURATION.partition("## Exit codes")[2]
    assert f"{int(code)} " in exit_codes


@pytest.mark.parametrize("section", [ServiceSettings, AddressSettings])
def test_the_defaults_of_numbers_are_the_documented_ones(section: type) -> None:
    for field in fields(section):
        if type(field.default) is int:
            row = next(row for row in CONFIGURATION.splitlines() if f"`{field.name}`" in row)
            assert f"`{field.default}`" in row
