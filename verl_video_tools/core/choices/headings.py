"""Statements of an answer in other European languages, Arabic, Indonesian, Turkish and Vietnamese, as English ones.

Only what stands right before a letter or an option's text is read, so that a denial (``no es B``) states nothing.
Chinese, Japanese and Korean are read word by word (`words`).
"""

from __future__ import annotations

import re

_NOUNS = (
    "respuesta|resposta|réponse|risposta|antwort|antwoord|odpowiedź|svaret|\u043e\u0442\u0432\u0435\u0442|"
    "jawaban|jawabannya|cevap|yan\u0131t|đáp án|câu trả lời|الإجابة|الجواب|"
    "opción correcta|opção correta|alternativa correta|opzione corretta|option correcte"
)
_RIGHT = (
    "correct[ao]?|corret[ao]|corrett[ao]|correcte|bonne|richtige|korrekte|juiste|prawidłowa|final|finale|finalen?|"
    "\u043f\u0440\u0430\u0432\u0438\u043b\u044c\u043d\u044b\u0439|\u0432\u0435\u0440\u043d\u044b\u0439|"
    "yang|benar|tepat|doğru|đúng|chính xác|الصحيحة|الصحيح"
)
_IS = "es|est|ist|lautet|é|è|is|to|är|adalah|ialah|là|هي|هو|\u044d\u0442\u043e"
_ARTICLES = (
    "la|le|les|el|die|de|het|das|der|a|o|as|os|opción|opção|opzione|option|\u0432\u0430\u0440\u0438\u0430\u043d\u0442"
)
_STATEMENT = re.compile(
    rf"(?<![^\W_])(?:(?:{_ARTICLES}) )?(?:(?:{_RIGHT}) ){{0,3}}(?:{_NOUNS})(?: (?:{_RIGHT})){{0,3}}(?![^\W_])"
    rf"(?: (?:{_IS})(?![^\W_]))? ?[:\u2014\u2013-]?(?: (?:{_ARTICLES})(?![^\W_])){{0,2}}"
    r"(?=\s{0,2}(?:\(?(?-i:[A-Z])(?![^\W_])|[\ue000-\uf8ff]))",
    re.IGNORECASE,
)


def in_english(text: str) -> str:
    """`text` with "the answer is" in place of what says so in another language before a letter or a masked option."""
    return _STATEMENT.sub(" the answer is ", text)
