"""Text that a careless page would execute, or break on."""

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7*7}}${x}"
