"""Metadata image: the content of the metadata topic, up to the offset that was read."""

from service.metadata.file_routes import FilesRoutes
from service.metadata.instances import Instances
from service.metadata.layout import Layout, layout_of
from service.metadata.redrive_job import Jobs
from service.metadata.sessions import Sessions
from service.metadata.settings import Revisions


class Settings:
    """The fold of the config topic up to a revision: the offset after its last record that decides.

    The layout is no part of it, nor are redrives, instances and whatever else decisions do not
    depend on: each revision has every deciding partition commit.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.sessions = Sessions()
        self.documents = Revisions()
        self.redrives = Jobs()
        self.instances = Instances()
        self.file_routes = FilesRoutes()
        self.layout: Layout | None = None
        """None before the first start."""

    def take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """One record; a kind that this version does not know changes nothing."""
        layout = layout_of(key, value)
        if layout is not None:
            self.layout = layout
        elif (
            self.redrives.take(key, value)
            or self.instances.take(key, value)
            or self.file_routes.take(key, value, offset)
        ):
            return
        elif self.documents.take(key, value, offset + 1) or self.sessions.take(key, value):
            self.revision = offset + 1
