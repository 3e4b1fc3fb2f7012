"""Small tasks whose agents differ: in what they read, when they act, and what they are paid."""

from motet.envs import TextEnv

WORDS = ("ladder", "umbrella", "kettle")
PAYOFFS = {("C", "C"): (3, 3), ("C", "D"): (0, 5), ("D", "C"): (5, 0), ("D", "D"): (1, 1)}


def describe_and_guess(**kwargs) -> TextEnv:
    """A speaker sees a word and describes it; then a listener, who sees the clue, guesses it.

    | property    | value                                                                   |
    |-------------|-------------------------------------------------------------------------|
    | agents      | `speaker` acts in turn 1, `listener` in turn 2                          |
    | observation | turn 1: the word for the speaker alone; turn 2: the clue for the listener |
    | reward      | shared: 1 for the word, 0 where the clue has it                         |
    """

    def reward(clues, guesses, word, histories, turn):
        rewards = []
        for guess, w, history, k in zip(guesses, word, histories, turn, strict=True):
            clue = history["speaker"][0][1] if k == 2 else w
            rewards.append(float(k == 2 and guess == w and w not in clue))
        return rewards

    def pass_on(agent_completions):
        return ["Wait.", f"Which word is this? {agent_completions[0]}"]

    return TextEnv(
        [{"prompt": "Describe it.", "word": word} for word in WORDS],
        reward,
        transition=pass_on,
        formatters={
            "speaker": lambda row: f"{row['prompt']} The word is {row['word']}.",
            "listener": lambda row: "Wait.",
        },
        agent_names=("speaker", "listener"),
        acting=[["speaker"], ["listener"]],
        num_turns=2,
        **kwargs,
    )


def dilemma(num_turns: int = 3, **kwargs) -> TextEnv:
    """The iterated prisoner's dilemma: per-agent rewards whose sum is not constant.

    | property | value                                                       |
    |----------|-------------------------------------------------------------|
    | agents   | `ann`, `bob`, in every turn; each reads what the other said |
    | action   | "C" cooperates, anything else defects                       |
    | reward   | each agent's own: `PAYOFFS`                                 |
    """

    def reward(ann, bob):
        both = zip(ann, bob, strict=True)
        moves = [tuple("C" if said == "C" else "D" for said in pair) for pair in both]
        return {
            "ann": [PAYOFFS[move][0] for move in moves],
            "bob": [PAYOFFS[move][1] for move in moves],
        }

    def tell(agent_completions):
        return [f"The other said {said!r}." for said in reversed(agent_completions)]

    return TextEnv(
        [{"prompt": "C or D?"}],
        reward,
        transition=tell,
        agent_names=("ann", "bob"),
        num_turns=num_turns,
        **kwargs,
    )


def round_robin(num_agents: int, **kwargs) -> TextEnv:
    """Each agent in turn adds a text; the team is paid for a chain of different texts.

    | property | value                                                        |
    |----------|--------------------------------------------------------------|
    | agents   | 1 to 8; agent i acts in turn i + 1 alone                     |
    | reward   | shared: 1 where the turn's text is new and not empty, else 0 |
    """
    names = [f"agent_{i}" for i in range(num_agents)]

    def reward(*texts, histories, turn):
        rewards = []
        for j, (history, k) in enumerate(zip(histories, turn, strict=True)):
            said = texts[k - 1][j]
            before = {history[names[i]][i][1] for i in range(k - 1)}
            rewards.append(float(said != "" and said not in before))
        return rewards

    return TextEnv(
        [{"prompt": "Go on."}],
        reward,
        transition=lambda response_history_per_agent: (
            ["".join("".join(said) for said in response_history_per_agent)] * num_agents
        ),
        num_agents=num_agents,
        acting=lambda turn: [names[turn - 1]],
        num_turns=num_agents,
        **kwargs,
    )


def crowd(num_agents: int, **kwargs) -> TextEnv:
    """All agents speak at once, each paid by how many others said the same.

    | property | value                                                   |
    |----------|---------------------------------------------------------|
    | agents   | 1 to 8, all in the one turn                             |
    | reward   | each agent's own: the number of others with its text    |
    """

    def reward(*texts):
        joint = list(zip(*texts, strict=True))
        return {
            f"agent_{i}": [said.count(said[i]) - 1 for said in joint] for i in range(num_agents)
        }

    return TextEnv([{"prompt": "Agree."}], reward, num_agents=num_agents, **kwargs)
