"""What a tool is, which tools may be used, and which commands may run; the tools themselves are in `toolkit`."""
