"""What test_attend.py asks of maskers and attention in the environment `evaluation`. Every answer is JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch

from seamark_evaluate.attention.attend import attend, dense
from seamark_evaluate.attention.maskers import select
from seamark_evaluate.attention.method import Method, read_method
from seamark_evaluate.attention.selection import Step

torch.set_num_threads(1)

SIZE = 16


def method(maskers: Sequence[Mapping[str, Any]]) -> Method:
    return read_method({"name": "here", "maskers": list(maskers)}, "here")


def kept(cases: Sequence[Mapping[str, Any]]) -> Any:
    """Give, for each case, kept keys of each row of its one head, their weights, and the output over its values."""
    return [_kept(case) for case in cases]


def _kept(case: Mapping[str, Any]) -> Any:
    queries, keys = (torch.tensor([case[name]], dtype=torch.float32) for name in ("queries", "keys"))
    values = torch.tensor([case.get("values", [[0.0]] * keys.shape[1])], dtype=torch.float32)
    chosen = method(case["maskers"])
    options = {"scale": 1.0, "layer": 0}
    first = keys.shape[1] - queries.shape[1]
    generators = [torch.Generator().manual_seed(case.get("seed", 0)) for _ in range(3)]
    selection = select(Step(queries=queries, keys=keys, first=first, generator=generators[0], **options), chosen)
    rows = [row.nonzero()[:, 0].tolist() for row in selection.kept[0]]
    weights = [(1 / p[row]).tolist() for p, row in zip(selection.probability[0], rows, strict=True)]
    outputs = [
        attend(queries, keys, values, method=chosen, kernel=kernel, generator=generator, **options)
        for kernel, generator in zip(("masked", "gathered"), generators[1:], strict=True)
    ]
    return {
        "kept": rows,
        "weights": weights,
        "outputs": [attended.output[0].tolist() for attended in outputs],
        "counts": [[attended.kept, attended.allowed] for attended in outputs],
    }


def mean_output(case: Mapping[str, Any], seeds: int) -> float:
    """Give the mean over seeds of the first output of the kernel `gathered`."""
    return sum(_kept({**case, "seed": seed})["outputs"][1][0][0] for seed in range(seeds)) / seeds


def sampled(maskers: Sequence[Mapping[str, Any]], keys: Sequence[Sequence[float]], draws: int) -> Any:
    """Give, over draws, the mean weight of each key (0 where it is not kept) and how often each number is kept.

    A draw is a head of one step, since every head draws for itself; for `lsh` it is a seed of the projections, which
    all heads share.
    """
    hashed = any(each["masker"] == "lsh" for each in maskers)
    heads, seeds = (1, draws) if hashed else (draws, 1)
    weights = []
    for seed in range(seeds):
        step = Step(
            queries=torch.tensor([[[1.0, 0.0]]]).repeat(heads, 1, 1),
            keys=torch.tensor([keys]),
            scale=1.0,
            layer=0,
            first=len(keys) - 1,
            generator=torch.Generator().manual_seed(seed),
        )
        drawn = method([{**each, "seed": seed} if each["masker"] == "lsh" else each for each in maskers])
        selection = select(step, drawn)
        weights.append(torch.where(selection.kept, 1 / selection.probability, 0.0)[:, 0])
    every = torch.cat(weights)
    counts = Counter((every > 0).sum(dim=1).tolist())
    return {"mean_weights": every.mean(dim=0).tolist(), "counts": counts}


def random_inputs(queries: int, keys: int, heads: int = 8, groups: int = 2) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(queries * 1000 + keys)
    shapes = (heads, queries, SIZE), (groups, keys, SIZE), (groups, keys, SIZE)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)  # type: ignore[return-value]


def compared(methods: Sequence[Sequence[Mapping[str, Any]]], shapes: Sequence[tuple[int, int]]) -> Any:
    """Give, for each method and shape (queries, keys), how far both kernels are from each other and from plain dense
    attention of repeated heads, and what they count."""
    answer = []
    for maskers, (queries, keys) in product(methods, shapes):
        q, k, v = random_inputs(queries, keys)
        chosen, options = method(maskers), {"scale": SIZE**-0.5, "layer": 1, "measure_error": True}
        both = [
            attend(q, k, v, method=chosen, kernel=kernel, generator=torch.Generator().manual_seed(5), **options)
            for kernel in ("masked", "gathered")
        ]
        literal = _literal(q, k, v)
        answer.append(
            {
                "maskers": [each["masker"] for each in maskers],
                "shape": [queries, keys],
                "apart": float((both[0].output - both[1].output).abs().max()),
                "from_dense": max(float((each.output - literal).abs().max()) for each in both),
                "errors": [each.error for each in both],
                "kept": [each.kept for each in both],
                "allowed": both[0].allowed,
                "bytes": [each.kv_bytes_read for each in both],
                "all_bytes": k.numel() * 4 + v.numel() * 4,
                "finite": all(bool(each.output.isfinite().all()) for each in both),
            }
        )
    return answer


def _literal(q: Any, k: Any, v: Any) -> Any:
    """Causal attention written out, with each key-value head repeated for the queries of its group."""
    k, v = (each.repeat_interleave(q.shape[0] // k.shape[0], dim=0) for each in (k, v))
    scores = q @ k.transpose(1, 2) * SIZE**-0.5
    ahead = torch.arange(k.shape[1]) > torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None]
    assert (dense(q, k[:: q.shape[0] // 2], v[:: q.shape[0] // 2], SIZE**-0.5)).shape == q.shape
    return scores.masked_fill(ahead, float("-inf")).softmax(dim=-1) @ v


def row_by_row(methods: Sequence[Sequence[Mapping[str, Any]]], queries: int, keys: int) -> Any:
    """Give how far a step of many queries is from as many steps of one: no row may see what comes after it."""
    q, k, v = random_inputs(queries, keys)
    answer = []
    for maskers in methods:
        options = {"method": method(maskers), "scale": SIZE**-0.5, "layer": 0}
        apart = []
        for kernel in ("masked", "gathered"):
            whole = attend(q, k, v, kernel=kernel, **options)
            ends = range(keys - queries + 1, keys + 1)
            single = [
                attend(q[:, row : row + 1], k[:, :end], v[:, :end], kernel=kernel, **options)
                for row, end in enumerate(ends)
            ]
            apart.append(float((whole.output - torch.cat([each.output for each in single], dim=1)).abs().max()))
            assert whole.kept == sum(each.kept for each in single)
        answer.append(max(apart))
    return answer


def in_bfloat16(methods: Sequence[Sequence[Mapping[str, Any]]]) -> Any:
    """Give how far bfloat16 inputs lead from float32 ones, by kernel."""
    q, k, v = random_inputs(3, 200)
    answer = []
    for maskers in methods:
        for kernel in ("masked", "gathered"):
            options = {"method": method(maskers), "kernel": kernel, "scale": SIZE**-0.5, "layer": 0}
            low = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), **options).output
            same = attend(*(each.bfloat16().float() for each in (q, k, v)), **options).output
            answer.append([str(low.dtype), float((low.float() - same).abs().max())])
    return answer


def trained(folder: str) -> Any:
    """Give what hash_top_k keeps with weights that read the second channel alone, and what wrong files say."""
    from pathlib import Path

    from safetensors.torch import save_file

    from seamark.errors import UserError

    def asked(name: str, tensors: Mapping[str, Any] | None) -> Any:
        path = Path(folder) / name
        if tensors is not None:
            save_file({key: each.clone() for key, each in tensors.items()}, path)
        masker = {"masker": "hash_top_k", "keys": 1, "bits": 1, "weights": str(path)}
        case = {"queries": [[0.0, 1.0]], "keys": [[1.0, -1.0], [-1.0, 2.0], [1.0, -1.0]], "maskers": [masker]}
        try:
            return _kept(case)["kept"][0]
        except UserError as error:
            return str(error)

    second = torch.tensor([[[0.0], [1.0]]])
    right = {"layers.0.query.0.weight": second, "layers.0.key.0.weight": second}
    two_steps = {
        "layers.0.query.0.weight": second,
        "layers.0.query.1.weight": torch.tensor([[[1.0]]]),
        "layers.0.key.0.weight": torch.eye(2)[None],
        "layers.0.key.1.weight": second,
        "layers.0.key.1.bias": torch.tensor([[-1.0]]),
    }
    return {
        "right": asked("right", right),
        "two steps": asked("two", two_steps),
        "missing": asked("none", None),
        "other layer": asked("other", {name.replace("0", "7", 1): each for name, each in right.items()}),
        "other model": asked("heads", {name: each.repeat(2, 1, 1) for name, each in right.items()}),
        "other bits": asked("bits", {name: each.repeat(1, 1, 2) for name, each in right.items()}),
    }
