"""Composition: the package that creates all parts and connects them."""
