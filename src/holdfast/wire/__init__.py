"""What goes over HTTP, as structs that both ends use. Pure: nothing here reads or writes anything.

Members, routes and values of enumerations are only added within `/v1`. Whoever reads an answer ignores what it does not
know. Requests of callers are strict: an unknown member is a typo.
"""
