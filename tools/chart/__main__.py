"""Chart generator: `python -m tools.chart` rewrites the table of values in the chart's README."""

import sys

from tools.chart.readme import README, renewed
from tools.errors import ToolError


def main() -> int:
    """Write the table; return 1, and print the reason, if a value cannot be described."""
    try:
        README.write_text(renewed(README.read_text("utf-8")), "utf-8")
    except ToolError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
