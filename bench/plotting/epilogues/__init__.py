"""Tables and the picture of bench.epilogues."""
