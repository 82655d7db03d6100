"""How things look: words, tables, pages and live views, on a terminal or in a pipe."""
