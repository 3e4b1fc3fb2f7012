"""Teams by words: what is said of all or of one, and which weights they share."""

from pathlib import Path

import pytest

from motet import agents, envs
from motet.agents import LMAgent
from motet.algos.cli.flags import parsed
from motet.algos.cli.members import Member, joined, member_flags, members_of
from motet.algos.cli.mistakes import UsageError
from motet.algos.cli.settings_file import SettingsFile, read_settings
from motet.algos.cli.teams import build_team

NAMES = ["agent_0", "agent_1"]


def said(words: str) -> dict[str, Member]:
    typed = parsed("motet train", {"team": member_flags()}, joined(words.split()))["team"]
    return members_of(NAMES, SettingsFile(), typed)


@pytest.mark.parametrize(
    ("words", "first", "second"),
    [
        ("", Member(), Member()),
        ("--model A", Member(model="A"), Member(model="A")),
        ("--model agent_0=A agent_1=B", Member(model="A"), Member(model="B")),
        ("--model agent_0=A --model agent_1=B", Member(model="A"), Member(model="B")),
        ("--model=A --model=agent_1=B", Member(model="A"), Member(model="B")),
        ("--model agent_1=B A", Member(model="A"), Member(model="B")),
        ("--model lr=1/models", Member(model="lr=1/models"), Member(model="lr=1/models")),
        ("--frozen", Member(frozen=True), Member(frozen=True)),
        ("--frozen agent_1", Member(), Member(frozen=True)),
        ("--frozen agent_1=true", Member(), Member(frozen=True)),
        ("--lora-r 4", Member(lora_r=4), Member(lora_r=4)),
        ("--lora_r agent_0=4", Member(lora_r=4), Member()),
        ("--lora-r 4 agent_1=None", Member(lora_r=4), Member()),
        (
            "--generation agent_1=temperature=0.5,top_k=3",
            Member(),
            Member(generation={"temperature": 0.5, "top_k": 3}),
        ),
        ("--history append --device cpu", *[Member(history="append", device="cpu")] * 2),
        ("--model text:agent_9=x", *[Member(model="text:agent_9=x")] * 2),
    ],
)
def test_words_are_said_of_all_agents_or_of_one(words: str, first: Member, second: Member) -> None:
    assert said(words) == {"agent_0": first, "agent_1": second}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--model agent0=A", "Did you mean agent_0?"),
        ("--lora-r four", "Expected a whole number after --lora-r, got 'four'"),
        ("--lora-r 0", "Expected lora_r of at least 1, got 0"),
        ("--lora-alpha 4", "Expected lora_r with lora_alpha=4"),
        ("--frozen perhaps", "Expected agents of the task, agent_0, agent_1, or True or False"),
        ("--frozen agent_9", "after --frozen, got 'agent_9'. Did you mean agent_1?"),
        ("--frozen agent_0=perhaps", "after --frozen, got 'perhaps'"),
        ("--frozen True False", "or one for each agent as in agent_0=..., got 'True', 'False'"),
        ("--model A B", "Expected one value after --model, or one for each agent"),
        ("--model agent_0=A agent_0=B", "Expected --model once for agent_0"),
        ("--model", "Expected a value after --model, got none"),
        ("--history never", "Expected history to be one of none, append"),
        ("--dtype float64", "Expected dtype to be one of"),
        ("--generation hot", "--generation: expected a mapping"),
        ("--generation heat=1", "Expected fields of GenerationConfig as generation, got ['heat']"),
    ],
)
def test_what_cannot_be_said_of_agents_is_refused(words: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        said(words)
    assert told in str(refused.value)


def test_a_file_says_it_of_all_or_of_one_and_flags_win(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text("agents:\n  model: A\n  lora_r: 4\n  agent_1: {model: B, frozen: true}\n")
    found = members_of(NAMES, read_settings(path), {"model": ["agent_0=C"]})
    assert found["agent_0"] == Member(model="C", lora_r=4)
    assert found["agent_1"] == Member(model="B", lora_r=4, frozen=True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("agents:\n  modle: A\n", "got 'modle' in {file}, line 2. Did you mean model?"),
        ("agents: {agent_1: {lorar: 4}}\n", "got 'lorar' in {file}, line 1. Did you mean lora_r?"),
        ("agents:\n  model: A\n  agent_0:\n    lora_r: x\n", "(lora_r is in {file}, line 4)"),
        ("agents:\n  agent_0: A\n", "settings of agent_0, got 'A' in {file}, line 2"),
        ("agents: A\n", "Expected a mapping as agents, got 'A', in {file}, line 1"),
    ],
)
def test_a_wrong_team_in_a_file_is_told_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        members_of(NAMES, read_settings(path), {})
    assert told.format(file=path) in str(refused.value)


# --- to agents ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def env() -> envs.TextEnv:
    made: envs.TextEnv = envs.make("story-length-ratio-v0")
    return made


def test_agents_have_weights_of_their_own_unless_they_share(env: envs.TextEnv) -> None:
    members = dict.fromkeys(NAMES, Member())
    first, second = build_team(env, members).values()
    assert isinstance(first, LMAgent) and isinstance(second, LMAgent)
    assert first.model is not second.model
    assert first.generation.max_new_tokens == agents.pocket().generation.max_new_tokens
    first, second = build_team(env, members, share=True).values()
    assert first is second
    with pytest.raises(UsageError, match="Expected the same settings for all agents with --share"):
        build_team(env, {**members, "agent_1": Member(frozen=True)}, share=True)


def test_adapters_share_the_base_of_agents_that_are_alike(env: envs.TextEnv) -> None:
    members = {
        "agent_0": Member(lora_r=2),
        "agent_1": Member(lora_r=4, lora_alpha=4, frozen=True),
        "agent_2": Member(lora_r=2, history="append"),
    }
    first, second, other = build_team(env, members, seed=1).values()
    assert isinstance(first, LMAgent)
    assert isinstance(second, LMAgent)
    assert isinstance(other, LMAgent)
    assert first.model is second.model is not other.model
    assert (first.adapter, second.adapter) == ("agent_0", "agent_1")
    lora = first.model.peft_config
    assert (lora["agent_0"].r, lora["agent_0"].lora_alpha) == (2, 4)
    assert (lora["agent_1"].r, lora["agent_1"].lora_alpha) == (4, 4)
    assert (first.frozen, second.frozen) == (False, True)
    assert other.history == "append"


def test_scripted_members_have_no_model(env: envs.TextEnv) -> None:
    members = {"agent_0": Member(model="text:Hello"), "agent_1": Member(model="random")}
    first, second = build_team(env, members).values()
    assert first.act(["say"])[0][0].text == "Hello"
    drawn = second.act(["say"], seed=1)[0][0].text
    assert env.action_space("agent_1").contains(drawn)


def test_people_and_endpoints_can_be_members(
    env: envs.TextEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9/v1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    members = {
        "agent_0": Member(model="human"),
        "agent_1": Member(
            model="api:some/model", history="append", generation={"temperature": 0.5}
        ),
    }
    person, endpoint = build_team(env, members).values()
    assert isinstance(person, agents.HumanAgent)
    assert isinstance(endpoint, agents.APIAgent)
    assert (endpoint.model, endpoint.host, endpoint.history) == (
        "some/model", "localhost:9", "append"
    )  # fmt: skip
    assert endpoint.generation.temperature == 0.5
    monkeypatch.delenv("OPENAI_BASE_URL")
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        build_team(env, members)


@pytest.mark.parametrize(
    ("member", "told"),
    [
        (Member(model="random", lora_r=2), "Expected a model with weights for lora_r, got random"),
        (Member(model="./nowhere"), "Expected a folder with a model, got nowhere"),
        (
            Member(model="no-one/no-model"),
            "Expected a model on the hub or in a folder, got 'no-one",
        ),
        (Member(model="pockt"), "Did you mean pocket?"),
        (Member(device="tpu9"), "Expected a device that torch can use here, such as cpu"),
        (Member(device="cuda:99"), "such as cpu, got 'cuda:99'"),
        (Member(chat_template=True), "chat template"),
        (Member(system_prompt="Be brief."), "chat_template=True"),
    ],
)
def test_a_model_that_is_not_there_is_a_mistake(
    member: Member, told: str, env: envs.TextEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError) as refused:
        build_team(env, {"agent_0": member})
    assert told in str(refused.value)
