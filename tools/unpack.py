"""Unpacking of tar archives, which may name no file outside the folder."""

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the files of an archive into a folder.

    Python 3.11.4 and newer refuse names outside it. Older ones, such as Debian 12's, have no such
    filter; the archives that are unpacked here are pinned by a checksum, or are git's.
    """
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)  # noqa: S202 - see above
