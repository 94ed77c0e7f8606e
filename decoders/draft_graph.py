"""Calibrated draft graphs (Spiffy): which sets of fills the target reaches, by rank.

A fill is named by ranks, not places: (i, j) is the j-th candidate of the i-th most confident masked
position of the stale distribution. A node is a set of such fills beyond the root; a graph lists
nodes so that every prefix of the list is closed: each node extends an earlier one (or the root) by
one fill. So the first D nodes are the graph of budget D.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from decoders.stale import TOP_CANDIDATES

Fill = tuple[int, int]
"""(rank of the position among the root's masked ones, rank of the token), both from 0."""

Node = tuple[Fill, ...]
"""A set of fills, sorted."""

MODEL_TYPE = "maskahead-graph"


@dataclass(frozen=True)
class DraftGraph:
    """Nodes in the order in which a budget takes them; ``reached[n]`` is the share of calibration
    states from which the target went through node n."""

    cap: float
    nodes: tuple[Node, ...]
    reached: tuple[float, ...]

    @cached_property
    def parents(self) -> tuple[tuple[Node, ...], ...]:
        """Of every node, the sets of one fill less; the root's is empty."""
        return tuple(tuple(tuple(f for f in n if f != last) for last in n) for n in self.nodes)


@dataclass(frozen=True)
class GraphFile:
    """Graphs of one target by cap, and where they come from."""

    graphs: tuple[DraftGraph, ...]
    provenance: Mapping[str, Any]

    def at(self, cap: float) -> DraftGraph:
        """The graph that was calibrated at the cap nearest to ``cap``."""
        return min(self.graphs, key=lambda graph: abs(graph.cap - cap))


def save_graphs(file: GraphFile, path: Path) -> None:
    """Write graphs and provenance as JSON."""
    content = {
        "model_type": MODEL_TYPE,
        "provenance": dict(file.provenance),
        "graphs": [
            {"cap": g.cap, "nodes": g.nodes, "reached": [round(r, 5) for r in g.reached]}
            for g in file.graphs
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
    partial.replace(path)  # whoever finds the file takes it for whole


def load_graphs(path: Path) -> GraphFile:
    """Read and check a file of :func:`save_graphs`; ``ValueError`` names what is wrong."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        kind = content["model_type"]
        graphs = tuple(_read_graph(graph) for graph in content["graphs"])
    except OSError as error:
        raise ValueError(f"graph {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"graph {path}: not a file of `maskahead calibrate` ({error})") from error
    if kind != MODEL_TYPE:
        raise ValueError(f"graph {path}: model_type {kind!r} is not {MODEL_TYPE!r}")
    if not graphs:
        raise ValueError(f"graph {path}: no graphs")
    for graph in graphs:
        check_closed(graph, path)
    return GraphFile(graphs, content.get("provenance", {}))


def _read_graph(values: Mapping[str, Any]) -> DraftGraph:
    nodes = tuple(tuple(sorted((int(i), int(j)) for i, j in node)) for node in values["nodes"])
    return DraftGraph(float(values["cap"]), nodes, tuple(map(float, values["reached"])))


def check_closed(graph: DraftGraph, where: Path) -> None:
    """Raise ``ValueError`` unless every node extends an earlier one, or the root, by one fill."""
    if len(graph.reached) != len(graph.nodes):
        raise ValueError(
            f"graph {where}: {len(graph.nodes)} nodes and {len(graph.reached)} values of reached"
        )
    for name, value in [("cap", graph.cap), *(("reached", r) for r in graph.reached)]:
        if not 0 <= value <= 1:
            raise ValueError(f"graph {where}: {name} {value} must be between 0 and 1")
    known: set[Node] = {()}
    for node in graph.nodes:
        fits = all(i >= 0 and 0 <= j < TOP_CANDIDATES for i, j in node)
        shorter = any(tuple(f for f in node if f != fill) in known for fill in node)
        doubled = node in known or len({i for i, _ in node}) < len(node)
        if not fits or not shorter or doubled:
            raise ValueError(f"graph {where}: node {list(node)} is not reached through its graph")
        known.add(node)
