"""The second of two speakers should repeat what the first says.

| property    | value                                                       |
|-------------|-------------------------------------------------------------|
| id          | `sample/echo-v0`                                            |
| agents      | 2; both see the same prompt                                 |
| turns       | 1                                                           |
| observation | the prompt                                                  |
| action      | any text                                                    |
| reward      | shared; 1 where both texts are equal, otherwise 0           |

Version history:
    v0: first version.
"""

from collections.abc import Sequence

from motet import envs


def echo_reward(first: Sequence[str], second: Sequence[str]) -> list[float]:
    """Return 1 where the texts are equal, otherwise 0."""
    return [float(said == repeated) for said, repeated in zip(first, second, strict=True)]


envs.register(
    "sample/echo-v0",
    dataset=[{"prompt": "Say a word:"}, {"prompt": "Say a number:"}],
    reward_func=echo_reward,
    reward_range=(0.0, 1.0),
)
