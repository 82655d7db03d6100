"""Changes of SQL. A list of words and signs is enough to find them: nothing here knows a dialect's grammar.

A term of a condition is not cut out but made true: `(term OR TRUE)`. So its parameters are still there, and keep their
types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.mutation.places import Change

TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*) | (?P<text>'(?:[^']|'')*') | (?P<body>\$\$) | (?P<hole>\{[^{}\n]*\})
    | (?P<word>[A-Za-z_]\w*|[$?]\d+|\d+(?:\.\d+)?) | (?P<sign><>|!=|<=|>=|=>|->>|->|\|\||::|:=|[-+*/%<>=(),;.:\[\]?@|])""",
    re.VERBOSE,
)
HEAD = re.compile(r"--\s*(?:name|fragment):\s*(\w+)|CREATE (?:OR REPLACE )?FUNCTION (?:\w+\.)?(\w+)")
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>", "<>": "=", "!=": "="}
BOUNDS = {
    *(
        "WHERE",
        "ON",
        "AND",
        "OR",
        "WHEN",
        "THEN",
        "ELSE",
        "HAVING",
        "SELECT",
        "FROM",
        "ORDER",
        "GROUP",
        "LIMIT",
    ),
    *(
        "RETURNING",
        "FOR",
        "UNION",
        "SET",
        "VALUES",
        "JOIN",
        "LEFT",
        "CROSS",
        "OFFSET",
        "DO",
        "INTO",
        "WINDOW",
    ),
    *("INTERSECT", "EXCEPT", "PARTITION", "USING", "UPDATE", "DELETE", "INSERT", ",", ";"),
}
"""Words and signs at which a term of a condition begins or ends."""
LOCK = re.compile(r"\s*\bFOR (?:NO KEY UPDATE|KEY SHARE|UPDATE|SHARE)\b(?: OF \w+)?(?: SKIP LOCKED| NOWAIT)?")


class Token(NamedTuple):
    text: str
    start: int
    end: int
    depth: int
    """How many parentheses and CASEs are open around it."""
    block: int
    """Where its statement begins. A term does not go beyond that."""
    where: str


def sql_changes(text: str) -> Iterator[Change]:
    tokens = _tokens(text)
    where = {token.start: token.where for token in tokens}
    terms = list(_terms(tokens))
    whole = {i for first, last in terms for i in range(first, last) if tokens[i].depth == tokens[first].depth}
    """The tokens of terms. An equality that is a whole term is made true below, which is harder to notice than its
    opposite."""

    def change(kind: str, start: int, end: int, new: str) -> Change:
        return Change(start, end, new, text[start:end], kind, where[start])

    for i, token in enumerate(tokens):
        word = token.text.upper()
        before = tokens[i - 1].text.upper() if i else ""
        after = [later.text.upper() for later in tokens[i + 1 : i + 3]]
        if token.text in COMPARISONS and not _assigns(tokens, i) and not (token.text == "=" and i in whole):
            yield change("compare", token.start, token.end, COMPARISONS[token.text])
        elif token.text == "+" and after[:1] == ["1"]:
            yield change("plus-one", token.start, tokens[i + 1].end, "+ 0")
        elif word == "IS" and after[:1] == ["NULL"]:
            yield change("null", token.start, tokens[i + 1].end, "IS NOT NULL")
        elif word == "IS" and after == ["NOT", "NULL"]:
            yield change("null", token.start, tokens[i + 2].end, "IS NULL")
        elif word == "NOT" and before != "IS" and after[:1] != ["NULL"] and "CONFLICT" not in before:
            yield change("not", token.start, tokens[i + 1].start, "")
        elif word == "LIMIT":
            yield change("limit", tokens[i + 1].start, tokens[i + 1].end, f"{tokens[i + 1].text} + 1")
        elif word == "SKIP":
            yield change("lock-skip", token.start, tokens[i + 1].end, "")
        elif word == "FOR" and (lock := LOCK.match(text, token.start)):
            yield change("lock", token.start, lock.end(), "")
        elif word == "BY" and before == "ORDER":
            for item in _items(tokens, i + 1):
                turned = {"DESC": "ASC", "ASC": "DESC"}.get(item.text.upper(), f"{item.text} DESC")
                yield change("order", item.start, item.end, turned)
    for first, last in terms:
        start, end = tokens[first].start, tokens[last].end
        yield change("and-term", start, end, f"({text[start:end]} OR TRUE)")


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    depth, block, where, function = 0, 0, "", ""
    for match in TOKEN.finditer(text):
        if match.lastgroup == "comment":
            if head := HEAD.match(match[0]):
                depth, block, where = 0, match.end(), head[1]
            continue
        word = match[0].upper()
        if word == "CREATE" and (head := HEAD.match(text, match.start())):
            where, function = "", head[2]
        elif match.lastgroup == "body":  # the body of a function
            depth, block = 0, match.end()
            where = "" if where else function
            continue
        if word == "END" or match[0] in {")", "]"}:
            depth -= 1
        found.append(Token(match[0], match.start(), match.end(), depth, block, where))
        if word == "CASE" or match[0] in {"(", "["}:
            depth += 1
    return found


def _assigns(tokens: list[Token], at: int) -> bool:
    """True if this `=` belongs to SET."""
    for token in _back(tokens, at):
        if token.text.upper() == "SET":
            return tokens[at].text == "="
        if token.text.upper() in BOUNDS - {","}:
            return False
    return False


def _back(tokens: list[Token], at: int) -> Iterator[Token]:
    """Yield the tokens before this one that are as deep, to where the parenthesis or the statement begins."""
    for token in reversed(tokens[:at]):
        if token.depth < tokens[at].depth or token.block != tokens[at].block:
            return
        if token.depth == tokens[at].depth:
            yield token


def _end(tokens: list[Token], first: int) -> int:
    """Return the number of the last token of the term, or of the item of a list, that begins here."""
    last = first
    for i in range(first, len(tokens)):
        token = tokens[i]
        if token.depth < tokens[first].depth or token.block != tokens[first].block:
            break
        if token.depth == tokens[first].depth and i > first and _is_bound(tokens, i):
            break
        last = i
    return last


def _is_bound(tokens: list[Token], at: int) -> bool:
    word = tokens[at].text.upper()
    return word in BOUNDS and not (word == "FROM" and tokens[at - 1].text.upper() == "DISTINCT")


def _items(tokens: list[Token], first: int) -> Iterator[Token]:
    """Yield the last token of each item of the ORDER BY whose first item begins here."""
    while True:
        last = _end(tokens, first)
        yield tokens[last]
        if (
            last + 1 >= len(tokens)
            or tokens[last + 1].text != ","
            or tokens[last + 1].depth != tokens[first].depth
        ):
            return
        first = last + 2


def _terms(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last token of each term that AND joins to another one."""
    found = set()
    for i, token in enumerate(tokens):
        if token.text.upper() != "AND" or _is_of_between(tokens, i):
            continue
        found.add((i + 1, _end(tokens, i + 1)))
        first = i
        while first > 0 and tokens[first - 1].block == token.block and tokens[first - 1].depth >= token.depth:
            if tokens[first - 1].depth == token.depth and _is_bound(tokens, first - 1):
                break
            first -= 1
        found.add((first, i - 1))
    yield from sorted(found)


def _is_of_between(tokens: list[Token], at: int) -> bool:
    words = (token.text.upper() for token in _back(tokens, at))
    return next((word for word in words if word in BOUNDS | {"BETWEEN"}), "") == "BETWEEN"
