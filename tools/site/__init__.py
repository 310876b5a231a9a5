"""Documentation site (`make docs`): the Markdown pages of the checkout, built with MkDocs."""
