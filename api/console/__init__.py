"""The console at `/`: the admin API as pages, drawn on the server, complete without a script."""
