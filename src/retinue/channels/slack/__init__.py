"""Slack: a thin client of the Web API, socket mode and the Events API."""
