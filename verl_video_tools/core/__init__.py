"""The domain, and what every other part needs: errors, checked configs, answers. Imports nothing else of ours."""
