"""Programs in the plain notation of docstrings, ``max_x  min_i  s_i / w_i * sum_j x_ij``, as MathML.

Browsers draw MathML themselves, so that no script or font has to be fetched. Docstrings stay as they are: subscripts
behind ``_``, powers behind ``^``, groups in brackets, words as words. What stands below each other in two lines of a
program, behind two spaces or more, does so on the page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import cache
from textwrap import dedent

from allocator.registry import list_policies

_LARGE = {"sum": "∑", "prod": "∏", "int": "∫"}
_FUNCTIONS = {*_LARGE, "max", "min", "argmax", "lex", "sort", "log", "ceil", "mod"}
_GREEK = {"rho": "ρ", "lambda": "λ"}
_SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠", "-+": "∓", "*": "·", "-": "−"}

_GROUP = r"\{[^{}]*\}|\((?:[^()]|\([^()]*\))*\)|-?[A-Za-z0-9λ]+(?:[,|][A-Za-z]+)*"
_TOKEN = re.compile(
    r'(?P<quoted>"[^"]*"|`[^`]*`)'
    rf"|(?P<base>[A-Za-zλρ]+['*]?(?=[_^ (),.:/|\])}}]|$)|[A-Za-zλρ]+)(?:_(?P<sub>{_GROUP}))?(?:\^(?P<power>{_GROUP}))?"
    r"|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<sign><=|>=|!=|-\+|\S)"
    r"|(?P<space> +)"
)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A) {4}\S.*(?:\n {4}.*)*")

_NARROW = 2
"""So many spaces are a narrow gap."""

_WORD = re.compile(r"s\.t\.|[A-Za-z]{2,}(?:['-][A-Za-z]+)+")
_POWER = re.compile(rf"\^({_GROUP}|\+)")
_CELL = re.compile(r"\S(?:.*?\S)??(?=\s{2,}|\s*$)")


def in_text(text: str) -> str:
    """Markdown with its indented paragraphs, which are programs, typeset; blocks of code stay as they are."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _INDENTED.sub(_typeset, part) for part in parts)


def _typeset(found: re.Match[str]) -> str:
    return typeset(dedent(found[0]))


def typeset(program: str) -> str:
    """The lines of a program as a block of MathML; the text itself is its alternative."""
    lines = program.splitlines()
    starts = [[cell.start() for cell in _CELL.finditer(line)] for line in lines]
    every = [at for line in starts for at in line]
    columns = sorted({min(every), *(at for at in every if every.count(at) > 1)})
    rows = "".join(_row(line, columns) for line in lines)
    alternative = html.escape(" ".join(program.split()))
    return (
        f'<div class="program"><math displaystyle="true" alttext="{alternative}"><mtable>{rows}</mtable></math></div>'
    )


def _row(line: str, columns: list[int]) -> str:
    """A line, cut where columns begin; a cell reaches over columns that do not begin in it."""
    cells = list(_CELL.finditer(line))
    first = max(at for at in columns if at <= cells[0].start())
    begins = [first, *(cell.start() for cell in cells[1:] if cell.start() in columns)]
    made = "<mtd></mtd>" * columns.index(first)
    for begin, end in zip(begins, [*begins[1:], len(line) + 1], strict=True):
        over, content, last = sum(begin <= at < end for at in columns), "", begin
        for cell in cells:
            if begin <= cell.start() < end:
                gap = cell.start() - last
                content += f'<mspace width="{0.4 if gap == _NARROW else 1.5}em"></mspace>' * bool(gap) + formula(
                    cell[0]
                )
                last = cell.end()
        made += f'<mtd columnspan="{over}">{content}</mtd>'
    return f"<mtr>{made}</mtr>"


