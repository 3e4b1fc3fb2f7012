"""Hypothesis strategies for rollouts that no sampler would be likely to write.

Completions of no token and of one, with the end token at their end, inside or cut off; siblings
that are equal or begin alike; prompts that hold the end token, come again in other nodes, begin
like one another, or go on from an earlier prompt and its completion as a conversation does; ragged
trees with branches that end early, agents that wait or leave, and rewards of each agent's own.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tiny_families import END, VOCABULARY

from motet.agents import Completion
from motet.algos import Node, Rollout

# the same examples each time: a failure is there for everybody, at once and again
REPEATABLE = settings(
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

Draw = st.DrawFn
Ids = tuple[int, ...]

MAX_COMPLETIONS = 40  # of a rollout: each of their tokens costs the reference a forward pass
LONGEST_PROMPT = 40
# agents and generations; the small ones are deep
SIZES = [
    *((2, 2), (1, 2), (2, 3), (3, 2), (1, 3), (2, 2), (2, 3), (1, 4)),
    *((2, 4), (1, 5), (3, 3), (1, 6), (2, 5), (1, 7), (1, 8), (2, 8)),
]
NAMES = ("agent_0", "agent_1", "agent_2")

# the end token about once in seven
token = st.integers(END - 6, VOCABULARY - 1).map(lambda drawn: max(drawn, END))


def ids(min_size: int, max_size: int) -> st.SearchStrategy[Ids]:
    return st.lists(token, min_size=min_size, max_size=max_size).map(tuple)


@dataclass(frozen=True)
class Shape:
    """What all nodes of a drawn rollout have in common."""

    agents: tuple[str, ...]
    num_generations: int
    joint_mode: str
    num_turns: int
    ends_early: bool
    conversation: bool  # every later prompt goes on from the earlier one
    stems: tuple[Ids, ...]  # what completions begin with
    own_rewards: bool
    greedy: bool  # what greedy episodes earned is known


@st.composite
def shapes(draw: Draw, *, greedy: bool = False) -> Shape:
    num_agents, num_generations = draw(st.sampled_from(SIZES))
    return Shape(
        agents=NAMES[:num_agents],
        num_generations=num_generations,
        joint_mode=draw(st.sampled_from(["aligned", "cross"])),
        num_turns=draw(st.sampled_from([1, 2, 2, 3, 3, 3])),
        ends_early=draw(st.booleans()),
        conversation=draw(st.booleans()),
        stems=tuple(draw(st.lists(ids(0, 3), min_size=1, max_size=3))),
        own_rewards=draw(st.booleans()),
        greedy=greedy,
    )


@st.composite
def completions(draw: Draw, prompt: Ids, stems: Sequence[Ids]) -> Completion:
    stem, tail, end = draw(st.sampled_from(stems)), draw(ids(0, 2)), draw(st.booleans())
    written = stem + tail + ((END,) if end else ())
    kept = draw(st.sampled_from([-1.0, -2.5, -4.0]))
    return Completion(
        text="",
        prompt_ids=prompt,
        completion_ids=written,
        log_probs=tuple(kept + 0.3 * (7 * t % 5 - 2) for t in range(len(written))),
        finish_reason="stop" if end else "length",
    )


@st.composite
def prompts(draw: Draw, known: Sequence[Ids], conversation: Ids | None) -> Ids:
    """A prompt that is new or related to those known; `conversation` is what happened so far."""
    how = draw(st.sampled_from(["new", "same", "longer", "shorter", "conversation"]))
    if how == "conversation" and conversation is not None:
        return conversation + draw(ids(0, 3))
    if how == "new" or not known:
        return draw(ids(1, 6))
    other = draw(st.sampled_from(known))
    if how == "longer":
        return other + draw(ids(1, 3))
    return other[: draw(st.integers(1, len(other)))] if how == "shorter" else other


@dataclass(frozen=True)
class _Place:
    """Where a node goes: its tree, who is still there, and each one's conversation so far."""

    row: int
    live: tuple[str, ...]
    so_far: dict[str, Ids]


