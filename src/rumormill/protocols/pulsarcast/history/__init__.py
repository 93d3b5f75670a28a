"""A topic's history: which events there are, what is missing, and how it is found and read."""
