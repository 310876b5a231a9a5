"""`/v1/settings…`: all settings made over REST, their history, and rollback."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response
from pydantic import Field

from ringfence_api.openapi import errors, tagged
from ringfence_api.parameters import PageSize, PageToken, position_of, token_of
from ringfence_api.ports import ServiceView
from ringfence_api.preconditions import check, check_match, etag_of, set_etag
from ringfence_api.problems import NO_SUCH_REVISION, NOT_POSSIBLE, UNAVAILABLE, ProblemError
from ringfence_api.resources.settings_change import (
    ADMIN,
    WRITES,
    Options,
    Outcome,
    Revision,
    RevisionDocument,
    RevisionsPage,
    SettingsView,
    SettingsWrite,
    settings_editor,
    write,
)
from ringfence_api.schemas import Given
from ringfence_service.config.model import Config
from ringfence_service.metadata.settings import FILE, SettingsOverlay, SettingsRevision
from ringfence_service.metadata.settings_change import Change, SettingsSnapshot

_CHANGES = {**WRITES, **errors(NO_SUCH_REVISION)}
_WHAT = "The settings document"

RevisionInPath = Annotated[
    int,
    Path(ge=0, description="A revision, as returned by a change; 0 is the file without changes."),
]


class SettingsBody(Given):
    """The settings to set, in the format of GET; omitted parts are empty."""

    routes: dict[str, dict[str, Any] | None] = Field(
        default={}, description="Routes by name; null removes a route of the file."
    )
    addresses: dict[str, dict[str, Any] | None] = Field(
        default={}, description="Address settings by pattern; null removes a pattern of the file."
    )
    paused: tuple[str, ...] = Field(default=(), description="Names of paused routes.")
    revision: int | None = Field(
        default=None, description="Accepted as returned by GET, and ignored."
    )

    def overlay(self) -> SettingsOverlay:
        """Return the settings as an overlay of the file."""
        return SettingsOverlay(self.routes, self.addresses, self.paused)


def router(view: ServiceView) -> APIRouter:
    """Build the router for `/v1/settings`."""
    api = APIRouter(tags=["settings"])

    @api.get("/v1/settings", responses=tagged(NOT_POSSIBLE, UNAVAILABLE))
    async def settings(response: Response) -> SettingsView:
        """Return all settings made over REST, in the format of PUT."""
        snapshot = settings_editor(view).read()
        set_etag(response, _etag(snapshot.overlay))
        return SettingsView.of(snapshot.overlay, snapshot.revision)

    @api.put("/v1/settings", responses=_CHANGES, openapi_extra=ADMIN)
    async def put_settings(body: Annotated[SettingsBody, Body()], options: Options) -> Outcome:
        """Replace all settings made over REST."""

        def change(snapshot: SettingsSnapshot) -> SettingsOverlay:
            check(options.preconditions, _etag(snapshot.overlay), _WHAT)
            return body.overlay()

        return await write(view, options, change, _describe)

    @api.get("/v1/settings/revisions", responses=errors(NOT_POSSIBLE, UNAVAILABLE))
    async def revisions(page_size: PageSize = 100, page_token: PageToken = "") -> RevisionsPage:
        """List the revisions, newest first: what was set when, by whom and why."""
        documents = settings_editor(view).read().documents
        below = position_of(page_token)
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
        """Return one revision with its settings."""
        snapshot = settings_editor(view).read()
        document = _document(snapshot, revision)
        if document.overlay is not None:
            set_etag(response, _etag(document.overlay))
        return RevisionDocument.of(document, snapshot.documents)

    @api.post("/v1/settings/revisions/{revision}:rollback", responses=_CHANGES, openapi_extra=ADMIN)
    async def rollback(revision: RevisionInPath, options: Options) -> Outcome:
        """Restore the settings of a revision, as a new revision; 0 restores the file."""
        change = _rolling_back(revision, options)
        return await write(view, options, change, _describe)

    return api


def _etag(overlay: SettingsOverlay) -> str:
    return etag_of(overlay._asdict())


def _describe(_config: Config, overlay: SettingsOverlay, revision: int) -> dict[str, Any]:
    document = SettingsView.of(overlay, revision).model_dump(mode="json")
    return {**document, "etag": _etag(overlay)}


def _rolling_back(revision: int, options: SettingsWrite) -> Change:
    def change(snapshot: SettingsSnapshot) -> SettingsOverlay:
        document = _document(snapshot, revision)
        if (
            options.preconditions.if_match is not None
        ):  # settings of a newer version have no ETag here
            check_match(options.preconditions.if_match, _etag(snapshot.overlay), _WHAT)
        if document.overlay is None:
            sentence = f"This version cannot read revision {revision}; choose another."
            raise ProblemError(NO_SUCH_REVISION, sentence)
        return document.overlay

    return change


def _document(snapshot: SettingsSnapshot, revision: int) -> SettingsRevision:
    found = snapshot.documents.at(revision) if revision else FILE
    if found is None:
        sentence = (
            f"Revision {revision} is not available; /v1/settings/revisions lists the available "
            "ones."
        )
        raise ProblemError(NO_SUCH_REVISION, sentence)
    return found
