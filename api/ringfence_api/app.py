"""API application: the resources, the error handlers and the middleware around them.

The module has no state: an application reaches the service only through its `ServiceView`.
"""

from collections.abc import Collection
from types import ModuleType
from typing import Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ringfence_api import problems
from ringfence_api.auth import login
from ringfence_api.auth.authorize import Authorizer
from ringfence_api.console import app as console
from ringfence_api.console.error_pages import ErrorPages
from ringfence_api.middleware.audit import AuditMiddleware
from ringfence_api.middleware.body_limit import (
    BodyBudget,
    BodyLimitMiddleware,
    BodyRefused,
    on_body_refused,
)
from ringfence_api.middleware.conditional import ConditionalMiddleware
from ringfence_api.middleware.declared import DeclaredMiddleware
from ringfence_api.middleware.idempotency import IdempotencyMiddleware
from ringfence_api.middleware.request import RequestMiddleware
from ringfence_api.openapi import DESCRIPTION, TAGS, DocumentedApp
from ringfence_api.ports import ServiceView
from ringfence_api.principal import AccessRules
from ringfence_api.resources import (
    address_settings,
    addresses,
    dead_letters,
    explanations,
    health,
    ids,
    instances,
    internal,
    publishers,
    redrives,
    routes,
    service,
    settings,
    workers,
)
from ringfence_api.resources import audit_log as audit_trail
from ringfence_api.resources import id_transfer as id_transfers
from ringfence_service.queries.errors import NameInUse, NotPossible, Unavailable

ALL: Final = (
    health,
    service,
    workers,
    instances,
    ids,
    id_transfers,
    addresses,
    publishers,
    routes,
    address_settings,
    settings,
    dead_letters,
    explanations,
    redrives,
    internal,
    console,
)
WITHOUT_STATE: Final = (health, service)
"""For a program without deduplication state, such as the bridge."""
PROBES: Final = (health,)
"""For a separate port, which serves nothing else: no login and no OpenAPI document."""


def create_app(view: ServiceView, resources: Collection[ModuleType] = ALL) -> FastAPI:
    """Return the admin API of the service behind `view`, by default with all resources."""
    app = DocumentedApp(
        title="Ringfence",
        version=view.info().version,
        description=DESCRIPTION,
        license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        openapi_tags=TAGS,
        openapi_url=None if resources == PROBES else "/openapi.json",
        docs_url=None,  # Swagger UI and ReDoc load scripts from a CDN
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    for resource in resources:
        app.include_router(resource.router(view))
    if view.access is not None and resources != PROBES:
        app.include_router(login.router(view.access, view.metrics))
    if view.audit is not None and resources != PROBES:
        app.include_router(audit_trail.router(view.audit))
    app.exception_handler(HTTPException)(problems.on_http_error)
    app.exception_handler(BodyRefused)(on_body_refused)
    app.exception_handler(RequestValidationError)(problems.on_invalid)
    app.exception_handler(Unavailable)(problems.on_unavailable)
    app.exception_handler(problems.ProblemError)(problems.on_refusal)
    app.exception_handler(NotPossible)(problems.on_not_possible)
    app.exception_handler(NameInUse)(problems.on_name_in_use)
    protect_metrics = view.access is not None and view.access.settings.protect_metrics
    app.rules = AccessRules(app.router.routes, protect_metrics=protect_metrics)
    # The middleware that is added last is the outermost.
    if view.audit is not None:
        app.add_middleware(AuditMiddleware, log=view.audit)
    app.add_middleware(IdempotencyMiddleware)
    app.add_middleware(BodyLimitMiddleware, budget=BodyBudget(view.body_bytes_max))
    app.add_middleware(ConditionalMiddleware)
    app.add_middleware(DeclaredMiddleware, rules=app.rules)
    app.add_middleware(Authorizer, rules=app.rules, access=view.access, counts=view.metrics)
    app.add_middleware(RequestMiddleware, metrics=view.metrics, allowed_hosts=view.allowed_hosts)
    if console in resources:
        app.add_middleware(ErrorPages)
    return app
