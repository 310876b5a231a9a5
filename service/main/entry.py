"""Entry point of the package; `ringfence --help` does not import Typer.

Importing Typer takes three times as long as starting Python.
"""

import sys


def main() -> None:
    """Show all commands, or run one."""
    if sys.argv[1:] == ["--help"]:
        from service.cli.overview import overview

        sys.stdout.write(overview())
        return
    if sys.argv[1:2] in (["serve"], ["bridge"]):
        from service.main.quick_start import start_quickly

        start_quickly()
    from service.main.cli import main as run

    run()


if __name__ == "__main__":
    main()
