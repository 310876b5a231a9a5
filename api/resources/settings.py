"""`/v1/settings…`: everything that is set over REST, its history, and rollback."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response
from pydantic import Field

from api.openapi import errors, tagged
from api.parameters import PageSize, PageToken, place_of, token_of
from api.ports import ServiceView
from api.preconditions import check, check_match, etag_of, tell_etag
from api.problems import NO_SUCH_REVISION, NOT_POSSIBLE, UNAVAILABLE, ProblemError
from api.resources.settings_change import (
    ADMIN,
    WRITES,
    How,
    Outcome,
    Revision,
    RevisionDocument,
    RevisionsPage,
    SettingsView,
    SettingsWrite,
    desk_of,
    write,
)
from api.schemas import Given
from service.config.load import Config
from service.metadata.settings import FILE, SettingsOverlay, SettingsRevision
from service.metadata.settings_change import Change, SettingsSnapshot

_CHANGES = {**WRITES, **errors(NO_SUCH_REVISION)}
_WHAT = "The settings document"

RevisionInPath = Annotated[
    int, Path(ge=0, description="A revision, as a write has told it; 0 is the file alone.")
]


class SettingsBody(Given):
    """All that is to be set; as it was read, or as a part of it."""

    routes: dict[str, dict[str, Any] | None] = Field(
        default={}, description="Routes by name; null takes away what the file has."
    )
    addresses: dict[str, dict[str, Any] | None] = Field(
        default={}, description="Address settings by pattern; null takes away what the file has."
    )
    paused: tuple[str, ...] = Field(default=(), description="Names of routes.")
    revision: int | None = Field(default=None, description="Of what was read; not looked at.")

    def overlay(self) -> SettingsOverlay:
        """As the service has it."""
        return SettingsOverlay(self.routes, self.addresses, self.paused)


def router(view: ServiceView) -> APIRouter:
    """Return the routes of the settings as a whole."""
    api = APIRouter(tags=["settings"])

    @api.get("/v1/settings", responses=tagged(NOT_POSSIBLE, UNAVAILABLE))
    async def settings(response: Response) -> SettingsView:
        """Return all that is set over REST, as it can be put back."""
        standing = desk_of(view).read()
        tell_etag(response, _etag(standing.overlay))
        return SettingsView.of(standing.overlay, standing.revision)

    @api.put("/v1/settings", responses=_CHANGES, openapi_extra=ADMIN)
    async def put_settings(body: Annotated[SettingsBody, Body()], how: How) -> Outcome:
        """Set this in place of all that is set."""

        def change(standing: SettingsSnapshot) -> SettingsOverlay:
            check(how.preconditions, _etag(standing.overlay), _WHAT)
            return body.overlay()

        return await write(view, how, change, _describe)

    @api.get("/v1/settings/revisions", responses=errors(NOT_POSSIBLE, UNAVAILABLE))
    async def revisions(page_size: PageSize = 100, page_token: PageToken = "") -> RevisionsPage:
        """Return what was set when, by whom and why; the newest first."""
        documents = desk_of(view).read().documents
        below = place_of(page_token)
        rest = [each for each in documents if not isinstance(below, int) or each.revision < below]
        page = rest[:page_size]
        return RevisionsPage(
            revisions=tuple(Revision.of(each, documents) for each in page),
            next_page_token=token_of(page[-1].revision) if len(rest) > page_size else None,
        )

    @api.get(
        "/v1/settings/revisions/{revision}",
        responses=tagged(NO_SUCH_REVISION, UNAVAILABLE),
    )
    async def revision(revision: RevisionInPath, response: Response) -> RevisionDocument:
        """Return one document of the history, with all that it sets."""
        standing = desk_of(view).read()
        document = _document(standing, revision)
        if document.overlay is not None:
            tell_etag(response, _etag(document.overlay))
        return RevisionDocument.of(document, standing.documents)

    @api.post("/v1/settings/revisions/{revision}:rollback", responses=_CHANGES, openapi_extra=ADMIN)
    async def rollback(revision: RevisionInPath, how: How) -> Outcome:
        """Set again what was set at a revision, at 0 nothing; the history goes on."""
        change = _rolling_back(revision, how)
        return await write(view, how, change, _describe)

    return api


def _etag(overlay: SettingsOverlay) -> str:
    return etag_of(overlay._asdict())


def _describe(_config: Config, overlay: SettingsOverlay, revision: int) -> dict[str, Any]:
    told = SettingsView.of(overlay, revision).model_dump(mode="json")
    return {**told, "etag": _etag(overlay)}


def _rolling_back(revision: int, how: SettingsWrite) -> Change:
    def change(standing: SettingsSnapshot) -> SettingsOverlay:
        document = _document(standing, revision)
        if how.preconditions.if_match is not None:  # what a newer version wrote has no ETag here
            check_match(how.preconditions.if_match, _etag(standing.overlay), _WHAT)
        if document.overlay is None:
            sentence = f"This version cannot read revision {revision}; take another."
            raise ProblemError(NO_SUCH_REVISION, sentence)
        return document.overlay

    return change


def _document(standing: SettingsSnapshot, revision: int) -> SettingsRevision:
    found = standing.documents.at(revision) if revision else FILE
    if found is None:
        sentence = (
            f"No settings of revision {revision} are kept; /v1/settings/revisions lists those "
            "that are."
        )
        raise ProblemError(NO_SUCH_REVISION, sentence)
    return found
