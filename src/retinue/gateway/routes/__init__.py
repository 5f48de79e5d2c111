"""What is served over HTTP, one module per noun."""
