"""Pages as a browser without a script sees them: what they hold, lead to and send."""

from html.parser import HTMLParser
from typing import Final, NamedTuple

from starlette.testclient import TestClient

VOID: Final = frozenset({"meta", "link", "input", "br", "img", "hr"})
EVERY: Final = (
    "/",
    "/console/partitions",
    "/console/addresses",
    "/console/addresses?prefix=no-such",
    "/console/addresses?resend=30m",
    "/console/address?name=orders",
    "/console/address?name=a%2Fb+c%2Bd%25%C3%A9",
    "/console/address?name=orders&retry_window=30m&rate=5",
    "/console/find?q=orders",
    "/console/find?q=id-1&letters=newest",
    "/console/find?q=orders-3@42",
    "/console/ids",
    "/console/ids?address=orders&id=id-1",
    "/console/ids?address=orders&id=no-such",
    "/console/ids?address=orders&id=id-1&refusals=newest",
    "/console/dead-letters",
    "/console/dead-letters?reason=expired",
    "/console/dead-letter?at=orders.dlq-0@7",
    "/console/dead-letter?at=orders.dlq-0@8&end=older",
    "/console/record?at=orders-3@42",
    "/console/record?at=orders-3@90&letters=newest",
    "/console/redrives/count?letter=orders.dlq-0@7",
    "/console/redrives",
    "/console/redrives/new",
    "/console/redrives/count?reason=duplicate",
    "/console/settings",
    "/console/settings/edit?kind=address",
    "/console/settings/edit?kind=address&name=%23",
    "/console/settings/edit?kind=route",
    "/console/settings/edit?kind=route&name=orders",
    "/console/audit",
    "/console/login",
)


class Form(NamedTuple):
    """A form, and what a browser would send if nothing were filled in."""

    action: str
    method: str
    fields: dict[str, str]


class Page(HTMLParser):
    """A page, read strictly: what is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.forms: list[Form] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tags: list[str] = []
        self.unnamed: list[str] = []
        self._fragments: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"
        self.text = " ".join(" ".join(self._fragments).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        assert len(told) == len(attrs), f"an attribute stands twice in {tag}: {attrs}"
        self.tags.append(tag)
        self.attributes.extend(attrs)
        if "id" in told:
            self.ids.append(told["id"])
        if tag == "a":
            self.links.append(told["href"])
        if tag in {"link", "script", "img"}:
            self.loaded.append(told.get("href") or told.get("src") or "")
        if tag == "form":
            self.forms.append(Form(told.get("action", ""), told.get("method", "get"), {}))
        if tag in {"input", "textarea", "select"}:
            self._field(tag, told)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def _field(self, tag: str, told: dict[str, str]) -> None:
        is_named = "label" in self.open or "aria-label" in told or told.get("type") == "hidden"
        if not is_named:
            self.unnamed.append(told.get("name", tag))
        if told.get("type") not in {"radio", "checkbox"} or "checked" in told:
            self.forms[-1].fields[told["name"]] = told.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} is closed and was never opened"
        assert self.open[-1] == tag, f"{tag} is closed while {self.open[-1]} is open"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self._fragments.append(data)

    def form(self, action: str) -> Form:
        """The form that is sent there."""
        return next(form for form in self.forms if form.action == action)


def page_of(client: TestClient, path: str, status: int = 200) -> Page:
    """A page, with all that holds for every page."""
    answer = client.get(path, headers={"Accept": "text/html"}, follow_redirects=True)
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"].startswith("text/html")
    return Page(answer.text)
