"""Tools that run commands, and what starts and supervises them."""
