"""The built-in tools, one module per family; `plugins.builtin` lists them."""
