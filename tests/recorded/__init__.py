"""What the package gave before it was rebuilt, compared with what it gives now (`record` says how to read it)."""
