"""Which tokens a language model learns: answers or prompts, ends, formats and packed texts."""
