"""Chart generator: `python -m tools.chart` rewrites the schema and the README's table."""

import sys

from tools.chart.readme import README, renewed
from tools.chart.schema import SCHEMA, renewed_schema
from tools.errors import ToolError


def main() -> int:
    """Write both; return 1, and print the reason, if a value cannot be described."""
    SCHEMA.write_text(renewed_schema(SCHEMA.read_text("utf-8")), "utf-8")
    try:
        README.write_text(renewed(README.read_text("utf-8")), "utf-8")
    except ToolError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
