"""Grafana dashboard: the table of panels as JSON that Grafana imports."""

import json
from collections.abc import Iterator
from typing import Any, Final

from tools.dashboard.panels import AT, ROWS, Line, Panel, Row

_WIDTH: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_CHOSEN: Final = 'job=~"$job", instance=~"$instance"'
_JOB_ONLY: Final = ("$job_only", 'job=~"$job"')

Json = dict[str, Any]


def written() -> str:
    """Return the content of the dashboard file."""
    return json.dumps(_dashboard(), indent=1, ensure_ascii=False) + "\n"


def query_of(line: Line) -> str:
    """Return the PromQL expression of a line, filtered by the dashboard's variables."""
    return line.query.replace(*_JOB_ONLY).replace(AT, _CHOSEN)


def _dashboard() -> Json:
    return {
        "uid": "ringfence",
        "title": "Ringfence",
        "tags": ["kafka", "ringfence"],
        "description": "Duplicates kept out of Kafka topics; docs/metrics.md has every metric.",
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_choices())},
        "panels": list(_panels()),
    }


def _choices() -> Iterator[Json]:
    """Yield the variables that the viewer selects at the top."""
    yield {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}
    yield _choice("job", "Group", "label_values(ringfence_build_info, job)")
    instances = 'label_values(ringfence_build_info{job=~"$job"}, instance)'
    yield _choice("instance", "Instance", instances)
    addresses = f"label_values(ringfence_ring_used_ids{{{_CHOSEN}}}, address)"
    yield _choice("address", "Address", addresses)


def _choice(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> Iterator[Json]:
    top, number = 0, 1
    for row in ROWS:
        position = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": position, "panels": []}
        for count, panel in enumerate(row.panels, 1):
            yield _panel(number + count, panel, _grid_position(row, count - 1, top + 1))
        lines = -(-len(row.panels) * row.width // _WIDTH)
        top, number = top + 1 + lines * row.height, number + len(row.panels) + 1


def _grid_position(row: Row, count: int, top: int) -> Json:
    line, column = divmod(count * row.width, _WIDTH)
    return {"x": column, "y": top + line * row.height, "w": row.width, "h": row.height}


def _panel(number: int, panel: Panel, position: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": _field_defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + count),
                "datasource": _SOURCE,
                "expr": query_of(line),
                "legendFormat": line.name,
            }
            for count, line in enumerate(panel.lines)
        ],
    }


def _field_defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        mode = "normal" if panel.stacked else "none"
        fill = 20 if panel.stacked else 0
        stacking = {"mode": mode, "group": "A"}
        defaults["custom"] = {"fillOpacity": fill, "showPoints": "never", "stacking": stacking}
    return defaults


def _options(panel: Panel) -> Json:
    if panel.kind == "stat":
        return {
            "colorMode": "none",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"]},
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
