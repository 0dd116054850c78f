"""Runs that say how far the library can be trusted: random calls, sanitizers, long runs."""
