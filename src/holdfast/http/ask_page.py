"""The page of a link to an ask: one page of HTML without script. `GET` only shows it, because scanners of mails follow links.
`POST` answers, once, for the person whom the link is for, and signs nobody in."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl

import msgspec

from holdfast.codec.schema import Schema
from holdfast.desk.asks import LinkDesk
from holdfast.errors import Forbidden, HoldfastError, InvalidInput, WrongState
from holdfast.http.call import Call, Given
from holdfast.model import AskState
from holdfast.wire import answers

HTML, FORM = "text/html; charset=utf-8", "application/x-www-form-urlencoded"
NOTE = "note of the answer"
"""The name of the field for the note. No member of a form has this name, because it contains blanks."""
WHOLE = "value of the answer"
"""The name of the field for an answer that is no object."""
FIELDS_MAX = 200
STYLE = """
:root{color-scheme:light dark;--bg:light-dark(#f6f7f7,#0d1111);--surface:light-dark(#fff,#141919);--sunk:light-dark(#f0f2f2,#0f1414);
--line:light-dark(#e3e7e6,#242c2b);--line-2:light-dark(#cdd4d2,#3a4543);--ink:light-dark(#141d1c,#e9efee);
--ink-2:light-dark(#4a5654,#aab6b4);--ink-3:light-dark(#5c6967,#8a9895);--ok:light-dark(#136b3c,#62cf94);--ok-t:light-dark(#e4f4eb,#11281d);
--fail:light-dark(#b3261e,#ff918b);--fail-t:light-dark(#fdebea,#341a19)}
*{box-sizing:border-box}body{margin:0;font:400 16px/24px Inter,ui-sans-serif,system-ui,sans-serif;color:var(--ink);background:var(--bg)}
main{max-width:704px;margin:0 auto;padding:24px 16px 48px}h1{font-size:24px;line-height:32px;margin:4px 0;overflow-wrap:anywhere}
p{margin:4px 0 20px;color:var(--ink-2)}.crumbs{margin:0;color:var(--ink-3);font-size:14px;overflow-wrap:anywhere}
.panel{background:var(--surface);border:1px solid var(--line);border-radius:10px;margin-bottom:16px}
dl{display:grid;grid-template-columns:minmax(80px,max-content) 1fr;margin:0;padding:4px 16px}
dt,dd{margin:0;padding:10px 0;border-bottom:1px solid var(--line);overflow-wrap:anywhere;white-space:pre-wrap}dt{color:var(--ink-3);padding-right:24px}
dt:last-of-type,dd:last-of-type{border-bottom:0}.form{display:grid;gap:16px;padding:16px}
.field{display:grid;gap:6px;font-weight:500;border:0;margin:0;padding:0}.field small{color:var(--ink-3);font-weight:400;margin-left:4px}
.input{font:inherit;width:100%;min-height:44px;padding:8px 10px;border:1px solid var(--line-2);border-radius:6px;background:var(--surface);color:inherit}
.choice{display:grid;grid-template-columns:repeat(auto-fit,minmax(120px,1fr));gap:8px}
.choice label{padding:10px 12px;border:1px solid var(--line-2);border-radius:6px;font-weight:500}
.choice label:has(:checked){border-color:var(--ok);background:var(--ok-t);color:var(--ok)}
button{font:inherit;font-weight:600;min-height:50px;border:0;border-radius:6px;background:var(--ink);color:var(--bg)}
:focus-visible{outline:2px solid #2563eb;outline-offset:2px}.wrong{background:var(--fail-t);color:var(--fail);padding:12px 16px;border-radius:6px}
.next{margin:0;padding:12px 16px;background:var(--sunk);border-top:1px solid var(--line);border-radius:0 0 10px 10px;color:var(--ink-2);font-size:14px}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
}


def _links(call: Call) -> LinkDesk:
    """Return the desk of links. Only a server on the store has one."""
    return cast("LinkDesk", call.desk.asks)


async def show(call: Call) -> Given:
    """Show what is asked. Nothing changes."""
    try:
        return _given(_page(await _links(call).by_link(call.path["token"])))
    except HoldfastError as wrong:
        return _refused(wrong)


async def answer(call: Call) -> Given:
    """Answer for the person whom the link is for."""
    token = call.path["token"]
    try:
        if (call.header("content-type") or "").partition(";")[0].strip().lower() != FORM:
            raise InvalidInput("send the form of the page")
        seen = await _links(call).by_link(token)
        posted = _posted(call.body or b"")
        try:
            value = value_of(msgspec.json.decode(bytes(seen.ask.form)), posted)
            note, given = posted.get(NOTE, ""), json.dumps(value).encode()
            taken = await _links(call).answer_link(token, given, note, call.request)
        except InvalidInput as wrong:
            return _given(_page(seen, str(wrong), posted), 422)
    except HoldfastError as wrong:
        return _refused(wrong)
    return _given(_page(answers.LinkedAsk(taken.ask, seen.person)))


def _given(text: str, status: int = 200) -> Given:
    return Given(text.encode(), status, HEADERS, HTML)


def _refused(wrong: HoldfastError) -> Given:
    """Say in words that a link is no good. Nobody learns whether it has expired or never was one."""
    status = 409 if isinstance(wrong, WrongState) else 403 if isinstance(wrong, Forbidden) else 404
    status = 422 if isinstance(wrong, InvalidInput) else status
    text = str(wrong) if status != 404 else "This link is not good any more, or never was."
    return _given(_whole("Holdfast", f"<h1>{_safe(text)}</h1>"), status)


# --- from a form to a value -------------------------------------------------------------------------------------------


def _posted(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=FIELDS_MAX,
            errors="strict",
        )
    except ValueError:
        raise InvalidInput("send the form of the page") from None
    if len(dict(pairs)) != len(pairs):
        raise InvalidInput("send each field once")
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def value_of(form: Schema, posted: Mapping[str, str]) -> Any:
    """Return the answer that the fields of the page make. An empty field is left out, if the form allows that."""
    fields = members_of(form)
    if fields is None:
        return _read(form, form, posted.get(WHOLE, ""))
    made: dict[str, Any] = {}
    for name, (schema, is_needed) in fields.items():
        text = posted.get(name, "")
        if text or (is_needed and kind_of(form, schema) in {"text", "json"}):
            made[name] = _read(form, schema, text)
    return made


def _read(form: Schema, schema: Schema, text: str) -> Any:
    kind = kind_of(form, schema)
    if kind == "text":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # the check by the form says what is wrong with it


def members_of(form: Schema) -> dict[str, tuple[Schema, bool]] | None:
    """Return the members of an answer, and whether each is needed. None if the answer is no object."""
    whole = _resolved(form, form)
    properties = whole.get("properties")
    if whole.get("type") != "object" or not isinstance(properties, dict):
        return None
    needed = set(whole.get("required", ()))
    return {name: (schema, name in needed) for name, schema in properties.items()}


def kind_of(form: Schema, schema: Schema) -> str:
    """Return which field a value gets: `boolean`, `choice`, `number`, `text` or `json`."""
    found = _resolved(form, schema)
    if isinstance(found.get("enum"), list):
        return "choice"
    kind = found.get("type")
    if kind == "boolean":
        return "boolean"
    if kind in {"integer", "number"}:
        return "number"
    return "text" if kind == "string" else "json"


def _resolved(form: Schema, schema: Schema) -> Schema:
    """Follow references, and leave out that a value may be null: an empty field means that."""
    for _ in range(20):
        if "$ref" in schema:
            schema = form.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
            continue
        others = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        if len(others) != 1:
            return schema
        schema = others[0]
    return {}


# --- HTML -------------------------------------------------------------------------------------------------------------


def _safe(value: object) -> str:
    return html.escape(str(value), quote=True)


def _whole(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_safe(title)}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>"
    )


def _page(seen: answers.LinkedAsk, wrong: str = "", posted: Mapping[str, str] | None = None) -> str:
    ask = seen.ask
    head = f'<div class="crumbs">{_safe(ask.run)} · {_safe(ask.workflow)}</div><h1>{_safe(ask.question)}</h1>'
    shown = "".join(_shown(json.loads(bytes(ask.show))))
    parts = [head, f"<p>{_safe(_when(ask))}</p>"]
    if wrong:
        parts.append(f'<p class="wrong" role="alert">{_safe(wrong)}</p>')
    if shown:
        parts.append(f'<section class="panel" aria-label="What is shown"><dl>{shown}</dl></section>')
    if ask.may_answer:
        parts.append(_form(ask, seen.person, posted or {}))
    else:
        parts.append(f'<p role="status"><b>{_safe(ask.why_not)}</b></p>')
    return _whole(ask.question, "".join(parts))


def _when(ask: answers.Ask) -> str:
    words = [f"Asked on {ask.asked_at:%Y-%m-%d at %H:%M} UTC."]
    if ask.of > 1:
        words.append(f"{len(ask.answers)} of {ask.of} people have answered.")
    if ask.expires_at is not None and ask.state is AskState.OPEN:
        words.append(f"It expires on {ask.expires_at:%Y-%m-%d at %H:%M} UTC.")
    return " ".join(words)


def _shown(value: Any) -> Iterator[str]:
    if value is None:
        return
    for name, each in (value if isinstance(value, dict) else {"": value}).items():
        text = each if isinstance(each, str) else json.dumps(each, ensure_ascii=False, indent=1)
        yield f"<dt>{_safe(_words(name))}</dt><dd>{_safe(text)}</dd>"


def _words(name: str) -> str:
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def _form(ask: answers.Ask, person: str, posted: Mapping[str, str]) -> str:
    form = msgspec.json.decode(bytes(ask.form))
    fields = members_of(form)
    named = {WHOLE: (form, True)} if fields is None else fields
    inputs = "".join(
        _field(form, name, schema, is_needed, posted.get(name, ""))
        for name, (schema, is_needed) in named.items()
    )
    note = _safe(posted.get(NOTE, ""))
    return (
        f'<form class="panel" method="post" aria-label="Answer"><div class="form">{inputs}'
        f'<label class="field"><span>Note <small>optional</small></span>'
        f'<textarea class="input" name="{NOTE}" rows="2">{note}</textarea></label>'
        f"<button>Answer as {_safe(person.partition(':')[2])}</button></div>"
        '<p class="next">Your name, your answer and your note stand in the journal of the run.</p></form>'
    )


def _field(form: Schema, name: str, schema: Schema, is_needed: bool, posted: str) -> str:
    kind, found = kind_of(form, schema), _resolved(form, schema)
    label = "Answer" if name == WHOLE else _words(name)
    small = "" if is_needed else " <small>optional</small>"
    if kind in {"boolean", "choice"}:
        choices = (
            [(True, "Yes"), (False, "No")] if kind == "boolean" else [(one, one) for one in found["enum"]]
        )
        radios = "".join(
            f'<label><input type="radio" name="{_safe(name)}" value="{_safe(json.dumps(value))}"'
            f"{' required' if is_needed else ''}{' checked' if posted == json.dumps(value) else ''}> {_safe(text)}</label>"
            for value, text in choices
        )
        return f'<fieldset class="field"><legend>{_safe(label)}{small}</legend><div class="choice">{radios}</div></fieldset>'
    more = ' inputmode="decimal"' if kind == "number" else ""
    hint = " <small>as JSON</small>" if kind == "json" else small
    need = " required" if is_needed and kind != "text" else ""
    return (
        f'<label class="field"><span>{_safe(label)}{hint}</span>'
        f'<input class="input" name="{_safe(name)}" value="{_safe(posted)}"{more}{need} autocomplete="off"></label>'
    )
