"""`python -m tools.helm`: builds what the chart's tests need where it is missing, and tells where.

That is the pinned Helm, the pinned promtool for the rules that the chart installs, and the pinned
Kubernetes that it is installed in.
"""

import sys

from tools.go import GoBuildError, GoMissingError
from tools.helm.build import HELM
from tools.kubernetes.build import KUBERNETES
from tools.promtool.build import PROMTOOL


def main() -> int:
    """Print the paths of the binaries, or the reason why there are none."""
    try:
        for program in (HELM, PROMTOOL, KUBERNETES):
            print(program.binary(), flush=True)
    except (GoMissingError, GoBuildError) as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
