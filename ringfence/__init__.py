"""What users of Ringfence import: the names on the wire."""
