"""What words say about two captions: single answers such as "2" or "neither", and verdicts in running text.

Knows English, German, French, Spanish, Italian, Portuguese, Chinese and Japanese, each by a few plain turns of
phrase. What is denied, asked, supposed or reported is no verdict. Takes text as `laurel.feedback.parsing` plains it:
in lower case, with single spaces. All patterns are of bounded length, so that time grows with the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Answer = Literal["first", "second", "tie", "abstain"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer that running text gives."""

    answer: Answer
    final: bool
    """Whether its sentence says that it concludes, e.g. by "therefore"."""


_NOUN = (
    r"(?:captions?|descriptions?|messages?|options?|texts?|choice|answer|statement|sentence|report|step|number|"
    r"beschreibung|nachricht|meldung|aussage|legende|légende|texte|descripción|descripcion|mensaje|texto|opción|"
    r"opcion|"
    r"didascalia|descrizione|testo|opzione|messaggio|legenda|descrição|mensagem|opção)"
)
_ARTICLE = r"(?:the |die |der |das |la |le |l'|el |il |a |o )?"
_FIRST = (
    r"(?:first|former|1st|erste|erstere|première|premiere|premier|primera|primero|primer|prima|primo|primeira|"
    r"primeiro)"
)
_SECOND = r"(?:second|latter|2nd|zweite|letztere|deuxième|deuxieme|seconde|segunda|segundo|seconda|secondo)"
_NUMBERED = rf"{_NOUN} ?(?:number |no\. ?|nr\. ?|n° ?)?[#(\[\"']?(?P<number>[12])(?![\w]|[.,/]\d)[)\]\"']?"
_ORDINAL = rf"(?:(?P<first>{_FIRST})|(?P<second>{_SECOND}))\b(?: one\b| {_NOUN}\b)?"
_SUBJECT = rf"\b{_ARTICLE}(?:{_NUMBERED}|{_ORDINAL})"
_OBJECT = (
    rf"(?:{_ARTICLE}(?:{_NUMBERED}|{_ORDINAL})|[#(\[\"']?(?P<bare>[12])(?![\w]|[.,/]\d)[)\]\"']?)"
    r"(?= ?(?:[.,;:!)\]}\"']|$)| (?:because|since|as|than|over|to|for|by|here|with|due|-|–|\(|da|weil|parce|car|"
    r"porque|perché))"
    r"(?! ?,? ?(?:(?:or|and|oder|und|ou|et|o|y|e)\b|/|\|))"
)
_IS = (
    r"(?:'s|is|seems|appears|looks|would be|seems to be|appears to be|ist|wäre|scheint|est|semble|serait|es|parece|"
    r"sería|è|é|seria)"
)
_FILL = (
    r"(?:(?:the|a|an|one|clearly|obviously|definitely|certainly|much|far|slightly|somewhat|marginally|significantly|"
    r"considerably|overall|generally|probably|likely|still|therefore|thus|also|by|more|way|lot|bit|little|even|indeed|"
    r"clear|die|der|das|deutlich|eindeutig|klar|viel|etwas|wohl|daher|insgesamt|am|la|le|el|il|clairement|nettement|"
    r"bien|beaucoup|donc|légèrement|claramente|mucho|definitivamente|ligeramente|sin duda|muito|chiaramente|"
    r"molto|a) ){0,4}"
)
_BETTER = (
    r"(?:better|best|preferable|preferred|superior|stronger|closer to|nearer to|the winner|more (?:promising|useful|"
    r"valuable|helpful|desirable|favou?rable|relevant|informative|productive)|besser|bessere|beste|besten|vorzuziehen|"
    r"überlegen|hilfreicher|nützlicher|meilleure?|mieux|préférable|supérieure?|mejor|preferible|migliore|meglio|"
    r"preferibile|melhor|preferível)\b(?! (?:understood|known|described|explained|suited)\b)"
)
_WORSE = r"(?:worse|worst|inferior|schlechter|schlechtere|schlechteste|pire|peor|peggiore|peggio|pior)\b"
_SHOWS = r"(?:describes|shows|represents|reflects|indicates|makes|suggests|contains|beschreibt|décrit|describe)"
_CHOOSE = (
    r"\b(?:(?:i|we)(?:'d| would| will|'ll| have to| must)? (?:rather )?(?:choose|chose|pick|select|prefer|"
    r"favou?r|go with|"
    r"vote for|opt for)|(?:ich )?(?:wähle|bevorzuge|nehme)|ich entscheide mich für|je (?:choisis|préfère|choisirais)|"
    r"(?:elijo|prefiero|escojo|elegiría|scelgo|preferisco|escolho|prefiro))"
)
_NAME = (
    r"\b(?:answer|choice|verdict|preference|winner|selection|decision|pick|antwort|wahl|entscheidung|réponse|choix|"
    rf"respuesta|elección|risposta|scelta|resposta|escolha|(?:better|best|preferred|superior|bessere|beste|"
    rf"meilleure|mejor) "
    rf"(?:{_NOUN}|one|of the two))"
)
_EASTERN = (
    r"(?:第(?P<a>[一二12])|(?P<b>[一二12])(?:番目|つ目|つめ)|(?:描述|说明|文本|选项|消息|字幕|標題|标题|選項|"
    r"說明|説明|文|キャプション|テキスト|選択肢|記述) ?(?P<c>[一二12]))"
)
_THING = (
    r"(?:个|個|条|條|句|段|项|項|种|則|则)?の?(?:描述|说明|文本|选项|消息|字幕|說明|選項|説明|文|キャプション|"
    r"テキスト|選択肢|方|ほう)?"
)

