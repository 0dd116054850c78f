"""Splits of float32 weights: ``splits.py`` keeps them from call to call, ``prepared.py`` for good.

This file imports neither: the functions read ``splits``, and ``prepared`` knows the modules, which
are built on the functions.
"""
