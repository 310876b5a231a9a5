"""The console's forms: each sends what the API takes, and is bound by all that binds the API."""

from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from ringfence_api.console.pages.settings import ROUTE_FIELDS
from ringfence_api.ports import ServiceView
from ringfence_service.config.model import RouteSettings
from tests.api.console_pages import EVERY, Form, Page, page_of
from tests.api.fake_letters import LETTER, FakeLetters, FakeRedrives
from tests.api.guarded import HERE, TOKENS, client_of
from tests.support.statuses import changed

EDIT = "/console/settings/edit"
LETTER_PAGE = "/console/dead-letter?at=orders.dlq-0@7"


def sent(client: TestClient, form: Form, **filled: str) -> Page:
    """Send a form as a browser without a script does, and follow it to its page."""
    answer = client.post(
        form.action,
        data={**form.fields, **filled},
        headers={"Origin": HERE, "Accept": "text/html"},
        follow_redirects=True,
    )
    assert answer.status_code == 200, answer.text
    return Page(answer.text)


def audited(client: TestClient) -> list[dict[str, object]]:
    records: list[dict[str, object]] = client.get("/v1/audit").json()["records"]
    return records


def test_an_id_is_forgotten_with_its_reason_in_the_audit(client: TestClient) -> None:
    page = page_of(client, "/console/ids?address=orders&id=id-1")
    shown = sent(client, page.form("/console/ids/forget"), reason="it was a test")
    assert "Forgotten." in shown.text
    record = audited(client)[0]
    assert record["method"] == "DELETE"
    assert record["path"] == "/v1/addresses/orders/ids/id-1"
    assert record["reason"] == "it was a test"


def test_the_audit_shows_dry_runs_and_refusals_only_when_asked(client: TestClient) -> None:
    settings = "/v1/address-settings/x"
    client.put(settings, params={"dry_run": True, "reason": "tried"}, json={"id_cache_size": 7})
    client.put(settings, params={"reason": "refused"}, json={"id_cache_size": -7})
    client.put(settings, params={"reason": "made"}, json={"id_cache_size": 7})
    shown = page_of(client, "/console/audit").text
    assert [each in shown for each in ("tried", "refused", "made")] == [False, False, True]
    whole = page_of(client, "/console/audit?all=true").text
    assert [each in whole for each in ("tried", "refused", "made")] == [True, True, True]


@pytest.mark.parametrize("told", ["", "hex:ff00"])
def test_an_id_that_is_no_text_is_forgotten_too(client: TestClient, told: str) -> None:
    page = page_of(client, f"/console/ids?address=orders&id={told}")
    assert "Forgotten." in sent(client, page.form("/console/ids/forget"), reason="r").text


def test_the_redrive_wizard_goes_from_a_filter_to_a_job(client: TestClient) -> None:
    chosen = page_of(client, "/console/redrives/new").form("/console/redrives/count")
    assert chosen.method == "get"
    before = client.get("/v1/redrives").json()
    counted = page_of(client, "/console/redrives/count?reason=duplicate")
    order = counted.form("/console/redrives/confirm")
    confirmed = sent(client, order, mode="forget", max_per_second="50", why="they were lost")
    assert "they were lost" in confirmed.text
    assert client.get("/v1/redrives").json() == before
    start = confirmed.form("/console/redrives/start")
    watched = sent(client, start)
    assert "forget" in watched.text
    jobs = client.get("/v1/redrives").json()["redrives"]
    assert len(jobs) == len(before["redrives"]) + 1
    job = next(job for job in jobs if job not in before["redrives"])
    assert job["mode"] == "forget"
    assert job["max_per_second"] == 50
    asked = {key: value for key, value in job["filter"].items() if value}
    assert asked == {"reason": ["duplicate"]}
    assert job["reason"] == "they were lost"


def test_one_letter_is_redriven_from_its_page(client: TestClient) -> None:
    (link,) = (each for each in page_of(client, LETTER_PAGE).links if "redrives/count" in each)
    counted = page_of(client, link)
    order = counted.form("/console/redrives/confirm")
    assert "The dead letter orders.dlq-0@7" in counted.text
    confirmed = sent(client, order, mode="forget", why="the shop asked")
    assert "Redrive 1 Cancel" in confirmed.text
    sent(client, confirmed.form("/console/redrives/start"))
    job = client.get("/v1/redrives").json()["redrives"][0]
    assert (job["mode"], job["letters"], job["topics"]) == ("forget", 1, [])
    foreign = page_of(client, LETTER_PAGE.replace("@7", "@8"))
    assert not [each for each in foreign.links if "redrives/count" in each]


def test_the_last_step_says_how_many_go_and_what_the_output_then_holds_twice(
    view: ServiceView,
) -> None:
    other = LETTER._replace(position=LETTER.position._replace(offset=9))
    letters = FakeLetters((LETTER, other))
    client = client_of(replace(view, letters=letters, redrives=FakeRedrives(letters)))
    order = page_of(client, "/console/redrives/count").form("/console/redrives/confirm")
    whole = sent(client, order, mode="through", why="w").text
    assert "Redrive 2 Cancel" in whole
    assert "twice" not in whole
    part = sent(client, order, mode="forget", limit="1", why="w")
    assert "Redrive 1 of 2 Cancel" in part.text
    assert "the output will then contain these messages twice" in part.text
    watched = sent(client, part.form("/console/redrives/start")).text
    assert "0 of 1 dead letters at most" in watched


