"""Metadata image: the content of the metadata topic, up to the offset that was read."""

from ringfence_service.metadata.broker_behaviour import tested_cluster
from ringfence_service.metadata.file_routes import GroupFileRoutes
from ringfence_service.metadata.instances import InstanceRegistry
from ringfence_service.metadata.layout import Topology, layout_of
from ringfence_service.metadata.redrive_job import RedriveJobs
from ringfence_service.metadata.sessions import SessionTable
from ringfence_service.metadata.settings import SettingsHistory


class MetadataImage:
    """The fold of the metadata topic up to a revision.

    The revision is the offset after the last record that decisions depend on. The topology, the
    tested cluster, redrives, instances and file routes do not raise it, because each new revision
    makes every deciding partition commit.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.sessions = SessionTable()
        self.documents = SettingsHistory()
        self.redrives = RedriveJobs()
        self.instances = InstanceRegistry()
        self.file_routes = GroupFileRoutes()
        self.layout: Topology | None = None
        """None before the first start."""
        self.tested_cluster: str | None = None
        """The cluster whose behaviour was tested last; another one is tested again."""

    def take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Apply one record; ignore a kind that this version does not know."""
        if self.documents.take(key, value, offset + 1) or self.sessions.take(key, value):
            self.revision = offset + 1
        elif (layout := layout_of(key, value)) is not None:
            self.layout = layout
        elif (cluster := tested_cluster(key, value)) is not None:
            self.tested_cluster = cluster
        elif not (self.redrives.take(key, value) or self.instances.take(key, value)):
            self.file_routes.take(key, value, offset)
