"""The registry is complete: every record has its formula, its tests, its operator and its place in the documentation."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import cases
import oracles
import plain
import pytest
import torch

import torchpairwise as tp
from torchpairwise import _native, _registry

HERE = Path(__file__).parent
SCHEMAS = HERE / "schemas.txt"
# Where a record stands in the tests if not in the table: tests/test_parts.py and test_reductions.py.
ELSEWHERE = {"between", "first_rows", "first_columns", "dilated", "off_diagonal", "histogram"}


def operator_schemas() -> list[str]:
    found = [str(schema) for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("torchpairwise::")]
    return sorted(found)


def test_schemas_are_those_of_the_snapshot() -> None:
    """Programs that were exported hold these schemas. After a deliberate change: python tests/test_registry.py > tests/schemas.txt"""
    assert operator_schemas() == SCHEMAS.read_text().splitlines()


def test_every_record_has_a_row_in_the_table() -> None:
    named = {row.record for row in cases.EXPRESSIONS}
    assert {info.name for info in tp.metrics()} <= named
    assert set(_registry.NODES) <= named and set(_registry.JOINS) <= named
    assert set(_registry.MASKS) - ELSEWHERE <= {record for mask in cases.MASKS for record in mask.records}
    assert set(_registry.CONSUMERS) - ELSEWHERE == {row.record for row in cases.CONSUMERS}
    assert {row.record for row in cases.METRICS} <= {info.name for info in tp.metrics()}


@pytest.mark.parametrize("module", [oracles, plain], ids=["oracles", "plain"])
def test_both_twins_define_every_record(module: object) -> None:
    assert set(module.METRICS) == {info.name for info in tp.metrics()}  # type: ignore[attr-defined]
    assert set(module.NODES) == set(_registry.NODES) and set(module.JOINS) == set(_registry.JOINS)  # type: ignore[attr-defined]
    assert set(module.CONSUMERS) == set(_registry.CONSUMERS) - ELSEWHERE  # type: ignore[attr-defined]


def test_every_record_says_what_it_is() -> None:
    for section in ("sources", "metrics", "nodes", "joins", "masks", "tables", "consumers"):
        records = _native.describe()[section]
        names = [record["name"] for record in records]
        assert len(set(names)) == len(names) > 0
        assert all(record["formula"] and re.fullmatch(r"[a-z0-9_]+", record["name"]) for record in records)


def test_names_and_aliases_are_unique_and_found() -> None:
    names = [name for info in tp.metrics() for name in (info.name, *info.aliases)]
    assert len(set(names)) == len(names)
    for name in names:
        assert tp.metric_info(name) in tp.metrics()
        typo = name[:-1] + ("x" if name[-1] != "x" else "y")
        if typo not in names and len(name) > 3:
            with pytest.raises(ValueError, match="Did you mean"):
                tp.metric_info(typo)
    for info in tp.metrics():
        assert info.kind in ("similarity", "distance", "kernel") and info.source in _registry.SOURCES
        for step in info.program.split("; ") if info.program else []:
            assert step.split(" ")[0] in _registry.NODES
        for parameter in info.parameters:
            assert parameter.meaning and (parameter.value == "1/D" or float(parameter.value) is not None)


def test_transposed_nodes_come_back() -> None:
    for info in _registry.NODES.values():
        assert _registry.NODES[info.transposed].transposed == info.name


@pytest.mark.parametrize("name", _registry.CONSUMERS)
def test_every_consumer_has_operator_shapes_and_method(name: str) -> None:
    assert hasattr(torch.ops.torchpairwise, name)
    for key in ("Meta", "Autograd", "CompositeExplicitAutograd"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"torchpairwise::{name}", key)
    method = getattr(tp.PairwiseExpression, name)
    assert method.__doc__ and "Example" in method.__doc__


def test_every_public_method_is_documented() -> None:
    for name, member in inspect.getmembers(tp.PairwiseExpression):
        if not name.startswith("_") and callable(member):
            assert member.__doc__ and "Example" in member.__doc__ or name in ("T", "ne"), name


def test_documentation_lists_every_record() -> None:
    import importlib.util

    path = HERE.parent / "docs" / "build_steps" / "registry_tables.py"
    spec = importlib.util.spec_from_file_location("registry_tables", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    registry = _native.describe()
    text = module.tables(registry)
    assert set(text) == set(module.TABLES)
    for section in ("sources", "metrics", "nodes", "joins", "masks", "tables", "consumers"):
        table = "".join(text.values())
        for record in registry[section]:
            assert record["formula"].replace("|", r"\|") in table


def test_replay_and_sweep_pass_opcheck() -> None:
    X, Y, V = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (5, 3), (5, 2)))
    program = "sqeuclidean 0 1; scale #0; exp | causal #1"
    gradient = torch.randn(4, 2, dtype=torch.float64)
    output, lse, remainder = (x.detach() for x in torch.ops.torchpairwise.softmax_matmul([X, Y], program, [-0.5, 1.0], V, -1))
    arguments = ("softmax_matmul", [gradient, None, None], [X, Y], program, [-0.5, 1.0], V)
    arguments += ([output, lse, remainder], -1, 0, False, [True, False, True])
    torch.library.opcheck(torch.ops.torchpairwise.replay.default, arguments)
    arguments = ("sum", [torch.ones(4, dtype=torch.float64)], [X, Y], program, [-0.5, 1.0], None, [None], -1, 0, False, [True, True])
    torch.library.opcheck(torch.ops.torchpairwise.replay.default, arguments)
    torch.library.opcheck(torch.ops.torchpairwise.histogram.default, ([X.detach(), Y.detach()], program, [-0.5, 1.0], 4, -1, 0.0, 1.0))


if __name__ == "__main__":
    print("\n".join(operator_schemas()))
