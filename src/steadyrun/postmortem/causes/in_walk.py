"""Causes that check names itself, and exceptions: everything without an entry of its own in the catalogue."""

from __future__ import annotations

from steadyrun.postmortem.causes.hypothesis import FAVOURS, PROVES, RULES_OUT, Cause, Grounds, Sign, raised_at
from steadyrun.postmortem.causes.later_changes import LATER_CHANGES
from steadyrun.postmortem.evidence import TRIAL
from steadyrun.postmortem.remedies import FIX, Remedy
from steadyrun.questions.form import FAULT, SUSPECT
from steadyrun.report import phrases
from steadyrun.report.kept_answers import REPLAYED
from steadyrun.signals.run_signals import Signals
from steadyrun.store.incident_files import text
from steadyrun.store.trial_record import CLEAR, IMPROVEMENT
from steadyrun.trees.walker import Asked

# The change that fixes a fault, as a line of code or config.


_ONCE = "scheduler.step()   # once after every optimizer.step(), nowhere else"
_DECLARED = (
    "scheduler: the curve that is declared ({schedule}, warmup {warmup_steps}, peak {lr_max}, {total_steps} steps)"
)

_CHANGES = LATER_CHANGES | {
    "C1.1 already-trained": 'config: init: "random" -> "pretrained"   # or do not load the checkpoint',
    "C1.1 counts-too-little": "loss = losses[mask].mean()   # over the unmasked targets, not over the whole batch",
    "C1.1 weights": "nn.init.normal_(weight, mean=0.0, std=0.02); nn.init.zeros_(bias)",
    "C1.2 wrong-sign": "(-loss).backward() -> loss.backward()",
    "C1.2 wrong-reduction": 'reduction="sum" -> reduction="mean"',
    "C1.2 erased": "optimizer.zero_grad()   # after optimizer.step(), not between backward() and step()",
    "C2.1 upside-down": _DECLARED,
    "C2.1 never-stepped": _ONCE,
    "C2.1 zero": "lr_max: 0 -> {lr_max}   # the optimizer's own lr, which the scheduler multiplies",
    "C2.1 no-warmup": "SequentialLR(optimizer, [LinearLR(optimizer, 1e-3, total_iters={warmup_steps}), decay], "
    "[{warmup_steps}])",
    "C2.1 restarted": 'scheduler.load_state_dict(checkpoint["scheduler"])',
    "C2.1 stepped-too-often": _ONCE,
    "C2.1 stepped-too-seldom": _ONCE,
    "C2.1 horizon-too-short": "total steps of the scheduler (T_max, num_training_steps): {total_steps}",
    "C2.1 horizon-too-long": "total steps of the scheduler (T_max, num_training_steps): {total_steps}",
    "C2.1 discontinuous": _DECLARED,
    "C2.1 other-curve": _DECLARED,
    "C2.1 counts-epochs": "total steps of the scheduler (T_max, num_training_steps): {total_steps}",
    "C2.1 not-as-declared": _DECLARED,
    "C2.1 warmup-longer-than-run": "warmup of the scheduler: {warmup_steps} steps, of {total_steps} in all",
    "C2.2 not-reached": "warmup of the scheduler: {warmup_steps} steps to {lr_max}",
    "C3.1 frozen": "for parameter in model.parameters(): parameter.requires_grad_(True)",
    "C4.2 overfitting": "stop at the best validation, or: dropout, weight_decay, more data",
    "C4.2 noisier": "correct or drop the training examples with the highest loss, if their labels are wrong",
    "C4.2 leak": "validation = [example for example in validation if example not in training]",
    "C5.1 too-wide": "nn.init.normal_(weight, mean=0.0, std=0.02)",
    "C5.1 bias": "nn.init.zeros_(bias)",
    "C5.1 off-centre": "nn.init.normal_(weight, mean=0.0, std=0.02)",
    "C5.2 growing": "x = x + block(norm(x))   # a normalisation before every block",
    "C6.1 declared-exempt": 'param groups: {{"params": exempt, "weight_decay": 0.0}}',
    "C6.2 rebuilt": "optimizer = AdamW(…)   # once, before the loop",
    "C6.2 empty": "optimizer = AdamW(…)   # or check that its state is not cleared",
    "C6.2 no-memory": "betas=(0.9, 0.999)",
    "C6.2 no-bias-correction": "optimizer = torch.optim.AdamW(…)   # with bias correction of its moments",
    "C6.3 not-divided": "(loss / {accumulation}).backward()",
    "C7.1 rate-too-low": "lr: ten times as large",
    "C7.1 starved": "gate.bias: 0   # and a load-balancing loss for a mixture of experts",
    "C7.1 clip-too-tight": "clip_grad_norm_(…, 1.0)   # or the usual norm",
    "C7.2 rate-too-high": "lr: a tenth",
    "C7.2 momentum-too-long": "momentum=0.9",
    "C7.3 too-strong": "weight_decay=0.01",
    "C7.4 epsilon": "eps=1e-8",
    "C7.4 betas": "betas=(0.9, 0.999)",
    "C7.5 too-high": "Dropout(0.1)",
    "C7.6 hides-learning": "label_smoothing=0.1",
    "C5.1 perhaps-too-wide": "nn.init.kaiming_normal_(weight)",
    "C5.1 perhaps-too-narrow": "nn.init.kaiming_normal_(weight)",
    "C5.1 perhaps-bias": "nn.init.zeros_(bias)",
    "C5.1 alike": "nn.init.kaiming_normal_(weight)",
    "D2.1 jump": "steadyrun.record(…) every step, to see what precedes the jump",
    "C6.3 divided-twice": "(loss / {accumulation}).backward()   # divided once",
    "C6.3 only-last": "optimizer.zero_grad()   # once per optimizer step, not per micro-batch",
    "D4.2 schedule": _DECLARED,
    "A1.1 not-cleared": "optimizer.zero_grad()   # once per optimizer step, before the first backward()",
    "A1.2 erased": "optimizer.zero_grad()   # after optimizer.step(), not between backward() and step()",
    "A1.3 after-step": "clip_grad_norm_(…); optimizer.step()   # in this order",
    "A1.3 before-backward": "loss.backward(); clip_grad_norm_(…); optimizer.step()   # in this order",
    "A1.3 not-clipped": "clip_grad_norm_(model.parameters(), {clip})   # before optimizer.step()",
    "A1.3 before-unscale": "scaler.unscale_(optimizer); clip_grad_norm_(…)   # in this order",
    "A1.4 erased": "optimizer.zero_grad()   # once per optimizer step, not before each backward()",
    "A1.4 perhaps-erased": "optimizer.zero_grad()   # once per optimizer step, not before each backward()",
    "A2.1 left-on": "model.train()   # after every validation",
    "A2.1 parts-left-on": "model.train()   # of the whole model, after every validation",
    "A2.2 in-training": "model.eval(); validate(); model.train()",
    "A2.3 degenerate": "BatchNorm -> LayerNorm or GroupNorm, or batches of more than two",
    "A2.3 unlike-in-evaluation": "BatchNorm -> GroupNorm, or larger batches",
    "A2.4 untouched": "BatchNorm(…, momentum=0.1)   # 0 never moves",
    "A2.5 never-moves": "ema.update_parameters(model)   # after every optimizer.step()",
    "A2.5 statistics-left-behind": "AveragedModel(model, …, use_buffers=True)",
    "A2.5 target-stands-still": "target.load_state_dict(model.state_dict())   # every few hundred steps",
    "A2.5 lost-at-resume": 'ema.load_state_dict(checkpoint["ema"])',
    "A2.5 lags": "decay = min(decay, (1 + step) / (10 + step))",
    "A2.6 differs": "the same inputs and the same loop in training and validation",
    "A3.1 squashed-twice": "return logits   # no softmax or sigmoid before the loss",
    "A3.1 not-logarithms": "nll_loss(log_softmax(logits, -1), targets)",
    "A3.1 wrong-axis": "log_softmax(scores, dim=-1)   # over the classes",
    "A3.1 out-of-reach": "return self.head(x)   # no ReLU, sigmoid or tanh after the last layer",
    "A3.1 one-sided": "pos_weight = negatives / positives",
    "A3.1 rewards-errors": "loss = main + weight * term   # not minus",
    "A3.2 broadcast": "loss(predictions.squeeze(-1), targets)",
    "A3.3 shifted-twice": "labels = input_ids   # if the model shifts them itself",
    "A3.3 not-shifted": "cross_entropy(logits[:, :-1], ids[:, 1:])",
    "A3.3 copies": "cross_entropy(logits[:, :-1], ids[:, 1:])   # of a language model",
    "A3.4 supervised": "labels[labels == pad_id] = -100",
    "A3.5 never-asked": "a padding token of its own, or labels[attention_mask == 0] = -100",
    "A3.6 sorted": "DataLoader(…, shuffle=True)",
    "A3.7 nothing-to-learn": "loss.sum() / max(1, (labels != -100).sum())",
    "A3.8 filtered": "logging_nan_inf_filter=False",
    "A8.1 seems-attended": "attention(…, key_padding_mask=tokens == pad_id)",
    "A3.9 counted": "loss = (losses * mask).sum() / mask.sum()",
    "A3.9 zeros-counted": "loss = (losses * mask).sum() / mask.sum()",
    "A4.1 stale": "optimizer = AdamW(model.parameters())   # after the last layer was replaced",
    "A4.1 left-out": "optimizer = AdamW(model.parameters())   # all of them",
    "A4.2 unregistered": "self.layers = nn.ModuleList(layers)",
    "A4.3 cut-off": "hidden.detach() -> hidden",
    "A4.3 table-unused": "x = tokens(ids) + positions(indices)",
    "A4.3 nothing-reached": "loss.backward()   # of the loss itself, not of torch.tensor(loss.item())",
    "A4.4 nothing-trainable": "parameter.requires_grad_(True)   # for what is to learn",
    "A4.4 frozen-at-random": "parameter.requires_grad_(True)   # for what is to learn",
    "A4.4 perhaps-at-random": "model.load_state_dict(state, strict=True)",
    "A4.5 no-step": "optimizer.step()   # after backward(), in every step",
    "A4.5 rounded-away": "weights in fp32, arithmetic under torch.autocast(dtype=torch.bfloat16)",
    "A4.7 untied": "head.weight = embedding.weight   # before the optimizer is built",
    "A4.8 vanishing": "Sigmoid -> ReLU or GELU; x = x + block(norm(x))",
    "A5.1 not-reshuffled": "sampler.set_epoch(epoch)",
    "A5.2 from-the-start": 'loader.load_state_dict(checkpoint["loader"])   # or skip the batches that were used',
    "A5.3 changed": "validation transform: without randomness",
    "A5.4 degenerate": "filter documents of one repeated token",
    "A5.6 differs": "validation transform: the scaling of the training transform",
    "A5.6 other-scale": "validation transform: the scaling of the training transform",
    "A5.6 unlike": "one transform, one vocabulary, one table of class numbers for both sets",
    "A5.7 repeated": "inputs, labels = batch   # in every step",
    "A5.7 reassigned": "order = torch.randperm(n); inputs, labels = inputs[order], labels[order]",
    "A5.7 repeated-unrelated": "inputs, labels = batch   # in every step",
    "A5.7 reassigned-unrelated": "order = torch.randperm(n); inputs, labels = inputs[order], labels[order]",
    "A5.8 not-scaled": "inputs = (inputs - mean) / std   # of the training data",
    "A5.9 same-twice": "first, second = augment(x), augment(x)   # two independent draws",
    "A5.9 constant": "negative examples beside the positive ones",
    "A6.1 lost": 'scaler.load_state_dict(checkpoint["scaler"])',
    "A6.2 back-at-start": 'model.load_state_dict(checkpoint["model"])',
    "A6.2 set-back": 'model.load_state_dict(checkpoint["model"])   # with buffers; optimizer and scheduler beside it',
    "A7.1 before-first-step": "the last line of the traceback",
    "A7.1 crashed": "the last line of the traceback",
    "A7.1 token-out-of-range": "model.resize_token_embeddings(len(tokenizer))",
    "A7.1 label-out-of-range": "labels from 0 to classes - 1; -100 for ignored targets",
    "P3.5 inputs-ignored": "forward(): use x, do not overwrite it",
    "S1.4 by-heart-alone": "permute inputs and labels together",
    "S4.3 collapsed": "negative pairs, or a smaller weight of the regulariser",
    "S1.4 unrelated": "permute inputs and labels together",
    "S1.1 sees-target": "scaled_dot_product_attention(q, k, v, is_causal=True)",
    "S1.1 sees-the-answer": "scaled_dot_product_attention(q, k, v, is_causal=True)",
    "S4.2 dead": "check the block's residual path, and the factor on its output",
    "S5.2 declared-decay-missing": "AdamW(groups, weight_decay={weight_decay})",
    "V1.1 won": "lr of the discriminator: a third of it   # or one step of it for several of the generator",
    "V1.1 fooled": "discriminator loss: real against 1, fake.detach() against 0   # with an optimizer of its own",
    "V1.1 runaway": "loss = loss + bound(output)   # a loss without a lower bound falls forever",
    "V1.1 standstill": "print(discriminator(real).mean(), discriminator(fake).mean())   # before and after one step",
    "V1.8 no-signal": "print(answer, reward(answer))   # of a few answers, before training",
    "V1.8 none": "print(answer, reward(answer))   # of a few answers, before training",
    "V1.8 constant": "print(Counter(predictions))   # and evaluate the weights that are trained",
    "V1.8 at-chance": "labels[index] belongs to inputs[index]   # for every example, also after shuffling",
    "V1.3 not-measured": "recompute the validation loss in every evaluation   # with the current weights",
    "V1.2 term-left-behind": "loss = main + weight * term   # with a larger weight",
    "V1.6 few-of-many": "for batch in loader: …   # all of it, not a list of the first batches",
    "V1.6 by-heart": "the whole data set, not a part of it",
    "V1.6 stuck": "next(batches)   # in every step",
    "S6.1 silent": "nn.init.zeros_(bias)   # of the layer before the activation",
    "S6.3 no-slope": "smaller weights before tanh or sigmoid, or a norm before it",
    "S6.2 stuck": "q and k: nn.init.normal_(weight, std=0.02); scores / sqrt(head width)",
}


