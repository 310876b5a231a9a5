"""Dashboard generator: `python -m tools.dashboard` rewrites the dashboard of the chart."""

from pathlib import Path
from typing import Final

from tools.dashboard.grafana import written

TARGET: Final = (
    Path(__file__).parents[2] / "deploy" / "helm" / "ringfence" / "files" / "dashboard.json"
)

if __name__ == "__main__":
    TARGET.write_text(written(), encoding="utf-8")
    print(TARGET)
