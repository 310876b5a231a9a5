"""Authentication and authorization: who makes a request, and what that role may do."""
