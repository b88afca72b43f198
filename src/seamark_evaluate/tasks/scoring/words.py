"""F1 of words, as SQuAD, LongBench, InfiniteBench and ZeroSCROLLS count them, and of Chinese words.

Sources: metrics.py of THUDM/LongBench, src/compute_scores.py of OpenBMB/InfiniteBench. Quirks: an answer and a
reference that are both empty after normalisation give 0, not 1; underscores and hyphens are removed without a
blank, so `well-known` is one word; `《` stays in Chinese texts.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CHINESE = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛"
    "｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
)
_CHINESE_PUNCTUATION = str.maketrans("", "", string.punctuation + _CHINESE)


def normalised(text: str) -> str:
    """Return a text in lower case without punctuation, English articles and superfluous blanks, in this order."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def normalised_chinese(text: str) -> str:
    """Return a text in lower case without English and Chinese punctuation and without any blank."""
    return "".join(text.lower().translate(_CHINESE_PUNCTUATION).split())


def f1(answer: Sequence[str], reference: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of words, each counted as often as in both. 0 without one."""
    common = sum((Counter(answer) & Counter(reference)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(answer), common / len(reference)
    return 2 * precision * recall / (precision + recall)


def qa_f1(answer: str, reference: str) -> float:
    """Return the F1 of the words of an English answer."""
    return f1(normalised(answer).split(), normalised(reference).split())


def qa_f1_ascii(answer: str, reference: str) -> float:
    """Return the F1 as ZeroSCROLLS counts it: letters lose their accents first."""
    return qa_f1(_plain(answer), _plain(reference))


def qa_f1_chinese(answer: str, reference: str) -> float:
    """Return the F1 of the words of a Chinese answer, cut by jieba (LongBench)."""
    return f1(_chinese_words(answer), _chinese_words(reference))


def qa_f1_characters(answer: str, reference: str) -> float:
    """Return the F1 of the characters of a Chinese answer (InfiniteBench)."""
    return f1(list(normalised_chinese(answer)), list(normalised_chinese(reference)))


def cut(text: str) -> list[str]:
    """Return the words of a Chinese text. Needs jieba, which reads its dictionary on first use, about a second."""
    return list(_jieba().cut(text, cut_all=False))


@cache
def _jieba() -> Any:
    import jieba  # type: ignore[import-untyped,import-not-found,unused-ignore]

    jieba.setLogLevel(60)
    return jieba


def _chinese_words(text: str) -> list[str]:
    return [word for piece in cut(text) if (word := normalised_chinese(piece))]


def _plain(text: str) -> str:
    """Letters without accents. The published scorer uses Unidecode, which also transcribes other alphabets."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