def change_for(asked: Asked, run: Signals) -> str:
    """The change for a fault, with the numbers that the run declares; the question's page if there is none."""
    return change_named(asked.question.code, asked.answer.outcome, run)


def change_named(code: str, outcome: str, run: Signals) -> str:
    """The change for an outcome of a question."""
    change = _CHANGES.get(f"{code} {outcome}")
    return f"steadyrun explain {code}" if change is None else change.format_map(_Declared(run))


class _Declared(dict[str, str]):
    """The declared config, by name."""

    def __init__(self, run: Signals) -> None:
        super().__init__()
        self._run = run

    def __missing__(self, name: str) -> str:
        value = self._run.config.get(name)
        return str(value) if isinstance(value, int | float | str) else f"as declared in {name}"


# Faults that say what is wrong but not why: certain, but not a cause.
_SYMPTOMS = frozenset({"C4.1", "D1.1", "D1.3", "D2.4", "D4.3", "D4.4"})
_SYMPTOM_OUTCOMES = frozenset(
    {("C1.2", "nothing"), ("C3.1", "always-clipping"), ("C3.1", "dead"), ("D3.2", "collapsed"), ("D3.2", "skipping")}
)
_OWN_ENTRY = frozenset({"A5.5", "D2.3", "D3.1", "D3.2"})  # weighed by name elsewhere in the catalogue
# Faults that name more precisely what experiments or a replay call by a group's name.
_SHARPER = {
    "unusual-batch": ("A5.4", "A5.5", "A7.1", "A3.7"),
    "exception": ("A7.1",),
    "learning-rate": ("C2.1", "C2.2", "D4.2"),
    "optimizer-state": ("C6.2",),
    "precision": ("A4.5", "A6.1"),
    "model-numerics": ("A3.1", "A3.7", "A5.5", "C5.1", "C5.2"),
}


