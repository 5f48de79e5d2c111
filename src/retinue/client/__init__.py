"""The Python client of a gateway: connects, comes back after a disconnect, and misses nothing that can be had again."""

from retinue.client.client import Client, open_client, open_local_client
from retinue.client.link import ClientError, Door

__all__ = ["Client", "ClientError", "Door", "open_client", "open_local_client"]
