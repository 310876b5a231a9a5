"""Metadata: what is set while the service runs, kept on the metadata topic `<group>.config`."""
