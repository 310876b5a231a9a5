"""Configuration: file and environment become validated settings. Nothing else validates them."""
