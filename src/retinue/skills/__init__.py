"""Skills: found, checked against this machine, and listed for the model."""
