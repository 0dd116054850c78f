"""Splits of float32 weights: ``splits.py`` keeps them from call to call, ``prepared.py`` for good.
``kept.py`` holds the ops by which graphs of torch.compile find what is kept.

This file imports none: the functions read ``splits``, and ``prepared`` knows the modules, which
are built on the functions.
"""
