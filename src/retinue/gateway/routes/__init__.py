"""HTTP endpoints, one module per noun."""
