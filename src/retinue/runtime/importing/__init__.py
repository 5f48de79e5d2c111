"""Importing the homes of other assistants: plan what can be taken over, then take it over."""
