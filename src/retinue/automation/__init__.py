"""Scheduled jobs, heartbeats, webhooks and hook folders."""
