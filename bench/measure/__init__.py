"""How a case is measured: the check against float64, the timers, the result file."""
