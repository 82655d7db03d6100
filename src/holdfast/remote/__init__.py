"""The other end of the server's routes: what a program that reaches a store through a server asks, by HTTP.

`RemoteDesk` is the same protocol as `LocalDesk`. Only this package knows the HTTP client.
"""
