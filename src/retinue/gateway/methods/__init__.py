"""The methods of the gateway, one module per noun."""
