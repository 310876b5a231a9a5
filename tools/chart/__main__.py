"""Generator: `python -m tools.chart` rewrites the chart's schema, its README and the settings page.

Each is made from what it describes; everything outside of the generated parts stays as it is.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.chart.readme import README, renewed
from tools.chart.schema import SCHEMA, renewed_schema
from tools.chart.settings_page import PAGE, renewed_settings
from tools.errors import ToolError

GENERATED: Final[Mapping[Path, Callable[[str], str]]] = {
    SCHEMA: renewed_schema,
    README: renewed,
    PAGE: renewed_settings,
}


def main() -> int:
    """Write all of them; return 1, and print the reason, if a value cannot be described."""
    try:
        for file, renew in GENERATED.items():
            file.write_text(renew(file.read_text("utf-8")), "utf-8")
    except ToolError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
