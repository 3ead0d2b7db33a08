"""The words that may stand beside a choice, by what they do to it. All lower case, apostrophes straight."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Whoever says nothing but these and a choice, states it.
_NAMES_OF_AN_ANSWER = _words(
    "answer answer's ans response solution prediction selection conclusion guess verdict decision pick"
)
_VERBS_OF_CHOOSING = _words(
    "consistent making supports support supported favours favors speaks leads lead leaving conclude concluded infer "
    "deduce mark tick reckon decided decide choose chose choosing chosen select selected selecting picked picking go "
    "going opt guess think believe say conclude leaves leaving stick settle vote corresponds correspond matches "
    "match points makes"
)
PREDICATES = _words(
    "sense supported supports correct right best true accurate appropriate suitable plausible probable likely "
    "answer fits fit matches describes corresponds winner solution works remains remain applies holds gets "
    "fine good acceptable valid reasonable "
    "happens happened"
)
COPULAS = _words("is be it's its that's this's it'd answer's :")
HEADS = _NAMES_OF_AN_ANSWER | _VERBS_OF_CHOOSING | PREDICATES | COPULAS - {":"}
"""A clause with one of them states its choice; with none, as in ``So B``, it just names it."""

DESCRIBING = _words("fits fit matches match describes corresponds works happens happened supported applies holds")
"""With an object of its own, as in ``C describes what the child does``, it says what an option is about."""
SUBJECTS = PREDICATES | _words("option choice what")
"""What a letter at the beginning of a sentence is said to be."""
NAMED = _NAMES_OF_AN_ANSWER | _words("option choice one statement sequence description")
"""What a sentence with other words in it must speak of, for ``... is B`` at its end to be an answer."""
DECISIONS = _VERBS_OF_CHOOSING - _words("think believe say match matches makes points go going") | _words("go")

FRAME = (
    HEADS
    | NAMED
    | COPULAS
    | _words("letter")
    | _words(
        "the a an only left why up end i.e. namely everything most more very final clear only simply just indeed "
        "closest fitting logical accurately correctly exactly precisely perfectly "
        "definitely certainly surely clearly obviously probably presumably apparently evidently here now okay ok "
        "yes sure well alright great let let's lets us i i'd i'll i'm im id ive i've am we we'd we'll you me my our "
        "your it this that these those which what one so then and but hence thus therefore consequently accordingly "
        "finally overall ultimately also too would will should must shall has have to do can with for of on in at "
        "by from among amongst all given above below provided listed available four five three two options choices "
        "question video clip footage frames evidence conclusion summary short based according as being itself seems "
        "seem looks appears appear turns sounds confident certain pretty quite fairly option choice statement "
        "sequence letter labeled labelled marked number follows following shown information content scene answers "
        "see means mean know like them tl dr tldr elimination process opinion view mind list"
    )
)
FINAL = _words("final")

# Whoever says one of these about a choice, does not state it.
_DENIALS = _words(
    "not nobody never no neither nor none nothing wrong incorrect false untrue inaccurate unlikely impossible "
    "implausible doubt doubtful cannot cant dont isnt rule rules ruled exclude excludes excluded excluding "
    "eliminate eliminates eliminated reject rejects rejected discard dismiss except besides without mistaken "
    "invalid unless if whether were had least hardly barely different worse worst fails tempting tempted argue "
    "glance contradicts contradict"
)
_DOUBTS = _words(
    "could might may maybe perhaps possibly possible either between torn unsure alternatively potentially both equally"
)
EXCLUDERS = _words("not never neither nor than except besides excluding without no 而不是 而非")
"""Right before a choice they take it out of the sentence: ``B, not C``, ``B rather than C``."""
EXCLUDED_AFTER = {
    ("instead", "of"),
    ("rather", "than"),
    ("other", "than"),
    ("all", "but"),
    ("option", "but"),
    ("choice", "but"),
    ("anything", "but"),
    ("everything", "but"),
}
REASONS = _words("because since as due seeing considering")
CONCESSIONS = _words("while whereas although though")
"""What follows one of them is granted, not stated."""
CONCLUSIONS = _words("so therefore thus hence")
CONNECTIVES = CONCLUSIONS | _words("but however while whereas although though which and yet")
OR = _words("or 或 或者 또는 혹은 または もしくは")
JOINTS = OR | _words("and nor to through with versus vs perhaps possibly maybe even also then option 和 와 과 か と")
"""Letters with nothing but these and commas between them are a list."""
LABELLED_THINGS = _words(
    "vitamin vitamins plan grade type group team hepatitis section part figure class level room gate building "
    "player speaker person point step scene camera phase stage line row column track exit platform zone block frame "
    "second seconds minute minutes around at"
)
"""A letter after them names no option, and a number is no count: ``vitamin C``, ``at 5``."""
PREPOSITIONS = _words("in at by from to as like unlike with of within under about behind")
"""A letter after one of them names where something is seen: ``in A``, ``as in option D``."""
FIRST_PERSON = _words("i i'd we we'd my our")
REVISIONS = _words("wait actually correction scratch")
"""After one of them what was said before no longer counts."""
WRONG, RIGHT = _words("wrong incorrect false no"), _words("correct right true yes")
_NEGATIONS = WRONG | _words("not never cannot")
_ELSE = _words("else other others another")
"""Whoever denies one of them states the option: ``nothing else fits``."""

ABOUT_A_CHOICE = (
    REASONS
    | CONNECTIVES
    | OR
    | EXCLUDERS
    | _words(
        "is are was isn't aren't seems looks appears fits matches describes would should must can cannot can't "
        "could does doesn't will won't has might may instead rather over given if also then best to through with "
        "versus vs"
    )
)
"""What may follow a letter that a sentence is about."""
AFTER_A = ABOUT_A_CHOICE | _words(
    "option the i it this that maybe perhaps probably answer final at in on for by from of as here there too again "
    "remains holds applies gets shows wins has had did and but talks says mentions"
)
"""A capital A before any other word is an article."""

# The same for scripts without spaces: what a run of characters may consist of beside a choice.
_CJK_HEADS = (
    "答案|答|正确|最佳|选择|选|正解|正しい|正しく|答え|回答|解答|選択|選び|選ぶ|정답|답변|답|선택|고르|고릅|맞습|맞다|맞아요|옳습|"
    "적절|対応|符合|我认为|我觉得|思い|考え|생각"
)
_CJK_FILLERS = (
    "选项|最终|最后|最合适|最恰当|最|合适|恰当|题意|根据|视频|内容|描述|综上所述|综上|总之|因此|所以|因而|由此可知|由此可见|可知|"
    "可见|可以|确定|本题|此题|这道题|题|应该|应当|应|该|我|你|会|想|是|为|的|对|了|即|就|也|都|项|很|明显|显然|当然|肯定|一定|"
    "中|来看|看|从|我们|只有|唯有|综合|故|那么|则|"
    "選択肢|です|だ|である|ます|ました|でしょう|は|が|を|の|と|ため|私|したがって|従って|よって|ゆえに|だから|それで|そのため|最終的な|最終的に|"
    "最終|最も|適切な|当てはまる|もの|映像|動画|に|より|から|する|します|なり|なる|一番|適切|番|"
    "입니다|이에요|예요|이다|이라고|라고|이며|은|는|이|가|을|를|번|옵션|선택지|보기|합니다|하겠습니다|겠습니다|습니다|니다|하다|최종|저는|제가|제|선택한|한|"
    "에는|에서|따라서|그러므로|그래서|영상|비디오|것|같|으로|로|정확한|올바른|가장|적절한|바로|됩|이므로"
)
_CJK_PIECES = "|".join(sorted(f"{_CJK_HEADS}|{_CJK_FILLERS}".split("|"), key=len, reverse=True))
_CJK_FRAME = re.compile(f"(?:{_CJK_PIECES})*+")  # possessive: there are too many ways of cutting a long run in pieces
_CJK_HEAD = re.compile(_CJK_HEADS + "|是|です|입니다|对")
_CJK_DENIAL = re.compile("不|没|错|非|无|未|排除|ない|ません|間違|違|아니|아닙|틀|없|모르|않|如果|만약|もし|吗|か$")
_CJK_DOUBT = re.compile("可能|也许|或|还是|かも|または|もしくは|또는|혹은|아마")
_CJK_TAIL = re.compile(
    f"(?:答案|选项|正解|答え|回答|正答|選択肢|정답|답)(?:{_CJK_PIECES})*+$|选择?$|(?:므로|니까|ので|から|ため|所以|因此|故)$"
)
_CJK_TAIL_CHARACTERS = 40
"""As much of a long run is searched for where its tail may begin."""
_CJK_FINAL = re.compile("最终|最終|최종")
_CJK_REASON = re.compile("因为|由于|なぜなら|왜냐하면")


COUNTING = _words("there are were see saw count counted exactly total contains")
"""Before a number they say that it is how many there are."""
_NUMBERS = _words("zero one two three four five six seven eight nine ten eleven twelve")
KNOWING = _words("tell determine know sure see idea answer say decide judge")
"""Whoever denies one of them refuses to answer."""


def _any_script(listed: frozenset[str], find: Callable[[str], object]) -> Callable[[str], bool]:
    """A test of words: whether one is listed, or `find` matches a run of characters that is written without spaces."""
    return lambda word: word in listed or (not word.isascii() and bool(find(word)))


is_frame = _any_script(FRAME, _CJK_FRAME.fullmatch)
"""Whether a word, or a run of characters, says nothing but that a choice is made."""
is_head = _any_script(HEADS, _CJK_HEAD.search)
"""Whether it says that an answer is given."""
is_final = _any_script(FINAL, _CJK_FINAL.search)
"""Whether it says that an answer is the last."""
is_reason = _any_script(REASONS, _CJK_REASON.match)
"""Whether a reason begins with it."""
doubts = _any_script(_DOUBTS, _CJK_DOUBT.search)
"""Whether it leaves a choice open."""


def is_number(word: str) -> bool:
    """Whether it is a number, in digits or as a word."""
    return word in _NUMBERS or word[:1].isdecimal()


def leads_to_choice(word: str) -> bool:
    """Whether a run of characters ends in what a choice follows, whatever comes before."""
    return not word.isascii() and bool(_CJK_TAIL.search(word[-_CJK_TAIL_CHARACTERS:]))


def denies(word: str) -> bool:
    """Whether it takes back or questions what a sentence says."""
    return word in _DENIALS or word.endswith("n't") or (not word.isascii() and bool(_CJK_DENIAL.search(word)))


def rules_out(spoken: Sequence[str]) -> bool:
    """Whether what is said of an option denies it, and just once: ``this is not shown``."""
    denials = [word for word in spoken if denies(word)]
    is_plain = len(denials) == 1 and (denials[0] in _NEGATIONS or denials[0].endswith("n't"))
    return is_plain and (KNOWING | _ELSE).isdisjoint(spoken)
