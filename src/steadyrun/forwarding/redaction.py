"""Addresses of alerts are secrets: neither what a run keeps of its program nor what is printed may hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from steadyrun.forwarding.tracker_names import plain

_SHORTEST = 6  # characters: less is no secret, and may be part of anything


class Hidden:
    """Takes the addresses out of whatever is to be written down."""

    def __init__(self, secrets: Sequence[Any]) -> None:
        known = [part for secret in secrets if isinstance(secret, str) for part in (secret, secret.partition("://")[2])]
        self._secrets = [re.compile(re.escape(part), re.I) for part in known if len(part) >= _SHORTEST]

    def out_of(self, value: Any) -> Any:
        """The value, with every address in its strings replaced."""
        if not self._secrets:
            return value
        if isinstance(value, str):
            for secret in self._secrets:
                value = secret.sub("…", value)
            return value
        if isinstance(value, Mapping):
            return {self.out_of(key): self.out_of(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.out_of(item) for item in value]
        return value


def masked(address: Any) -> str:
    """An address without what is secret in it: the word before ://, where it has one."""
    scheme, separator, _ = str(address).partition("://")
    return repr(f"{plain(scheme, 20)}://…") if separator else "what was given"
