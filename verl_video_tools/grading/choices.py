"""Grade a multiple-choice answer in two steps: isolate the answer, then read it by named forms.

The answer is in a tag, a field of JSON or a box; otherwise it is the whole text after the reasoning. `_read` lists the
forms. Any other answer is unread. The forms are strict on purpose: an answer that a person could take for two options,
or for none, must not be rewarded.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from verl_video_tools.core.json_text import located_json_objects
from verl_video_tools.core.truths import CJK, Menu, Options, letter_of_truth, menu_of, without_article


def grade_multiple_choice(answer: str | None, truth: str, options: Options | None = None) -> bool:
    """Whether `answer` names the option `truth`, and no other.

    Args:
        answer: the model's answer; None counts as wrong.
        truth: the right option, in any form that `canonical_letter` takes.
        options: texts in the order of their letters (a leading ``A.`` is ignored), or a mapping from letter to text.

    Raises:
        ValueError: `truth` names no option.
    """
    expected = letter_of_truth(truth, menu_of(options))
    if expected is None:
        raise ValueError(f"truth must be the letter of an option, got {truth!r}")
    return answer is not None and chosen_option(answer, options) == expected


def chosen_option(answer: str, options: Options | None = None) -> str | None:
    """The upper-case letter of the option that `answer` names, right or wrong; None where the answer is unread."""
    menu = menu_of(options)
    parts, before, after = _isolated(answer)
    letters = {_read(_unmarked(part), menu) for part in parts}
    letter = letters.pop() if len(letters) == 1 else None
    if letter is None or not menu.has(letter) or _read(_unmarked(before), menu) not in (None, letter):
        return None
    return letter if _claimed(_unmarked(after), menu) <= {letter} else None


# ------------------------------------------------------------------------------------------------- the answer's place

_SPECIAL_TOKEN = re.compile(r"<\|[^<>|\s]{1,40}\|>|</s>|[\u200b-\u200f\u2060\ufeff\ufe0e\ufe0f]")
_REASONING = "think|thinking|thought|reasoning|analysis"
_REASONING_END = re.compile(rf"</(?:{_REASONING})>", re.IGNORECASE)
_REASONING_START = re.compile(rf"\s*<(?:{_REASONING})>", re.IGNORECASE)
_TAG = re.compile(r"<(/?)(?:final_?)?answer>", re.IGNORECASE)
_BOX = re.compile(r"\\f?boxed\s{0,3}\{")
_BRACE_OR_LINE = re.compile(r"[{}\n]")
_ANSWER_FIELD = re.compile(
    r"ans|pred|(?:my|your|the|model|final|correct|best|selected|chosen|right)?"
    r"(?:answer|choice|option|letter|prediction|selection|response)(?:letter|choice|option)?\d*|答案|정답|답|答え"
)
_TEXT_FIELD = re.compile(r"(?:answer|option|choice|selected)?(?:text|content|value|label)|description")


def _isolated(answer: str) -> tuple[list[str], str, str]:
    """The contents of tags, fields or boxes for the answer, or else the whole text; and the text before and after
    them."""
    text = unicodedata.normalize("NFKC", _SPECIAL_TOKEN.sub(" ", html.unescape(answer)))
    ends = [match.end() for match in _REASONING_END.finditer(text)]
    if ends:
        text = text[ends[-1] :]
    elif _REASONING_START.match(text):  # the reasoning was cut off
        return [], "", ""
    places = _tags(text) or _fields(text) or boxes(text)
    if not places:
        return [text], "", ""
    fields = [field for content, _, _ in places for field, _, _ in _fields(content) or [(content, 0, 0)]]
    parts = [part for field in fields for part, _, _ in boxes(field) or [(field, 0, 0)]]
    return parts, text[: places[0][1]], text[places[-1][2] :]


def _tags(text: str) -> list[tuple[str, int, int]]:
    """The contents of answer tags with their start and end. An unclosed tag ends at the next tag or at the end."""
    tags, marks = [], list(_TAG.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        if not mark[1]:
            stop = len(text) if following is None else following.start()
            end = following.end() if following is not None and following[1] else stop
            tags.append((text[mark.end() : stop], mark.start(), end))
    return tags


def boxes(text: str) -> list[tuple[str, int, int]]:
    """The contents of outermost boxes with their start and end. An unclosed box ends with its line."""
    contents, position = [], 0
    while box := _BOX.search(text, position):
        depth, end = 1, len(text)
        for mark in _BRACE_OR_LINE.finditer(text, box.end()):
            depth += {"{": 1, "}": -1}.get(mark[0], 0)
            if depth == 0 or mark[0] == "\n":
                end = mark.start()
                break
        position = min(end + 1, len(text))
        contents.append((text[box.end() : end], box.start(), position))
    return contents


def _fields(text: str) -> list[tuple[str, int, int]]:
    """The values of JSON fields whose name says that they hold an answer, with the option's text if a field holds
    it."""
    fields = []
    for entry, start, end in located_json_objects(text):
        values = {re.sub(r"[\s_-]", "", name).casefold(): value for name, value in entry.items()}
        texts = [_as_words(value) for name, value in values.items() if _TEXT_FIELD.fullmatch(name)]
        for name, value in values.items():
            if _ANSWER_FIELD.fullmatch(name):
                fields.append((". ".join([_as_words(value), *texts]), start, end))
    return fields


def _as_words(value: Any) -> str:
    """A JSON value as words: the items of a list, or the values of an object."""
    if isinstance(value, dict):
        return ". ".join(map(_as_words, value.values()))
    if isinstance(value, list):
        return ", ".join(map(_as_words, value))
    return "" if value is None else str(value)


# ---------------------------------------------------------------------------------------------------------- plain words

_ARROW = re.compile(
    r"\\(?:right|Right|long|Long)*(?:arrow|rightarrow|implies|to)(?![a-zA-Z])|[=-]{1,3}>|[\u2190-\u21ff\U0001f449]"
)
_COMMAND = re.compile(r"\\(?:[a-zA-Z]+\*?|[()\[\]])")
_HTML = re.compile(r"</?[a-zA-Z_]{1,12}(?:\s[^<>\n]{0,100})?/?>")
_ANGLED_LETTER = re.compile(r"<([A-Z])>")
_WRONG_MARK = re.compile("[\u274c\u2717\u2718\u2716\u274e]")
_SYMBOL = re.compile("[\u2600-\u27bf\U0001f000-\U0001faff\u2b50\u25a0-\u25ff]")
_LINE_START = re.compile(
    r"^ ?(?:[#>*+\u2022-]{1,6} ){1,3}|^ ?\d{1,2}[.)] (?=[^\W\d]|[(*])|^ ?[>\u2022](?=\S)", re.MULTILINE
)
_WRAPPED_LETTER = re.compile(
    r"(?<![A-Za-z0-9])[*_`\"'\u2018\u201c\u201d\u201e\u00ab\[({]{1,8} ?([A-Za-z]) ?[.:)]? ?"
    r"[*_`\"'\u2019\u201c\u201d\u00bb\])}]{1,8}(?![A-Za-z0-9])"
)
_EMPHASIS = re.compile(
    r"[*`\"\u201c\u201d\u201e\u00ab\u00bb~{}$\\]+|(?<![^\W_])[_'\u2018\u2019]+|[_'\u2018\u2019]+(?![^\W_])"
)
_CJK_MARKS = str.maketrans(
    {"\u2212": "-", "\u2019": "'", "。": ". "}
    | dict.fromkeys("、\uff0c", ", ")
    | dict.fromkeys("【「『", ' "')
    | dict.fromkeys("】」』", '" ')
)


def _unmarked(text: str) -> str:
    """The words without markup. A letter in brackets, quotes or bold type becomes ``(B)``."""
    text = text.replace("@", " ").replace("\\\\", "\n").translate(_CJK_MARKS)
    text = _WRONG_MARK.sub(" wrong ", _ARROW.sub(" \u2192 ", text))
    text = _SYMBOL.sub(" ", _HTML.sub(" ", _ANGLED_LETTER.sub(r"(\1)", _COMMAND.sub(" ", text))))
    text = re.sub(r"(?<=\S)([/|+])(?=[^\W\d_(])", r" \1 ", text)
    text = _LINE_START.sub("", re.sub(r"[^\S\n]+", " ", text))
    text = _WRAPPED_LETTER.sub(lambda match: f" ({match[1].upper()}) ", text)
    text = _EMPHASIS.sub(" ", text)
    text = re.sub(rf"(?<={CJK})(?=[A-Za-z(@])|(?<=[A-Za-z)@])(?={CJK})", " ", text)
    return re.sub(r" ?\n[\n ]*", "\n", re.sub(" {2,}", " ", text)).strip()


# ---------------------------------------------------------------------------------------------------------------- forms

_LETTER_ALONE = re.compile(r"[ .:,;]{0,3}(?:(?:option|choice|letter|answer) )?\(?([A-Z])\)?[ .:,;!)]*", re.IGNORECASE)


def _read(text: str, menu: Menu) -> str | None:
    """The letter that a text names in the first form that applies; None if it is unread."""
    if letter := menu.letter_of(text):
        return letter
    if (match := _LETTER_ALONE.fullmatch(text)) and (match[1] not in "Ii" or "I" in menu.texts or len(text) > 1):
        return match[1].upper()
    text = _LOWER_CASE.sub(lambda match: match[0].upper(), text)
    spans = _option_spans(text, menu)
    marked = _marked_letters(text, menu, spans)
    if marked is None:
        return None
    return _by_letters(marked) if marked.letters else _by_text(_marked_texts(text, spans), menu)


def _claimed(text: str, menu: Menu) -> frozenset[str]:
    """All letters that a text states or considers possible."""
    marked = _marked_letters(text, menu, _option_spans(text, menu))
    clauses = [] if marked is None else _clauses(marked)
    return frozenset[str]().union(*(clause.letters for clause in clauses if clause.strength >= _Strength.OPEN))


class _Span(NamedTuple):
    """A place of an option's text."""

    start: int
    end: int
    letter: str