def test_a_redrive_that_is_confirmed_twice_begins_once(client: TestClient) -> None:
    order = page_of(client, "/console/redrives/count").form("/console/redrives/confirm")
    start = sent(client, order, mode="through", why="w").form("/console/redrives/start")
    before = len(client.get("/v1/redrives").json()["redrives"])
    for _ in range(2):
        sent(client, start)
    assert len(client.get("/v1/redrives").json()["redrives"]) == before + 1


def test_settings_are_seen_before_they_are_put_in_force(client: TestClient) -> None:
    edit = page_of(client, "/console/settings/edit?kind=address").form("/console/settings/preview")
    filled = {"name": "new.#", "text": "id_cache_size = 7", "reason": "r", "what": "put"}
    preview = sent(client, edit, **filled)
    assert '+ "id_cache_size": 7' in preview.text
    apply = preview.form("/console/settings/apply")
    again = sent(client, apply._replace(action="/console/settings/edit"))
    assert "id_cache_size = 7" in again.text
    assert again.form("/console/settings/preview").fields["name"] == "new.#"
    assert client.get("/v1/address-settings?name=new.%23").status_code == 404
    sent(client, preview.form("/console/settings/apply"))
    assert client.get("/v1/address-settings?name=new.%23").json()["id_cache_size"] == 7
    assert "new.#" in page_of(client, "/console/settings").text


def test_settings_that_break_a_rule_come_back_as_they_were_written(client: TestClient) -> None:
    edit = page_of(client, "/console/settings/edit?kind=address").form("/console/settings/preview")
    for text, complaint in (("id_cache_size = -1", "id_cache_size"), ("id_cache_size =", "line")):
        filled = {**edit.fields, "name": "n.#", "text": text, "reason": "why", "what": "put"}
        answer = client.post(edit.action, data=filled, headers={"Origin": HERE})
        assert answer.status_code == 422
        page = Page(answer.text)
        assert complaint in page.text
        assert text in page.text
        assert page.form("/console/settings/preview").fields["reason"] == "why"


def test_a_change_of_what_somebody_else_has_changed_meanwhile_is_refused(
    client: TestClient,
) -> None:
    edit = page_of(client, "/console/settings/edit?kind=address").form("/console/settings/preview")
    first = sent(client, edit, name="x", text="id_cache_size = 7", reason="r", what="put")
    sent(client, first.form("/console/settings/apply"))
    again = page_of(client, "/console/settings/edit?kind=address&name=x")
    form = again.form("/console/settings/preview")
    preview = sent(client, form, text="id_cache_size = 8", reason="r", what="put")
    etag = client.get("/v1/address-settings?name=x").headers["ETag"]
    client.put("/v1/address-settings/x", json={"id_cache_size": 9}, headers={"If-Match": etag})
    apply = preview.form("/console/settings/apply")
    answer = client.post(apply.action, data=apply.fields, headers={"Origin": HERE})
    assert answer.status_code == 412
    assert client.get("/v1/address-settings?name=x").json()["id_cache_size"] == 9


def test_a_route_is_made_and_changed_in_a_form(client: TestClient) -> None:
    new = page_of(client, "/console/settings/edit?kind=route").form("/console/settings/preview")
    assert {each.key for each in ROUTE_FIELDS} == set(RouteSettings.__slots__) - {"name"}
    filled = {"name": "invoices", "key.inputs": " invoices \r\n\r\nbills", "reason": "r"}
    preview = sent(client, new, **filled, what="put", **{"key.scope": "partition"})
    assert '"bills"' in preview.text
    again = sent(client, preview.form("/console/settings/apply")._replace(action=EDIT))
    fields = again.form("/console/settings/preview").fields
    assert (fields["name"], fields["reason"]) == ("invoices", "r")
    sent(client, preview.form("/console/settings/apply"))
    route = client.get("/v1/routes/invoices").json()
    assert (route["inputs"], route["scope"]) == (["invoices", "bills"], "partition")
    assert route["output"] == RouteSettings().output
    edit = page_of(client, "/console/settings/edit?kind=route&name=invoices")
    assert edit.attributes.count(("readonly", None)) == 3
    changed = sent(
        client,
        edit.form("/console/settings/preview"),
        what="put",
        reason="r",
        **{"key.inputs": "invoices", "key.output": "all", "key.missing_id": "stamp"},
    )
    sent(client, changed.form("/console/settings/apply"))
    route = client.get("/v1/routes/invoices").json()
    assert (route["inputs"], route["output"]) == (["invoices"], "all")
    assert (route["scope"], route["missing_id"]) == ("partition", "stamp")


