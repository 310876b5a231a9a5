"""The entry of the package. `ringfence --help`, which people type first, loads nothing else.

Typer alone takes three times as long to load as Python does, and all commands are its.
"""

import sys


def main() -> None:
    """Show all commands, or run one."""
    if sys.argv[1:] == ["--help"]:
        from service.cli.overview import overview

        sys.stdout.write(overview())
        return
    from service.main.cli import main as run

    run()


if __name__ == "__main__":
    main()
