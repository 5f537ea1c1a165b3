"""The grammar tutor: a mini-GPT that learns English verb sentences, healthy or with one engineered fault.

A reference workload, small enough for a laptop CPU. It uses steadyrun like any other training program, through
`steadyrun.record` only. Read in this order:

    corpus.py      the sentences, and the held-out ones
    tokenizer.py   byte-pair encoding trained on the training sentences
    baseline.py    the n-gram model that the mini-GPT has to beat
    model.py       the mini-GPT
    config.py      the settings of a run, and the config it declares
    data.py        sentences as padded tensors, and their order
    recipe.py      the parts of the training program that a fault may replace
    train.py       the loop
    faults/        the engineered faults by topic

and for what comes after pretraining:

    exchanges.py   fine-tuning on prompts and answers
    lora.py        the same with adapters
    preferences.py DPO on right and wrong answers
    policy.py      GRPO with a reward for right answers
"""
