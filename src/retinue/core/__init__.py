"""The values that all packages share: frozen structs without I/O."""
