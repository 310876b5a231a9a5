"""Programs for the chart's tests: `python -m tools.helm` builds what is missing, and prints paths.

These are Helm, and promtool for the alert rules of the chart, each at a pinned version. The
Kubernetes of the long tests is built by the first of them.
"""

import sys

from tools.go import GoBuildError, GoMissingError
from tools.helm.build import HELM
from tools.promtool.build import PROMTOOL


def main() -> int:
    """Print the paths of the binaries; return 1, and print the reason, if one cannot be built."""
    try:
        for program in (HELM, PROMTOOL):
            print(program.binary(), flush=True)
    except (GoMissingError, GoBuildError) as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
