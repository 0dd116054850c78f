"""From functions in Python to programs: `trace` their own, `gradient` those of their gradients."""
