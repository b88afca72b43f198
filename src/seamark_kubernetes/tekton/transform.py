"""Tekton tasks with a matrix as tasks that run in an order: text of a file in, text out. Opens no file."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seamark.config.yaml_source import Item, Mistakes, yaml_trees
from seamark.errors import did_you_mean
from seamark.model.digest import digest
from seamark.model.plurals import counted
from seamark_kubernetes.tekton.lines import ItemLines, lines_of, texts_of, word
from seamark_kubernetes.tekton.matrix import Combination, matrix_lines, params_lines, read_matrix, read_params

KINDS: Mapping[str, tuple[str, ...]] = {"PipelineRun": ("spec", "pipelineSpec"), "Pipeline": ("spec",)}
"""Documents that have tasks, and where."""
LONGEST_NAME = 63
LARGEST_MATRIX = 256
"""Tekton's default of `default-max-matrix-combinations-count`."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """Which combinations of a matrix get a task, and how many run at once."""

    unroll: tuple[str, ...] = ()
    """Parameters: a group for each combination of their values. Empty: one group of everything."""
    most: int | None = None
    """Combinations of a group at once; with `side_by_side` groups at once. None: no limit."""
    sliding: bool = False
    """Step i waits for step i - most, instead of all steps of the batch before."""
    side_by_side: bool = False
    """Groups do not wait for each other, but for `most`."""

    @property
    def single(self) -> bool:
        """Whether each combination is a task, and no matrix is left."""
        return not self.unroll or (self.most is not None and not self.side_by_side)

    def before(self, index: int, most: int | None) -> range:
        """Return the steps for which a step waits where `most` run at once."""
        if most is None or index < most:
            return range(0)
        return range(index - most, index - most + 1) if self.sliding else range(index // most * most)[-most:]

    def waits(self, groups: Sequence[Sequence[str]]) -> dict[str, list[str]]:
        """Return for each task, by name, the tasks for which it waits."""
        inside, between = (None, self.most) if self.side_by_side else (self.most, 1)
        found: dict[str, list[str]] = {}
        for number, names in enumerate(groups):
            earlier = [name for index in self.before(number, between) for name in last_of(groups[index], found)]
            for index, name in enumerate(names):
                found[name] = [names[step] for step in self.before(index, inside)] or earlier
        return found


def last_of(names: Sequence[str], waits: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tasks for which no other of these waits."""
    awaited = {earlier for name in names for earlier in waits[name]}
    return [name for name in names if name not in awaited]


@dataclass(kw_only=True)
class _Task:
    """A task with a matrix, and the tasks that it becomes."""

    at: Item
    name: str
    rows: list[Combination]
    dropped: Sequence[Item]
    """Combinations of `include` that Tekton would drop."""
    becomes: dict[str, tuple[Combination, list[Combination]]] = field(default_factory=dict)
    """Name -> the parameters of a task, and the combinations that stay its matrix, if any."""
    waits: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def expand(self, order: Order, taken: Collection[str], mistakes: Mistakes) -> None:
        """Name the tasks, unlike any of `taken`, and order them; nothing for a matrix without a parameter of it."""
        if order.unroll and not any(name in row for row in self.rows for name in order.unroll):
            return
        ranks = {name: list(dict.fromkeys(row.get(name) for row in self.rows)) for name in order.unroll}
        groups: dict[tuple[int, ...], list[Combination]] = {}
        for row in self.rows:
            groups.setdefault(tuple(ranks[name].index(row.get(name)) for name in order.unroll), []).append(row)
        steps = [_steps(rows, order) for _, rows in sorted(groups.items())]
        names = distinct_names(self.name, [params for group in steps for params, _ in group], taken)
        self.becomes = dict(zip(names, (step for group in steps for step in group), strict=True))
        unused = iter(names)
        self.waits = order.waits([[next(unused) for _ in group] for group in steps])
        if (largest := max(len(rest) for _, rest in self.becomes.values())) > LARGEST_MATRIX:
            text = (
                f"{largest} combinations stay a matrix, and Tekton allows {LARGEST_MATRIX}. Unroll another parameter."
            )
            mistakes.add(self.at.at(["matrix"]), text, "out_of_limits")

    def lines(self, there: ItemLines, ends: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the tasks as lines. `ends` are the last tasks of all that are expanded, by name."""
        before = _renamed(self.at, ends)
        params = {name: texts_of(value) for name, value in read_params(self.at, Mistakes()).items()}
        found = []
        for name, (values, rest) in self.becomes.items():
            after, all_params = self.waits[name] or before, {**params, **values}
            changes = {
                "name": [f"name: {word(name)}"],
                "runAfter": _run_after(after) if after else [],
                "params": params_lines(all_params) if all_params else [],
                "matrix": matrix_lines(rest) if rest else [],
            }
            found += there.changed(changes)
        return found

    def notes(self) -> Iterator[str]:
        """Yield what a reader should know, a line each."""
        if not self.becomes:
            yield f"{self.at.where}: '{self.name}' has no parameter of --unroll, and stays as it is."
            return
        yield f"{self.at.where}: '{self.name}' becomes {counted(len(self.becomes), 'task')}."
        for include in self.dropped:
            text = (
                "Tekton drops this combination in silence, as it shares a value with one and fits none. It is kept."
            )
            yield f"{include.where}: {text}"
        if any(self.waits.values()) and self.at.at(["onError"]).text != "continue":
            yield f"{self.at.where}: without `onError: continue` no task starts after one that fails."


def _steps(rows: list[Combination], order: Order) -> list[tuple[Combination, list[Combination]]]:
    """Return the tasks of a group: one with a matrix, or one for each combination."""
    fixed = {name: rows[0][name] for name in order.unroll if name in rows[0]}
    rest = [{name: value for name, value in row.items() if name not in fixed} for row in rows]
    return [(row, []) for row in rows] if order.single or not all(rest) else [(fixed, rest)]


def _renamed(task: Item, ends: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tasks for which a task waits, with the last ones in place of an expanded one."""
    names = [str(name.text) for name in task.listed("runAfter")]
    return list(dict.fromkeys(new for name in names for new in ends.get(name, [name])))


def _run_after(names: Sequence[str]) -> list[str]:
    return [f"runAfter: [{', '.join(map(word, names))}]"]


def distinct_names(task: str, rows: Sequence[Combination], taken: Collection[str]) -> list[str]:
    """Return a name for each combination: the task's and the values, in lower-case letters, digits and hyphens. A
    name that is too long, or not the only one, ends in a digest of the combination."""
    plain = [re.sub(r"[^a-z0-9]+", "-", "-".join((task, *row.values())).lower()).strip("-") for row in rows]
    count, equal, names = Counter([*plain, *taken]), Counter[str](), []
    for name, row in zip(plain, rows, strict=True):
        if len(name) > LONGEST_NAME or count[name] > 1:
            mark = digest({"task": task, "params": row})
            equal[mark] += 1
            mark = digest({"mark": mark, "number": equal[mark]})[:8]
            name = f"{name[: LONGEST_NAME - 9].rstrip('-')}-{mark}"
        names.append(name)
    return names


def transform(text: str, path: Path, order: Order) -> tuple[str, list[str]]:
    """Return the text with its matrices as tasks in this order, and what a reader should know of them, a line each.

    Raises UserError with the mistakes of the file.
    """
    mistakes, lines = Mistakes(), lines_of(text)
    trees = yaml_trees(text, path, mistakes)
    mistakes.raise_any()
    pipelines = [(tree, noted) for tree, noted in trees if tree.at(["kind"]).text in KINDS]
    if not pipelines:
        kind = trees[0][0].at(["kind"])
        guess = did_you_mean(kind.text, KINDS)
        mistakes.add(kind, f"expected a document of the kind {' or '.join(KINDS)}.{guess}", "not_a_choice")
    found = []
    for root, noted in pipelines:
        mistakes.note(*(mistake for mistake in noted.noted if mistake.code != "wrong_form"))  # such as a mode 0755
        found.append((root, [*_tasks(root, order, mistakes)]))
    mistakes.raise_any()
    tasks = [task for _, of_root in found for task in of_root]
    _require(order.unroll, tasks, pipelines[0][0], mistakes)
    edits = [edit for root, of_root in found for edit in _edits(root, of_root, order, lines, mistakes)]
    mistakes.raise_any()
    for first, end, new in sorted(edits, reverse=True):
        lines[first:end] = new
    changed, wrong = "".join(lines), Mistakes()
    yaml_trees(changed, path, wrong)
    if wrong.noted:
        said = (
            "cannot be changed line by line: write out aliases of what is replaced, and indent what is in brackets."
        )
        mistakes.of_file(path, said, "wrong_form", wrong.noted[0].line)
    mistakes.raise_any()
    return changed, [note for task in tasks for note in task.notes()]


def _tasks(root: Item, order: Order, mistakes: Mistakes) -> Iterator[_Task]:
    """Yield the tasks of a document that have a matrix."""
    for part in root.listed(*KINDS[str(root.at(["kind"]).text)], "tasks"):
        entries = dict(part.items())
        if "matrix" not in entries:
            continue
        if "name" not in entries:
            mistakes.add(part, "a task needs a `name`.", "missing")
            continue
        rows, dropped = read_matrix(entries["matrix"], None if order.single else order.unroll, mistakes)
        for name, value in read_params(part, mistakes).items():
            if any(name in row for row in rows):
                mistakes.add(value, f"'{name}' is a parameter of the matrix as well. Remove one.", "written_twice")
        yield _Task(at=part, name=str(entries["name"].text), rows=rows, dropped=dropped)


def _require(unroll: Sequence[str], tasks: Sequence[_Task], root: Item, mistakes: Mistakes) -> None:
    """Raise UserError without a task that has a matrix, or for a parameter that no matrix has."""
    if not tasks:
        said = "no task has a `matrix`. A `pipelineRef` names a Pipeline: give its file. `finally` has no order."
        mistakes.add(root.at(["spec", "pipelineRef"]), said, "missing")
    known = list(dict.fromkeys(name for task in tasks for row in task.rows for name in row))
    for name in unroll:
        if tasks and name not in known:
            said = f"--unroll {name}: no such parameter.{did_you_mean(name, known)} Parameters: {', '.join(known)}."
            mistakes.add(tasks[0].at.at(["matrix"]), said, "unknown_name")
    mistakes.raise_any()


def _edits(
    root: Item, tasks: Sequence[_Task], order: Order, lines: Sequence[str], mistakes: Mistakes
) -> Iterator[tuple[int, int, list[str]]]:
    """Yield what to change in a document: indices of the first line and the one after the last, and new lines."""
    where = KINDS[str(root.at(["kind"]).text)]
    parts = root.listed(*where, "tasks")
    taken = {str(part.at(["name"]).text) for part in (*parts, *root.listed(*where, "finally"))}
    for task in tasks:
        task.expand(order, taken, mistakes)
        taken |= task.becomes.keys()
    expanded = {task.name: task for task in tasks if task.becomes}
    ends = {name: last_of([*task.becomes], task.waits) for name, task in expanded.items()}
    _require_no_use(root, [*expanded], lines, mistakes)
    for part in parts:
        changed = expanded.get(str(part.at(["name"]).text))
        if changed is None and not ends.keys() & {name.text for name in part.listed("runAfter")}:
            continue
        if there := ItemLines.read(part, lines, mistakes):
            after = {"runAfter": _run_after(_renamed(part, ends))}
            yield there.first, there.end, changed.lines(there, ends) if changed else there.changed(after)
    for part in root.listed("spec", "taskRunSpecs"):
        changed = expanded.get(str(part.at(["pipelineTaskName"]).text))
        if changed and (there := ItemLines.read(part, lines, mistakes)):
            new = [{"pipelineTaskName": [f"pipelineTaskName: {word(name)}"]} for name in changed.becomes]
            yield there.first, there.end, [line for change in new for line in there.changed(change)]


def _require_no_use(root: Item, names: Sequence[str], lines: Sequence[str], mistakes: Mistakes) -> None:
    """Note each use of the results or the state of a task that is replaced."""
    uses = re.compile(rf"\$\(tasks\.({'|'.join(map(re.escape, names))})\.")
    ahead = [root] if names else []
    while ahead:
        part = ahead.pop()
        ahead += part.value if isinstance(part.value, list) else [inner for _, inner in part.items()]
        for use in uses.finditer(part.text or ""):
            line = next((i for i in range(part.line, len(lines) + 1) if use[0] in lines[i - 1]), part.line)
            said = f"refers to '{use[1]}', which becomes several tasks. Let them write results to a workspace."
            mistakes.add(replace(part, line=line), said, "conflict")
