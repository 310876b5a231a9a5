"""promtool at its pinned version, without service discovery; the first build takes minutes."""

from pathlib import Path
from typing import Final

from tools.go import GoProgram

PROMTOOL: Final = GoProgram(
    "promtool",
    Path(__file__).parent,
    "github.com/prometheus/prometheus/cmd/promtool",
    # The clients of thirty clouds would treble the build.
    tags="remove_all_sd",
    link="-s -w",
)
