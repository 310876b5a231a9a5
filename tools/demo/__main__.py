"""Command line of the demo: `python -m tools.demo [--exit]`."""

import argparse
import sys

from tools.demo.run import demo

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.demo", description=demo.__doc__)
    parser.add_argument("--exit", action="store_true", help="end by itself after the closing table")
    sys.exit(demo(exit_after=parser.parse_args().exit))