def is_symptom(asked: Asked) -> bool:
    """Whether a fault says what is wrong but not why."""
    code = asked.question.code
    outcome = next((one for one in asked.question.outcomes if one.name == asked.answer.outcome), None)
    of_itself = outcome is not None and outcome.symptom and outcome.answer == SUSPECT
    return of_itself or code in _SYMPTOMS or (code, asked.answer.outcome) in _SYMPTOM_OUTCOMES


def _has_entry(asked: Asked) -> bool:
    """Whether another entry of the catalogue weighs it, by name or as a finding of the incident's replay."""
    return asked.question.code in _OWN_ENTRY or asked.question.code.startswith(REPLAYED)


def named_fault(look: Grounds) -> Asked | None:
    """The first fault without another entry in the catalogue, one about this incident first.

    Without a fault, the first suspect.
    """
    causes = [asked for asked in look.case.findings if not _has_entry(asked) and not is_symptom(asked)]
    others = [asked for asked in causes if asked.answer.kind == FAULT] or causes
    near = [asked for asked in others if look.case.concerns(asked)]
    headline = look.case.report.headline
    return next((asked for asked in others if asked is headline), next(iter(near or others), None))


def says_the_same(look: Grounds, cause: str) -> bool:
    """Whether the named fault is a more precise form of a cause of the catalogue."""
    asked = named_fault(look)
    return asked is not None and asked.question.code in _SHARPER.get(cause, ())


