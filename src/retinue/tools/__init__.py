"""The tool interface, the tool policy and the command rules; the tools themselves are in `toolkit`."""
