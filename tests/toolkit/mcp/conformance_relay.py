"""The command that the conformance suite starts for each scenario: it passes it on to the client in the test.

It imports only the standard library: starting it 40 times must not take long.
"""

import json
import os
import socket
import sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    names = {name: os.environ.get(f"MCP_CONFORMANCE_{name.upper()}", "") for name in ("scenario", "context")}
    connection.sendall(json.dumps({**names, "url": sys.argv[-1]}).encode() + b"\n")
    told = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
sys.stderr.write(told)
sys.exit(0 if told.startswith("ok") else 1)
