"""The built-in tools, one module per family; `plugins.registry` lists them."""
