"""The Hugging Face Trainer, recorded by a callback: one line. Stops at the first certain fault.

pip install "steadyrun[transformers]"
python hugging_face.py                                  # healthy
python hugging_face.py experiments/too-high --lr 3      # a learning rate that breaks it
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

import steadyrun
from steadyrun.integrations.transformers import SteadyrunCallback

parser = argparse.ArgumentParser()
parser.add_argument("run", nargs="?", default="experiments/hugging-face", help="the run directory")
parser.add_argument("--lr", type=float, default=3e-3)
args = parser.parse_args()

set_seed(0)
start, stride = torch.randint(60, (288, 1)), torch.randint(1, 4, (288, 1))
ids = (start + stride * torch.arange(16)) % 60  # each text counts up in steps of 1, 2 or 3
ids[torch.rand(ids.shape) < 0.1] = 61  # and a tenth of it is noise
texts = [{"input_ids": row, "labels": row} for row in ids]

size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, num_key_value_heads=2, **size))

trainer = Trainer(
    model,
    TrainingArguments(
        "output",
        max_steps=150,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        eval_strategy="steps",
        eval_steps=30,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    ),
    train_dataset=texts[:256],
    eval_dataset=texts[256:],
    callbacks=[SteadyrunCallback(args.run, on_fault="stop")],  # this line
)
try:
    trainer.train()
except steadyrun.FaultFound as stopped:
    print(f"stopped: {stopped}")

print(steadyrun.check(args.run))
