"""Skills: discovery, requirement checks, and the list for the model."""
