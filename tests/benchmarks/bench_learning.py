"""How long it takes to learn `story-length-ratio-v0`: Motet beside CoMLRL.

Two agents, each the embedded model, begin at a mean reward of about 0.4 and train at one turn until
the mean over the last ten prompts, one pass over all of them, reaches 0.9. Seconds are those of
sampling and updates in one thread, of the processor, so that others' work on the machine does not
stretch them; nobody evaluates, and loading does not count. Both have the same weights,
prompts in the same order, G, every story rewarded beside all of the other agent's
(joint_mode="cross"), the same most tokens, prompts per update, learning rate, AdamW with the same
weight decay, temperature 1 without top-k and top-p, advantages divided by the group's spread, and
no clipping of gradients. Seeds are 0, 1 and 2, and mean something else in each.

What differs, because CoMLRL 1.4.3 has no setting for it: it samples prompts one by one, Motet all
of an update at once; and it trains on the padding that follows a completion's end, Motet up to the
stop token. That padding holds it back, so that there are two rows of it: as it is, and mended, with
the padding cut off before the update. A peer that gives up counts with the time until then.

    make bench-learning
    make bench-learning ARGS="--repeats 1 --goal 0.8"
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from learning_work import Learned, LearningWork, first_reached
from training_runner import (
    Runner,
    add_common_arguments,
    add_peers_argument,
    alternately,
    model_folder,
    print_about,
    write_json,
)
from training_targets import Target, print_targets
from training_work import Work

from motet.envs.story_length_ratio import PROMPTS

# By name: whose script it is, and whether its padding is cut.
SIDES = {
    "motet": ("motet", False),
    "comlrl": ("comlrl", False),
    "comlrl, mended": ("comlrl", True),
}
GOAL = 5.0


@dataclass(frozen=True, slots=True)
class Time:
    """What it took to reach the goal, or how far a side came.

    Attributes:
        seconds: of training; all of them where the goal was not reached.
        updates: of each agent.
        prompts: seen.
        reached: whether the goal was.
    """

    seconds: float
    updates: float
    prompts: int
    reached: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, and return the exit status."""
    args = parse(argv)
    about = print_about(args)
    runner = Runner(args.peers_python, args.num_threads)
    model = model_folder("pocket")

    def run(side: str, seed: int) -> Learned | str:
        whose, cut_padding = SIDES[side]
        learning = learning_of(args, model, seed, cut_padding=cut_padding)
        made = runner.start(f"{whose}_learning", whose, asdict(learning))
        learned = made if isinstance(made, str) else Learned(**made)
        print(line_of(args, seed, side, learned), flush=True)
        return learned

    print(f"\n{'seed':>4}  {'side':<16}{'seconds':>9}{'updates':>9}{'prompts':>9}")
    by_side = dict(zip(SIDES, alternately(list(SIDES), args.repeats, run), strict=True))
    times = {
        side: [
            None if isinstance(one, str) else time_of(one, args.goal, args.window) for one in runs
        ]
        for side, runs in by_side.items()
    }
    peers = [side for side in SIDES if side != "motet"]
    targets = [learning_target(side, times["motet"], times[side]) for side in peers]
    print_targets(targets)
    results = {
        side: [one if isinstance(one, str) else asdict(one) for one in runs]
        for side, runs in by_side.items()
    }
    whole = {**about, "goal": args.goal, "window": args.window, "results": results}
    made = [{**asdict(target), "met": target.met} for target in targets]
    write_json(args.json, {**whole, "targets": made})
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how long it takes to learn.")
    parser.add_argument("--goal", type=float, default=0.9, help="mean reward to reach")
    parser.add_argument("--window", type=int, default=10, help="prompts that the mean is over")
    parser.add_argument("--max-prompts", type=int, default=400, help="when to give up")
    parser.add_argument("--num-generations", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--prompts-per-update", type=int, default=5, help="1, 2, 5 or 10")
    add_common_arguments(parser, repeats=3, threads=None)
    parser.set_defaults(num_threads=1)
    add_peers_argument(parser)
    args = parser.parse_args(argv)
    if not 1 <= args.window <= args.max_prompts:
        parser.error(
            f"Expected --window from 1 to --max-prompts={args.max_prompts}, got {args.window}."
        )
    if args.prompts_per_update < 1 or len(PROMPTS) % args.prompts_per_update:
        parser.error(
            f"Expected --prompts-per-update of 1, 2, 5 or 10, got {args.prompts_per_update}: "
            "CoMLRL empties its buffer at the end of each pass."
        )
    return args


def learning_of(
    args: argparse.Namespace, model: str, seed: int, *, cut_padding: bool
) -> LearningWork:
    work = Work(
        model=model,
        prompts=PROMPTS,
        prompts_at_once=args.prompts_per_update,
        num_turns=1,
        num_generations=args.num_generations,
        max_new_tokens=args.max_new_tokens,
        joint_mode="cross",
        learning_rate=args.learning_rate,
        seed=seed,
    )
    return LearningWork(
        work=work,
        goal=args.goal,
        window=args.window,
        max_prompts=args.max_prompts,
        cut_padding=cut_padding,
    )


def time_of(learned: Learned, goal: float, window: int) -> Time:
    """Return what it took to reach the goal."""
    reached = first_reached(learned.rewards, goal, window)
    last = len(learned.rewards) - 1 if reached is None else reached
    return Time(learned.seconds[last], learned.updates[last], last + 1, reached is not None)


def learning_target(
    side: str, ours: Sequence[Time | None], theirs: Sequence[Time | None]
) -> Target:
    """Compare the sides seed by seed.

    A peer that gives up counts with the time until then, which is less than it would need; where
    Motet gives up, it counts as no faster at all.

    Args:
        side: the peer.
        ours: Motet's time by seed, None where it was not measured.
        theirs: the peer's.
    """
    ratios = [
        peer.seconds / own.seconds if own.reached else 0.0
        for own, peer in zip(ours, theirs, strict=True)
        if own is not None and peer is not None
    ]
    name = f"times as fast to the goal as {side}, {len(theirs)} seed(s)"
    complete = 0 < len(ratios) == len(theirs)
    return Target(name, GOAL, statistics.median(ratios) if complete else None, "x")


def line_of(args: argparse.Namespace, seed: int, side: str, learned: Learned | str) -> str:
    if isinstance(learned, str):
        return f"{seed:>4}  {side:<16}  not measured: {learned}"
    time = time_of(learned, args.goal, args.window)
    mean = statistics.fmean(learned.rewards[: time.prompts][-args.window :])
    return (
        f"{seed:>4}  {side:<16}{time.seconds:>9.1f}{time.updates:>9.0f}{time.prompts:>9}"
        f"  {'reached' if time.reached else 'not reached'}, mean reward {mean:.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
