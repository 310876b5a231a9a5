"""A mutant takes the place of the genuine code in a process where everything is imported.

The body of a function is exchanged where the function stands, with all that it holds: objects
and other modules refer to the function and not to its code. What runs at import is read again
instead, by a process that has imported none of the tested packages.
"""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final

from tests.mutation.mutant import Mutant
from tools.source_roots import module_name

Key = tuple[str, str, int]


class NotExchangeableError(Exception):
    """No function of this process can have the mutant's code: its module must be imported again."""


class Functions:
    """Of the tested packages, in this process, as they were imported."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._genuine: Final[dict[str, CodeType]] = {}
        self._live: Final[dict[Key, list[FunctionType]]] = {}
        gc.unfreeze()  # the tests' conftest.py hides everything that is imported from gc
        for each in gc.get_objects():
            if type(each) is FunctionType:
                self._live.setdefault(_key(each.__code__), []).append(each)

    def exchange(self, mutant: Mutant) -> None:
        """Put the mutant's code into every function that has the genuine."""
        path = self._root / mutant.path
        changed = mutant.applied(path.read_bytes())
        new = compile(changed, str(path), "exec", dont_inherit=True)
        is_exchanged = False
        for genuine, broken in _pairs(self.genuine(mutant.path), new):
            if genuine == broken:
                continue
            for function in self._live.get(_key(genuine), ()):
                if len(genuine.co_freevars) != len(broken.co_freevars):
                    raise NotExchangeableError
                function.__code__ = broken
                is_exchanged = True
        if not is_exchanged:
            raise NotExchangeableError

    def genuine(self, path: str) -> CodeType:
        """The code of a file; compiled once, before children need it."""
        if path not in self._genuine:
            place = self._root / path
            self._genuine[path] = compile(place.read_bytes(), str(place), "exec", dont_inherit=True)
        return self._genuine[path]


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Every function's code and what it becomes; both files define the same, in one order."""
    inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new)]
    for genuine, broken in zip(*inner, strict=False):
        if genuine.co_name != broken.co_name:
            return  # the change took a lambda or a comprehension away, within one function
        yield genuine, broken
        yield from _pairs(genuine, broken)


def import_as(path: str, source: bytes, root: Path) -> None:
    """Have the module at a path below the root imported from this source, when it is imported."""
    sys.meta_path.insert(0, _Finder(path, source, root))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, path: str, source: bytes, root: Path) -> None:
        self._path = root / path
        self._source = source
        self._name = module_name(path)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self._name:
            return None
        loader = _Loader(fullname, str(self._path))
        loader.source = self._source
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    source = b""

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return compile(self.source, self.path, "exec", dont_inherit=True)
