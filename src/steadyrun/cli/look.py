"""`steadyrun look`: which tokens a program learns and which it masks, as coloured text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from steadyrun.cli.messages import say
from steadyrun.cli.user_program import as_script, config_of, program_errors, script_arguments
from steadyrun.errors import UsageError

if TYPE_CHECKING:
    from steadyrun.report.look import Look


def look(
    context: typer.Context,
    factory: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function that returns a steadyrun.Task, a trainer, a loader, or a loader and its tokenizer; also "
            "FILE.py:FUNCTION. Arguments of the script come after --.",
        ),
    ],
    config: Annotated[
        str | None, typer.Option(metavar="JSON", help="The declared config, such as '{\"pad_id\": 0}'.")
    ] = None,
    examples: Annotated[int, typer.Option(metavar="N", min=0, help="How many examples to show.")] = 3,
    batches: Annotated[int, typer.Option(metavar="N", min=1, help="How many batches to count.")] = 8,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write an HTML page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show which tokens of a language model's batches are learned and which are masked.

    \b
    Examples:
      steadyrun look train.py:trainer
      steadyrun look train:task --examples 5
      steadyrun look train:batches --config '{"pad_id": 0, "eos_id": 1}' --json

    \b
    with one of these functions in train.py:
      def trainer():
          return SFTTrainer(model, args=args, train_dataset=dataset)
      def batches():
          return loader, tokenizer

    Learned text is green. The counts by role, the ends of texts and what is
    wrong come first: answers that are masked, prompts that are learned,
    truncated answers, ends that are never learned, two start tokens, the chat
    template of another model, packed texts that see each other.

    \b
    Exit codes: 0 nothing found, 1 fault, 2 bad input, 4 suspect.
    """
    arguments = script_arguments(context)
    with program_errors("look"):
        declared = None if config is None else config_of(config)
        with as_script(factory, arguments):
            found = _looked(factory, declared, examples, batches)
        if page is not None:
            head = "<!doctype html><meta charset=utf-8><title>steadyrun look</title>"
            page.write_text(f"{head}{found._repr_html_()}\n", encoding="utf-8")
            say(f"wrote {page}")
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        _show(found)
    raise typer.Exit(found.exit_code)


def _looked(factory: str, config: dict[str, Any] | None, examples: int, batches: int) -> Look:
    from steadyrun.program.task import built, load_factory
    from steadyrun.report.look import look as look_at

    made = built(load_factory(factory, "look's argument"), config or {}, factory)
    loader, tokenizer, own = _parts(made, factory)
    return look_at(loader, tokenizer, config={**own, **(config or {})}, examples=examples, most=batches)


def _parts(made: Any, factory: str) -> tuple[Any, Any, dict[str, Any]]:
    """The loader and the tokenizer of whatever the function returned, and the config it declares."""
    if hasattr(made, "get_train_dataloader"):
        return made.get_train_dataloader(), getattr(made, "processing_class", None), {}
    if isinstance(made, tuple) and len(made) == 2 and not hasattr(made[1], "shape"):
        return made[0], made[1], {}
    if hasattr(made, "loss_fn") and hasattr(made, "loader"):
        if made.loader is None:
            raise UsageError(f"{factory} returns a Task without a loader: set loader=… in steadyrun.Task")
        return made.loader, made.tokenizer, dict(made.config or {})
    if hasattr(made, "__iter__"):
        return made, getattr(made, "tokenizer", None), {}
    raise UsageError(
        f"{factory} must return a steadyrun.Task, a trainer, a loader, or a loader and its tokenizer, not "
        f"{type(made).__name__}"
    )


def _show(found: Look) -> None:
    from steadyrun.report.terminal import show_examples

    console = Console(soft_wrap=True, highlight=False)
    for line in found.summary:
        console.print(Text(line))
    for code, grade, message, fix in found.findings:
        console.print(Text(f"{grade} {code}: ", style="bold"), Text(message), sep="")
        console.print(Text(f"  fix: {fix}"))
    show_examples(console, found.examples)
