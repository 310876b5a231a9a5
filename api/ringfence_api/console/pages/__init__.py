"""Pages: one module each, which calls the API and renders a template."""
