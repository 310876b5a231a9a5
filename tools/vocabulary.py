"""Vocabulary: checks that a class name means one thing and that prose uses common words.

    python -m tools.vocabulary

Two classes of the product may share a name only where SHARED says why. Comments, docstrings,
messages and pages may not contain a word of BANNED; each has a plain word beside it. Strings of
tests and tools are their inputs, so of these only comments and docstrings are checked.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.source_roots import SOURCE_ROOTS

PRODUCT: Final = SOURCE_ROOTS
SHARED: Final = {
    "AddressSettings": "the API's document of what ringfence_service.config calls the same",
    "DeadLetter": "the header names in the client library, and the API's document",
    "Publisher": "the client library's class, and the API's document",
}
BANNED: Final = {
    r"anew": "again",
    r"in force": "effective, current",
    r"lets? go": "releases",
    r"mend(s|ed|ing)?": "fix",
    r"of ours": "our",
    r"[Ss]ee the module": "a sentence of its own",
    r"[Tt]old": "payload, response, reported",
    r"[Ww]hoever": "the actor's name",
}
_BANNED: Final = re.compile("|".join(rf"\b(?:{word})\b" for word in BANNED))
_MESSAGES: Final = frozenset({"STRING", "FSTRING_MIDDLE"})
"""Names of token types; the last exists from Python 3.12 on."""


def main(root: Path) -> int:
    """Print each violation as `path:line: what`; the exit status is 1 when there is one."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.html"],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    files = [root / name for name in listed.stdout.split()]
    found = [*shared_names(root, files), *banned_words(root, files)]
    print("\n".join(found) or "Each class has a name of its own, and the prose uses common words.")
    return 1 if found else 0


def shared_names(root: Path, files: Iterable[Path]) -> Iterator[str]:
    """Yield the places of each class name that the product defines more than once."""
    places: Mapping[str, list[str]] = defaultdict(list)
    for file in files:
        name = file.relative_to(root)
        if file.suffix == ".py" and name.parts[0] in PRODUCT:
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{name}:{node.lineno}")
    for shared, defined in places.items():
        if len(defined) > 1 and shared not in SHARED:
            yield f"{defined[0]}: class {shared} is also defined in {', '.join(defined[1:])}"


def banned_words(root: Path, files: Iterable[Path]) -> Iterator[str]:
    """Yield each line of prose that has a banned word."""
    for file in files:
        name = file.relative_to(root)
        for number, line in _prose(file, messages=name.parts[0] in PRODUCT):
            for word in _BANNED.finditer(line):
                instead = next(each for ban, each in BANNED.items() if re.fullmatch(ban, word[0]))
                yield f"{name}:{number}: write {instead!r} instead of {word[0]!r}"


def _prose(file: Path, *, messages: bool) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page, or of a module's comments, docstrings and messages."""
    text = file.read_text("utf-8")
    if file.suffix != ".py":
        yield from enumerate(text.split("\n"), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_remark = token.type == tokenize.COMMENT or token.string.startswith('"""')
        if is_remark or (messages and tokenize.tok_name[token.type] in _MESSAGES):
            yield from enumerate(token.string.split("\n"), token.start[0])


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1]))
