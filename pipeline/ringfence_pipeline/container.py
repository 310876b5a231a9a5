"""Entry point of the Spark image: starts a Spark process, or a command of Ringfence.

Spark on Kubernetes starts an image as `driver`, with the arguments of `spark-submit`, or as
`executor`, with its settings in environment variables. Any other arguments are those of `ringfence
pipeline`. The started program replaces this process, so that it receives the signals.

Hadoop's clients need a name for the user that they run as. OpenShift adds one for the user id that
it chooses; where nobody does, the sentence of this program says more than Java's trace.
"""

import os
import pwd
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from tempfile import gettempdir
from typing import Final, NamedTuple

_EXECUTOR: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_EXECUTOR_OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Options of an executor, and the environment variables in which Spark passes their values."""


class ContainerCommand(NamedTuple):
    """The program to start."""

    command: list[str]
    environ: Mapping[str, str]
    folder: str | None = None
    """Its working directory; None keeps the current one."""


def start_of(arguments: Sequence[str], environ: Mapping[str, str]) -> ContainerCommand:
    """Return the program that the arguments of a container select."""
    match arguments:
        case ["driver", *options]:
            return _in_a_pod(_driver(options, environ), environ)
        case ["executor", *_]:
            return _in_a_pod(_executor(environ), environ)
        case _:
            return ContainerCommand(["ringfence", "pipeline", *arguments], environ)


def user_fault(uid: int) -> str | None:
    """Return why Spark cannot run as this user, or None."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return (
            f"user id {uid} has no name in /etc/passwd, and Hadoop's clients need one: run the "
            "container as 10001, or with a runtime that adds the name, as OpenShift does"
        )
    return None


def _in_a_pod(command: list[str], environ: Mapping[str, str]) -> ContainerCommand:
    # The image sets the host name localhost for a session in one process; in a cluster the pods
    # have to reach each other.
    kept = {name: value for name, value in environ.items() if name != "SPARK_LOCAL_HOSTNAME"}
    # An executor writes to its working directory, and the image's may be a volume of all pods.
    return ContainerCommand(
        command, {**kept, "SPARK_DIST_CLASSPATH": _jars(environ)}, folder=gettempdir()
    )


def _driver(options: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    # The pod was created by the cluster mode; within it, this process is the driver.
    mode = ["--deploy-mode", "client"]
    bound = ["--conf", f"spark.driver.bindAddress={environ['SPARK_DRIVER_BIND_ADDRESS']}"]
    return [f"{environ['SPARK_HOME']}/bin/spark-submit", *mode, *bound, *options]


def _executor(environ: Mapping[str, str]) -> list[str]:
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    options = [
        word for option, name in _EXECUTOR_OPTIONS.items() for word in (option, environ[name])
    ]
    return [
        *(f"{environ['JAVA_HOME']}/bin/java", *_java_options(environ)),
        *(f"-Xms{memory}", f"-Xmx{memory}", "-cp", _class_path(environ)),
        *(_EXECUTOR, *options),
    ]


def _java_options(environ: Mapping[str, str]) -> Iterator[str]:
    for number in count():
        option = environ.get(f"SPARK_JAVA_OPT_{number}")
        if option is None:
            return
        yield option


def _class_path(environ: Mapping[str, str]) -> str:
    first = [environ.get(name) for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR")]
    more = [environ.get("SPARK_CLASSPATH"), f"{environ['SPARK_HOME']}/jars/*", _jars(environ)]
    return ":".join(entry for entry in (*first, *more) if entry)


def _jars(environ: Mapping[str, str]) -> str:
    return f"{environ['RINGFENCE_SPARK_JARS']}/*"


if __name__ == "__main__":
    if fault := user_fault(os.getuid()):
        sys.exit(f"ringfence pipeline: {fault}")
    start = start_of(sys.argv[1:], os.environ)
    if start.folder is not None:
        os.chdir(start.folder)
    os.execvpe(start.command[0], start.command, start.environ)  # noqa: S606 - no shell needed
