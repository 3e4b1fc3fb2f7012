"""What a page shows, as plain lists and dicts for JSON: small, and each text in it once.

The script of the page (`assets/`) reads exactly this; the short names of a node are explained in
`_node_data`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from motet.agents import Completion
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.rollouts.rollout import Node
from motet.algos.viewer.fates import fates, sizes_below
from motet.algos.viewer.rollout_files import SavedRollout
from motet.algos.viewer.run_record import RunRecord
from motet.algos.viewer.settings import is_number
from motet.algos.viewer.tree_summary import tree_summaries

Data = dict[str, Any]


class Texts:
    """A table of texts in which equal ones share a place."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Return the place of a text, the next free one for a new text."""
        return self._places.setdefault(text, len(self._places))

    def listed(self) -> list[str]:
        """Return the texts by place."""
        return list(self._places)


def page_data(record: RunRecord) -> Data:
    """Return all that the page of a run shows."""
    texts = Texts()
    settings = record.settings
    rollouts = [
        rollout_data(each, texts, settings.discount, settings.num_turns) for each in record.saved
    ]
    return {
        "name": record.name,
        "facts": [list(fact) for fact in settings.facts],
        "settings": settings.text,
        "num_turns": settings.num_turns,
        "discount": settings.discount,
        "notices": record.notices,
        "written": record.written.isoformat(timespec="seconds") if record.written else None,
        "metrics": metrics_data(record.entries),
        "rollouts": rollouts,
        "texts": texts.listed(),
    }


def metrics_data(entries: Sequence[Mapping[str, Any]]) -> Data:
    """Return a log by columns: `step`, and by metric a number or None for each entry."""
    names = sorted(
        {
            name
            for entry in entries
            for name, value in entry.items()
            if name != "step" and compact(value) is not None
        }
    )
    return {
        "step": [entry["step"] for entry in entries],
        "columns": {name: [compact(entry.get(name)) for entry in entries] for name in names},
    }


def rollout_data(
    saved: SavedRollout, texts: Texts, discount: float | None, num_turns: int | None
) -> Data:
    """Return a rollout as one list of nodes, in which children are places, and its trees.

    Args:
        saved: the rollout.
        texts: gets its texts.
        discount: weight of the next turn in returns; None takes 1.
        num_turns: of the task, where it is known.
    """
    rollout = saved.rollout
    returns: Sequence[Sequence[Mapping[str, Any]]] | None = None
    if not saved.is_cut:
        returns = rollout_returns(rollout, 1.0 if discount is None else discount)
    ends = fates(rollout, num_turns)
    nodes: list[Data] = []
    for depth, (level, room) in enumerate(zip(rollout.levels, sizes_below(rollout), strict=True)):
        below = len(nodes) + len(level)
        for index, node in enumerate(level):
            data = _node_data(node, rollout.agents, texts)
            data["end"] = ends[depth][index]
            data["next"] = [
                -1 if child is None or child >= room else below + child for child in node.children
            ]
            if returns is not None:
                data["return"] = _by_agent(returns[depth][index], rollout.agents)
            nodes.append(data)
    return {
        "kind": saved.kind,
        "number": saved.number,
        "cut": saved.is_cut,
        "agents": list(rollout.agents),
        "nodes": nodes,
        "trees": tree_summaries(rollout, returns),
    }


def compact(value: Any) -> float | int | None:
    """Return a number with six digits, None for what is none or is not finite: short in JSON."""
    if not is_number(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def utf16_lengths(text: str, ends: Sequence[int]) -> list[int]:
    """Return the length of each token's text in the units in which JavaScript counts.

    Args:
        text: of a completion.
        ends: (T,) where each token's text ends in it, in Python's characters.
    """
    ends = [min(end, len(text)) for end in ends]
    starts = [0, *ends[:-1]]
    if text.isascii() or max(text) <= "\uffff":
        return [end - start for start, end in zip(starts, ends, strict=True)]
    return [
        sum(1 + (letter > "\uffff") for letter in text[start:end])
        for start, end in zip(starts, ends, strict=True)
    ]


def _node_data(node: Node, agents: Sequence[str], texts: Texts) -> Data:
    """Return a node; agents are places in the rollout's list of them.

    row, turn; acts: (N,) agents; prompts: (N,) texts; said: (N, G) completions; joint: (J, N)
    picks; paid: by agent (J,) rewards, or one list where all are paid the same; and only where
    there is something to say: credited, greedy, greedy_credited, drafts, state.
    """
    data: Data = {
        "row": node.row,
        "turn": node.turn,
        "acts": [agents.index(name) for name in node.completions],
        "prompts": [texts.place(node.observations[name]) for name in node.completions],
        "said": [_group_data(node, name, texts) for name in node.completions],
        "joint": [list(picks) for picks in node.joint_actions],
        "paid": _by_agent(node.rewards, agents),
    }
    if any(turns != 1 for turns in node.turns_credited):
        data["credited"] = list(node.turns_credited)
    if node.greedy_rewards:
        data["greedy"] = {
            name: [compact(reward) for reward in own] for name, own in node.greedy_rewards.items()
        }
        data["greedy_credited"] = node.greedy_turns_credited
    if any(node.drafts.values()):
        data["drafts"] = {
            name: [_completion_data(each, texts) for each in group]
            for name, group in node.drafts.items()
        }
    if node.state:
        data["state"] = texts.place(node.state)
    return data


def _group_data(node: Node, agent: str, texts: Texts) -> list[Data]:
    group = [_completion_data(each, texts) for each in node.completions[agent]]
    for data, advantage in zip(group, node.advantages.get(agent, ()), strict=False):
        if isinstance(advantage, tuple):
            data["advantage"] = [_short(each) for each in advantage]
        else:
            data["advantage"] = compact(advantage)  # null: not trained
    spans = zip(group, node.completions[agent], node.token_offsets.get(agent, ()), strict=False)
    for data, completion, ends in spans:
        if len(ends) == len(completion.completion_ids):
            data["tokens"] = utf16_lengths(completion.text, ends)
    return group


def _completion_data(completion: Completion, texts: Texts) -> Data:
    data: Data = {"text": texts.place(completion.text), "length": len(completion.completion_ids)}
    if completion.finish_reason == "length":
        data["is_cut"] = 1
    return data


def _short(value: float) -> float | int | None:
    """Return an advantage of one token with four digits: there may be millions."""
    return compact(float(f"{value:.4g}"))


def _by_agent(values: Mapping[str, Any], agents: Sequence[str]) -> Data:
    """Return (J,) numbers by agent, or those of all at once where they are the same."""
    lists = {
        agents.index(name): [compact(float(each)) for each in own] for name, own in values.items()
    }
    if len({tuple(own) for own in lists.values()}) == 1 and len(lists) == len(agents):
        return {"all": next(iter(lists.values()))}
    return {str(place): own for place, own in lists.items()}