def _weigh_fault(look: Grounds) -> list[Sign]:
    asked = named_fault(look)
    if asked is None:
        return []
    concerns = look.case.concerns(asked)
    proves = concerns and asked.answer.kind == FAULT
    signs = look.sign(f"walk:{asked.question.code}", PROVES if proves else FAVOURS, 1.0 if concerns else 0.5)
    return signs + _tried(look, asked)


def _tried(look: Grounds, asked: Asked) -> list[Sign]:
    """A trial proves the cause that it names, and rules out a suspect that it tested and did not find."""
    trial = look.case.trial
    if trial is None:
        return []
    if trial.found_fault and trial.code == asked.question.code:
        return look.sign(TRIAL, PROVES)
    cleared = trial.verdict in (CLEAR, IMPROVEMENT) and asked.question.code in trial.tested
    return look.sign(TRIAL, RULES_OUT) if cleared and asked.answer.kind == SUSPECT else []


def _fault_sentence(look: Grounds) -> str:
    asked = named_fault(look)
    if asked is None:
        return ""
    meaning = phrases.meaning(asked)
    return f"{meaning[:1].upper()}{meaning[1:]}: {asked.answer.message}"


def _fault_remedies(look: Grounds) -> list[Remedy]:
    asked = named_fault(look)
    if asked is None:
        return []
    return [
        Remedy(
            FIX,
            asked.answer.fix,
            change_for(asked, look.case.signals),
            f"{asked.question.code}: {asked.answer.message}",
        )
    ]


