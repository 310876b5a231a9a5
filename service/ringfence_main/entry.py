"""Entry point of the package: starts a command, those that serve with a quick start."""

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] in (["serve"], ["bridge"]):
        from ringfence_main.quick_start import start_quickly

        start_quickly()
    from ringfence_main.cli import main as run

    run()


if __name__ == "__main__":
    main()