_VERDICTS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_SUBJECT} ?{_IS} {_FILL}(?:{_BETTER}|(?P<worse>{_WORSE}))",
        rf"^ ?(?P<bare>[12]) {_IS} {_FILL}(?:{_BETTER}|(?P<worse>{_WORSE}))",
        rf"{_SUBJECT} (?:wins|gewinnt|gagne|gana)\b",
        rf"{_SUBJECT} {_SHOWS} {_FILL}(?:better|best|more progress|greater progress|(?P<worse>{_WORSE}))",
        rf"{_CHOOSE} {_OBJECT}",
        rf"{_NAME}[\"']? ?(?:is|would be|ist|est|es|è|é|=|:|->|→)[: ]{{0,2}}{_FILL}{_OBJECT}",
        rf"{_EASTERN}{_THING}(?:の方|のほう)?(?:が|は)?"
        r"(?:是|明显|显然|的|还是|似乎|应该){0,2}(?:比[^,。!?\n]{1,20}?)?"
        r"(?:明显|要|より|明らかに|最も|もっと|やや|ずっと){0,2}"
        r"(?:更好|更优|较好|更佳|最好|更接近|更有帮助|更可取|更優|較好|良い|よい|いい|優れて|望ましい|好ましい|"
        r"(?P<worse>更差|较差|悪い))"
        r"(?!とは|わけ|か|なら|吗|嗎)",
        r"(?:选择|選擇|我选|我選|答案是|答案为|答案:|更好的是|较好的是|答え[はが:]|回答[はが:]|正解は) ?(?:第|"
        r"描述|选项|説明|说明)?(?P<a>[一二12])"
        r"(?![\w]*?(?:或|和|与|か|と)|[.,、/]?\d)",
        r"(?P<a>[12一二])(?:番目?)?(?:の(?:説明|文|方|ほう))?を(?:選|えら)",
    )
)
_TIES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\bneither (?:of (?:them|the two|these) |(?:one|caption|description|text|message) )?(?:is|are|seems) "
        r"(?:clearly |any |the |really )?(?:better|best|preferable|superior)",
        r"\bneither (?:of (?:them|the two|these) )?(?:describes|shows|makes) (?:a |any |more |the )?(?:better|"
        r"progress)",
        rf"\b(?:both|they|the two)(?: {_NOUN})? (?:are|seem) (?:about |both |exactly |roughly )?"
        r"(?:equal|equally|equivalent|identical|the same|tied)\b",
        r"\b(?:it is|it's|this is|that is|call it|result is|as|ends in|is) an? (?:tie|draw)\b",
        r"\bthere is no (?:clear |real |meaningful )?(?:difference|winner|better)|\bi have no preference|"
        r"\bno (?:clear )?preference\b",
        r"\bbeide(?: \w+)? sind (?:gleich|gleichwertig|identisch)|\bkeine[rs]? (?:von beiden|"
        r"der beiden) (?:\w+ )?ist besser|"
        r"\bes gibt keinen unterschied",
        r"\bles deux(?: \w+)? (?:se valent|sont (?:équivalent|équivalentes|équivalents|égales|égaux|identiques))|"
        r"\baucune? des deux n'est meilleure?",
        r"\b(?:ambas?|ambos|las dos|los dos)(?: \w+)? son (?:iguales|equivalentes|idénticas|idénticos|igual)|"
        r"\bninguna? (?:de las dos |de ellas )?es mejor",
        r"(?:两个|两者|两条|二者|兩者|兩個)(?:描述|说明)?(?:都|是)?(?:一样|一樣|相同|同样好|没有区别)",
        r"(?:どちらも|両方とも|二つは)(?:同じ|同等|変わらない|変わりません|等しい)|差はない|差はありません",
    )
)
_UNSURE = re.compile(
    r"\b(?:not|no|never|cannot|neither|nor|hardly|less|without|doubt|might|may|could|argu\w*|one would|some would|"
    r"at first (?:glance|sight)|wrong|false|incorrect|untrue|nothing|"
    r"which|what|claims?|says?|said|asks?|told|tells|instructs?|pretends?|nicht|kein\w{0,2}|"
    r"weder|welche\w?|pas|aucune?|jamais|quelle?|ni|nunca|ningun\w?|ninguna|cuál|non|não|qual|quale)\b|n't|不|"
    r"没|哪|并非|どちらが"
)
"""What, before the end of a verdict in the same clause, takes it back or makes it another's."""
_SUPPOSED = re.compile(
    r"\b(?:if|unless|whether|depend(?:s|ing)?|suppos\w{1,4}|assuming|hypothetically|wenn|falls|ob|sofern|si|caso)\b|"
    r"如果|假如|是否|もし|かどうか|なら|れば"
)
_FINAL = re.compile(
    r"\b(?:final|finally|in conclusion|conclusion|overall|therefore|thus|hence|to sum up|all in all|in the end|"
    r"ultimately|verdict|insgesamt|daher|fazit|letztlich|donc|finalement|por lo tanto|en conclusión|finalmente)\b|"
    r"综上|因此|所以|最终|总的来说|結論|したがって|よって"
)
_SENTENCE = re.compile(r"\n|(?<=[.!?])\s|(?<=。)")
_CLAUSE = re.compile(
    r"[,;、]| - | – | — |\b(?:but|however|although|though|while|whereas|yet|aber|jedoch|während|mais|alors que|pero|"
    r"mientras|ma|mas)\b|但是|但|不过|而|しかし"
)
_ALTERNATIVE = re.compile(
    r"(?:\b(?:or|nor|and|oder|und|noch|ou|et|o|y|e)|或|或者|和)(?: (?:the|die|der|das|la|le|el))?$"
)