_DASH = re.compile(r"(?:\\ )?(?:\\-|[\u2013\u2014])(?:\\ )?")
"""Within an escaped text, with the spaces around it."""


def _option_spans(text: str, menu: Menu) -> list[_Span]:
    """The places of options' texts, with an article before them. The longer of two overlapping texts counts."""
    candidates: list[_Span] = []
    for letter, option in menu.texts.items():
        core = without_article(option)
        if core and list(menu.texts.values()).count(option) == 1:
            before = "" if re.match(CJK, core[0]) else r"(?<![^\W_])(?<!\w['-])(?<!\d[.:,])"
            after = "" if re.match(CJK, core[-1]) else r"(?![^\W_]|[.:'-][^\W_]|,\d)"
            before += r"(?<!(?<!\w)-)" if core[0].isdecimal() else ""  # the 3 of "-3"
            words = _DASH.sub(" ?[-\u2013\u2014] ?", re.escape(core))  # 0:20-0:30 is 0:20 - 0:30
            pattern = re.compile(rf"(?:(?<![^\W_])(?:an?|the) )?{before}{words}{after}", re.IGNORECASE)
            candidates += [_Span(match.start(), match.end(), letter) for match in pattern.finditer(text)]
    spans: list[_Span] = []
    for span in sorted(candidates, key=lambda span: (span.start, -span.end)):
        if not spans or span.start >= spans[-1].end:
            spans.append(span)
    return spans


