"""The console at `/`: the admin API as pages, rendered on the server, usable without scripts."""
