"""Tables and the picture of bench.end_to_end."""