_REFUSALS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\bi(?: am|'m)? (?:cannot|can not|can't|won't|will not|unable to|not able to|refuse to|decline to|"
        r"must decline)"
        r"(?: \w+ly)? (?:help|assist|answer|decide|determine|judge|choose|tell|provide|comply|fulfil|say|give|"
        r"make|compare|"
        r"evaluate|engage|continue|do this|do that|pick|rate|respond|in good conscience)",
        r"\bas an? (?:ai\b|artificial|(?:large )?language model).{0,80}?(?:cannot|can't|do not|don't|not able|"
        r"unable|no )",
        r"\bi(?:'m| am) sorry,? but (?:i |this |that |as )|\bi apologi[sz]e,? but ",
        r"\b(?:not enough|insufficient) (?:information|context)",
        r"\b(?:ich kann (?:das|diese|dies|hier)?\s?(?:\w+ )?nicht|als ki\b|als sprachmodell)",
        r"\b(?:je ne peux pas|je suis désolée?,? mais|en tant qu'ia)|\b(?:no puedo|lo siento,? pero|como ia\b)",
        r"我无法|我不能|無法回答|作为(?:一个|一名)?(?:ai|人工智能|语言模型)|お答えできません|判断できません|aiとして",
    )
)
LONGEST_REFUSAL = 1000
"""Characters; who writes more has not refused."""

