-- By which way somebody came who acted: python, cli, http, page, link or hook; and the id of the request, if there was one.
-- An act on many runs keeps them for the entries that it makes later.
ALTER TABLE journal ADD COLUMN via TEXT;
ALTER TABLE journal ADD COLUMN request TEXT;
ALTER TABLE acts ADD COLUMN via TEXT;
ALTER TABLE acts ADD COLUMN request TEXT;