@dataclass(frozen=True)
class _Marked:
    """A text with ``@`` in place of each option that it names."""

    text: str
    letters: Sequence[str]


class _Strength(IntEnum):
    """How a clause speaks of options."""

    MENTION = 0
    """``rules out A``, ``as in B``: claims nothing."""
    OPEN = 1
    """``B or C``, ``perhaps B``: more than one option may be right."""
    FITS = 2
    """``B describes what the child does``: a statement, unless another clause states an option."""
    BARE = 3
    """``B``, ``option B``."""
    STATED = 4
    """``The answer is B``, ``B is correct``, ``So B``."""


@dataclass(frozen=True)
class _Clause:
    strength: _Strength
    letters: frozenset[str]
    is_label: bool = False
    """Words follow on the same line."""


# ---- letters

_MENTION = re.compile(r"(?<![\w'.&+/-])(?:\(([A-Z])\)|([A-Z])(?![\w'&+]|-\w|\.[A-Za-z](?![a-z])))|(?<=/)([A-Z])(?!\w)")
_LOWER_CASE = re.compile(
    r"(?:^|(?<=option )|(?<=choice )|(?<=answer )|(?<=answer:)|(?<=answer: )|(?<=answer is )|(?<=i think ))"
    r"(?:[b-h](?=[.):] )|[a-h](?=[ .!]{0,3}$))",
    re.IGNORECASE,
)
"""A lower-case letter that cannot be a word."""
_AFTER_A = re.compile(
    r" (?:is|was|has|would|must|should|cannot|can't|could|might|may|fits?|match(?:es)?|describes|corresponds|seems|"
    r"looks|appears|remains|holds|applies|wins|works|makes|because|since|as|and|or|in|on|at|but|with|then|alone|only|it|"
    r"rather|instead|not|over|than|to|through|vs|which|while|so|if|the|plus|too|also|again|there|here|this|that|best|"
    r"correct|option|answer|final|perhaps|maybe|probably|o|ou|oder|y|e|et|und)\b"
)
"""A capital A before any other word in lower case is an article."""
_ENDS_TEXT = re.compile(
    rf" ?(?:[.,;:!)|/+&\n]|$|\(?[A-Z][.):])| (?:-|and|or|plus|as well as|then) |(?<={CJK})(?={CJK})"
)
_BESIDE = re.compile(r"[ .):,;\u2192=\n(\u2014\u2013-]{0,6}(?:i\.e\. |that is,? |namely |is )?", re.IGNORECASE)


