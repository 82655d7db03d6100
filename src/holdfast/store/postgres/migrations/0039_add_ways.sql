-- By which way somebody came who acted: python, cli, http, page, link or hook; and the id of the request, if there was one.
-- An act on many runs keeps them for the entries that it makes later.
ALTER TABLE holdfast.journal ADD COLUMN via text, ADD COLUMN request text;
ALTER TABLE holdfast.acts ADD COLUMN via text, ADD COLUMN request text;
