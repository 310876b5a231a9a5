"""What the pages tell to type is there to be typed: every line of every block that is code.

Requests go to the API over a made-up service, one after the other, as a reader sends them; commands
are parsed as a run would, files are read. Programs of others cannot be tried here.
"""

import argparse
import ast
import importlib
import inspect
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import trustme
import typer.main
from starlette.testclient import TestClient

from ringfence_main.cli import app
from ringfence_pipeline.command import app as jobs
from ringfence_service.bridge.config import load_lenient as load_bridge
from ringfence_service.config.load import BRIDGE_SECTIONS, load_lenient, read_document
from ringfence_service.config.tokens import entry_of, new_token
from tests.unit.service.cli.test_registry import parsed

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    page
    for folder in ("", "docs", "deploy/helm/ringfence")
    for page in (ROOT / folder).glob("*.md")
    if page.name != "CHANGELOG.md"
)
OTHERS: Final = {
    *("docker", "kubectl", "helm", "kind", "pip", "kafka-transactions.sh", "copy", "echo"),
    *("cp", "git", "gpg", "cosign", "skopeo", "sha256sum"),
}
"""Programs that are not ours; the chart's own tests render what `helm` is given."""
SUBMITTED: Final = re.compile(
    r"^spark-submit .*pipeline/ringfence_pipeline/__main__\.py ", re.MULTILINE
)
"""The beginning of a submitted job; what follows is as for `ringfence pipeline`."""
CLIENTS: Final = {"java", "go", "js"}
"""Languages of producers that the wire contract shows; they need their own clients to run."""
KAFKA: Final = '[kafka]\n"bootstrap.servers" = "b:1"\n'
ROUTE: Final = '[[routes]]\ninputs = ["orders"]\n'
ETAG: Final = '"…"'


class Block(NamedTuple):
    """A block of code on a page."""

    page: str
    kind: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its commands, each whole, without comments."""
        joined = SUBMITTED.sub("ringfence pipeline ", self.text.replace("\\\n", " "))
        return [line for each in joined.splitlines() if (line := re.sub(r"\s+#.*", "", each))]


def blocks() -> Iterator[Block]:
    """Of all pages, in their order."""
    for page in PAGES:
        found = re.finditer(
            r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        yield from (Block(str(page.relative_to(ROOT)), *each.groups()) for each in found)


ALL: Final = tuple(blocks())
LINES: Final = [
    (block.page, line)
    for block in ALL
    if block.kind in {"", "sh"} and "copy()" not in block.text
    for line in block.lines
]
COMMANDS: Final = [
    line for _, line in LINES if shlex.split(line)[0].rpartition("/")[2] == "ringfence"
]
TARGETS: Final = sorted({line.split()[1] for _, line in LINES if line.startswith("make ")})
REQUESTS: Final = list(
    dict.fromkeys(
        page for page, line in LINES if line.startswith("curl ") and page != "docs/rest.md"
    )
)
"""Pages with requests; `test_rest_guide.py` sends those of the REST guide."""


def test_no_block_of_commands_is_of_a_kind_that_is_not_tried() -> None:
    known = {"ringfence", "make", "curl", "GET", "POST", *OTHERS}
    strange = [
        (page, line)
        for page, line in LINES
        if line.split()[0].rpartition("/")[2] not in known and not re.match(r" ?[{\"]", line)
    ]
    assert strange == []
    kinds = {"", "sh", "toml", "python", "yaml", "text", "mermaid", "json", "http"}
    assert {block.kind for block in ALL} <= kinds | CLIENTS


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_a_page_can_be_parsed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command: Any = typer.main.get_command(app)
    words = shlex.split(line.partition(" > ")[0].partition(" | ")[0])[1:]
    if words[0] == "pipeline":
        command, words = typer.main.get_command(jobs), words[1:]
        Path("ringfence.toml").write_text(KAFKA + ROUTE)
        Path("history").mkdir()
    parsed(command, words)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_of_a_page_is_one_of_make(target: str) -> None:
    ran = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", REQUESTS)
def test_the_requests_of_a_page_are_answered(page: str, client: TestClient) -> None:
    files, etag, location = dict[str, bytes](), "", ""
    for line in (line for each, line in LINES if each == page):
        if line.startswith("curl "):
            method, url, headers, body, out = curl(line)
            headers = {name: etag if value == ETAG else value for name, value in headers.items()}
            content = files[body[1:]] if body.startswith("@") else body.encode()
        elif line.startswith(("GET ", "POST ")):
            method, url = line.split()[:2]
            url, headers, out = url.replace("/v1/redrives/{id}", location), {}, ""
            content = document_after(page, line)
            headers = {"Content-Type": "application/json"} if content else {}
        else:
            continue
        answer = client.request(method, url, headers=headers, content=content or None)
        assert answer.is_success, (line, answer.text)
        etag = answer.headers.get("ETag", etag)
        location = answer.headers.get("Location", location)
        files[out] = answer.content


def curl(line: str) -> tuple[str, str, dict[str, str], str, str]:
    """Method, path with query, headers, body and the file that takes the answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-X")
    parser.add_argument("-d", "--data-binary", dest="d")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-i", action="store_true")
    parser.add_argument("url")
    command, _, out = line.partition(" > ")
    given = parser.parse_args(shlex.split(command)[1:])
    headers = dict(each.split(": ", 1) for each in given.H if "$TOKEN" not in each)
    path = re.sub(r"^(\$[A-Z]+|localhost:8080)", "", given.url)
    return given.X or ("POST" if given.d else "GET"), path, headers, given.d or "", out


def document_after(page: str, line: str) -> bytes:
    """The document below a request of a block, for the one that begins something."""
    if not re.match(r"POST \S+redrives(\?\S*)?(\s|$)", line):
        return b""
    text = next(block.text for block in ALL if block.page == page and line in block.lines)
    found = re.search(r"^\{.*?\}$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return json.dumps(json.loads(found[0])).encode()


@pytest.mark.parametrize("block", [each for each in ALL if each.kind == "toml"])
def test_a_file_of_a_page_is_a_configuration(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_text(block.text)
    is_bridge = (read_document(file, []) or {}).keys() <= BRIDGE_SECTIONS - {"api", "log"}
    if is_bridge:
        assert load_bridge(file, {})[1] == []
        return
    if "[kafka]" not in block.text:
        file.write_text(KAFKA + ("" if "[[routes]]" in block.text else ROUTE) + block.text)
    (tmp_path / "tokens").write_text(f"{entry_of('ada', 'viewer', new_token()).line}\n")
    made = trustme.CA().issue_cert("ringfence.example")
    made.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    made.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    file.write_text(file.read_text().replace("/etc/ringfence", str(tmp_path)))
    assert load_lenient(file, {})[1] == []


PROGRAMS: Final = [each for each in ALL if each.kind == "python" and "from ringfence" in each.text]
"""Those that use this package; producers of other clients need a broker."""


@pytest.mark.parametrize("block", PROGRAMS)
def test_a_program_of_a_page_calls_what_there_is(block: Block) -> None:
    tree, names = ast.parse(block.text), dict[str, Any]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            names |= {each.name: getattr(module, each.name) for each in node.names}
    called = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            keywords = {str(each.arg): None for each in node.keywords}
            inspect.signature(names[node.func.id]).bind(*node.args, **keywords)
            called += 1
    assert called > 0
