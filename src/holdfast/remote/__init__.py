"""The other end of the server's routes: what a program asks that reaches a store through a server, by HTTP.

`RemoteDesk` is the same protocol as `LocalDesk`. Only this package knows the HTTP client.
"""
