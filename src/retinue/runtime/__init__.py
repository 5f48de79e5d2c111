"""Composition: the only package that knows everybody."""