def _marked_letters(text: str, menu: Menu, spans: Sequence[_Span]) -> _Marked | None:
    """The text with its letters marked, options' texts beside them included.

    Returns:
        None if the text of another option is beside a letter.
    """
    starts, ends = {span.start: span for span in spans}, {span.end: span for span in spans}
    covered = iter(spans)
    span = next(covered, None)
    pieces, letters, position = [], [], 0
    for mention in _MENTION.finditer(text):
        start, end = mention.span()
        letter = mention[1] or mention[2] or mention[3]
        while span is not None and span.end <= start:
            span = next(covered, None)
        is_inside = span is not None and span.start < start and end <= span.end
        if start < position or is_inside:
            continue
        is_enclosed = mention[1] is not None
        separator = _BESIDE.match(text, end)
        beside = starts.get(separator.end()) if separator else None
        if beside is not None and _ENDS_TEXT.match(text, beside.end):
            if beside.letter != letter:
                return None
            end = beside.end + text.startswith(")", beside.end)
        elif not is_enclosed and _is_word(text, mention, menu):
            continue
        before = ends.get(start - 1) if is_enclosed else None
        if before is not None and before.start >= position:
            if before.letter != letter:
                return None
            start = before.start
        is_lead = start == 0 and not _AFTER_A.match(text, end) and _MENTION.search(text, end) is None
        pieces += [text[position:start], "@:" if is_lead and is_enclosed and end == mention.end() else "@"]
        letters.append(letter)
        position = end
    return _Marked("".join([*pieces, text[position:]]), letters)


