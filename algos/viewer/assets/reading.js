// What one joint action was: the prompts, what the agents wrote side by side, and what it was paid.

class Reading {
  constructor(host, view) {
    this.host = host;
    this.view = view;
    this.wholeGroup = false;
  }

  show(tree, nodeIndex, joint) {
    const { rollout } = tree;
    const node = rollout.nodes[nodeIndex];
    const scale = advantageScale(rollout);
    searchHits.begin(searchHits.query);
    this.host.setAttribute("aria-label", `${treeName(tree)}, turn ${node.turn}, joint action ${jointName(node, joint)}`);
    const legend = hasAdvantages(rollout) && scale > 0 ? advantageLegend(rollout) : null;
    this.host.replaceChildren(
      this.head(tree, nodeIndex, joint),
      this.numbers(tree, node, joint),
      make("p", { class: "fate-sentence" }, fateSentence(rollout, node, joint)),
      this.prompts(rollout, node),
      make("div", { class: "completions-head" },
        make("h4", {}, "Completions"),
        legend,
        make("button", {
          type: "button",
          class: "quiet",
          id: "whole-group",
          "aria-pressed": String(this.wholeGroup),
          click: () => {
            this.wholeGroup = !this.wholeGroup;
            this.show(tree, nodeIndex, joint);
            byId("whole-group").focus();
          },
        }, this.wholeGroup ? "only this joint action" : "the whole group")),
      this.completions(rollout, nodeIndex, joint, scale),
      ...this.extras(rollout, node, scale),
    );
  }

  head(tree, nodeIndex, joint) {
    const { rollout } = tree;
    const node = rollout.nodes[nodeIndex];
    const steps = pathTo(rollout, nodeIndex).map(([at, choice]) => make("li", {},
      make("button", { type: "button", class: "quiet", click: () => this.view.select(at, choice) },
        `turn ${rollout.nodes[at].turn}: ${jointName(rollout.nodes[at], choice)}`)));
    steps.push(make("li", { "aria-current": "step" }, `turn ${node.turn}: ${jointName(node, joint)}`));
    const button = (label, text, direction, isThere) => make("button", {
      type: "button", class: "quiet", "aria-label": label, title: label, disabled: !isThere,
      click: () => this.view.step(direction),
    }, text);
    return make("header", { class: "reading-head" },
      make("div", {},
        make("h3", {}, treeName(tree)),
        make("ol", { class: "path", "aria-label": "The way here" }, steps)),
      make("div", { class: "steps" },
        button("To the parent", "←", "parent", pathTo(rollout, nodeIndex).length > 0),
        button("Previous joint action", "↑", "previous", joint > 0),
        button("Next joint action", "↓", "next", joint + 1 < node.joint.length),
        button("To the child", "→", "child", node.next[joint] >= 0)));
  }

