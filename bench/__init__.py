"""Measurements: printed, written to `bench/results/`, never asserted."""
