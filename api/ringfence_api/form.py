"""Form fields: the texts that a page sends, each of them once, and no files."""

from typing import Final

from starlette.requests import Request

from ringfence_api.problems import INVALID, ProblemError

FIELDS_MAX: Final = 200
"""A page of settings has a field for each key."""


async def read_fields(request: Request) -> dict[str, str]:
    """Return the fields of a form by name, with values stripped.

    Raise ProblemError for a field that is given twice and for text that is not UTF-8, and
    HTTPException for files, or for more than `FIELDS_MAX` fields.
    """
    async with request.form(max_files=0, max_fields=FIELDS_MAX) as form:
        texts = [(name, text) for name, text in form.multi_items() if isinstance(text, str)]
    sent = {name: text.strip() for name, text in texts}
    try:  # the client chooses the encoding of a form
        "".join((*sent, *sent.values())).encode()
    except UnicodeEncodeError:
        detail = "The form contains text that is not valid UTF-8; fill it in again."
        raise ProblemError(INVALID, detail) from None
    if len(sent) < len(texts):
        raise ProblemError(INVALID, "The form contains a field twice; open its page again.")
    return sent
