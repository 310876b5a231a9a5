"""Quality views: how often, where and how late records were duplicated, refused, or had no id."""

from ringfence_client.spark.quality import *  # noqa: F403 - all of its names are public
