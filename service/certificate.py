"""Certificate: until when the API's own is valid, read from its file."""

from pathlib import Path

from cryptography.x509 import load_pem_x509_certificates


def valid_until_s(path: Path) -> float:
    """Of a chain, until the first of it is not; in seconds since the epoch.

    Not a number while the file cannot be read: a server goes on with what it has loaded.
    """
    try:
        chain = load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return float("nan")
    return min(each.not_valid_after_utc.timestamp() for each in chain)
