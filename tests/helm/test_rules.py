"""The alert rules: each fires and clears by promtool's clock, and says what to do about it."""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.helm.chart import (
    CHART_DIR,
    EVERYTHING,
    HELM_TEST,
    OTHERWISE,
    WITHOUT,
    Helm,
    installed,
    only,
)
from tests.support.waiting import LIMIT_S
from tests.unit.service.telemetry.test_metrics_page import PAGE, documented

pytestmark = HELM_TEST

RULES = CHART_DIR / "files" / "rules.yaml"
CASES = Path(__file__).with_name("rules_test.yaml")
OPERATIONS = PAGE.with_name("operations.md")
Rule = dict[str, Any]


def rules(path: Path = RULES) -> list[Rule]:
    groups = yaml.safe_load(path.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}


def expected() -> dict[str, list[list[Rule]]]:
    """What the cases expect of each alert, in order."""
    found: dict[str, list[list[Rule]]] = {}
    for test in yaml.safe_load(CASES.read_text())["tests"]:
        for check in test["alert_rule_test"]:
            found.setdefault(check["alertname"], []).append(check["exp_alerts"])
    return found


def run(promtool: Path, *arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [str(promtool), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_no_fault_in_the_rules(promtool: Path) -> None:
    told = run(
        promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES.name, folder=RULES.parent
    )
    assert f"{len(rules())} rules found" in told


def verify_cases(promtool: Path, folder: Path, document: Rule, cases: Rule) -> None:
    """Every case holds of a document of rules."""
    for group in document["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)  # promtool would have every text repeated
    (folder / "rules.yaml").write_text(yaml.safe_dump(document))
    (folder / CASES.name).write_text(yaml.safe_dump(cases))
    run(promtool, "test", "rules", CASES.name, folder=folder)


def test_each_alert_fires_and_clears_when_it_should(promtool: Path, tmp_path: Path) -> None:
    document, cases = (yaml.safe_load(path.read_text()) for path in (RULES, CASES))
    verify_cases(promtool, tmp_path, document, cases)


def released(helm: Helm, value_set: Path) -> Rule:
    found = only(installed(helm, value_set).objects, "PrometheusRule")
    return dict(found["spec"])


def test_the_rules_of_a_release_speak_of_its_own_series_alone(
    helm: Helm, promtool: Path, tmp_path: Path
) -> None:
    of_pods = "streams/demo-ringfence"
    cases = beside_another(yaml.safe_load(CASES.read_text()), of_pods)
    verify_cases(promtool, tmp_path, released(helm, EVERYTHING), cases)


def beside_another(cases: Rule, job: str) -> Rule:
    """The cases as a release's, and another beside it to which the same happens, but that lives."""

    def of(job: str, text: str) -> str:
        assert 'job="r"' in text
        return text.replace('job="r"', f'job="{job}", namespace="streams"')

    for test in cases["tests"]:
        series = test["input_series"]
        test["input_series"] = [{**one, "series": of(job, one["series"])} for one in series]
        test["input_series"] += [
            {
                "series": of("streams/other", one["series"]),
                "values": "1x30" if "build_info" in one["series"] else one["values"],
            }
            for one in series
        ]
        for alert in (alert for check in test["alert_rule_test"] for alert in check["exp_alerts"]):
            alert["exp_labels"] |= {"job": job, "namespace": "streams"}
        for check in test.get("promql_expr_test", []):
            for sample in check["exp_samples"]:
                sample["labels"] = of(job, sample["labels"])
    return cases


def test_the_cases_see_each_alert_quiet_and_firing_and_quiet_again() -> None:
    checked = expected()
    assert checked.keys() == ALERTS.keys()
    for name, checks in checked.items():
        fires = [bool(alerts) for alerts in checks]
        assert True in fires, name
        assert False in fires[fires.index(True) :], f"{name} clears"


def test_each_alert_says_what_happened_what_to_do_and_where_to_read_on() -> None:
    page = OPERATIONS.read_text("utf-8").partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.*)$", page, re.MULTILINE) == list(ALERTS)
    checked = expected()
    for alert, rule in ALERTS.items():
        texts = rule["annotations"]
        assert texts.keys() == {"summary", "description", "runbook_url"}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert texts["runbook_url"] == f"docs/operations.md#{alert.lower()}"
        fired = next(alerts[0]["exp_labels"] for alerts in checked[alert] if alerts)
        used = re.findall(r"\$labels\.([a-z]+)", texts["summary"] + texts["description"])
        assert set(used) <= fired.keys(), f"{alert} names a label that it does not have"


def test_the_rules_use_metrics_that_there_are() -> None:
    there_are = {row.name for row in documented(PAGE.read_text("utf-8"))}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        for name in re.findall(r"\bringfence[a-z0-9_:]+", rule["expr"]):
            plain = re.sub(r"_(bucket|count|sum)$", "", name)
            assert name in there_are | recorded or plain in there_are, name


def test_the_chart_installs_the_rules_with_the_job_the_window_and_the_links_of_the_values(
    helm: Helm,
) -> None:
    assert released(helm, WITHOUT) == yaml.safe_load(RULES.read_text()), "no monitor, no job"
    text = yaml.safe_dump(released(helm, EVERYTHING), width=10_000)
    assert "streams/demo-ringfence" in text
    text = text.replace("streams/demo-ringfence", "demo-ringfence-headless")
    text = text.replace("vector(3600)", "vector(86400)")
    expected = yaml.safe_load(text.replace("docs/operations.md#", "https://x/ops#"))
    assert released(helm, OTHERWISE) == expected, "a monitor of the service has another job"
    found = only(installed(helm, EVERYTHING).objects, "PrometheusRule")
    assert found["metadata"]["labels"]["release"] == "prometheus"
