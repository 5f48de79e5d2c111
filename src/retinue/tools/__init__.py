"""What a tool is; the tools themselves are in `toolkit`."""
