"""Evaluations: how well memory finds things, measured on graded questions."""
