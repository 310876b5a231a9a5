"""Import of a module from other source than its file has: how a mutant gets into a process."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from tools.source_roots import module_name


def import_as(path: str, source: bytes, root: Path) -> None:
    """Have the module at a path below the root imported from this source from now on."""
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
