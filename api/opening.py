"""Opening: the API listens as the configuration says, and lets in whom it says."""

from fastapi import FastAPI

from api.access import Access
from api.certificates import Certificates
from api.server import BindError, ServerHandle, serve_in_thread
from service.errors import ExitCode, ExitError
from service.sections import ApiSettings


def opened(api: ApiSettings) -> Access:
    """Who is let in; ExitError where a file is not what it was when the configuration was read."""
    try:
        return Access(api)
    except (OSError, ValueError) as error:
        raise ExitError(ExitCode.USAGE, _unreadable(error)) from error


def listening(app: FastAPI, api: ApiSettings) -> ServerHandle:
    """Serve an application as the configuration says; ExitError where it cannot listen."""
    try:
        if not api.tls_cert_file:
            return serve_in_thread(app, api.host, api.port)
        certificates = Certificates(api)
        certificates.follow()
        return serve_in_thread(app, api.host, api.port, certificates.context)
    except OSError as error:
        raise ExitError(ExitCode.USAGE, _unreadable(error)) from error
    except BindError as error:
        raise ExitError(ExitCode.USAGE, str(error)) from error


def _unreadable(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    return f"A file that [api] names cannot be used: {reason}; run `ringfence check`."
