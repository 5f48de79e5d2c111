"""Updating the program: build the new environment beside the old one, prove it on a copy of the home, exchange them."""
