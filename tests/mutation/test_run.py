"""A small project with mutants that are known: which are found, and what is judged again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.mutation.core import GROUPS, TESTS

ROOT: Final = Path(__file__).parents[2]

PRODUCT = '''"""A box."""
from typing import NamedTuple

LIMIT = 3


class Size(NamedTuple):
    width: int = 2


class Box:
    def __init__(self):
        super().__init__()
        self.things = []

    @property
    def is_full(self):
        return len(self.things) >= Size().width

    def put(self, thing):
        self.things.append(thing)

    def empty(self):
        while self.things:
            self.things.pop()


def is_small(number):
    return number < LIMIT


def unused():
    return True
'''

CHECKS = """
from product.box import Box, is_small


def test_two_are_full():
    box = Box()
    box.put(1)
    box.put(2)
    assert box.is_full
    box.empty()
    assert not box.is_full


def test_two_is_small():
    assert is_small(2) is True


def test_that_fails_judges_nothing():
    assert is_small(4)
"""

BOX = "product/box.py "
OUTCOMES = {
    "LIMIT: LIMIT = 3 [3 → 2]": "killed",
    "LIMIT: LIMIT = 3 [3 → 4]": "survived",
    "Size.width: width: int = 2 [2 → 1]": "survived",
    "Size.width: width: int = 2 [2 → 3]": "killed",
    "Box.__init__: super().__init__() [statement left out]": "survived",
    "Box.__init__: self.things = [] [statement left out]": "killed",
    "Box.is_full: return len(self.things) >= Size().width [return None]": "killed",
    "Box.is_full: return len(self.things) >= Size().width "
    "[len(self.things) >= Size().width → len(self.things) > Size().width]": "killed",
    "Box.is_full: return len(self.things) >= Size().width "
    "[len(self.things) >= Size().width → len(self.things) < Size().width]": "killed",
    "Box.put: self.things.append(thing) [statement left out]": "killed",
    "Box.empty: while self.things: [self.things → (not (self.things))]": "killed",
    "Box.empty: self.things.pop() [statement left out]": "timed out",
    "is_small: return number < LIMIT [return None]": "killed",
    "is_small: return number < LIMIT [number < LIMIT → number <= LIMIT]": "survived",
    "is_small: return number < LIMIT [number < LIMIT → number >= LIMIT]": "killed",
    "unused: return True [return None]": "not reached",
    "unused: return True [True → False]": "not reached",
}

EXPLAINED = """
[[equivalent]]
module = "product/box.py"
function = "Box.__init__"
line = "super().__init__()"
mutation = "statement left out"
reason = "an object's own does nothing"

[[equivalent]]
module = "product/box.py"
function = "Box.__init__"
line = "self.thing = None"
mutation = "statement left out"
reason = "there is no such line"
"""


def started(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutation", "product/*.py", "--root", str(root)]
    options = ["--packages", "product", "--tests", "checks", "--jobs", "2", *arguments]
    return subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, check=False
    )


def run(root: Path, *arguments: str) -> str:
    done = started(root, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr + done.stdout


def judged(root: Path) -> list[tuple[str, str]]:
    lines = (root / ".run" / "mutants" / "results.jsonl").read_text().splitlines()
    return [(key.removeprefix(BOX), outcome) for key, outcome, *_ in map(json.loads, lines)]


def test_a_known_mutant_is_found_or_survives_and_is_judged_again_when_its_tests_change(
    tmp_path: Path,
) -> None:
    for name, text in {
        "pytest.ini": "[pytest]\npythonpath = .\naddopts = --import-mode=importlib\n",
        "conftest.py": "import gc\n\n\ndef pytest_collection_finish():\n    gc.freeze()\n",
        "product/box.py": PRODUCT,
        "checks/test_box.py": CHECKS,
        "checks/test_other.py": "def test_that_executes_nothing_of_it():\n    pass\n",
        "tests/mutation/equivalent.toml": EXPLAINED,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    text = run(tmp_path)
    results = judged(tmp_path)
    explained = "Box.__init__: super().__init__() [statement left out]"
    wanted = {key: outcome for key, outcome in OUTCOMES.items() if key != explained}
    assert {key: outcome for key, outcome in results if outcome != "elsewhere"} == wanted
    survivor = (
        f"survived: {BOX}LIMIT: LIMIT = 3 [3 → 4]\n  1 of 1 tests were run\n    @@ -3,3 +3,3 @@\n"
    )
    assert survivor in text
    assert "-LIMIT = 3\n" in text
    assert "are not judged yet" not in text
    assert "unused: return True [True → False]\n  no test executes it\n" in text
    assert text.count("super().__init__()") == 0
    assert f"explained, but no mutant: {BOX}Box.__init__: self.thing = None" in text
    all_of_it = text.splitlines()[-3].split()
    assert all_of_it == ["all", "17", "10", "1", "3", "2", "1", "68.8", "%"]

    (tmp_path / "product/box.py").write_text(f"# Lines move.\n{PRODUCT}")
    stricter = CHECKS + "\n\ndef test_three_is_not_small():\n    assert is_small(3) is False\n"
    (tmp_path / "checks/test_box.py").write_text(stricter)
    assert "4 of 5 tests are traced" in run(tmp_path)
    later = dict(judged(tmp_path)[len(results) :])
    assert later["LIMIT: LIMIT = 3 [3 → 4]"] == "killed"
    assert "unused: return True [True → False]" not in later

    known = len(judged(tmp_path))
    assert run(tmp_path, "--report") == (tmp_path / ".run/mutants/report.txt").read_text()
    assert len(judged(tmp_path)) == known
    run(tmp_path, "--again")
    assert dict(judged(tmp_path)[known:])[explained] == OUTCOMES[explained]


@pytest.mark.parametrize("group", GROUPS)
def test_every_file_of_a_group_is_there(group: str) -> None:
    assert all(list(ROOT.glob(pattern)) for pattern in GROUPS[group])


def test_every_test_that_is_named_is_there() -> None:
    for named in (each for each in TESTS if "/" in each):
        path, _, test = named.split("=")[-1].partition("::")
        assert not test or f"def {test}(" in (ROOT / path).read_text()
        assert (ROOT / path).exists()


def test_tests_that_cannot_be_collected_end_the_run(tmp_path: Path) -> None:
    for name, text in {
        "product/box.py": PRODUCT,
        "checks/test_box.py": CHECKS,
        "checks/test_other.py": "import no_such_module\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    done = started(tmp_path)

    assert done.returncode == 1
    assert "No module named 'no_such_module'" in done.stderr
    assert "without these tests, mutants that they find would survive" in done.stderr
    assert "judged" not in done.stderr
