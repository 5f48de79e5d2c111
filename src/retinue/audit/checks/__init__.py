"""The checks, one module per noun. Each is a pure function from facts to findings."""
