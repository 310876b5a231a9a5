"""The program of the second broker of the suites, which tools/broker/kfake.py starts."""
