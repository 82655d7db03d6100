"""The dashboard: pages for people. They show what the API answers to the same person, and ask it in this process."""
