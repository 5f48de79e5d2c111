"""Network checks, redaction of secrets, and marking of untrusted text."""
