"""The peers: each a small program of ours on its public artifacts, with its own way of doing it."""
