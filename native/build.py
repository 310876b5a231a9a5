"""Build of the compiled fast path: one C file, with the compiler that this machine has.

    python native/build.py             into the site-packages of this Python
    python native/build.py --to .      into a folder

It prints one line that says whether it was built, and ends with 0 in both cases: without a compiler
or Python's headers the service runs the path in Python.
"""

import argparse
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).with_name("ringfence_native.c")
NAME = "ringfence_native.abi3.so"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers")


def main() -> int:
    """Build if possible; print whether it was."""
    parser = argparse.ArgumentParser(prog="python native/build.py", description=__doc__)
    parser.add_argument("--to", type=Path, default=Path(sysconfig.get_path("platlib")))
    parser.add_argument("--flags", default="", help="more flags for the compiler")
    given = parser.parse_args()
    why = built(given.to / NAME, given.flags.split())
    print(f"the compiled fast path is {f'not built: {why}' if why else 'built'}")
    return 0


def built(target: Path, more: list[str]) -> str:
    """Compile the extension; return why it cannot be, or nothing."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_path("include"))
    if compiler is None:
        return "this machine has no C compiler"
    if not (headers / "Python.h").exists():
        return f"{headers} has no Python.h"
    is_mac = sys.platform == "darwin"
    shared = ["-bundle", "-undefined", "dynamic_lookup"] if is_mac else ["-shared"]
    made = target.with_suffix(".new")  # a running service has the old file mapped
    command = [compiler, *FLAGS, *shared, "-fPIC", f"-I{headers}", *more, str(SOURCE), "-o", made]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"the compiler refused it: {(done.stderr.strip().splitlines() or ['?'])[0]}"
    made.replace(target)
    return ""


if __name__ == "__main__":
    sys.exit(main())
