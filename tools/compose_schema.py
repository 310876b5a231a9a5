"""The published JSON schema of Compose files, pinned by version and digest."""

from typing import Final

from tools.go import GoFiles

COMPOSE_SCHEMA: Final = GoFiles(
    "github.com/compose-spec/compose-go/v2",
    "v2.16.2",
    "h1:pTp1DqQwJzFd85GzlWsSszKA1ABrV/ySqsClujIcWA8=",
    ("schema/compose-spec.json",),
)
