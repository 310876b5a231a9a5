"""Opening: the API listens as the configuration says, and lets in whom it says."""

from collections.abc import Collection
from types import ModuleType
from typing import Final

from api.access import Access
from api.app import PROBES, create_app
from api.certificates import Certificates
from api.connections import Limits
from api.server import BindError, ServerHandle, serve_in_thread
from api.view import ServiceView
from service.errors import ExitCode, ExitError
from service.sections import ApiSettings

_PROBE_LIMITS: Final = Limits(connections_max=64, per_address_max=16)


def opened(api: ApiSettings) -> Access:
    """Who is let in; ExitError where a file is not what it was when the configuration was read."""
    try:
        return Access(api)
    except (OSError, ValueError) as error:
        raise ExitError(ExitCode.USAGE, _unreadable(error)) from error


def listening(
    view: ServiceView, resources: Collection[ModuleType], api: ApiSettings
) -> ServerHandle:
    """Serve resources as the configuration says; ExitError where it cannot listen.

    Probes and metrics have a thread and a plain port of their own as well, where one is set, so
    that no load on the API holds them up.
    """
    try:
        return _listening(view, resources, api)
    except OSError as error:
        raise ExitError(ExitCode.USAGE, _unreadable(error)) from error
    except BindError as error:
        raise ExitError(ExitCode.USAGE, str(error)) from error


def _listening(
    view: ServiceView, resources: Collection[ModuleType], api: ApiSettings
) -> ServerHandle:
    refused = view.metrics.http_connection_refused
    certificates = Certificates(api) if api.tls_cert_file else None
    if certificates is not None:
        certificates.follow()
    server = serve_in_thread(
        create_app(view, resources),
        api.host,
        api.port,
        None if certificates is None else certificates.context,
        limits=Limits(api.connections_max, api.connections_per_address_max),
        refused=refused,
    )
    if api.probe_port:
        probes = serve_in_thread(
            create_app(view, PROBES),
            api.host,
            api.probe_port,
            key="probe_port",
            limits=_PROBE_LIMITS,
            refused=refused,
            niceness=0,
        )
        server.then(probes.stop)
    return server


def _unreadable(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    return f"A file that [api] names cannot be used: {reason}; run `ringfence check`."
