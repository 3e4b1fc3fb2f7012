"""The same environments behind other interfaces: AEC, one agent, stable-baselines3."""

from motet.envs.views.conversions import to_aec, to_gymnasium
from motet.envs.views.joint_text import JointText, joint_prompt, tagged_sections
from motet.envs.views.sb3 import to_sb3_vec_env

__all__ = [
    "JointText",
    "joint_prompt",
    "tagged_sections",
    "to_aec",
    "to_gymnasium",
    "to_sb3_vec_env",
]