@st.composite
def _nodes(draw: Draw, shape: Shape, place: _Place, turn: int, known: list[Ids]) -> Node:
    """A node without children; the new prompts are added to those known."""
    acting = place.live
    if len(acting) > 1 and draw(st.integers(0, 4)) == 4:
        acting = tuple(draw(st.lists(st.sampled_from(acting), min_size=1, unique=True)))
    groups = {}
    for name in [name for name in place.live if name in acting]:
        so_far = place.so_far.get(name)
        if shape.conversation and so_far is not None:
            prompt = so_far + draw(ids(0, 3))
        else:
            prompt = draw(prompts(known, so_far))
        prompt = prompt[:LONGEST_PROMPT]
        known.append(prompt)
        group = st.lists(
            completions(prompt, shape.stems),
            min_size=shape.num_generations,
            max_size=shape.num_generations,
        )
        groups[name] = tuple(draw(group))
    picks = range(shape.num_generations)
    joint = [(k,) * len(groups) for k in picks]
    if shape.joint_mode == "cross":
        joint = list(itertools.product(picks, repeat=len(groups)))
    size = len(joint)
    reward = st.sampled_from([0.0, 1.0, 0.25, -0.5, 2.0, 0.75, -1.25])
    values = st.lists(reward, min_size=size, max_size=size).map(tuple)
    common = draw(values)
    greedy = st.lists(reward, min_size=1, max_size=shape.num_turns).map(tuple)
    return Node(
        row=place.row,
        turn=turn,
        observations=dict.fromkeys(groups, ""),
        completions=groups,
        joint_actions=tuple(joint),
        rewards={name: draw(values) if shape.own_rewards else common for name in place.live},
        ended=(True,) * size,
        children=(None,) * size,
        turns_credited=(1,) * size,
        greedy_rewards={name: draw(greedy) for name in place.live} if shape.greedy else {},
        greedy_turns_credited=draw(st.integers(1, 3)) if shape.greedy else 1,
    )


@st.composite
def _grown(
    draw: Draw, shape: Shape, nodes: Sequence[tuple[_Place, Node]], turn: int, room: int
) -> tuple[list[Node], list[_Place]]:
    """The nodes of a level with their ends drawn, and the places of the next level."""
    grown, following = [], []
    to_come = shape.num_turns - turn
    room = -(-room // max(to_come, 1))  # leave some to the levels after the next
    for place, node in nodes:
        children: list[int | None] = []
        credited = []
        for joint in node.joint_actions:
            goes_on = to_come > 0 and len(following) < room
            if goes_on and shape.ends_early:
                goes_on = draw(st.booleans())
            children.append(len(following) if goes_on else None)
            credited.append(1 if goes_on or not to_come else draw(st.integers(1, 3)))
            if goes_on:
                said = {
                    name: group[k]
                    for (name, group), k in zip(node.completions.items(), joint, strict=True)
                }
                so_far = place.so_far | {
                    name: one.prompt_ids + one.completion_ids for name, one in said.items()
                }
                leaves = len(place.live) > 1 and draw(st.integers(0, 7)) == 7
                live = place.live[: -1 if leaves else None]
                following.append(_Place(place.row, live, so_far))
        grown.append(
            replace(
                node,
                ended=tuple(child is None for child in children),
                children=tuple(children),
                turns_credited=tuple(credited),
            )
        )
    return grown, following


@st.composite
def rollouts(draw: Draw, shape: Shape) -> Rollout:
    """Trees of one or two rows, as many nodes as the reference has patience for."""
    room = max(1, MAX_COMPLETIONS // (len(shape.agents) * shape.num_generations))
    rows = draw(st.sampled_from([1, 1, 2])) if room > 1 else 1
    places = [_Place(row, shape.agents, {}) for row in range(rows)]
    known: list[Ids] = []
    levels: list[tuple[Node, ...]] = []
    while places:
        turn = len(levels) + 1
        room -= len(places)
        nodes = [(place, draw(_nodes(shape, place, turn, known))) for place in places]
        level, places = draw(_grown(shape, nodes, turn, room))
        levels.append(tuple(level))
    return Rollout(shape.agents, tuple(levels))
