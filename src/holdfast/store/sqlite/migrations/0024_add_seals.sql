-- What hides the digests of inputs: a key, sealed with a key of whoever uses the store. Without this row nothing is sealed. It
-- stays for as long as the store, so nobody prunes it.
CREATE TABLE seals (
    name TEXT NOT NULL PRIMARY KEY,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
