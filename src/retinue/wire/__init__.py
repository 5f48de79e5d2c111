"""The protocol between the gateway and its clients: frames, methods, events and their JSON codec."""
