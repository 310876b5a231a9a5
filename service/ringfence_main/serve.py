"""`ringfence serve`: locks the state folder, starts workers and API, and runs until SIGTERM.

The started process supervises its workers and serves the API. The workers start while it is still
importing the API.
"""

import errno
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import structlog

from ringfence_service.config.model import Config
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.listeners import BindError, Listeners
from ringfence_service.supervisor.supervisor import Supervisor
from ringfence_service.supervisor.watchdog import (
    HANG_LIMIT_S,
    calm_garbage_collector,
    descriptors_needed,
    raise_descriptor_limit,
)
from ringfence_service.telemetry import logging as log
from ringfence_state.directory import DirectoryLockedError, StateDirectory
from ringfence_state.store import MORE_OPEN_FILES, disk_fault_of

_PROGRAM: Final = ("-m", "ringfence_main.worker")
_NOT_WRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_LOCK_TIMEOUT_S: Final = 3.0
"""How long a process that was killed may take to release the folder."""

_log = structlog.stdlib.get_logger(__name__)


def serve(
    config: Config, program: Sequence[str] = _PROGRAM, hang_limit_s: float = HANG_LIMIT_S
) -> int:
    """Process until SIGTERM or SIGINT and return the exit code; raise ExitError on failure.

    `program` has the arguments of Python with which each worker is started.
    """
    log.configure(sys.stderr, config.log.level, config.log.format)
    limit, needed = raise_descriptor_limit(), descriptors_needed(config)
    if limit < needed:
        _log.warning("few_open_files", limit=limit, needed=needed, fix=MORE_OPEN_FILES)
    directory = _lock_state(config)
    listeners = _listeners(config, directory)
    supervisor = _supervisor(config, directory.path, program, hang_limit_s)
    try:
        supervisor.start()
        from ringfence_main.serve_api import serve_api

        calm_garbage_collector()
        server = serve_api(config, supervisor, listeners, hang_limit_s)
        _log.info("started", api=server.url, group_id=config.service.group_id)

        def ready(partitions: int) -> None:
            _log.info("ready", api=server.url, console=f"{server.url}/", partitions=partitions)

        try:
            supervisor.run(ready)
        finally:
            server.stop()
    finally:
        supervisor.kill()
        listeners.close()
        directory.release()
    _log.info("stopped")
    return ExitCode.DONE


def _supervisor(
    config: Config, folder: Path, program: Sequence[str], hang_limit_s: float
) -> Supervisor:
    supervisor = Supervisor(config, folder, hang_limit_s=hang_limit_s, program=program)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        supervisor.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return supervisor


def _listeners(config: Config, directory: StateDirectory) -> Listeners:
    """Bind the API's addresses; ExitError if that fails, before a worker joins the group."""
    try:
        return Listeners.bound(config.api)
    except BindError as error:
        directory.release()
        raise ExitError(ExitCode.USAGE, str(error)) from error


def _lock_state(config: Config) -> StateDirectory:
    service = config.service
    try:
        return StateDirectory(
            service.state_dir, service.group_id, service.instance, _LOCK_TIMEOUT_S
        )
    except DirectoryLockedError as error:
        raise ExitError(
            ExitCode.FENCED,
            f"Another process runs as instance {service.instance} and holds {error}; "
            "stop it, or set service.instance.",
        ) from error
    except OSError as error:
        fault = None if error.errno in _NOT_WRITABLE else disk_fault_of(error)
        fix = "set service.state_dir to a writable folder" if fault is None else fault.fix
        raise ExitError(
            ExitCode.USAGE if fault is not None and fault.is_limit else ExitCode.CONTRADICTION,
            f"The state folder {service.state_dir} cannot be used ({error}); {fix}.",
        ) from error
