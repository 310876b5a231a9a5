"""How an address remembers: one small pure file for each way."""
