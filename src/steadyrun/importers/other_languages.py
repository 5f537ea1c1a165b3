"""Words of other languages for epochs, losses and data, in English: in the names of series and in printed lines."""
# ruff: noqa: RUF001  (marks and letters of other scripts are what it is about)

from __future__ import annotations

import re
import unicodedata

_WITH_BLANKS = {
    "loss": "strata ztráta verlies perte pertes verlust pérdida perda perdita kayıp strata потери потеря лосс",
    "train": "entraînement entrenamiento treino treinamento addestramento eğitim обучение",
    "val": "validación validação validierung validazione doğrulama валидация",
    "epoch": "epoka epocha époque época epoche эпоха",
    "round": "rodada ronda runde",
    "step": "krok schritt paso passo шаг",
    "iteration": "iteración iteração итерация",
    "accuracy": "dokładność přesnost nauwkeurigheid acurácia exactitud genauigkeit doğruluk точность",
    "reward": "recompensa récompense belohnung награда",
}
_ACCENTED = {"précision": "accuracy", "precisión": "accuracy", "precisão": "accuracy"}  # `precision` is another measure
_WITHOUT_BLANKS = {
    "lr": "学习率 學習率 학습률 学習率",
    "total reward": "总奖励",
    "loss": "损失函数 損失函數 损失值 損失値 损失 損失 손실",
    "train": "训练集 训练 訓練 学習 훈련 학습",
    "val": "验证集 验证 驗證 検証 검증",
    "test": "测试集 测试 測試 テスト 테스트",
    "epoch": "训练轮次 轮次 轮 エポック 에폭 에포크",
    "episode": "回合",
    "step": "步数 步 ステップ",
    "iteration": "迭代",
    "accuracy": "准确率 准确度 正确率 精度 정확도",
    "reward": "奖励 報酬 보상",
    "avg": "平均 평균",
    "current": "当前 當前 現在 현재",
    "set": "集",
    "": "函数 函數 值 値",
}


def without_accents(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text.replace("\u0131", "i"))
    return "".join(part for part in parts if not unicodedata.combining(part))


def _by_word(table: dict[str, str]) -> dict[str, str]:
    return {word: english for english, words in table.items() for word in words.split()}


_CHARACTERS = _by_word(_WITHOUT_BLANKS)
_SPELLED = _by_word(_WITH_BLANKS)
_WORDS = _SPELLED | {without_accents(word): english for word, english in _SPELLED.items()} | _ACCENTED
_MARKS = str.maketrans(
    {"：": ": ", "，": ", ", "；": "; ", "（": " (", "）": ") ", "＝": "=", "【": "[", "】": "]", "｜": "|"}
)
_ORDINAL = re.compile(r"第\s?(\d{1,9})\s?(?:[个個]\s?)?(轮次|轮|回合|步|epoch|エポック)", re.I)
"""`第3轮`: the number stands in front of what it counts."""


def _any_of(words: dict[str, str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


_WORD = re.compile(r"[^\W\d_]{3,}")
_CHARACTER = re.compile(_any_of(_CHARACTERS))


def in_english(text: str) -> str:
    """A printed line or a name with the words and marks that programs print in English; other words stay."""
    if not text.isascii():
        counted = _ORDINAL.sub(r"\2 \1 ", text.translate(_MARKS))
        text = _CHARACTER.sub(_apart, counted)
    if _WORDS.keys().isdisjoint(_WORD.findall(text.lower())):
        return text
    return _WORD.sub(lambda found: _WORDS.get(found[0].lower(), found[0]), text)


def _apart(found: re.Match[str]) -> str:
    """The English word, apart from the letters around it."""
    text, start, end = found.string, found.start(), found.end()
    before, after = start and text[start - 1].isalpha(), end < len(text) and text[end].isalpha()
    return f"{' ' * bool(before)}{_CHARACTERS[found[0]]}{' ' * bool(after)}"
