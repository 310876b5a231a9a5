"""The dashboard and the monitor: as the generator has them, of metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.helm.chart import CHART_DIR, EVERYTHING, HELM_TEST, Helm, installed
from tests.helm.test_rules import rules, run
from tests.unit.service.telemetry.test_metrics_page import PAGE, documented
from tools.dashboard.grafana import query_of, written
from tools.dashboard.panels import ROWS

pytestmark = HELM_TEST

QUERIES = [query_of(line) for row in ROWS for panel in row.panels for line in panel.lines]
DASHBOARD = CHART_DIR / "files" / "dashboard.json"


def rows_of(name: str) -> list[dict[str, Any]]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    found: list[dict[str, Any]] = dashboard[name]
    return found


def test_the_file_is_what_the_generator_writes() -> None:
    assert DASHBOARD.read_text("utf-8") == written(), "run python -m tools.dashboard"


def test_every_panel_shows_metrics_that_there_are() -> None:
    there_are = {row.name for row in documented(PAGE.read_text("utf-8"))}
    there_are |= {rule["record"] for rule in rules() if "record" in rule}
    for query in QUERIES:
        named = re.findall(r"\b((?:ringfence|process)[a-z0-9_:]+)", query)
        assert named, query
        for name in named:
            assert name in there_are or re.sub(r"_(bucket|count|sum)$", "", name) in there_are, name


def test_every_label_that_a_query_asks_for_is_one_of_its_metrics() -> None:
    labels = {row.name: set(row.labels) for row in documented(PAGE.read_text("utf-8"))}
    for rule in rules():
        if "record" in rule:
            labels[rule["record"]] = asked_for(rule["expr"]) - OF_PROMETHEUS
    for query in [*QUERIES, *(rule["expr"] for rule in rules())]:
        named = re.findall(r"\b((?:ringfence|process)[a-z0-9_:]+)", query)
        plain = {re.sub(r"_(bucket|count|sum)$", "", name) for name in named} | set(named)
        known = set[str]().union(*(labels.get(name, set()) for name in plain), OF_PROMETHEUS)
        assert asked_for(query) <= known, query


OF_PROMETHEUS = {"job", "instance", "le"}


def asked_for(query: str) -> set[str]:
    """The labels that a query groups by, or chooses by."""
    groups = re.findall(r"\b(?:by|on|without|group_left) \(([^)]*)\)", query)
    chosen = re.findall(r"[{,]\s*([a-z_]+)\s*(?:=~|!~|!=|=)", query)
    return {name for group in groups for name in re.findall(r"[a-z_]+", group)} | set(chosen)


def test_prometheus_understands_every_query(promtool: Path, tmp_path: Path) -> None:
    asked = [
        {"record": f"asked:{count}", "expr": query.replace("$__rate_interval", "1m")}
        for count, query in enumerate(QUERIES)
    ]
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "panels", "rules": asked}]})
    )
    told = run(promtool, "check", "rules", "rules.yaml", folder=tmp_path)
    assert f"{len(QUERIES)} rules found" in told


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = rows_of("panels")
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        x, y, width, height = (panel["gridPos"][key] for key in "xywh")
        cells = {(x + i, y + j) for i in range(width) for j in range(height)}
        assert x + width <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


def test_the_chart_installs_the_dashboard_when_asked(helm: Helm) -> None:
    maps = {
        name: yaml.safe_load(text)
        for name, text in installed(helm, EVERYTHING).texts.items()
        if name.startswith("ConfigMap/")
    }
    found = maps["ConfigMap/demo-ringfence-dashboard"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["data"]["ringfence.json"] == DASHBOARD.read_text("utf-8")
