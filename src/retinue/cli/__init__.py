"""The command line: each command parses, calls the assistant and prints."""
