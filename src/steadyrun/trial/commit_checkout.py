"""The user's history in a separate worktree: the user's files, index and HEAD stay unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steadyrun.errors import UsageError

# Inside a git hook these variables point to the repository of the hook.
_LOCAL = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false")
_FORM = "%H%x00%aI%x00%an%x00%s"
_ONLY_SKIPPED = 2  # exit status of `git bisect` if only skipped commits are left
_CODE = (".py", ".pyc", ".pyd", ".so")


@dataclass(frozen=True)
class Commit:
    """A commit of the user's repository."""

    hash: str
    date: str  # author date
    author: str
    subject: str

    @property
    def short(self) -> str:
        return self.hash[:10]

    def __str__(self) -> str:
        return f"{self.short} {self.subject}"


class Repository:
    """The git repository of a folder."""

    def __init__(self, folder: Path) -> None:
        done = _git(folder, "rev-parse", "--show-toplevel", check=False)
        if done.returncode != 0:
            problem = _last_line(done.stderr)
            raise UsageError(
                f"{folder} is not in a git repository with a checkout ({problem}); go to the folder of the program"
            )
        self.top = Path(done.stdout.removesuffix("\n")).resolve()

    def commit(self, revision: str) -> Commit:
        """The commit of a branch, a tag or a hash."""
        words = ("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        done = None if revision.startswith("-") else _git(self.top, *words, check=False)
        if done is None or done.returncode != 0:
            raise UsageError(f"{self.top} has no commit {revision!r}; give a hash, a tag or a branch")
        return self.described([done.stdout.strip()])[0]

    def described(self, hashes: list[str]) -> list[Commit]:
        """Commits with date, author and subject, in the given order."""
        if not hashes:
            return []
        text = "".join(f"{name}\n" for name in hashes)
        done = _git(self.top, "log", "--no-walk=unsorted", "--stdin", "-z", f"--format={_FORM}", given=text)
        fields = done.stdout.removesuffix("\0").split("\0")
        return [Commit(*fields[place : place + 4]) for place in range(0, len(fields), 4)]

    def is_ancestor(self, one: Commit, other: Commit) -> bool:
        return _git(self.top, "merge-base", "--is-ancestor", one.hash, other.hash, check=False).returncode == 0

    def between(self, good: Commit, bad: Commit) -> list[str]:
        """The commits of BAD that GOOD does not have, newest first."""
        return _git(self.top, "rev-list", bad.hash, f"^{good.hash}").stdout.split()

    def parents(self, commit: Commit) -> list[str]:
        return _git(self.top, "rev-list", "--parents", "--max-count=1", commit.hash).stdout.split()[1:]

    def uncommitted(self) -> list[str]:
        """Tracked files that differ from the last commit."""
        lines = _git(self.top, "status", "--porcelain", "--untracked-files=no").stdout.splitlines()
        return [line[3:] for line in lines]

    def diff(self, commit: Commit) -> str:
        """The output of `git show` for a commit."""
        return _git(self.top, "show", "--no-color", "--no-ext-diff", "--stat", "--patch", commit.hash).stdout

    def ignored(self) -> list[Path]:
        """Ignored files and folders without code, such as data, which every commit uses."""
        words = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
        names = [Path(name) for name in _git(self.top, *words).stdout.split("\0") if name]
        return [name for name in names if not _is_code(self.top / name)]

    @contextmanager
    def worktree(self, at: Commit) -> Iterator[Worktree]:
        """A worktree in a temporary folder, removed on leaving the body."""
        folder = Path(tempfile.mkdtemp(prefix="steadyrun-commits-")).resolve()
        tree = folder / self.top.name
        try:
            _git(self.top, "worktree", "add", "--detach", str(tree), at.hash)
            yield Worktree(self, tree, folder)
        finally:
            removed = _git(self.top, "worktree", "remove", "--force", "--force", str(tree), check=False)
            shutil.rmtree(folder, ignore_errors=True)
            if removed.returncode != 0:
                _git(self.top, "worktree", "prune", check=False)


class Worktree:
    """A checkout that `git bisect` moves through the history, with its own bisect state."""

    def __init__(self, repository: Repository, folder: Path, scratch: Path) -> None:
        self.repository, self.folder, self.scratch = repository, folder, scratch
        self.links: list[str] = []  # to ignored files
        self._ignored = repository.ignored()
        self._started = False
        self._link()

    @property
    def head(self) -> str:
        return self._git("rev-parse", "HEAD").stdout.strip()

    def checkout(self, commit: Commit) -> None:
        with self._clean():
            self._git("checkout", "--quiet", "--force", "--detach", commit.hash)

    def start(self, good: Commit, bad: Commit) -> str:
        """Start `git bisect`; returns the commit to try, or a tried one if none is left."""
        with self._clean():
            self._git("bisect", "start", bad.hash, good.hash)
        self._started = True
        return self.head

    def judge(self, word: str) -> str:
        """Mark the current commit good, bad or skip; returns the next commit, or the same one at the end."""
        with self._clean():
            done = self._git("bisect", word, check=False)
            if done.returncode not in (0, _ONLY_SKIPPED):
                raise UsageError(f"git bisect {word} failed: {_last_line(done.stderr or done.stdout)}")
        return self.head

    def candidates(self) -> list[str]:
        """The commits that may be the first bad one, newest first; none before `start`."""
        if not self._started:
            return []
        return self._git("rev-list", "refs/bisect/bad", "--not", "--glob=refs/bisect/good-*").stdout.split()

    @contextmanager
    def _clean(self) -> Iterator[None]:
        """Prepare for a checkout: remove the program's output and the links, and link again afterwards."""
        for name in self.links:
            (self.folder / name).unlink(missing_ok=True)
        self._git("reset", "--quiet", "--hard")
        self._git("clean", "-ffdxq")
        yield
        self._link()

    def _link(self) -> None:
        self.links = []
        for name in self._ignored:
            place = self.folder / name
            if place.parent.is_dir() and not os.path.lexists(place):
                place.symlink_to(self.repository.top / name)
                self.links.append(str(name))

    def _git(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return _git(self.folder, *words, check=check, ceiling=self.folder.parent)


def _is_code(path: Path) -> bool:
    """Whether an ignored path may be imported, while all code must come from the commit."""
    if path.is_symlink() or not path.is_dir():
        return path.suffix in _CODE
    if path.name == "__pycache__" or (path / "pyvenv.cfg").exists():
        return True
    return any(child.suffix in _CODE or (child / "__init__.py").exists() for child in path.iterdir())


def _git(
    folder: Path, *words: str, check: bool = True, given: str | None = None, ceiling: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run git in its own session, so that Ctrl-C reaches only this process, which cleans up."""
    around = {name: value for name, value in os.environ.items() if name not in _LOCAL}
    around |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    around |= {} if ceiling is None else {"GIT_CEILING_DIRECTORIES": str(ceiling)}
    try:
        done = subprocess.run(
            ["git", *_NO_HOOKS, *words],
            cwd=folder,
            env=around,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            check=False,
        )
    except FileNotFoundError as problem:
        what = "git is not on the PATH" if folder.is_dir() else f"the folder {folder} does not exist"
        raise UsageError(f"{what}, but --commits needs it") from problem
    if check and done.returncode != 0:
        raise UsageError(f"git {words[0]} failed: {_last_line(done.stderr)}")
    return done


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"
