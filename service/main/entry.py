"""Entry point of the package. `ringfence --help` imports nothing else.

Importing Typer takes three times as long as starting Python.
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
