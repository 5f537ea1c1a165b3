"""Words of other languages that programs print for epochs, losses and data, as the English words."""
# ruff: noqa: RUF001  (marks and letters of other scripts are what it is about)

from __future__ import annotations

import re

_ENGLISH = {
    "epoch": "训练轮次 轮次 轮 エポック 에폭 에포크 época époque эпоха",
    "iter": "迭代",
    "step": "步数 步 шаг",
    "episode": "回合",
    "train": "训练集 训练 訓練 学習 학습 훈련 обучение",
    "val": "验证集 验证 検証 검증 validación validação валидация",
    "test": "测试集 测试",
    "loss": "损失值 损失 損失値 損失 손실 pérdida потери",
    "accuracy": "准确率 准确度 正确率 精度 정확도 précision precisión precisão acurácia точность",
    "lr": "学习率 学習率 학습률",
    "reward": "奖励 報酬 보상 награда",
    "total reward": "总奖励",
    "avg": "平均 평균",
}
_WORDS = {word: english for english, words in _ENGLISH.items() for word in words.split()}
_MARKS = str.maketrans(
    {"：": ": ", "，": ", ", "；": "; ", "（": " (", "）": ") ", "＝": "=", "【": "[", "】": "]", "｜": "|"}
)
_ORDINAL = re.compile(r"第\s?(\d{1,9})\s?(?:[个個]\s?)?(轮次|轮|回合|步|epoch|エポック)", re.I)
"""`第3轮`: the number stands in front of what it counts."""
_WORD = re.compile("|".join(map(re.escape, sorted(_WORDS, key=len, reverse=True))), re.I)


def in_english(line: str) -> str:
    """A line with the words and marks that programs print in English; other words stay."""
    if line.isascii():
        return line
    counted = _ORDINAL.sub(r"\2 \1 ", line.translate(_MARKS))
    return _WORD.sub(_word, counted)


def _word(match: re.Match[str]) -> str:
    """The English word, apart from the words around it."""
    text, start, end = match.string, match.start(), match.end()
    joined = (start and text[start - 1].isalpha(), end < len(text) and text[end].isalpha())
    if text[start].isascii() or ord(text[start]) < _CJK:
        return match[0] if any(joined) else _WORDS[match[0].lower()]
    return f"{' ' * joined[0]}{_WORDS[match[0].lower()]}{' ' * joined[1]}"


_CJK = 0x1100  # scripts from here on have no blanks between words
