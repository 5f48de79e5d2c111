"""Members of a team at a gateway. Imported only if `teams.team` is set."""
