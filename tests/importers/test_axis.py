"""Which step a row belongs to, against a slow and obvious twin."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyrun.importers.log_rows import Anomalies, LogRows
from steadyrun.importers.series_roles import STARTS
from steadyrun.importers.step_axis import FEWEST_POINTS, MOST_ATTEMPTS, NEAR_START, Axis

Line = tuple[float | None, float | None, bool]  # step, epoch, whether it has a loss
ROLES = {"step": "step", "epoch": "epoch", "loss": "loss"}


def packed(lines: list[Line]) -> LogRows:
    step, epoch, loss = zip(*lines, strict=True)
    columns = {"step": step, "epoch": epoch, "loss": [1.0 if there else None for there in loss]}
    return LogRows(len(lines), {name: pa.array(values, pa.float64()) for name, values in columns.items()})


def placed(
    packs: list[list[Line]], roles: dict[str, str] = ROLES, axis: Axis | None = None
) -> tuple[list[tuple[int, int]], Axis]:
    """(attempt, step) of every row, in the order of the log; another run begins with the next hundred of attempts."""
    rows = [packed(lines) for lines in packs]
    axis = axis or Axis.of(rows, roles, Anomalies())
    found: list[tuple[int, int]] = []
    attempt = 1
    for each in rows:
        at = len(found)
        for part in axis.place(each):
            attempt = attempt + part.resumes if not part.begins else attempt // 100 * 100 + 101
            assert part.rows.tolist() == list(range(len(found) - at, len(found) - at + len(part.rows)))
            found += [(attempt, step) for step in part.steps.tolist()]
        assert len(found) == at + each.count
    return found, axis


def slow(packs: list[list[Line]]) -> list[tuple[int, int]]:
    """The same row by row: what a person would do with a pencil."""
    found: list[tuple[int, int]] = []
    carried = last = last_epoch = None
    offset, gap, attempt, seen, highest = 0.0, 1.0, 1, 0, float("-inf")
    first: tuple[float, float | None] | None = None
    offsets: dict[float, float] = {}
    for lines in packs:
        counts: list[float] = []
        attempt_here, offset_here = attempt, offset
        for step, _, _ in lines:
            if step is None and carried is None:
                carried = next((other for other, _, _ in lines if other is not None), 0.0)
            carried = carried if step is None else step
            counts.append(carried)
        changes: dict[int, tuple[int, float]] = {}
        guides = [place for place, line in enumerate(lines) if line[2]]
        before_row = 0
        long = len(guides) >= FEWEST_POINTS * (1 + falls([last, *(counts[place] for place in guides)]))
        for number, place in enumerate(guides):
            now, epoch = counts[place], lines[place][1]
            first = first or (now, epoch)
            if last is not None and now < last:
                row = next((each for each in range(before_row, place) if counts[each] < last), place)
                later = counts[guides[number + 1]] if number + 1 < len(guides) else float("-inf")
                if epoch is not None and last_epoch is not None and epoch > last_epoch:
                    offset += last if now > 0 else last + gap - now
                    offsets[epoch], highest = offset, float("-inf")
                    changes[row] = (attempt, offset)
                elif (
                    later <= last
                    and seen >= (1 if long or (epoch is not None and last_epoch is not None) else FEWEST_POINTS)
                    and (near_start(first, last, last_epoch, now, epoch, offsets) or sparse(last, now, later, offsets))
                    and not taking_turns(counts, guides[number:], last, gap, bool(offsets))
                ):
                    attempt, offset, seen, first, offsets = attempt // 100 * 100 + 101, 0.0, 0, (now, epoch), {}
                    highest = float("-inf")
                    changes[row] = (attempt, offset)
                elif later <= last and attempt % 100 < MOST_ATTEMPTS:
                    attempt += 1
                    offset = offsets.get(epoch, offset)
                    changes[row] = (attempt, offset)
            elif last is not None and now > last:
                gap = now - last
            last, last_epoch, before_row = now, epoch, place + 1
            seen, highest = seen + (now > highest), max(now, highest)
        for place, count in enumerate(counts):
            if place in changes:
                attempt_here, offset_here = changes[place]
            found.append((attempt_here, round(count + offset_here)))
    return found


def falls(along: list[float | None]) -> int:
    """How often counts go back; the first is that before the pack."""
    return sum(before is not None and now is not None and now < before for before, now in pairwise(along))


def near_start(
    first: tuple[float, float | None],
    last: float,
    last_epoch: float | None,
    now: float,
    epoch: float | None,
    offsets: dict[float, float],
) -> bool:
    """Whether nothing worth a resume is kept, by the epochs if steps start over in them."""
    begin, end, here = (first[1], last_epoch, epoch) if offsets else (first[0], last, now)
    if begin is None or end is None or here is None:
        return False
    return here <= begin + NEAR_START * (end - begin)


def sparse(last: float, now: float, later: float, offsets: dict[float, float]) -> bool:
    """Whether the log goes back to its first interval: every tenth step is logged, from the tenth on."""
    return not offsets and 2 * now <= later and now <= 0.1 * last


def taking_turns(counts: list[float], ahead: list[int], last: float, gap: float, by_epochs: bool) -> bool:
    """Whether the next time the log goes back, it goes to just after here."""
    later = [counts[place] for place in ahead]
    landing = next((b for a, b in pairwise(later) if b < a), None)
    return not by_epochs and landing is not None and 0 < landing - last <= 2 * gap


counts = st.one_of(st.none(), st.integers(0, 12).map(float))
epochs = st.one_of(st.none(), st.integers(0, 3).map(float))
lines = st.tuples(counts, epochs, st.booleans())


@given(st.lists(st.lists(lines, min_size=1, max_size=12), min_size=1, max_size=3))
@settings(max_examples=400)
def test_any_log_is_placed_as_the_twin_does(packs: list[list[Line]]) -> None:
    assert placed(packs, axis=Axis(ROLES, Anomalies(), ("loss",)))[0] == slow(packs)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 29))
@settings(max_examples=100)
def test_a_log_that_goes_forward_keeps_its_steps(gaps: list[int], edge: int) -> None:
    steps = [float(sum(gaps[: place + 1])) for place in range(len(gaps))]
    log: list[Line] = [(step, None, True) for step in steps]
    packs = [part for part in (log[:edge], log[edge:]) if part]
    assert placed(packs)[0] == [(1, int(step)) for step in steps]


def test_a_resume_repeats_steps_in_a_new_attempt() -> None:
    log: list[Line] = [(step, None, True) for step in (10.0, 20.0, 30.0, 20.0, 30.0, 40.0)]
    assert placed([log])[0] == [(1, 10), (1, 20), (1, 30), (2, 20), (2, 30), (2, 40)]


def test_counters_that_start_over_count_on() -> None:
    log: list[Line] = [(batch, epoch, True) for epoch in (1.0, 2.0, 3.0) for batch in (1.0, 2.0, 3.0)]
    assert [step for _, step in placed([log])[0]] == list(range(1, 10))
    log = [(batch, epoch, True) for epoch in (0.0, 1.0, 2.0) for batch in (0.0, 10.0, 20.0)]
    assert [step for _, step in placed([log])[0]] == list(range(0, 90, 10))


def test_a_single_point_out_of_order_is_no_resume() -> None:
    log: list[Line] = [(step, None, True) for step in (1.0, 2.0, 4.0, 3.0, 5.0)]
    found, axis = placed([log])
    assert found == [(1, 1), (1, 2), (1, 4), (1, 3), (1, 5)]
    assert list(axis.anomalies.oddities) == ["points out of order"]


def test_validations_count_something_else() -> None:
    """A row without the loss never makes a resume, whatever it counts."""
    log: list[Line] = [(100.0, 1.0, True), (5.0, 1.0, False), (200.0, 2.0, True)]
    assert placed([log])[0] == [(1, 100), (1, 5), (1, 200)]


NO_STEPS = {"epoch": "epoch", "loss": "loss"}


def test_whole_epochs_stand_for_steps() -> None:
    log: list[Line] = [(None, epoch, True) for epoch in (1.0, 2.0, 3.0)]
    found, axis = placed([log], NO_STEPS)
    assert (found, axis.unit) == ([(1, 1), (1, 2), (1, 3)], "epoch")


def test_a_run_of_one_epoch_before_another() -> None:
    log: list[Line] = [(None, float(epoch), True) for part in ((0,), range(8), range(8)) for epoch in part]
    found, axis = placed([log], NO_STEPS)
    assert axis.unit == "epoch"
    assert Counter(attempt // 100 for attempt, _ in found) == {0: 1, 1: 8, 2: 8}


@pytest.mark.parametrize("epochs_seen", [(0.1, 0.2, 0.2, 0.3), (1.0, 1.0, 1.0, 2.0)])
def test_fractions_and_repeated_epochs_are_counted_by_points(epochs_seen: tuple[float, ...]) -> None:
    log: list[Line] = [(None, epoch, True) for epoch in epochs_seen]
    found, axis = placed([log], NO_STEPS)
    assert (found, axis.unit) == ([(1, 0), (1, 1), (1, 2), (1, 3)], "point")


def test_points_go_back_to_where_the_epoch_was() -> None:
    log: list[Line] = [(None, epoch, True) for epoch in (0.1, 0.2, 0.3, 0.4)]
    again: list[Line] = [(None, epoch, True) for epoch in (0.25, 0.35, 0.45)]
    found, _ = placed([log, [(None, 0.4, False)], again], NO_STEPS)
    assert found == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 3), (2, 2), (2, 3), (2, 4)]


def test_rows_without_a_usable_step_are_left_out_and_told() -> None:
    rows = packed([(1.0, None, True), (float("nan"), None, True), (1e300, None, True), (2.0, None, True)])
    axis = Axis.of([rows], ROLES, Anomalies())
    assert [part.steps.tolist() for part in axis.place(rows)] == [[1, 2]]
    assert str(axis.anomalies.oddities["rows without a usable step"]) == (
        "2 times: rows without a usable step: left out"
    )


def steps(*parts: range) -> list[Line]:
    return [(float(step), None, True) for part in parts for step in part]


def runs(log: list[Line], cut: int | None = None) -> list[int]:
    """How many rows each run has."""
    packs = [log] if cut is None else [part for part in (log[:cut], log[cut:]) if part]
    found = Counter(attempt // 100 for attempt, _ in placed(packs)[0])
    return [found[run] for run in sorted(found)]


@pytest.mark.parametrize(("log", "sizes"), [
    (steps(range(10, 510, 10), range(10, 310, 10)), [50, 30]),
    (steps(range(500), range(500), range(7)), [500, 500, 7]),
    (steps(range(500, 900), range(500, 600)), [400, 100]),
    (steps(range(1, 100), range(1, 2)), [99, 1]),
    (steps(range(500), range(20, 400)), [500, 380]),  # another interval of logging
    (steps(range(500), range(30, 400)), [870]),  # a checkpoint
    (steps(range(500), range(450, 600)), [650]),
    (steps(range(500), range(250, 600)), [850]),
    (steps(range(1, 4), range(1, 50)), [3, 49]),  # a start that was given up at once
    (steps(range(20, 21), range(50), range(2)), [1, 50, 2]),
])  # fmt: skip
def test_a_fall_to_the_start_begins_another_run(log: list[Line], sizes: list[int]) -> None:
    assert runs(log) == sizes
    for cut in (1, sizes[0] - 1, sizes[0], sizes[0] + 1 if sizes[0] > FEWEST_POINTS else 0):
        assert runs(log, cut) == sizes


def test_processes_that_take_turns_are_one_run() -> None:
    lines = [(float(step), None, True) for step in range(1, 200) for _ in range(4)]
    lag: list[Line] = [(float(max(step - rank * 3 % 5, 1)), None, True) for step in range(1, 200) for rank in range(4)]
    blocks = steps(*(range(start, start + 40) for start in range(1, 400, 40) for _ in range(2)))
    assert [runs(log) for log in (lines, lag, blocks)] == [[796], [796], [800]]


def test_epochs_decide_how_far_back_a_log_goes() -> None:
    def epochs(*numbers: int) -> list[Line]:
        return [(float(batch), float(epoch), True) for epoch in numbers for batch in range(0, 100, 10)]

    assert runs(epochs(1, 2, 3, 4, 1, 2)) == [40, 20]
    found, axis = placed([epochs(1, 2, 3, 4, 3, 4)])
    assert axis.runs == 1
    assert [step for attempt, step in found if attempt == 2] == list(range(200, 400, 10))


def test_short_starts_within_a_named_epoch_are_runs() -> None:
    """The same two counts in the same epoch: no epoch begins, so the program was started again."""
    starts: list[Line] = [(float(step), 0.0, True) for _ in range(3) for step in (1000, 2000)]
    assert runs(starts) == [2, 2, 2]
    unnamed: list[Line] = [(step, None, True) for step, _, _ in starts]
    assert runs(unnamed) == [6]


def test_epochs_of_known_length_are_counted_through() -> None:
    shown = [(batch, epoch) for epoch in (1.0, 2.0, 3.0) for batch in (0.0, 100.0)]
    columns = {"step": [step for step, _ in shown], "epoch": [epoch for _, epoch in shown],
               "steps_per_epoch": [196.0] * 6, "loss": [1.0] * 6}  # fmt: skip
    rows = LogRows(6, {name: pa.array(values, pa.float64()) for name, values in columns.items()})
    (part,) = Axis.of([rows], ROLES, Anomalies()).place(rows)
    assert part.steps.tolist() == [0, 100, 196, 296, 392, 492]


def table(**columns: list[float | None]) -> LogRows:
    arrays = {name: pa.array(values, pa.float64()) for name, values in columns.items()}
    return LogRows(len(next(iter(columns.values()))), arrays)


@pytest.mark.parametrize("level", [2.0, 0.5])
def test_unnamed_epochs_are_told_from_runs_by_the_loss(level: float) -> None:
    """Three stretches of one length: the loss goes on (epochs), or starts again where it began (seeds)."""
    stretch = [float(batch) for batch in range(50)]
    falling = [3.0 - 2.5 * batch / 50 for batch in range(50)]
    later = [level - 0.1 * batch / 50 for batch in range(50)] if level < 1 else falling
    rows = table(step=stretch * 3, loss=falling + later * 2)
    axis = Axis.of([rows], ROLES, Anomalies())
    found = axis.place(rows)
    assert axis.runs == (1 if level < 1 else 3)
    assert found[-1].steps[-1] == (149 if level < 1 else 49)


NOISE = [1000.0 * ((place * 7919 + 13) % 101) / 101 for place in range(400)]  # of a policy's loss: no level, no course


def test_a_noisy_loss_shows_no_other_run() -> None:
    """Training in rounds: the steps start over in each, always from one count, and the loss says nothing."""
    rows = table(step=[256.0 * (1 + place % 40) for place in range(400)], loss=NOISE)
    axis = Axis.of([rows], ROLES, Anomalies())
    assert axis.place(rows)[-1].steps[-1] == 10 * 40 * 256
    assert axis.runs == 1


@pytest.mark.parametrize(("start", "found"), [(0.5, 1), (3.0, 2)])
def test_steps_that_start_over_anywhere_are_told_by_the_loss(start: float, found: int) -> None:
    """A program that was stopped loads its weights but not its count; or it begins again."""
    falling = [3.0 - 2.5 * batch / 50 for batch in range(50)]
    later = [start - 0.1 * batch / 30 for batch in range(30)]
    rows = table(step=[float(batch) for batch in (*range(50), *range(30))], loss=falling + later)
    axis = Axis.of([rows], ROLES, Anomalies())
    axis.place(rows)
    assert axis.runs == found


def test_a_resume_whose_loss_goes_on_repeats_its_steps() -> None:
    rows = table(step=[float(step) for step in (*range(50), *range(40, 80))],
                 loss=[3.0 - place / 40 for place in (*range(50), *range(40, 80))])  # fmt: skip
    axis = Axis.of([rows], ROLES, Anomalies())
    assert [part.steps[-1] for part in axis.place(rows)] == [49, 79]
    assert (axis.runs, axis.attempts) == (1, 2)


def test_a_seed_of_every_point_is_no_run() -> None:
    updates = [float(place // 4) for place in range(80)]
    rows = table(update=updates, episode=[float(place) for place in range(80)],
                 seed=[1000.0 + place for place in range(80)], loss=[0.0] * 80)  # fmt: skip
    axis = Axis.of([rows], {"step": "update", "loss": "loss"}, Anomalies())
    (part,) = axis.place(rows)
    assert part.steps.tolist() == list(range(80))  # an update is shared by four episodes
    long = table(step=[float(place % 20) for place in range(80)], seed=[float(place // 20) for place in range(80)],
                 loss=[0.0] * 80)  # fmt: skip
    assert len(Axis.of([long], ROLES, Anomalies()).place(long)) == 4


def test_epochs_that_go_up_and_down_are_results() -> None:
    """The best epoch of each fold: the table has no axis. Folds of any length start over at one epoch."""
    rows = table(epoch=LENGTHS, fold=[float(place) for place in range(120)], loss=[1.0] * 120)
    axis = Axis.of([rows], ROLES, Anomalies())
    assert (axis.unit, len(axis.place(rows))) == ("point", 1)
    assert axis.anomalies.lines() == ["'epoch' goes up and down: points are counted instead"]
    short = [float(epoch) for fold in range(30) for epoch in range(1, 3 + fold % 4)]
    assert Axis.of([table(epoch=short, loss=[1.0] * len(short))], ROLES, Anomalies()).unit == "epoch"


def test_a_start_after_which_the_steps_go_on_is_a_resume() -> None:
    """The epochs start over with the program, the steps that count through them do not."""
    first = [(float(step), 1.0 + step // 100) for step in range(0, 500, 10)]
    then = [(float(step), 1.0 + (step - 450) // 100) for step in range(450, 900, 10)]
    columns = {"step": [step for step, _ in first + then], "epoch": [epoch for _, epoch in first + then],
               STARTS: [1.0] * len(first) + [2.0] * len(then), "loss": [1.0] * (len(first) + len(then))}  # fmt: skip
    axis = Axis.of([table(**columns)], ROLES, Anomalies())
    assert [part.steps[-1] for part in axis.place(table(**columns))] == [490, 890]
    assert (axis.runs, axis.attempts) == (1, 2)


def test_steps_that_collide_are_no_axis() -> None:
    loss = [3.0 - place / 100 for place in range(100)]
    stuck = table(step=[0.0] * 100, epoch=[place / 50 for place in range(100)], loss=loss)
    axis = Axis.of([stuck], ROLES, Anomalies())
    assert axis.unit == "point"
    assert axis.anomalies.lines() == ["most values share the 'step' of another: points are counted instead"]
    other = table(step=[0.0] * 100, iteration=[float(place) for place in range(100)], loss=loss)
    axis = Axis.of([other], ROLES, Anomalies())
    assert axis.place(other)[0].steps.tolist() == list(range(100))
    twice = table(step=[float(place // 4) for place in range(100)], loss=[float(place // 4) for place in range(100)])
    assert Axis.of([twice], ROLES, Anomalies()).unit == "step"  # the same loss printed by every process


LENGTHS = [20.0 + 7919 * place * place % 83 for place in range(120)]  # of episodes: up and down, in no order


def test_what_goes_up_and_down_counts_no_steps() -> None:
    episodes = [float(place + 1) for place in range(120)]
    roles = {"step": "steps", "loss": "loss"}
    both = table(episode=episodes, steps=LENGTHS, loss=[3.0 - place / 100 for place in range(120)])
    axis = Axis.of([both], roles, Anomalies())
    (part,) = axis.place(both)
    assert (axis.roles["step"], part.steps.tolist()) == ("episode", list(range(1, 121)))
    assert axis.anomalies.lines() == ["'steps' goes up and down: steps are read from 'episode'"]
    alone = table(steps=LENGTHS, loss=[3.0 - place / 100 for place in range(120)])
    axis = Axis.of([alone], roles, Anomalies())
    assert (axis.unit, "step" in axis.roles, len(axis.place(alone))) == ("point", False, 1)


def test_a_counter_that_counts_on_goes_before_one_that_starts_over() -> None:
    within = [float(batch) for _ in range(6) for batch in range(20)]
    rows = table(step=within, total_steps=[float(place) for place in range(120)], loss=[2.0] * 120)
    assert Axis.of([rows], ROLES, Anomalies()).roles["step"] == "total_steps"
    rows = table(step=within, loss=[2.0] * 120)
    assert Axis.of([rows], ROLES, Anomalies()).roles["step"] == "step"


def test_validation_by_epoch_meets_training_by_step() -> None:
    rows: list[tuple[float, float | None, float | None]] = []
    for epoch in range(5):
        rows += [(float(epoch * 100 + batch), 2.0 - batch / 1000, None) for batch in range(0, 100, 10)]
        rows.append((float(epoch), None, 1.5))
    log = table(step=[step for step, _, _ in rows], loss=[loss for _, loss, _ in rows], val=[val for _, _, val in rows])
    (part,) = Axis.of([log], ROLES, Anomalies()).place(log)
    assert [step for step, row in zip(part.steps, rows, strict=True) if row[2]] == [90, 190, 290, 390, 490]
    late = table(step=[float(step) for step in (*range(0, 500, 10), *range(0, 200, 50))],
                 loss=[1.0] * 50 + [None] * 4, val=[None] * 50 + [1.5] * 4)  # fmt: skip
    (part,) = Axis.of([late], ROLES, Anomalies()).place(late)
    assert part.steps[-4:].tolist() == [0, 50, 100, 150]  # printed after all the training: these are its steps
