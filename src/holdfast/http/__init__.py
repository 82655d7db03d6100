"""The server: HTTP for programs and people. It decides nothing. Each request becomes an act at the desk, for the identity
of whoever asks.

`routes` is the one table: routing, authorisation, OpenAPI, the reference page and the authorisation matrix come from it.
Servers share nothing but the store, and any of them answers any request.
"""
