"""Source roots: the folders of a checkout that Python imports from.

pyproject.toml has the same list for the editable installation, the type checker and pytest.
"""

import os
from pathlib import Path
from typing import Final

SOURCE_ROOTS: Final = ("ringfence", "state", "service", "api", "pipeline")


def python_path(checkout: Path) -> str:
    """Return the PYTHONPATH that makes a process run the code of a checkout.

    A checkout from before the packages had names of their own has no source root but itself.
    """
    roots = (checkout / name for name in SOURCE_ROOTS)
    found = (root for root in roots if any(root.glob("ringfence*/__init__.py")))
    return os.pathsep.join(map(str, (checkout, *found)))


def module_name(file: str) -> str:
    """Return the import name of a file of a checkout, as `state/ringfence_state/model.py`."""
    root, _, rest = file.partition("/")
    path = rest if root in SOURCE_ROOTS else file
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
