"""Release of a commit: packages, chart, image, bills of materials, checksums and notes."""
