"""Discord: a thin client of the gateway and the REST API."""