  numbers(tree, node, joint) {
    const rewards = node.joint.map((_, i) => teamValue(node.paid, i));
    const rank = 1 + rewards.filter((reward) => reward > rewards[joint]).length;
    const middle = mean(rewards);
    const spread = Math.sqrt(mean(rewards.map((reward) => (reward - middle) ** 2)));
    const rows = [["Reward", fixed(rewards[joint], 3)]];
    rows.push([returnName(), node.return ? fixed(teamValue(node.return, joint), 3) : "unknown"]);
    if (rewards.length > 1) {
      rows.push(["Rank", `${rank} of ${rewards.length}`], ["Mean of the group", `${fixed(middle, 3)} ± ${fixed(spread, 3)}`]);
    }
    const list = make("dl", { class: "numbers" }, rows.map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", { class: "number" }, value))));
    const own = Object.keys(node.paid);
    if (own.length === 1) return list;
    const table = make("table", { class: "small" },
      make("thead", {}, make("tr", {}, ["Agent", "Reward", "Return"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, own.map((place) => make("tr", {},
        make("th", { scope: "row" }, agentName(tree.rollout, place)),
        make("td", { class: "number" }, fixed(node.paid[place][joint], 3)),
        make("td", { class: "number" }, node.return ? fixed((node.return[place] ?? node.return.all)[joint], 3) : "–")))));
    return make("div", {}, list, table);
  }

  prompts(rollout, node) {
    const isShared = node.prompts.length > 1 && new Set(node.prompts).size === 1;
    const columns = (isShared ? [0] : node.prompts.map((_, i) => i)).map((i) => make("div", { class: "column" },
      make("p", { class: "column-head small muted" }, isShared ? "the same for all agents" : agentName(rollout, node.acts[i])),
      textBlock(run.texts[node.prompts[i]], `Prompt of ${isShared ? "all agents" : rollout.agents[node.acts[i]]}`)));
    const title = node.prompts.length > 1 && !isShared ? "Prompts" : "Prompt";
    return make("section", { class: "prompts", "aria-label": title }, make("h4", {}, title), make("div", { class: "columns" }, columns));
  }

  completions(rollout, nodeIndex, joint, scale) {
    const node = rollout.nodes[nodeIndex];
    const columns = node.said.map((group, place) => {
      const agent = rollout.agents[node.acts[place]];
      const picked = node.joint[joint][place];
      const shownOnes = this.wholeGroup ? group.map((_, i) => i) : [picked];
      return make("div", { class: "column" },
        make("p", { class: "column-head" }, agentName(rollout, node.acts[place])),
        group.length > 1 ? this.pills(nodeIndex, joint, place, scale, agent) : null,
        shownOnes.map((i) => {
          const card = completionCard(group[i], agent, `#${i + 1} of ${group.length}`, scale);
          if (this.wholeGroup && i === picked) card.classList.add("is-picked");
          return card;
        }));
    });
    const waiting = Object.keys(node.paid).filter((place) => place !== "all" && !node.acts.includes(Number(place)));
    return make("div", {},
      make("div", { class: "columns" }, columns),
      waiting.length ? make("p", { class: "muted small" }, "Waiting at this turn: ", waiting.map((place, i) => [i ? ", " : "", agentName(rollout, place)])) : null);
  }

  // The agent's whole group in a row; one leads to a joint action that it is part of.
  pills(nodeIndex, joint, place, scale, agent) {
    const node = this.view.tree.rollout.nodes[nodeIndex];
    const picks = node.joint[joint];
    const lead = (i) => {
      const wanted = picks.map((pick, at) => (at === place ? i : pick)).join();
      const exact = node.joint.findIndex((each) => each.join() === wanted);
      return exact >= 0 ? exact : node.joint.findIndex((each) => each[place] === i);
    };
    return make("div", { class: "pills", role: "group", "aria-label": `Completions of ${agent}` },
      node.said[place].map((completion, i) => {
        const text = advantageText(completion);
        return make("button", {
          type: "button",
          class: `pill small number ${tintOf(meanAdvantage(completion), scale)}${completion.advantage === null ? " untrained" : ""}`,
          "aria-pressed": String(i === picks[place]),
          "aria-label": `Completion ${i + 1}${text ? `, advantage ${text}` : ""}`,
          disabled: lead(i) < 0,
          click: () => {
            this.view.select(nodeIndex, lead(i));
            this.host.querySelectorAll(".pills")[place].children[i].focus({ preventScroll: true });
          },
        }, `#${i + 1}`, text ? make("span", { class: "pill-value" }, completion.advantage === null ? "–" : signed(meanAdvantage(completion))) : null);
      }));
  }

  extras(rollout, node, scale) {
    const parts = [];
    if (node.greedy) {
      const rows = Object.entries(node.greedy).map(([agent, rewards]) =>
        make("li", {}, make("bdi", {}, agent), `: ${rewards.map((reward) => fixed(reward, 3)).join(", then ")}`));
      const more = node.greedy_credited > 1 ? ` The last counts for ${node.greedy_credited} turns.` : "";
      parts.push(make("details", {}, make("summary", {}, "Rewards of the most likely completions from here on"),
        make("ul", { class: "plain number" }, rows), more ? make("p", {}, more) : null));
    }
    for (const [agent, group] of Object.entries(node.drafts ?? {})) {
      const name = make("bdi", {});
      addText(name, agent);
      parts.push(make("details", {}, make("summary", {}, `${plural(group.length, "draft")} of `, name),
        group.map((one, i) => completionCard(one, agent, `draft ${i + 1} of ${group.length}`, scale))));
    }
    if (node.state !== undefined) {
      parts.push(make("details", {}, make("summary", {}, "State that a central critic reads"), textBlock(run.texts[node.state], "State")));
    }
    return parts;
  }
}

function agentName(rollout, place) {
  const name = make("bdi", { class: "agent" });
  addText(name, rollout.agents[Number(place)] ?? "all");
  return name;
}

// Where the run's discount is not recorded, returns are plain sums, and say so.
function returnName() {
  return run.discount === null ? "Return, undiscounted" : "Return";
}

// What became of it, as far as the record tells, and no further.
function fateSentence(rollout, node, joint) {
  const turn = node.turn;
  const others = node.end.length > 1;
  const together = node.next.every((next, i) => next < 0 && node.end[i] !== 6);
  const siblings = !others ? "" : together ? " So did all joint actions of its group." : " Others of its group went on.";
  const early = run.num_turns ? `at turn ${turn} of ${run.num_turns}` : `at turn ${turn}, before other branches`;
  return [
    `Goes on to turn ${turn + 1}.`,
    `Ended with turn ${turn}, the task’s last.`,
    `Ended with turn ${turn}. No branch of this rollout goes further; whether the task has more turns is not recorded.`,
    `Ended early, ${early}.${siblings}`,
    `Ended early, at turn ${turn}: its reward counts for ${plural(node.credited?.[joint] ?? 1, "turn")}.${siblings}`,
    "Not followed: the episode did not end here, but only the best joint action of its group went on.",
    "It went on, and the file ends before its next turn.",
  ][node.end[joint]];
}
