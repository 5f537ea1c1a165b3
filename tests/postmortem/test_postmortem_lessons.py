"""`lessons.md`: one line per incident, whatever else is in the file."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE

from steadyrun.postmortem import document_files


def lines(folder: Path) -> list[str]:
    return [line for line in (folder / document_files.NAME).read_text().splitlines() if line.startswith("- ")]


def test_added_once(tmp_path: Path) -> None:
    assert document_files.add(tmp_path, "mine", 312, "2026-01-02", "Mix rare examples.")
    assert not document_files.add(tmp_path, "mine", 312, "2026-01-03", "Other words.")
    assert document_files.add(tmp_path, "mine", 400, "", "Another.")
    assert document_files.add(tmp_path, "mine2", 312, "", "A third.")
    assert len(lines(tmp_path)) == 3
    assert lines(tmp_path)[0].startswith("- 2026-01-02, mine, step 312: Mix rare examples. <!--")


def test_what_a_person_wrote_stays(tmp_path: Path) -> None:
    mine = b"# My notes\r\n\r\n- \xff my own lesson"
    (tmp_path / document_files.NAME).write_bytes(mine)
    assert document_files.add(tmp_path, "mine", 1, "", "New.")
    content = (tmp_path / document_files.NAME).read_bytes()
    assert content.startswith(mine)
    reworded = content.replace(b"New.", b"In my words.")
    (tmp_path / document_files.NAME).write_bytes(reworded)
    assert not document_files.add(tmp_path, "mine", 1, "", "New.")
    assert (tmp_path / document_files.NAME).read_bytes() == reworded


def test_a_line_without_a_cause_is_replaced_when_the_cause_is_known(tmp_path: Path) -> None:
    earlier = "- (open) mine, step 1: Not known yet. <!-- steadyrun mine 1 -->\n"
    (tmp_path / document_files.NAME).write_text(f"# Lessons\n\n{earlier}")
    assert document_files.add(tmp_path, "mine", 1, "", "The batch, with an (open) end.")
    assert not document_files.add(tmp_path, "mine", 1, "", "Other words.")
    (line,) = lines(tmp_path)
    assert line.startswith("- mine, step 1: The batch")


def test_hostile_names_stay_on_their_line(tmp_path: Path) -> None:
    for _ in range(2):
        document_files.add(tmp_path, HOSTILE.replace("/", "") + " -->", 1, "", HOSTILE)
    (line,) = lines(tmp_path)
    assert "<script>" not in line
    assert line.count("<!-- steadyrun ") == 1


@given(st.lists(st.tuples(st.text(min_size=1, max_size=8), st.integers(0, 3), st.text(max_size=20))))
def test_one_line_per_run_and_step(tmp_path_factory: object, added: list[tuple[str, int, str]]) -> None:
    folder = tmp_path_factory.mktemp("lessons")  # type: ignore[attr-defined]
    for run, step, lesson in added:
        document_files.add(folder, run, step, "", lesson)
        assert not document_files.add(folder, run, step, "", lesson)
    if added:
        assert len(lines(folder)) == len({(run, step) for run, step, *_ in added})
