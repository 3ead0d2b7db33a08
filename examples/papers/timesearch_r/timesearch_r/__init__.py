"""TimeSearch-R: searches frames by text in time, and answers again from what the search has found."""
