"""The door through which tools, providers, commands and skills enter, ours included."""
