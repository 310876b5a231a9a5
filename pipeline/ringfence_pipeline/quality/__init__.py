"""Quality of what arrived: views of the tables as values, JSON and an HTML page."""
