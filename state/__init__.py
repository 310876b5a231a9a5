"""What an address has seen: strategies, their drafts, the stores and the changelog."""
