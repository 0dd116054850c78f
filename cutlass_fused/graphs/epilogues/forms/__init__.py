"""Forms of lines in programs: activations, ops with names, shifts that are one."""
