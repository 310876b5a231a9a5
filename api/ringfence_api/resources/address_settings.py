"""`/v1/address-settings…`: address settings by pattern, changed while the service runs.

A pattern may contain `#`, `*` and `/`: it is percent-encoded in the path, or sent as `?name=`. A
smaller cache size takes effect on held ids at once: the newest are kept.
"""

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Body, Depends, Response
from pydantic import BeforeValidator

from ringfence_api.content import well_formed
from ringfence_api.openapi import created, errors, tagged
from ringfence_api.parameters import (
    PATTERN_MODES,
    OnePatternInQuery,
    PageSize,
    PageToken,
    PatternInPath,
    name_of,
    token_of,
)
from ringfence_api.ports import ServiceView
from ringfence_api.preconditions import check, set_etag
from ringfence_api.problems import NO_SUCH_PATTERN, NOT_POSSIBLE, UNAVAILABLE, ProblemError
from ringfence_api.resources.settings_change import (
    ADMIN,
    WRITES,
    AddressSetting,
    AddressSettings,
    Describe,
    Options,
    Outcome,
    PutOptions,
    WriteTarget,
    pattern_of,
    settings_editor,
    write,
)
from ringfence_service.config.model import Config
from ringfence_service.metadata.settings import SettingsOverlay
from ringfence_service.metadata.settings_change import SettingsSnapshot

_READ_ONLY: Final = ("pattern", "source", "etag")
_CHANGES = {**WRITES, **errors(NO_SUCH_PATTERN)}
_MAKES = {**_CHANGES, **created(Outcome)}

SettingBody = Annotated[
    dict[str, Any],
    BeforeValidator(well_formed),
    Body(
        description="The keys of `[addresses.…]` as in the file; omitted keys are not set.",
        examples=[{"id_cache_size": 5000}],
    ),
]


def router(view: ServiceView) -> APIRouter:
    """Build the router for `/v1/address-settings`."""
    api = APIRouter(tags=["address settings"])

    @api.get(
        "/v1/address-settings",
        responses=tagged(NOT_POSSIBLE, NO_SUCH_PATTERN, UNAVAILABLE),
    )
    async def address_settings(
        response: Response,
        name: OnePatternInQuery = None,
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> AddressSettings | AddressSetting:
        """List the patterns and the keys that they set, or return the pattern that `name` names."""
        snapshot = settings_editor(view).read()
        if name is not None:
            return _response(snapshot, name, response)
        patterns = snapshot.effective.config.addresses.patterns
        after = name_of(page_token) or ""
        names = [each for each in sorted(patterns) if each > after]
        page = names[:page_size]
        return AddressSettings(
            address_settings=tuple(
                AddressSetting.of(each, patterns[each], snapshot.holding) for each in page
            ),
            revision=snapshot.revision,
            next_page_token=token_of(page[-1]) if len(names) > page_size else None,
        )

    @api.get("/v1/address-settings/{pattern}", responses=tagged(NO_SUCH_PATTERN, UNAVAILABLE))
    async def address_setting(pattern: PatternInPath, response: Response) -> AddressSetting:
        """Return the settings of one pattern."""
        return _response(settings_editor(view).read(), pattern, response)

    for mode in PATTERN_MODES:
        path = f"/v1/address-settings{mode.segment}"
        named = Depends(mode.read)

        @api.put(path, name=f"put_by_{mode.name}", responses=_MAKES, openapi_extra=ADMIN)
        async def put(
            pattern: Annotated[str, named], keys: SettingBody, options: PutOptions
        ) -> Outcome:
            """Set exactly these keys for a pattern; held ids are resized at once."""
            given = {key: value for key, value in keys.items() if key not in _READ_ONLY}

            def change(snapshot: SettingsSnapshot) -> SettingsOverlay:
                found = pattern_of(snapshot.effective.config, snapshot.holding, pattern)
                etag = None if found is None else found.etag
                check(options.preconditions, etag, f"The pattern {pattern}")
                return _with(snapshot, pattern, given)

            target = WriteTarget(
                "addresses", pattern, f"/v1/address-settings/{quote(pattern, safe='')}"
            )
            return await write(view, options, change, _describe(pattern), target)

        @api.delete(path, name=f"delete_by_{mode.name}", responses=_CHANGES, openapi_extra=ADMIN)
        async def delete(pattern: Annotated[str, named], options: Options) -> Outcome:
            """Delete the settings of a pattern, including those in the file."""

            def change(snapshot: SettingsSnapshot) -> SettingsOverlay:
                check(
                    options.preconditions, _found(snapshot, pattern).etag, f"The pattern {pattern}"
                )
                return _with(snapshot, pattern, None)

            return await write(view, options, change, _describe(pattern))

    return api


def _with(snapshot: SettingsSnapshot, pattern: str, keys: dict[str, Any] | None) -> SettingsOverlay:
    in_file = pattern in snapshot.file.addresses.patterns
    return snapshot.overlay.with_address(pattern, keys, in_file=in_file)


def _describe(pattern: str) -> Describe:
    def describe(config: Config, overlay: SettingsOverlay, _revision: int) -> dict[str, Any] | None:
        found = pattern_of(config, overlay, pattern)
        return None if found is None else found.model_dump(mode="json")

    return describe


def _response(snapshot: SettingsSnapshot, pattern: str, response: Response) -> AddressSetting:
    found = _found(snapshot, pattern)
    set_etag(response, found.etag)
    return found


def _found(snapshot: SettingsSnapshot, pattern: str) -> AddressSetting:
    found = pattern_of(snapshot.effective.config, snapshot.holding, pattern)
    if found is None:
        sentence = f"No address setting has the pattern {pattern}; /v1/address-settings lists them."
        raise ProblemError(NO_SUCH_PATTERN, sentence)
    return found
