"""Self-inspection: what is wrong with a home, why it matters and what to do. Nothing here changes anything."""
