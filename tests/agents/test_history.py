"""An agent's conversation: which ids a later prompt is made of, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from chat import agent_with, as_llamas, chatml
from tiny import END, byte_tokenizer, tiny_agent, tiny_llama
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from motet.agents import (
    Completion,
    FixedAgent,
    GenerationConfig,
    HistoryAgent,
    LMAgent,
    RandomAgent,
    ReplayAgent,
)
from motet.agents.agent import CachingAgent, wants_contexts

# The end of a message is the end token, as in SmolLM2-Instruct's template.
CHAT = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
SPACED = (
    "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}<|end|>"
    "{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}"
)
SYSTEM_BEFORE_THE_LAST = (
    "{% for m in messages %}{% if m.role != 'system' %}"
    "{% if loop.last %}{{ messages[0].content }} {% endif %}[{{ m.role }}]{{ m.content }}<|end|>"
    "{% endif %}{% endfor %}[assistant]"
)
FORGETS = "{{ messages[-1].content }}[assistant]"
COUNTS = "{% for m in messages %}[{{ messages|length }}{{ m.role }}]{{ m.content }}{% endfor %}"
NUMBERS = (
    "{% for m in messages %}[{{ loop.index }}{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[{{ messages|length + 1 }}assistant]{% endif %}"
)


def remembering(tokenizer: PreTrainedTokenizerFast | None = None, **kwargs: object) -> LMAgent:
    settings = {"generation": GenerationConfig(max_new_tokens=24), "history": "append", **kwargs}
    return LMAgent(tiny_llama(context=256), tokenizer or byte_tokenizer(), seed=0, **settings)


def chatting(template: str = CHAT, **kwargs: object) -> LMAgent:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return remembering(tokenizer, chat_template=True, **kwargs)


def with_bos() -> PreTrainedTokenizerFast:
    tokenizer = byte_tokenizer()
    tokenizer.bos_token = "!"
    begin = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="! $A", special_tokens=[("!", begin)]
    )
    return tokenizer


def ids(agent: LMAgent, text: str) -> tuple[int, ...]:
    return tuple(agent.tokenizer(text, add_special_tokens=False)["input_ids"])


def test_a_prompt_goes_on_from_the_last_one_by_ids() -> None:
    agent = remembering(generation=GenerationConfig(max_new_tokens=60))
    first = agent.act(["Rain", "x", "a\nb"], 8, seed=2)
    contexts = [completion for group in first for completion in group]
    assert {context.finish_reason for context in contexts} == {"stop", "length"}
    # bytes that are no text would not come back from it
    assert any(ids(agent, context.text) != context.completion_ids for context in contexts)
    observations = [f"And {i}?" for i in range(24)]
    second = agent.act(observations, 2, seed=2, contexts=contexts)
    for observation, context, group in zip(observations, contexts, second, strict=True):
        expected = context.prompt_ids + context.completion_ids + ids(agent, observation)
        assert [completion.prompt_ids for completion in group] == [expected] * 2


def test_where_there_is_no_context_a_conversation_begins() -> None:
    agent = remembering()
    begun = agent.act(["Rain"], seed=1)[0][0]
    mixed = agent.act(["Rain", "Rain"], seed=1, contexts=[None, begun])
    assert mixed[0][0].prompt_ids == begun.prompt_ids
    assert mixed[0][0].completion_ids == begun.completion_ids
    assert mixed[1][0].prompt_ids[: len(begun.prompt_ids)] == begun.prompt_ids
    assert agent.act(["Rain"], seed=1, contexts=[None]) == agent.act(["Rain"], seed=1)
    assert tiny_agent().act(["Rain"], seed=1) == agent.act(["Rain"], seed=1)
    (empty,) = agent.act([""], seed=1, contexts=[begun])[0]
    assert empty.prompt_ids == begun.prompt_ids + begun.completion_ids
    assert agent.act([], contexts=[]) == []


def test_a_raw_conversation_begins_once() -> None:
    agent = remembering(with_bos())
    (first,) = agent.act(["Rain"], seed=0)[0]
    (second,) = agent.act(["Snow"], seed=0, contexts=[first])[0]
    begin = agent.tokenizer.bos_token_id
    assert first.prompt_ids == (begin, *ids(agent, "Rain"))
    assert second.prompt_ids == first.prompt_ids + first.completion_ids + ids(agent, "Snow")


@pytest.mark.parametrize("system_prompt", [None, "Be brief."])
def test_a_chat_template_closes_the_answer_and_opens_the_next(system_prompt: str | None) -> None:
    agent = chatting(system_prompt=system_prompt)
    contexts = agent.act(["Rain"], 8, seed=1)[0]
    tail = ids(agent, "<|end|>\n[user]Go on.<|end|>\n[assistant]")
    assert tail[0] == END
    reasons = set()
    for context in contexts:
        (completion,) = agent.act(["Go on."], seed=2, contexts=[context])[0]
        reasons.add(context.finish_reason)
        closing = tail[1:] if context.finish_reason == "stop" else tail
        assert completion.prompt_ids == context.prompt_ids + context.completion_ids + closing
    assert reasons == {"stop", "length"}


def test_ids_of_a_conversation_are_those_of_the_template_where_texts_come_back() -> None:
    agent = chatting(system_prompt="Be brief.")
    prompt = agent.encode("Rain")
    said = Completion("hi", prompt, (*ids(agent, "hi"), END), (0.0,) * 3, "stop")
    again = Completion("ho", agent.encode("So?", said), ids(agent, "ho"), (0.0,) * 2, "length")
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Rain"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "So?"},
        {"role": "assistant", "content": "ho"},
        {"role": "user", "content": "[assistant] motet-first-answer"},
    ]
    whole = agent.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert agent.encode("[assistant] motet-first-answer", again) == tuple(whole)


@pytest.mark.parametrize("system_prompt", [None, "Write of the sea.\n\nBe brief."])
def test_sampled_conversations_are_those_of_the_template(system_prompt: str | None) -> None:
    """Turn by turn: their text always, and their ids where a text has no other ones."""
    agent = agent_with(chatml(), chat_template=True, system_prompt=system_prompt, history="append")
    tokenizer = agent.tokenizer
    opening = [{"role": "system", "content": system_prompt}] if system_prompt else []
    observations = ["Describe a city:", "Better.\n\nWrite again", "  And? ", "é<|im_end|>", ""]
    reasons, num_equal = set(), 0
    for seed in range(12):
        context, messages = None, list(opening)
        for turn, observation in enumerate(observations):
            messages.append({"role": "user", "content": observation})
            told = None if turn == 0 else [context]
            ((context,),) = agent.act([observation], seed=seed * 10 + turn, contexts=told)
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
            whole = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=False
            )
            assert tokenizer.decode(context.prompt_ids) == text
            num_equal += turn > 0 and context.prompt_ids == tuple(whole)
            if "\ufffd" in context.text:
                break  # the text of half a character is not the template's to tell
            reasons.add(context.finish_reason)
            messages.append({"role": "assistant", "content": context.text})
    assert reasons == {"stop", "length"}
    assert num_equal > 3


@pytest.mark.parametrize("prepend_scheme", ["first", "always"])
@pytest.mark.parametrize("stops", [True, False])
def test_a_space_that_a_tokenizer_begins_with_is_not_put_in_between(
    prepend_scheme: str, stops: bool
) -> None:
    agent = agent_with(as_llamas(prepend_scheme), history="append")
    said = (*ids(agent, "the end."), agent.tokenizer.eos_token_id)[: None if stops else -1]
    context = Completion("", agent.encode("Rain"), said, (0.0,) * len(said), "stop")
    prompt = agent.encode("then the end", context)
    between = "</s>" if stops else ""
    assert agent.tokenizer.decode(prompt) == f"Rain the end.{between}then the end"
    assert prompt[: len(context.prompt_ids) + len(said)] == context.prompt_ids + said


@pytest.mark.parametrize("stops", [True, False])
def test_an_end_with_a_space_before_it_is_not_repeated(stops: bool) -> None:
    """As in Llama 2's template, which puts one before the end that the model has sampled."""
    agent = agent_with(as_llamas(), chat_template=True, history="append")
    end = agent.tokenizer.eos_token_id
    said = (*ids(agent, "the end."), end)[: None if stops else -1]
    context = Completion("", agent.encode("Rain"), said, (0.0,) * len(said), "stop")
    between = "</s>" if stops else " </s>"
    decoded = agent.tokenizer.decode(agent.encode("Go", context))
    assert decoded == f"[INST] Rain [/INST] the end.{between}[INST] Go [/INST]"
    if not stops:  # all of it the template's own
        messages = [
            {"role": "user", "content": "Rain"},
            {"role": "assistant", "content": "the end."},
            {"role": "user", "content": "Go"},
        ]
        whole = agent.tokenizer.apply_chat_template(messages, return_dict=False)
        assert agent.encode("Go", context) == tuple(whole)


