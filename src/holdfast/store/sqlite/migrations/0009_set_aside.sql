-- A signal that fits no wait is set aside: it is delivered, no wait takes it, and here stands why.

ALTER TABLE signals ADD COLUMN set_aside TEXT;
