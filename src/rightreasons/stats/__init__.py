"""Formulas on arrays, each used by more than one audit."""
