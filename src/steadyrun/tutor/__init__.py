"""The grammar tutor: a mini-GPT that learns English verb sentences, healthy or with one engineered fault.

A reference workload for everything else, small enough for a laptop CPU. It is a client of steadyrun like any
other training program: it uses `steadyrun.record` and nothing behind it. Read in this order:

    corpus.py      the sentences, and which of them are held out
    tokenizer.py   byte-pair encoding trained on the training sentences
    baseline.py    the n-gram model that the mini-GPT has to beat
    model.py       the mini-GPT
    config.py      the numbers of a run, and what the run declares to the recorder
    data.py        sentences as padded tensors, and the order they come in
    recipe.py      the pieces of the training program that a fault may replace
    train.py       the loop
    faults/        one engineered fault per file
"""