def test_templates_that_put_a_space_before_the_answer_are_continued() -> None:
    agent = chatting(SPACED)
    (first,) = agent.act(["Rain"], seed=0)[0]
    added = ids(agent, "<|end|>[INST] Snow [/INST]")
    if first.finish_reason == "stop":
        added = added[1:]
    expected = first.prompt_ids + first.completion_ids + added
    assert agent.encode("Snow", first) == expected


@pytest.mark.parametrize(
    ("template", "system_prompt"),
    [(SYSTEM_BEFORE_THE_LAST, "Be brief."), (FORGETS, None), (COUNTS, None), (NUMBERS, None)],
    ids=["system last", "forgets", "counts", "numbers"],
)
def test_templates_that_render_the_past_anew_are_refused(
    template: str, system_prompt: str | None
) -> None:
    with pytest.raises(ValueError, match=r"history='append'; this one renders the former ones"):
        chatting(template, system_prompt=system_prompt)
    chatting(template, system_prompt=system_prompt, history="none")


def test_overflow_counts_the_whole_conversation() -> None:
    agent = remembering(with_bos())
    context = Completion("x", agent.encode("x" * 150), ids(agent, "y" * 70), (0.0,) * 70, "length")
    with pytest.raises(ValueError, match=r"at most 232 tokens .context 256 .* got 241"):
        agent.act(["z" * 20], contexts=[context])
    cutting = remembering(with_bos(), overflow="truncate_left")
    (completion,) = cutting.act(["z" * 20], seed=0, contexts=[context])[0]
    begin = agent.tokenizer.bos_token_id
    kept = "x" * 141 + "y" * 70 + "z" * 20
    assert completion.prompt_ids == (begin, *ids(agent, kept))
    (later,) = cutting.act(["again"], seed=0, contexts=[completion])[0]
    assert len(later.prompt_ids) == 232
    assert later.prompt_ids[-5:] == ids(agent, "again")


