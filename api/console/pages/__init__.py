"""Pages: a file for each, which asks the API and names what its template shows."""
