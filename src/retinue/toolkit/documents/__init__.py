"""The text of documents: PDF, word processors, spreadsheets, presentations, web pages and plain text."""