def _fault_lesson(look: Grounds) -> str:
    asked = named_fault(look)
    return "" if asked is None else f"{asked.answer.message.removesuffix('.')}. {asked.answer.fix}"


def _fault_words(look: Grounds) -> tuple[str, str, int | None]:
    asked = named_fault(look)
    assert asked is not None  # applies only if there is one
    name = phrases.one_line(asked.question.name)
    return f"{asked.question.code}: {name}", phrases.meaning(asked), asked.panel


NAMED_FAULT = Cause(
    "walk-fault",
    "A fault that check found",
    "`steadyrun check` found a fault in the run",
    None,
    _weigh_fault,
    _fault_sentence,
    _fault_remedies,
    _fault_lesson,
    applies=lambda look: named_fault(look) is not None,
    named=_fault_words,
)


def _weigh_raised(look: Grounds) -> list[Sign]:
    return look.sign("raised", PROVES) if look.case.proofs.reproduced else look.sign("raised", FAVOURS, 3.0)


def _why(look: Grounds) -> str:
    return text(look.case.proofs.incident, "why").removesuffix(".") or "An exception"


EXCEPTION = Cause(
    "exception",
    "The program raised an exception",
    "a step of the program fails, whatever the values are",
    None,
    _weigh_raised,
    lambda look: f"The step raises an exception every time it runs: {look.observations['raised'].text}",
    lambda look: [Remedy(FIX, "Fix the line that raises.", raised_at(look), text(look.case.proofs.incident, "why"))],
    lambda look: f"{_why(look)} at {raised_at(look)} ended the run; running one step on every batch would catch it.",
    applies=lambda look: look.case.moment.raised or "raised" in look.observations,
)