_WORDS: dict[str, Answer] = {
    **dict.fromkeys(("1", "1.0", "one", "1番目", "一番目", "第一个", "第一個", "第一条"), "first"),
    **dict.fromkeys(("2", "2.0", "two", "2番目", "二番目", "第二个", "第二個", "第二条"), "second"),
    **dict.fromkeys(
        (  # noqa: SIM905 - a line a word would be many
            "0, tie, tied, a tie, it's a tie, it is a tie, draw, a draw, both, neither, neither one, none, "
            "none of them, null, nil, equal, equally good, same, the same, either, no preference, no "
            "difference, both equally, both are equal, they are equal, beide, beide gleich, gleich, keine, "
            "keiner, keines, keine von beiden, keiner von beiden, weder noch, unentschieden, aucune, aucun, "
            "aucune des deux, aucun des deux, les deux, égalité, ninguna, ninguno, ninguna de las dos, "
            "ambas, ambos, empate, nessuna, nessuno, entrambe, nenhuma, "
            "一样, 都一样, 两者相同, 同じ, どちらも同じ, 引き分け"
        ).split(", "),
        "tie",
    ),
    **dict.fromkeys(("abstain", "i abstain", "refuse", "i refuse", "no comment"), "abstain"),
}
_ALONE = re.compile(rf"{_ARTICLE}(?:{_NUMBERED}|{_ORDINAL})")
_LABEL = re.compile(
    r"(?:(?:my|the|your) )?(?:final )?(?:answer|choice|verdict|antwort|réponse|respuesta|答案|回答|答え) ?(?:is|"
    r"ist|est|es|是|は)? ?:? ?"
)
_LEFT, _RIGHT = " \"'([{<#:$=>", " \"')]}>.!:;,$\ufe0f\u20e3。"


def alone(text: str) -> Answer | None:
    """Return what a text says that is an answer and nothing else, e.g. "2.", "the second" or "neither"."""
    if len(text) > 80:
        return None
    bare = text.replace("_", " ").strip().lstrip(_LEFT).rstrip(_RIGHT)
    label = _LABEL.match(bare)
    if label is not None:
        bare = bare[label.end() :].lstrip(_LEFT)
    if bare in _WORDS:
        return _WORDS[bare]
    named = _ALONE.fullmatch(bare)
    return _side(named) if named else None


def verdicts(text: str) -> Iterator[Verdict]:
    """Yield what running text decides, in order; sentences that ask or suppose decide nothing."""
    for sentence in _SENTENCE.split(text):
        if sentence.rstrip(" \"')").endswith("?") or _SUPPOSED.search(sentence):
            continue
        final = _FINAL.search(sentence) is not None
        for clause in _CLAUSE.split(sentence):
            unsure = _UNSURE.search(clause)
            certain = unsure.start() if unsure else len(clause)
            for pattern in _VERDICTS:
                for found in pattern.finditer(clause):
                    alternative = _ALTERNATIVE.search(clause[max(0, found.start() - 20) : found.start()].rstrip())
                    if found.end() <= certain and not alternative:
                        yield Verdict(_side(found), final)
            for pattern in _TIES:
                for found in pattern.finditer(clause):
                    if found.start() <= certain:  # its own words may deny
                        yield Verdict("tie", final)


def refuses(text: str) -> bool:
    """Say whether a text declines to answer."""
    return len(text) <= LONGEST_REFUSAL and any(pattern.search(text) for pattern in _REFUSALS)


def _side(found: re.Match[str]) -> Answer:
    """Read which caption a match names, the other where it is called the worse one."""
    groups = {name for name, value in found.groupdict().items() if value}
    digits = {found[name] for name in groups & {"number", "bare", "a", "b", "c"}}
    first = "first" in groups or bool(digits & {"1", "一"})
    return "first" if first != ("worse" in groups) else "second"
