"""Forms: what a page sends, and where who has sent it goes from there.

That it was a page of ours is seen to by the guard, as for everything that changes something.
"""

from typing import Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.client import Failed, Problem
from api.problems import INVALID

FIELDS_MAX: Final = 200


async def read(request: Request, *names: str) -> dict[str, str]:
    """The fields of a form, without spaces around them; of `names`, what is not sent is empty."""
    async with request.form(max_files=0, max_fields=FIELDS_MAX) as form:
        sent = {key: value.strip() for key, value in form.items() if isinstance(value, str)}
    try:  # the client chooses the encoding of a form
        "".join((*sent, *sent.values())).encode()
    except UnicodeEncodeError:
        detail = "The form holds half of a character; fill it in again, and send it as UTF-8."
        raise Failed(Problem(INVALID.status, INVALID.name, INVALID.title, detail)) from None
    return dict.fromkeys(names, "") | sent


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
