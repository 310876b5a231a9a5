"""The pages that users read name all that there is."""

import re
from inspect import Parameter, signature
from pathlib import Path

import pytest

from ringfence_client import headers
from ringfence_client.headers import DUPLICATE_ID_ALIASES, DeadLetter, Reason
from ringfence_client.publisher.publisher import Publisher
from ringfence_service.errors import ExitCode
from tools.broker.artifacts import versions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text("utf-8")
WIRE_CONTRACT = (DOCS / "wire-contract.md").read_text("utf-8")
PUBLISHERS = (DOCS / "publishers.md").read_text("utf-8")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_documented(reason: str) -> None:
    assert f"`{reason}`" in CONFIGURATION


HEADERS = {name for name in vars(headers).values() if isinstance(name, str) and name[:1] == "_"}


@pytest.mark.parametrize(
    "name", sorted({*HEADERS, *DUPLICATE_ID_ALIASES, headers.MARK, *DeadLetter, *Reason})
)
def test_every_header_and_every_reason_has_a_row_in_the_wire_contract(name: str) -> None:
    first_columns = re.findall(r"^\| (.*?) \|", WIRE_CONTRACT, re.MULTILINE)
    assert f"`{name}`" in "".join(first_columns)


PAGES = [*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md"), *DOCS.parent.glob("deploy/**/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text("utf-8")), target


def anchors(text: str) -> set[str]:
    """Those that a page's headings get."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_version_of_kafka_that_is_tested_is_documented_and_the_range_is_theirs() -> None:
    operations = (DOCS / "operations.md").read_text("utf-8")
    assert [each for each in versions() if each not in operations] == []
    first, last = (each.rpartition(".")[0] for each in (versions()[0], versions()[-1]))
    for page in (operations, (DOCS.parent / "README.md").read_text("utf-8")):
        assert f"Apache Kafka {first} to {last}" in page


def test_every_log_line_that_a_page_names_is_an_event_of_the_code() -> None:
    modules = [file for folder in ("service", "api") for file in (ROOT / folder).rglob("*.py")]
    code = "".join(module.read_text("utf-8") for module in modules)
    events = set(re.findall(r'\.(?:debug|info|warning|error|exception)\(\s*"(\w+)"', code))
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"\bline[ \n]`(\w+)`", page.read_text("utf-8"))
    }
    assert named
    assert {each for each in named if each[1] not in events} == set()


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_is_documented(code: ExitCode) -> None:
    exit_codes = CONFIGURATION.partition("## Exit codes")[2]
    assert f"{int(code)} " in exit_codes


@pytest.mark.parametrize("parameter", signature(Publisher).parameters.values())
def test_every_argument_of_a_publisher_is_documented_with_its_default(parameter: Parameter) -> None:
    settings = PUBLISHERS.partition("## Settings")[2]
    row = next(row for row in settings.splitlines() if f"`{parameter.name}`" in row)
    if parameter.default not in {Parameter.empty, None}:
        default = f'"{parameter.default}"' if isinstance(parameter.default, str) else None
        assert f"`{default or parameter.default}`" in row


@pytest.mark.parametrize("name", [name for name in vars(Publisher) if not name.startswith("_")])
def test_every_call_of_a_publisher_is_documented(name: str) -> None:
    assert f"`{name}" in PUBLISHERS.partition("## Calls")[2]
