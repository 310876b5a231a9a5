"""Forms: what a page sends, and where who has sent it goes from there.

That it was a page of ours is seen to by the guard, as for everything that changes something.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

FIELDS_MAX: Final = 200


async def read(request: Request) -> dict[str, str]:
    """The fields of a form, without spaces around them."""
    async with request.form(max_files=0, max_fields=FIELDS_MAX) as form:
        return {key: value.strip() for key, value in form.items() if isinstance(value, str)}


def asked(request: Request) -> dict[str, str]:
    """What stands in the address of a page, without spaces around it and without what is empty."""
    told = {key: value.strip() for key, value in request.query_params.items()}
    return {key: value for key, value in told.items() if value}


def segment(text: str) -> str:
    """Any text as one step of a path; one or two dots alone would be taken for a way up."""
    return quote(text, safe="") if text not in {".", ".."} else text.replace(".", "%2E")


def to(path: str, **query: str) -> str:
    """The address of a page."""
    told = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(told)}" if told else path


def see(path: str, **query: str) -> Response:
    """Send who has sent a form to the page that shows what became of it."""
    return RedirectResponse(to(path, **query), 303)


def number_in(fields: Mapping[str, str], name: str) -> int | None:
    """A field as a whole number; None where it is empty or none."""
    text = fields.get(name, "").replace(",", "").replace(" ", "")
    return int(text) if text.isascii() and text.lstrip("-").isdigit() else None
