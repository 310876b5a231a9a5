"""Resources: a module for each REST noun, with its schema and its handlers."""
