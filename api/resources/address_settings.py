"""`/v1/address-settings…`: the settings of addresses, by pattern, changed while the service runs.

A pattern contains `#`, `*` and `/`: percent-encoded in the path, or as `?name=`. A resize applies
to the ids that are held now: the newest stay.
"""

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Body, Depends, Response
from pydantic import BeforeValidator

from api.content import well_formed
from api.openapi import errors, made, tagged
from api.parameters import (
    PATTERN_WAYS,
    OnePatternInQuery,
    PageSize,
    PageToken,
    PatternInPath,
    name_of,
    token_of,
)
from api.ports import ServiceView
from api.preconditions import check, tell_etag
from api.problems import NO_SUCH_PATTERN, NOT_POSSIBLE, UNAVAILABLE, ProblemError
from api.resources.settings_change import (
    ADMIN,
    WRITES,
    AddressSetting,
    AddressSettings,
    Describe,
    How,
    HowMade,
    Outcome,
    WriteTarget,
    desk_of,
    pattern_of,
    write,
)
from service.config.load import Config
from service.metadata.settings import SettingsOverlay
from service.metadata.settings_change import SettingsSnapshot

_READ_ONLY: Final = ("pattern", "source", "etag")
_CHANGES = {**WRITES, **errors(NO_SUCH_PATTERN)}
_MAKES = {**_CHANGES, **made(Outcome)}

SettingBody = Annotated[
    dict[str, Any],
    BeforeValidator(well_formed),
    Body(
        description="The keys of `[addresses.…]` in the file; what is left out is not given.",
        examples=[{"id_cache_size": 5000}],
    ),
]


def router(view: ServiceView) -> APIRouter:
    """Return the routes of address settings."""
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
        """Return every pattern with the keys that it gives; of one that is named, that alone."""
        standing = desk_of(view).read()
        if name is not None:
            return _told(standing, name, response)
        patterns = standing.effective.config.addresses.patterns
        after = name_of(page_token) or ""
        names = [each for each in sorted(patterns) if each > after]
        page = names[:page_size]
        return AddressSettings(
            address_settings=tuple(
                AddressSetting.of(each, patterns[each], standing.holding) for each in page
            ),
            revision=standing.revision,
            next_page_token=token_of(page[-1]) if len(names) > page_size else None,
        )

    @api.get("/v1/address-settings/{pattern}", responses=tagged(NO_SUCH_PATTERN, UNAVAILABLE))
    async def address_setting(pattern: PatternInPath, response: Response) -> AddressSetting:
        """Return what one pattern gives."""
        return _told(desk_of(view).read(), pattern, response)

    for way in PATTERN_WAYS:
        path = f"/v1/address-settings{way.step}"
        named = Depends(way.read)

        @api.put(path, name=f"put_by_{way.name}", responses=_MAKES, openapi_extra=ADMIN)
        async def put(pattern: Annotated[str, named], keys: SettingBody, how: HowMade) -> Outcome:
            """Have a pattern give these keys and no other; what is held is resized at once."""
            given = {key: value for key, value in keys.items() if key not in _READ_ONLY}

            def change(standing: SettingsSnapshot) -> SettingsOverlay:
                found = pattern_of(standing.effective.config, standing.holding, pattern)
                etag = None if found is None else found.etag
                check(how.preconditions, etag, f"The pattern {pattern}")
                return _with(standing, pattern, given)

            place = WriteTarget(
                "addresses", pattern, f"/v1/address-settings/{quote(pattern, safe='')}"
            )
            return await write(view, how, change, _describe(pattern), place)

        @api.delete(path, name=f"delete_by_{way.name}", responses=_CHANGES, openapi_extra=ADMIN)
        async def delete(pattern: Annotated[str, named], how: How) -> Outcome:
            """Have a pattern give nothing any more, the file's included."""

            def change(standing: SettingsSnapshot) -> SettingsOverlay:
                check(how.preconditions, _found(standing, pattern).etag, f"The pattern {pattern}")
                return _with(standing, pattern, None)

            return await write(view, how, change, _describe(pattern))

    return api


def _with(standing: SettingsSnapshot, pattern: str, keys: dict[str, Any] | None) -> SettingsOverlay:
    in_file = pattern in standing.file.addresses.patterns
    return standing.overlay.with_address(pattern, keys, in_file=in_file)


def _describe(pattern: str) -> Describe:
    def describe(config: Config, overlay: SettingsOverlay, _revision: int) -> dict[str, Any] | None:
        found = pattern_of(config, overlay, pattern)
        return None if found is None else found.model_dump(mode="json")

    return describe


def _told(standing: SettingsSnapshot, pattern: str, response: Response) -> AddressSetting:
    found = _found(standing, pattern)
    tell_etag(response, found.etag)
    return found


def _found(standing: SettingsSnapshot, pattern: str) -> AddressSetting:
    found = pattern_of(standing.effective.config, standing.holding, pattern)
    if found is None:
        sentence = f"No address setting has the pattern {pattern}; /v1/address-settings lists them."
        raise ProblemError(NO_SUCH_PATTERN, sentence)
    return found
