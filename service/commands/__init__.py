"""The command line over the admin API: a module for each noun, on a client, a screen and a call."""
