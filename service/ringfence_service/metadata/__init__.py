"""Metadata: settings, sessions, redrive jobs and audit entries on the topic `<group>.config`."""