def test_a_route_that_breaks_a_rule_comes_back_as_it_was_filled_in(client: TestClient) -> None:
    edit = page_of(client, "/console/settings/edit?kind=route").form("/console/settings/preview")
    filled = {**edit.fields, "name": "n", "key.inputs": "in", "key.output": "{no}", "what": "put"}
    answer = client.post(edit.action, data=filled, headers={"Origin": HERE})
    assert answer.status_code == 422
    page = Page(answer.text)
    assert "output" in page.text
    assert page.form("/console/settings/preview").fields["key.output"] == "{no}"


def test_a_route_is_paused_and_resumed(client: TestClient) -> None:
    for state in (True, False):
        page = page_of(client, "/console/settings")
        sent(client, page.form("/console/settings/pause"), reason="r")
        assert client.get("/v1/routes").json()["routes"][0]["paused"] is state


def test_what_was_set_once_is_set_again(client: TestClient) -> None:
    for size in (7, 8):
        headers = {"If-Match": "*"} if size == 8 else {}
        client.put("/v1/address-settings/x", json={"id_cache_size": size}, headers=headers)
    number = client.get("/v1/settings/revisions").json()["revisions"][-1]["revision"]
    page = page_of(client, f"/console/settings/revision?number={number}")
    sent(client, page.form("/console/settings/rollback"), reason="r")
    assert client.get("/v1/address-settings?name=x").json()["id_cache_size"] == 7


def test_all_that_was_set_is_taken_back_by_a_link_of_the_history(client: TestClient) -> None:
    client.put("/v1/address-settings/x", json={"id_cache_size": 7})
    (link,) = [
        each for each in page_of(client, "/console/settings").links if each.endswith("number=0")
    ]
    page = page_of(client, link)
    assert "Settings of the file" in page.text
    sent(client, page.form("/console/settings/rollback"), reason="r")
    assert client.get("/v1/settings").json()["addresses"] == {}


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:9999", "null"])
def test_a_form_of_another_page_is_refused(client: TestClient, origin: str) -> None:
    form = page_of(client, "/console/ids?address=orders&id=id-1").form("/console/ids/forget")
    before = len(audited(client))
    answer = client.post(form.action, data=form.fields, headers={"Origin": origin})
    assert answer.status_code == 403
    assert len(audited(client)) == before


def test_a_viewer_sees_pages_and_is_offered_no_change(
    asking: ServiceView, client: TestClient
) -> None:
    viewer = client_of(asking, TOKENS["viewer"])
    wizard = ("/console/redrives/", "/console/audit")
    for path in (each for each in EVERY if not each.startswith(wizard)):
        page = page_of(viewer, path)
        forms = {form.action for form in page.forms if form.method == "post"}
        assert forms <= {"/login", "/logout"}, path
        payload = {"key", "header_name", "header_value"}
        assert not payload & {name for form in page.forms for name in form.fields}, path
        assert not any("/redrives/new" in link or "/audit" in link for link in page.links), path
    form = page_of(client, "/console/ids?address=orders&id=id-1").form("/console/ids/forget")
    answer = viewer.post(form.action, data={**form.fields, "reason": "r"})
    assert answer.status_code == 403
    assert "needs the role operator" in Page(answer.text).text
    assert "needs the role admin" in page_of(viewer, "/console/audit", 403).text


def test_settings_that_the_file_manages_are_shown_and_cannot_be_changed(view: ServiceView) -> None:
    info = changed(view.info(), settings_managed_by="file")
    client = client_of(replace(view, info=lambda: info))
    for path in EVERY:
        if not path.startswith("/console/settings"):
            continue
        page = page_of(client, path)
        assert not [form for form in page.forms if form.method == "post"], path
        assert not [link for link in page.links if link.endswith(("kind=route", "number=0"))], path
    assert "The file manages the settings" in page_of(client, "/console/settings").text


def test_a_record_is_shown_to_who_may_read_payloads_alone(
    asking: ServiceView, client: TestClient
) -> None:
    path = LETTER_PAGE
    shown = page_of(client_of(asking, TOKENS["viewer"]), path).text
    assert ("secret" in shown, "headers are not shown" in shown) == (False, True)
    assert "secret" in page_of(client, path).text  # nobody is asked who he is


def test_who_is_not_known_signs_in_and_comes_back(asking: ServiceView) -> None:
    browser = client_of(asking)
    sent_on = browser.get("/console/addresses", headers={"Accept": "text/html"})
    assert sent_on.status_code == 303
    form = page_of(browser, sent_on.headers["Location"]).form("/login")
    assert form.fields["next"] == "/console/addresses"
    back = browser.post(
        "/login", data={**form.fields, "token": TOKENS["viewer"]}, headers={"Origin": HERE}
    )
    assert back.headers["Location"] == "/console/addresses"
    page = page_of(browser, "/console/addresses")
    assert "the-viewer" in page.text
    assert page.form("/logout").method == "post"


def test_a_token_that_lets_nobody_in_is_said_so(asking: ServiceView) -> None:
    page = page_of(client_of(asking), "/console/login?failed=true", 401)
    assert "Invalid or expired token" in page.text
