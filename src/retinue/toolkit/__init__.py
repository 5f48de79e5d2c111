"""The tools we ship, one module per family."""