def formula(text: str) -> str:
    """A part of a line as elements of MathML.

    >>> formula("sum_j T_ij")
    '<munder><mo>∑</mo><mi>j</mi></munder><msub><mi>T</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub>'
    """
    names = _names()
    found, words = "", list[str]()
    for kind, piece in _pieces(text, names):
        if kind == "word":
            words.append(piece)
        elif kind == "space":
            # between words a space is one; symbols are spaced by what they are
            words += [" "] if words and words[-1] != " " else []
        else:
            found += _text(words, after=bool(found), before=True) + piece
            words = []
    return found + _text(words, after=bool(found), before=False)


@cache
def _names() -> frozenset[str]:
    return frozenset(entry.name for entry in list_policies())


def _text(words: list[str], *, after: bool, before: bool) -> str:
    said = "".join(words).strip()
    if not said:
        return ""
    space = "\N{NO-BREAK SPACE}"
    return f"<mtext>{space * (after and said[0] not in ',:;.')}{html.escape(said)}{space * before}</mtext>"


def _pieces(text: str, names: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Words, spaces and symbols in turn."""
    at = 0
    while at < len(text):
        named = re.match(r"[a-z][A-Za-z]*(?:_[A-Za-z]+)+", text[at:])
        word = named[0] if named and named[0] in names else (found[0] if (found := _WORD.match(text, at)) else "")
        if word:
            yield "word", word
            at += len(word)
            continue
        token = _TOKEN.match(text, at)
        assert token is not None
        if power := _POWER.match(text, at):
            yield "symbol", f"<msup><mrow></mrow>{_group(power[1])}</msup>"
            at = power.end()
            continue
        at = token.end()
        if token["space"]:
            yield "space", " "
        elif token["quoted"]:
            yield "word", token["quoted"].strip("`")
        elif token["number"]:
            yield "symbol", f"<mn>{token['number']}</mn>"
        elif token["sign"]:
            sign = token["sign"]
            between = sign == "." and text[at : at + 1].isalpha() and text[at - 2 : at - 1].strip()
            if sign in ",:;.'" and not between:
                yield "word", sign
            else:
                yield "symbol", f"<mo>{html.escape('·' if between else _SIGNS.get(sign, sign))}</mo>"
        else:
            yield _named(token, text, at)


def _named(token: re.Match[str], text: str, at: int) -> tuple[str, str]:
    """A symbol with its marks, a function, or a word."""
    base, sub, power = token["base"], token["sub"], token["power"]
    plain = base.rstrip("'*")
    lone = re.match(r" [A-Za-z]{2,}", text[at:]) if base == "a" else None
    if (
        not (sub or power)
        and base not in _FUNCTIONS - _LARGE.keys()
        and ((len(plain) > 1 and plain not in _GREEK) or lone)
    ):
        return "word", base
    if base in _FUNCTIONS:
        made = f"<mo>{_LARGE.get(base, base)}</mo>"
        made = made if sub is None else f"<munder>{made}{_group(sub)}</munder>"
        return "symbol", made if power is None else f"<msup>{made}{_group(power)}</msup>"
    made = f"<mi>{_GREEK.get(plain, plain)}</mi>"
    if marks := base[len(plain) :].replace("'", "′"):
        made = f"<msubsup>{made}{_group(sub) if sub else '<mrow></mrow>'}<mo>{marks}</mo></msubsup>"
    elif sub:
        made = f"<msub>{made}{_group(sub)}</msub>"
    return "symbol", made if power is None else f"<msup><mrow>{made}</mrow>{_group(power)}</msup>"


def _group(text: str) -> str:
    """A subscript or a power: letters as symbols of their own, but for words."""
    inside = text[1:-1] if text[0] in "{(" else text
    if re.fullmatch(r"[A-Za-z]{2,3}", inside):
        letters = "".join(f"<mi>{letter}</mi>" for letter in inside)
        return f"<mrow>{letters}</mrow>"
    return f"<mrow>{formula(inside)}</mrow>" if len(inside) > 1 else f"<mi>{html.escape(inside)}</mi>"