def _is_word(text: str, mention: re.Match[str], menu: Menu) -> bool:
    if mention[2] == "I":
        return "I" not in menu.texts
    is_before_word = re.match(r" [a-z\u00e0-\u024f]", text[mention.end() : mention.end() + 2]) is not None
    return mention[2] == "A" and is_before_word and not _AFTER_A.match(text, mention.end())


_SENTENCE_END = re.compile(r"((?<!\b(?:Mr|Dr|vs|St))[.!?;]+(?=\s|$|@))")
_CLAUSE_END = re.compile(
    r"(?<!@),|,(?! ?(?:(?:and|or) )?@)|\s[-\u2014\u2013](?=\s)"
    r"|\s(?=(?:but|because|since|while|whereas|although|though|so|therefore|thus|hence|due to|as)\b)"
    r"|(?<=@) (?=(?:and )?(?:not|over|rather than|instead of) (?:option )?@)|(?=因为|而不是|而非|所以|因此)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"((?:option |choice )?@) ?[.:(|)]", re.IGNORECASE)
_ALL_BUT = re.compile(r"\b(?:all|anything|everything|nothing|every option|any option) but\b", re.IGNORECASE)
_EQUALLY = re.compile(
    r"\b(?:just )?as (?:well as|well|likely|plausible|good|possible)\b|\b(?:cannot|can't) be (?:excluded|ruled out)\b",
    re.IGNORECASE,
)
_CERTAIN = re.compile(
    r"\b(?:without (?:a |any )?|no |beyond )(?:doubt|question|hesitation)\b|\bnothing else|\bno other option",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"\b(?:not?|never|none|neither|nor|nothing|nobody|cannot|cant|wrong|incorrect|false|untrue|inaccurate|unlikely|"
    r"impossible|implausible|invalid|mistaken|doubt|doubtful|rules?|ruled|ruling|exclud(?:e|es|ed|ing)|"
    r"eliminat(?:e|es|ed|ing)|reject(?:s|ed|ing)?|dismiss(?:es|ed|ing)?|discard(?:s|ed)?|skip|avoid|except|besides|"
    r"without|unless|if|whether|depends|were|instead of|rather than|other than|opposite|hardly|barely|least|tempting|"
    r"argue|trap|worse|worst|fails|niet|nicht|pas|não|nie|не|değil|không|bukan|tidak|ليس|ليست|no es|non è)\b|n't\b"
    "|不|没有|非|错|误|除了|排除|否|无法|ない|なく|ません|ではあり|違|誤|아니|아닙|않|틀|없|말고|제외|오답|모르",
    re.IGNORECASE,
)
_DOUBT = re.compile(
    r"\b(?:or|either|might|could|may|maybe|perhaps|possibly|possible|potentially|torn|unsure|between|alternatively|both|"
    r"equally|also|too|any of|one of|so (?:do|does|is|would|could)|oder|ou|или|atau|veya|hoặc|أو)\b"
    "|或|还是|可能|也许|大概|かも|または|もしくは|どちら|か$|또는|혹은|수도|일 수",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"(?:because|since|as|due to|while|whereas|although|though|seeing|considering|unlike|compared|因为)\b",
    re.IGNORECASE,
)
_CORRECTION = re.compile(r"\b(?:wait|actually|correction|scratch that)\b", re.IGNORECASE)
_SO = r"(?:(?:so|therefore|thus|hence|and|but|only|overall) ){0,2}"
_NOUN = (
    "(?:answer|ans|response|solution|option|choice|prediction|selection|conclusion|guess|verdict|decision|pick|vote|"
    "statement|description|sequence|match|fit)"
)
_OPTION = r"(?:the )?(?:(?:correct|right|best) )?(?:(?:option|choice|letter|answer|number|statement) ){0,2}"
_LIST = r"\(?@\)?(?:[ ,/&+]{1,3}+(?:(?:and|or) )?\(?@\)?){0,25}+"
_END = r"(?=[ )]*$| (?:in|on|at|for|of|by|from|here|that|which|with|based|according|given|and|to|instead)\b|[:(])"
_ADVERB = (
    r"(?:(?:most|likely|probably|clearly|definitely|certainly|therefore|thus|hence|simply|indeed|obviously|then) ){0,3}"
)
_RIGHT = (
    "(?:correct|right|best|true|accurate|appropriate|suitable|plausible|answer|likely|fit|fits|match|option|choice|"
    "supported|winner|closest|vote|what happen(?:s|ed))"
)
_CHOOSING = (
    "(?:choos(?:e|ing)|chose|pick(?:ed|ing)?|select(?:ed|ing)?|go(?:ing)? (?:with|for)|opt for|settle (?:on|for)|"
    "stick with|end up with|conclude|say|think|believe|guess|reckon|vote(?: for)?|infer|deduce|mark|tick|"
    "leav(?:es?|ing)(?: only| us with)?|leads?(?: me)? to|support(?:s|ed)?|points? to|speaks? for|"
    "correspond(?:s|ing)? to|match(?:es)?|favou?rs?|consistent with|namely|that is|decid(?:e|ed) (?:on|for))"
)
_ANSWER_IN_OTHER_LANGUAGES = (
    "(?:respuesta|resposta|réponse|risposta|antwort|antwoord|odpowiedź|svaret|ответ|jawaban|jawabannya|cevap|yan\u0131t|"
    "đáp án|الإجابة|الجواب)"
)
_STATEMENTS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # "The answer to the question is most likely option B"
        rf"\b(?:{_NOUN}s?|one)\b[^@]{{0,120}}?(?:\bis|\bare|\bbe|\bwas|'s|\u2192|[:=-]) ?(?:given by )?"
        rf"{_ADVERB}{_OPTION}{_LIST}{_END}",
        # "Thus it is a tram: B", "two wheels and pedals → B"
        r"^(?:so|therefore|thus|hence)\b[^@]{0,120}: ?@$|\u2192 ?(?:option )?@$",
        # "I would go with option B"
        rf"\b{_CHOOSING} (?:that )?"
        r"(?:(?:it|this|that|the (?:correct |right |best )?answer)(?:'s| is| must be| should be| to be) )?"
        rf"{_ADVERB}{_OPTION}{_LIST}{_END}",
        # "B is clearly the correct answer", "which makes B the right choice", "B remains"
        rf"(?:^|\b(?:that|think|believe|conclude|say) ){_SO}{_OPTION}{_LIST} (?:is|are|seems?|looks|appears|must be|"
        rf"should be|has to be|would be|remains|sounds|gets)(?: [^\s@]+){{0,4}}? {_RIGHT}\b",
        rf"\bmak(?:es|ing) {_OPTION}@ (?:the |an? )?(?:only |most )?{_RIGHT}\b",
        rf"^{_SO}{_OPTION}@ (?:remains|wins|is left|it is|holds|applies)\b",
        # Chinese, Japanese, Korean
        "(?:答案|答|正解|答え|正确|选择|选|選択|认为|觉得|应该|정답|답|선택|고르|所以|因此|故|よって|따라서|したがって|対応|这是)"
        rf"[^@]{{0,12}}{_LIST}",
        rf"{_LIST}[^@]{{0,14}}(?:正确|正確|最|符合|适|正解|正しい|答|选|選|맞|정답|답|고르|고릅|선택|옳|적절)",
        rf"{_LIST} ?(?:です|だ$|だと|である|になり|입니다|이다|예요|이에요)",
        # Further European languages, Arabic, Indonesian, Turkish, Vietnamese
        rf"{_ANSWER_IN_OTHER_LANGUAGES}(?: \w{{1,14}}){{0,3}}?"
        r"(?: (?:es|est|ist|lautet|é|è|is|to|är|adalah|ialah|là|هي|هو|это))?(?: ?[:\u2014\u2013-])?"
        rf"(?: (?:la|le|el|die|de|der|a|o|opción|opção|option|вариант)){{0,2}} ?{_LIST}",
    )
]
_FITS = re.compile(
    rf"^{_SO}{_OPTION}@ (?:best |accurately |correctly |clearly |most )?"
    r"(?:fits?|match(?:es)?|describes|corresponds|works|makes|is (?:consistent|what|supported|happening))\b",
    re.IGNORECASE,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BARE = _words(
    "@ ( ) : . ! - = , & / | + \u2192 option options choice choices and plus then equally the "
    "选项 选择 选 项 項 番 번 選択肢 보기 옵션 선택지"
)
_FRAME = _BARE | _words(
    "a answer letter number final correct right best only most likely probably surely so therefore thus hence it is "
    "it's its this that which must should would has have to be i i'd i'll i'm i've my me say think believe guess go "
    "going with for pick choose select sure pretty certainly definitely clearly obviously yes ok okay well finally "
    "overall just simply looks seems like in opinion list by process elimination but one we our you your left leaving "
    "conclude conclusion clear here 是"
)
"""A clause with nothing but these words and a choice states it."""
_LABEL_AT_END = re.compile(
    r"^[^@]+(?<! in)(?<! by)(?<! of)(?<! to)(?<! as)(?<! at)(?<! for)(?<! like)(?<! with)(?<! from)(?<! than)"
    r"(?<! option) @$",
    re.IGNORECASE,
)
_NEXT_LABEL = re.compile(r"[^@ ] @[.:)]")
"""Labels of a list that runs on within a line: ``a dog B`` of ``A. a dog B. a cat``, ``yes B:`` of ``A: yes B: no``."""
_TOKEN = re.compile(r"@|[\w']+|[^\w\s]")


def _by_letters(marked: _Marked) -> str | None:
    """The one letter that the clauses state, or that the text begins with, unless a clause states another letter."""
    clauses = _clauses(marked)
    stated = [clause for clause in clauses if clause.strength == _Strength.STATED]
    fitting = [clause for clause in clauses if clause.strength == _Strength.FITS]
    bare = [clause for clause in clauses if clause.strength == _Strength.BARE]
    if stated:
        deciding = stated
    elif bare and bare[0] is clauses[0]:
        deciding = bare
    else:
        deciding = fitting or bare
    if not deciding:
        return None
    named = frozenset[str]().union(*(clause.letters for clause in deciding))
    others = clauses[clauses.index(deciding[0]) + 1 :] if stated else clauses
    named = named.union(*(clause.letters for clause in others if clause.strength == _Strength.OPEN))
    # Several letters with something to say about each are an analysis of the options.
    labels = frozenset[str]().union(*(clause.letters for clause in bare if clause.is_label))
    is_analysis = bool(stated) and len(labels) > 1
    named = named.union(*(clause.letters for clause in bare if not (is_analysis and clause.is_label)))
    return next(iter(named)) if len(named) == 1 else None


def _clauses(marked: _Marked) -> list[_Clause]:
    """The clauses that name options, and the first clause."""
    letters = iter(marked.letters)
    text = _EQUALLY.sub(" equally ", _ALL_BUT.sub(" except ", _CERTAIN.sub(" surely ", marked.text)))
    clauses: list[_Clause] = []
    num_corrected = 0
    for line in text.split("\n"):
        is_same_line = False
        parts = [*_SENTENCE_END.split(line), ""]
        for sentence, end in zip(parts[::2], parts[1::2], strict=False):
            is_void = "?" in end or re.search(r"\bif\b", sentence) is not None
            for number, piece in enumerate(_pieces(sentence)):
                named = frozenset(next(letters) for _ in range(piece.count("@")))
                strength = _strength(piece, is_first=number == 0)
                if is_void and ("?" in end or strength > _Strength.OPEN):
                    strength = _Strength.MENTION
                if _CORRECTION.search(piece):
                    num_corrected = len(clauses)
                if named or not clauses:
                    clauses.append(_Clause(strength, named))
                elif is_same_line:
                    clauses[-1] = replace(clauses[-1], is_label=True)
                is_same_line = True
    corrected = [replace(clause, strength=_Strength.OPEN) for clause in clauses[:num_corrected]]
    return [*corrected, *clauses[num_corrected:]]


def _pieces(sentence: str) -> Iterator[str]:
    """The clauses of a sentence; a letter that labels what follows is one of its own."""
    for piece in map(str.strip, _CLAUSE_END.split(sentence)):
        label = _LABEL.match(piece)
        yield from filter(None, (piece[: label.end(1)], piece[label.end() :].strip()) if label else (piece,))


def _strength(clause: str, *, is_first: bool) -> _Strength:
    is_reason = _REASON.match(clause) is not None
    if "@" not in clause or (is_first and is_reason):
        return _Strength.MENTION
    if _DENIAL.search(clause):
        return _Strength.OPEN if _NEXT_LABEL.search(clause) else _Strength.MENTION
    if _DOUBT.search(clause):
        return _Strength.OPEN
    tokens = set(_TOKEN.findall(clause.casefold()))
    if is_reason:
        return _Strength.OPEN if tokens <= _FRAME | {"because", "since"} else _Strength.MENTION
    if tokens <= _BARE:
        return _Strength.BARE
    if tokens <= _FRAME or any(pattern.search(clause) for pattern in _STATEMENTS):
        return _Strength.STATED
    if _FITS.match(clause):
        return _Strength.FITS
    is_list = _LABEL_AT_END.search(clause) or _NEXT_LABEL.search(clause)
    return _Strength.OPEN if is_list else _Strength.MENTION


# ---- texts of options

_MAX_WORDS = 15
"""A longer sentence is not an answer."""
_NUMBER = re.compile(r"\d+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve")
_BEFORE_NUMBER = re.compile(
    r"(?:^|(?:\b(?:there (?:are|is|were|was)|see|count|is|are|shows|answer|total of)|:) ?)(?:exactly |only )?$",
    re.IGNORECASE,
)
_AFTER_TEXT = re.compile(r"(?: (?:of|in) the (?:video|clip|scene))?[ .!]*")
_REFUSAL = re.compile(r"\b(?:cannot|can't|unable|know|unclear|unsure|sure|idea|determine|tell)\b", re.IGNORECASE)


def _marked_texts(text: str, spans: Sequence[_Span]) -> _Marked:
    pieces, position = [], 0
    for span in spans:
        pieces += [text[position : span.start], "@"]
        position = span.end
    return _Marked("".join([*pieces, text[position:]]), [span.letter for span in spans])


def _by_text(marked: _Marked, menu: Menu) -> str | None:
    """The option whose text a short answer begins with, ends with, or states, if no other option's text occurs."""
    if len(set(marked.letters)) != 1 or "?" in marked.text or _REFUSAL.search(marked.text):
        return None
    letter, (before, _, after) = marked.letters[0], marked.text.partition("@")
    if not before and (not after or after[0] in ".,\n!"):  # "No, he does not"
        return letter
    if len(marked.text.split()) > _MAX_WORDS or _DENIAL.search(marked.text) or _DOUBT.search(marked.text):
        return None
    if any(clause.strength >= _Strength.BARE for clause in _clauses(marked)):
        return letter
    option = menu.texts[letter]
    if _NUMBER.fullmatch(option):  # "A dog jumps in scene 3" is no count
        is_count = _BEFORE_NUMBER.search(before) if before else len(after.split()) <= 2
        return letter if is_count else None
    return letter if _AFTER_TEXT.fullmatch(after) or (not before and " " in option) else None
