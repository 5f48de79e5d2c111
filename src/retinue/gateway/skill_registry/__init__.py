"""The server of `retinue skills serve`: ClawHub's HTTP API over a folder of skills."""
