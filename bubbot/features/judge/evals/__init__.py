"""Evaluations: cases that run under several setups in forks that are thrown away, and what judges say of the answers."""
