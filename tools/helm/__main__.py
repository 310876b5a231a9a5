"""`python -m tools.helm`: builds the pinned Helm where it is missing and prints its path."""

import sys

from tools.helm.build import GoMissingError, HelmBuildError, helm_binary


def main() -> int:
    """Print the path of the binary, or the reason why there is none."""
    try:
        print(helm_binary())
    except (GoMissingError, HelmBuildError) as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
