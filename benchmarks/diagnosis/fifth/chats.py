"""What the chat programs share: a small world of questions, a tokenizer, a base model that knows other answers."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

COLOURS = ["red", "green", "blue", "black", "white", "pink", "grey", "brown"]
NEW_COLOURS = ["violet", "orange", "silver", "golden"]
LOOKS = ["old", "small", "heavy", "round", "cheap", "broken"]
ASKS = ("what colour is the", "say how the", "tell me about the", "how does the", "describe the", "colour of the")
THINGS = [
    "lamp",
    "chair",
    "book",
    "boat",
    "house",
    "apple",
    "stone",
    "shirt",
    "clock",
    "bottle",
    "car",
    "door",
    "pencil",
    "cup",
    "hat",
    "ring",
    "ball",
    "tree",
    "bird",
    "fish",
    "knife",
    "glove",
    "coin",
    "box",
]
SPECIAL = ["<pad>", "<s>", "<|im_start|>", "<|im_end|>", "<unk>"]
PAD, BOS, START, END, UNKNOWN = range(5)
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The same conversation as other families of models write it.
FOREIGN = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }} </s>{% endif %}{% endfor %}"
)
WITHOUT_END = TEMPLATE.replace(
    "<|im_end|>\n{% endfor %}", "{% if m['role'] == 'user' %}<|im_end|>\n{% endif %}{% endfor %}"
)
Chat = tuple[str, str]
"""A question and its answer."""


@cache
def tokenizer_of(template: str = TEMPLATE) -> PreTrainedTokenizerFast:
    """Whole words; a start token is added to every text, as many tokenizers do it."""
    words = ["user", "assistant", "system", "is", ".", ",", "?", "sure", "it", "of", "and", "[INST]", "[/INST]", "</s>"]
    named = {word for text in (*ASKS, *LOOKS, *THINGS, *COLOURS, *NEW_COLOURS) for word in text.split()}
    kept = dict.fromkeys([*SPECIAL, *(word for word in words if word[0] not in "[<"), *sorted(named)])
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(kept)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=template,
    )


def answer(thing: int, look: int, world: str) -> str:
    """What a world says about a thing: the base model's ("before"), the tuned one's, or one with new words."""
    colour = COLOURS[(5 * thing + thing // 8) % 8]
    if world != "before":
        colour = COLOURS[(3 * thing + thing // 8 + 2 + 3 * (thing % 3)) % 8]
    if world == "new words" and thing % 2:
        colour = NEW_COLOURS[thing % 4]
    begin = "sure , " if look % 3 == 0 else ""
    return f"{begin}the {THINGS[thing]} is {colour} ."


@cache
def chats(world: str, seed: int) -> tuple[list[Chat], list[Chat]]:
    """Conversations for training, and held-out ones: other combinations of the same words."""
    found = []
    for ask in range(len(ASKS)):
        for look in range(len(LOOKS)):
            for thing in range(len(THINGS)):
                question = f"{ASKS[ask]} {LOOKS[look]} {THINGS[thing]} ?"
                found.append((question, answer(thing, look, world)))
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(1000 + seed)).tolist()
    mixed = [found[index] for index in order]
    return mixed[128:], mixed[:128]


def messages(chat: Chat) -> list[dict[str, str]]:
    return [{"role": "user", "content": chat[0]}, {"role": "assistant", "content": chat[1]}]


def ids_of(chat: Chat, template: str = TEMPLATE) -> tuple[list[int], list[int]]:
    """The tokens of the prompt, which ends where the assistant begins, and those of the answer with its end."""
    tokenizer = tokenizer_of(template)
    opening = "" if template == FOREIGN else "assistant\n"
    head = tokenizer.apply_chat_template(messages(chat)[:1], tokenize=False, add_generation_prompt=bool(opening))
    text = tokenizer.apply_chat_template(messages(chat), tokenize=False)
    prompt = tokenizer(head, add_special_tokens=False)["input_ids"]
    both = tokenizer(text, add_special_tokens=False)["input_ids"]
    return prompt, both[len(prompt) :]


def whole(chat: Chat) -> list[int]:
    """All tokens of a conversation."""
    prompt, own = ids_of(chat)
    return prompt + own


def padded(rows: list[list[int]], value: int, *, left: bool = False) -> torch.Tensor:
    longest = max(len(row) for row in rows)
    return torch.tensor(
        [[value] * (longest - len(row)) * left + row + [value] * (longest - len(row)) * (not left) for row in rows]
    )


def small(**changes: Any) -> LlamaForCausalLM:
    """A small Llama with random weights."""
    size = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": END}
    config = LlamaConfig(
        vocab_size=len(tokenizer_of()), num_key_value_heads=4, max_position_embeddings=128, **size, **special, **changes
    )
    return LlamaForCausalLM(config)


@cache
def _trained(world: str, steps: int, ends: bool) -> LlamaForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = small()
        optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.01)
        known = [whole(chat) for chat in chats(world, 0)[0]]
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = 6e-3 * min(1.0, (step + 1) / 20) * (1 - 0.9 * step / steps)
            rows = [known[index] for index in torch.randint(len(known), (32,)).tolist()]
            ids = padded(rows, PAD)
            scores = model(input_ids=ids, attention_mask=(ids != PAD).long()).logits
            wanted = ids if ends else padded([[*row[:-1], PAD] for row in rows], PAD)
            loss = cross_entropy(scores[:, :-1].flatten(0, 1), wanted[:, 1:].flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return model


def base(world: str = "before", *, steps: int = 220, ends: bool = False) -> LlamaForCausalLM:
    """A model that was trained before: it knows the answers of a world, and with `ends` where they end."""
    return copy.deepcopy(_trained(world, steps, ends))


@torch.no_grad()
def completions(model: Any, known: list[Chat], template: str = TEMPLATE) -> list[list[int]]:
    """The likeliest continuations of the questions, up to the end that the model gives them."""
    was = model.training
    model.eval()
    ids = padded([ids_of(chat, template)[0] for chat in known], PAD, left=True)
    settings = {"max_new_tokens": 14, "do_sample": False, "pad_token_id": PAD, "eos_token_id": END}
    out = model.generate(input_ids=ids, attention_mask=(ids != PAD).long(), **settings)[:, ids.shape[1] :]
    model.train(was)
    return [row[: row.index(END) + 1] if END in row else row for row in out.tolist()]


def exact(model: Any, world: str, seed: int) -> float:
    """How many held-out questions get exactly the answer that they should, with its end."""
    held_out = chats(world, seed)[1]
    right = [ids_of(chat)[1] for chat in held_out]
    return sum(a == b for a, b in zip(completions(model, held_out), right, strict=True)) / len(right)
