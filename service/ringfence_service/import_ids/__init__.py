"""ID import: teaches the service the ids of records that were published before it was deployed."""
