"""What carries out the methods of the wire, one module per noun."""
