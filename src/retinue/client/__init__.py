"""The Python client of a gateway. It reconnects after a disconnect and resumes its subscriptions."""

from retinue.client.client import Client, open_client, open_local_client
from retinue.client.link import ClientError, GatewayAddress

__all__ = ["Client", "ClientError", "GatewayAddress", "open_client", "open_local_client"]
