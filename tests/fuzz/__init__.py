"""Records of every kind under every configuration: none may stop the service or be lost."""
