"""How a report is written: HTML and Markdown."""