def test_history_survives_loading_and_other_sampling_settings(tmp_path: Path) -> None:
    remembering().save_pretrained(tmp_path)
    agent = LMAgent.from_pretrained(tmp_path, history="append", device="cpu")
    assert agent.history == "append"
    twin = agent.with_generation(max_new_tokens=3)
    assert twin.history == "append"
    (first,) = twin.act(["Rain"], seed=0)[0]
    (second,) = twin.act(["Snow"], seed=0, contexts=[first])[0]
    assert len(second.prompt_ids) == 4 + len(first.completion_ids) + 4
    assert tiny_agent().history == "none"


def test_agents_say_whether_they_want_contexts() -> None:
    assert wants_contexts(remembering())
    assert isinstance(remembering(), HistoryAgent)
    assert isinstance(remembering(), CachingAgent)
    scripted = [FixedAgent("x"), RandomAgent(["x"]), ReplayAgent(["x", "x"])]
    for agent in (tiny_agent(), *scripted):
        assert not wants_contexts(agent)
    said = Completion("x")
    for agent in scripted:
        assert [[c.text for c in group] for group in agent.act(["a"], contexts=[said])] == [["x"]]


def test_wrong_contexts_are_refused() -> None:
    agent = remembering()
    (said,) = agent.act(["Rain"], seed=0)[0]
    with pytest.raises(ValueError, match=r"no contexts for an agent with history='none'"):
        tiny_agent().act(["Rain"], contexts=[said])
    with pytest.raises(ValueError, match=r"no contexts for an agent with history='none'"):
        tiny_agent().act(["Rain"], contexts=[None])
    with pytest.raises(ValueError, match=r"list of 2 contexts.* got 1"):
        agent.act(["Rain", "Snow"], contexts=[said])
    with pytest.raises(ValueError, match=r"list of 1 contexts.* got a Completion"):
        agent.act(["Rain"], contexts=said)
    with pytest.raises(TypeError, match=r"Completions or None as contexts, got 'Rain'"):
        agent.act(["Rain"], contexts=["Rain"])
    with pytest.raises(ValueError, match=r"the token ids of prompt and completion, got none for"):
        agent.act(["Rain"], contexts=[Completion("a word")])
    with pytest.raises(TypeError, match=r"a list of 1 contexts, .* got a generator; pass list"):
        agent.act(["Rain"], contexts=(context for context in [said]))
    with pytest.raises(TypeError, match=r"tuples of token ids, got prompt_ids of type list"):
        agent.act(["Rain"], contexts=[replace(said, prompt_ids=list(said.prompt_ids))])
    for ids in ((-1, 3), (3, 257)):
        with pytest.raises(ValueError, match=r"from 0 to 256, got completion_ids from"):
            agent.act(["Rain"], contexts=[replace(said, completion_ids=ids)])
    with pytest.raises(ValueError, match=r"history 'none' or 'append', got 'all'"):
        remembering(history="all")
