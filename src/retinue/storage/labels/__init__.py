"""Labels of files: which files other people, untrusted text or private notes have flowed into."""
