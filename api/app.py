"""The application: the resources, the errors and the envelope around them.

There is no module state: an application knows the service only by the view it was made with.
"""

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from api import addresses, health, problems, service
from api.documents import DESCRIPTION, Documented
from api.envelope import Envelope
from api.view import ServiceView
from service.control import Unavailable


def create_app(view: ServiceView) -> FastAPI:
    """Return the admin API of the service that `view` shows."""
    app = Documented(
        title="Ringfence",
        version=view.info().version,
        description=DESCRIPTION,
        openapi_url="/openapi.json",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    for resource in (health, service, addresses):
        app.include_router(resource.router(view))
    app.exception_handler(HTTPException)(problems.on_http_error)
    app.exception_handler(RequestValidationError)(problems.on_invalid)
    app.exception_handler(Unavailable)(problems.on_unavailable)
    app.add_middleware(Envelope, metrics=view.metrics, allowed_hosts=view.allowed_hosts)
    return app
