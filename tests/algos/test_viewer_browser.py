"""The page in a real browser, offline: by mouse, by keyboard alone, and with texts that attack it.

Every test fails on any error in the browser's console and on any request that the page makes.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from viewer_runs import AGENTS, HOSTILE, by_letters, drawn_rollout, one_turn, write_run, written

from motet import envs
from motet.agents import GenerationConfig, pocket
from motet.algos import Rollout, collect_rollouts
from motet.algos.viewer import view_rollout, write_view

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright_api.expect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LONG = ("All work and no play makes a long text. " * 2500)[:100_000]
ARABIC = "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 " * 12


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium with a user's folder of its own, or a skip where none is installed."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium to test the page in: none of {', '.join(NAMES)} is installed")
    with playwright_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield started
        started.close()


class Opened:
    """A page, and all that went wrong in it."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.problems: list[str] = []
        self.url = path.as_uri()
        self.context = browser.new_context(
            **{"viewport": {"width": 1440, "height": 1000}, "offline": True} | options
        )
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._requested)

    def _requested(self, request: Any) -> None:
        if request.url != self.url:
            self.problems.append(f"a request to {request.url}")

    def go(self) -> Any:
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)
        return self.page


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    opened: list[Opened] = []

    def opening(path: Path, before: str | None = None, **options: Any) -> Any:
        each = Opened(browser, path, **options)
        opened.append(each)
        if before is not None:
            each.page.add_init_script(before)
        return each.go()

    yield opening
    for each in opened:
        each.context.close()
    assert [problem for each in opened for problem in each.problems] == []


@pytest.fixture(scope="module")
def real_team() -> Rollout:
    env = envs.make("story-length-ratio-v0", num_turns=2)
    settings = GenerationConfig(max_new_tokens=48)
    team = {name: pocket(generation=settings) for name in env.possible_agents}
    return collect_rollouts(env, team, [3, 1], num_generations=2, joint_mode="cross", seed=0)


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory, real_team: Rollout) -> Path:
    """A run with a rollout of a real team, drawn ones, and an evaluation."""
    folder = tmp_path_factory.mktemp("viewer") / "run"
    rollouts = {
        1: real_team,
        10: drawn_rollout(1, num_generations=3, rows=(2,)),
        20: drawn_rollout(2, num_generations=3, rows=(5,), per_token=True),
    }
    return write_view(write_run(folder, rollouts, {0: drawn_rollout(4, num_generations=1)}))


def page_of(rollout: Rollout | list[Rollout], path: Path) -> Path:
    path.write_text(view_rollout(rollout), encoding="utf-8")
    return path


def names_in_list(page: Any) -> list[str]:
    return page.locator("#list .option-name").all_inner_texts()


def way_here(page: Any) -> list[str]:
    return page.locator("#reading .path li").all_inner_texts()


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.getAttribute('role')")


# --- walking through a run ------------------------------------------------------------------------


def test_the_head_says_what_the_run_was(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    assert page.title() == "story-length-ratio-v0 – Motet"  # noqa: RUF001
    assert page.get_by_role("heading", level=1).inner_text() == "story-length-ratio-v0"
    facts = page.locator("#facts").inner_text()
    for part in ("Learner", "magrpo", "Seed", "7", "Torch", "2.12.0"):
        assert part in facts
    assert "after 1 h 1 min" in page.locator("#run-when").inner_text()
    page.get_by_text("All settings").click()
    assert "discount: 0.5" in page.locator("#settings pre").inner_text()
    assert page.locator("#notices").inner_text() == ""


def test_a_run_is_walked_through_by_mouse(
    open_page: Any, run_page: Path, real_team: Rollout
) -> None:
    page = open_page(run_page)
    assert names_in_list(page) == [
        "Rollout 1, row 3",
        "Rollout 1, row 1",
        "Rollout 10, row 2",
        "Rollout 20, row 5",
        "Evaluation at the start, row 0",
    ]
    page.locator("#list .option").nth(1).click()
    node = real_team.levels[0][1]
    assert page.locator("#reading h3").inner_text() == "Rollout 1, row 1"
    tree = page.get_by_role("tree")
    assert tree.get_by_role("treeitem").count() == 4
    tree.get_by_role("treeitem").nth(2).locator(".branch-name").click()
    assert way_here(page) == ["turn 1: #2 + #1"]
    cards = page.locator("#reading .card .prose")
    assert cards.nth(0).inner_text() == node.completions["agent_0"][1].text
    assert cards.nth(1).inner_text() == node.completions["agent_1"][0].text
    assert f"{node.rewards['agent_0'][2]:.3f}" in page.locator("#reading .numbers").inner_text()

    page.get_by_role("treeitem", selected=True).locator(".twist").click()
    below = page.get_by_role("treeitem", selected=True).locator("ul [role=treeitem]")
    assert below.count() == 4
    below.nth(1).click()
    assert way_here(page) == ["turn 1: #2 + #1", "turn 2: #1 + #2"]
    assert "the task’s last" in page.locator(".fate-sentence").inner_text()  # noqa: RUF001
    child = real_team.levels[1][node.children[2]]
    prompts = page.locator("#reading .prompts .prose").all_inner_texts()
    assert prompts == list(child.observations.values())

    page.get_by_role("group", name="Completions of agent_1").get_by_role("button").first.click()
    assert way_here(page)[-1] == "turn 2: #1 + #1"
    page.get_by_role("button", name="the whole group").click()
    assert page.locator("#reading .card").count() == 4
    page.locator("#reading .path button").click()  # to the parent
    assert way_here(page) == ["turn 1: #2 + #1"]
    page.get_by_role("button", name="Next joint action").click()
    assert way_here(page) == ["turn 1: #2 + #2"]
    page.get_by_role("button", name="To the child").click()
    assert way_here(page)[-1] == "turn 2: #1 + #1"


def test_a_run_is_walked_through_by_keyboard_alone(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    press = page.keyboard.press
    press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the rollouts"
    press("Enter")
    press("Tab")
    assert focused(page) == "search"
    for _ in range(4):
        press("Tab")
    assert focused(page) == "option"
    press("ArrowDown")
    press("ArrowDown")
    assert page.locator("#reading h3").inner_text() == "Rollout 10, row 2"
    press("End")
    assert page.locator("#reading h3").inner_text() == "Evaluation at the start, row 0"
    press("Home")
    press("ArrowDown")
    press("Enter")
    assert focused(page) == "treeitem"
    press("ArrowDown")
    assert way_here(page) == ["turn 1: #1 + #2"]
    press("ArrowRight")  # unfold
    press("ArrowRight")  # go in
    press("End")
    assert page.get_by_role("treeitem", selected=True).get_attribute("aria-level") == "1"
    press("Home")
    press("ArrowDown")
    press("ArrowDown")
    press("ArrowDown")
    assert way_here(page) == ["turn 1: #1 + #2", "turn 2: #1 + #2"]
    press("ArrowLeft")  # to the parent
    assert way_here(page) == ["turn 1: #1 + #2"]
    press("ArrowLeft")  # fold
    assert page.get_by_role("treeitem", selected=True).get_attribute("aria-expanded") == "false"
    press("*")
    assert page.get_by_role("treeitem", expanded=True).count() == 4
    for key, expected in (
        ("j", ["turn 1: #2 + #1"]),
        ("l", ["turn 1: #2 + #1", "turn 2: #1 + #1"]),
        ("j", ["turn 1: #2 + #1", "turn 2: #1 + #2"]),
        ("k", ["turn 1: #2 + #1", "turn 2: #1 + #1"]),
        ("h", ["turn 1: #2 + #1"]),
    ):
        press(key)
        assert way_here(page) == expected
    press("Enter")
    assert focused(page) == "reading"
    press("n")
    assert page.locator("#reading h3").inner_text() == "Rollout 10, row 2"
    press("p")
    assert page.locator("#reading h3").inner_text() == "Rollout 1, row 1"


def test_every_control_is_reached_by_tab(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    for _ in range(3):
        page.keyboard.press("n")  # to a tree with tokens
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                """() => {
                  const e = document.activeElement;
                  return e.id || e.name || e.getAttribute("role") || e.className;
                }"""
            )
        )
    wanted = {"theme", "help-open", "axis", "smooth", "slider", "search", "kind", "sort"}
    wanted |= {"direction", "option", "unfold", "fold", "treeitem", "whole-group", "group"}
    assert wanted <= reached


def test_tokens_are_gone_through_and_say_their_numbers(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    page.locator("#list .option").nth(3).click()  # advantages by token
    drawn = drawn_rollout(2, num_generations=3, rows=(5,), per_token=True).levels[0][0]
    values = drawn.advantages["agent_0"][0]
    card = page.locator("#reading .card").first
    readout = card.locator(".readout")
    card.locator(".token").nth(4).hover()
    number = f"{abs(values[4]):.2f}"
    assert readout.inner_text().startswith(f"token 5 of {len(values)}")
    assert number in readout.inner_text()
    card.locator(".prose").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert readout.inner_text().startswith(f"token 2 of {len(values)}")
    assert ("+" if values[1] > 0 else "−") in readout.inner_text()  # noqa: RUF001
    largest = max(abs(a) for node in (drawn,) for own in node.advantages["agent_0"] for a in own)
    darkest = [i for i, value in enumerate(values) if abs(value) == largest]
    signs = card.locator(".token").evaluate_all(
        "all => all.map((e) => (e.className.match(/(pos|neg)-\\d/) ?? ['none'])[0])"
    )
    assert len(signs) == len(values)
    for i, value in enumerate(values):
        assert signs[i].startswith("pos" if value > 0 else "neg")
    assert all(signs[i].endswith("5") or largest < 3 for i in darkest)


def test_completions_that_were_not_trained_are_marked(open_page: Any, tmp_path: Path) -> None:
    advantages = {name: (0.5, None, -0.5) for name in AGENTS}
    page = open_page(page_of(one_turn(["a", "b", "c"], advantages=advantages), tmp_path / "p.html"))
    page.keyboard.press("g")
    chips = page.locator("#reading .column").nth(1).locator(".chip").all_inner_texts()
    assert [chip.split()[-1] for chip in chips] == ["+0.50", "trained", "−0.50"]  # noqa: RUF001
    pills = page.get_by_role("group", name="Completions of agent_0").get_by_role("button")
    assert pills.nth(1).get_attribute("aria-label") == "Completion 2, advantage not trained"


def test_advantages_without_token_ends_are_a_row_of_squares(open_page: Any, tmp_path: Path) -> None:
    advantages = {name: ((0.5, -0.5, 0.0),) for name in AGENTS}
    page = open_page(page_of(one_turn(["abcdefgh"], advantages=advantages), tmp_path / "p.html"))
    strip = page.locator("#reading .strip").first
    assert strip.locator(".token").count() == 3
    strip.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "token 2 of 3" in page.locator("#reading .readout").first.inner_text()


def test_drafts_greedy_rewards_and_states_are_shown(open_page: Any, tmp_path: Path) -> None:
    rollout = one_turn(
        ["a"],
        drafts={"agent_1": (written("a first draft", 3),)},
        greedy_rewards={name: (0.5, 0.75) for name in AGENTS},
        greedy_turns_credited=2,
        state="what the critic reads",
    )
    page = open_page(page_of(rollout, tmp_path / "p.html"))
    for summary in page.locator("#reading summary").all():
        summary.click()
    text = page.locator("#reading").inner_text()
    for part in ("a first draft", "0.500, then 0.750", "counts for 2 turns", "the critic reads"):
        assert part in text


# --- finding --------------------------------------------------------------------------------------


def test_search_finds_texts_opens_them_and_marks_them(
    open_page: Any, run_page: Path, real_team: Rollout
) -> None:
    page = open_page(run_page)
    wanted = real_team.levels[1][5].completions["agent_1"][1].text[-24:]
    page.keyboard.press("/")
    page.keyboard.type(wanted.upper())
    count = expect(page.locator("#count"))
    count.to_have_text(re.compile(r"^[1-4] of 5 trees$"))
    assert wanted in page.locator("#reading").inner_text()
    assert page.locator("#tree .is-hit").count() >= 1
    assert page.evaluate("CSS.highlights.get('hits').size") >= 1
    page.keyboard.press("Escape")
    assert focused(page) == "option"
    page.locator("#search").fill("nobody wrote this")
    count.to_have_text("0 of 5 trees")
    assert names_in_list(page) == []
    page.locator("#search").fill("")
    count.to_have_text("5 trees")


@pytest.mark.parametrize("by", ["reward", "spread", "length"])
def test_sorting(open_page: Any, run_page: Path, by: str) -> None:
    page = open_page(run_page)

    def values() -> list[float]:
        if by == "reward":
            return [float(text) for text in page.locator(".option-reward").all_inner_texts()]
        told = page.locator(".option-more").all_inner_texts()
        return [float(re.search(rf"{by} ([\d.]+)", text).group(1)) for text in told]

    page.locator("#sort").select_option(by)
    assert len(values()) == 5
    assert values() == sorted(values(), reverse=True)
    assert len(set(values())) > 2
    page.locator("#direction").click()
    assert values() == sorted(values())
    page.locator("#sort").select_option("number")
    assert names_in_list(page)[0] == "Rollout 1, row 3"


def test_filtering(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    page.locator("#kind input[value=evaluation]").check()
    assert names_in_list(page) == ["Evaluation at the start, row 0"]
    page.locator("#kind input[value=training]").check()
    assert len(names_in_list(page)) == 4
    assert page.locator("#count").inner_text() == "4 of 5 trees"


def test_thousands_of_trees(open_page: Any, tmp_path: Path) -> None:
    rollouts = [
        drawn_rollout(k, num_generations=1, num_turns=1, rows=range(30)) for k in range(100)
    ]
    page = open_page(page_of(rollouts, tmp_path / "p.html"))
    assert page.locator("#count").inner_text() == "3,000 trees"
    assert page.locator("#list .option").count() == 200
    page.get_by_role("button", name="Show 200 more of 2,800").click()
    assert page.locator("#list .option").count() == 400
    page.locator("#list .option").first.focus()
    page.keyboard.press("End")
    assert page.locator("#reading h3").inner_text() == "Rollout 100, row 29"
    assert page.locator("#list .option:focus").get_attribute("aria-posinset") == "3000"


def test_wide_trees_are_shown_a_part_at_a_time(open_page: Any, tmp_path: Path) -> None:
    rollout = drawn_rollout(0, num_generations=150, num_turns=1)
    page = open_page(page_of(rollout, tmp_path / "p.html"))
    assert page.locator("#tree .branch").count() == 64
    page.locator("#tree .branch").first.focus()
    page.keyboard.press("End")  # the item that stands for the rest
    assert page.locator("#tree .branch").count() == 128
    assert way_here(page) == ["turn 1: #65 + #65"]
    pills = page.get_by_role("group", name="Completions of agent_0").get_by_role("button")
    pills.nth(149).click()
    assert way_here(page) == ["turn 1: #150 + #150"]
    assert page.locator("#tree .branch").count() == 150


# --- curves ---------------------------------------------------------------------------------------


def test_curves_say_their_values(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    chart = page.get_by_role("slider", name="Rewards by env steps")
    assert page.get_by_role("slider", name="Expected returns by env steps").is_visible()
    assert chart.locator("path.curve").count() == 3
    assert chart.locator("line.interval").count() == 2
    assert "eval/reward_mean 0.6 (0.50 to 0.70)" in chart.get_attribute("aria-valuetext")
    chart.focus()
    page.keyboard.press("Home")
    assert chart.get_attribute("aria-valuetext").startswith("env steps 0: ")
    page.keyboard.press("ArrowRight")
    said = chart.get_attribute("aria-valuetext")
    assert said.startswith("env steps 8: turn_1/reward_mean 0.2, turn_2/reward_mean 0.3")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 16, box["y"] + 90)
    assert "env steps 480" in page.locator(".chart").first.locator(".at").inner_text()
    page.locator(".chart-legend button").first.click()
    assert chart.locator("path.curve").count() == 2


def test_axes_are_switched(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    page.locator("#axis input[value=optimizer]").check()
    chart = page.locator(".plot").first
    assert chart.get_attribute("aria-label") == "Rewards by optimizer steps"
    assert chart.get_attribute("aria-valuetext").startswith("optimizer steps 120: ")
    page.keyboard.press("x")
    assert chart.get_attribute("aria-label") == "Rewards by wall time"
    assert chart.get_attribute("aria-valuetext").startswith("wall time 1 h 1 min: ")
    page.keyboard.press("x")
    assert chart.get_attribute("aria-label") == "Rewards by env steps"


def test_any_metric_can_be_chosen(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    select = page.locator(".chooser select").first
    options = select.locator("option").all_inner_texts()
    assert "train/grad_norm" in options
    assert not [name for name in options if name.endswith(("_low", "_high"))]
    select.select_option(label="train/grad_norm")
    assert "train/grad_norm 5" in page.locator(".chart-legend").first.inner_text().replace(
        "\n", " "
    )


# --- looks ----------------------------------------------------------------------------------------


def background(page: Any) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_light_and_dark(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page, color_scheme="light")
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert light != dark
    button = page.locator("#theme")
    button.click()
    assert (background(page), button.inner_text()) == (light, "Theme: light")
    page.keyboard.press("t")
    assert (background(page), button.inner_text()) == (dark, "Theme: dark")
    page.emulate_media(color_scheme="light")
    assert background(page) == dark
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert background(page) == dark
    button.click()
    assert (background(page), button.inner_text()) == (light, "Theme: system")


CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backs = (element) => {
    const list = [];
    for (let at = element; at; at = at.parentElement) list.unshift(getComputedStyle(at).backgroundColor);
    return list;
  };
  const contrast = (element) => {
    const back = backs(element);
    const [a, b] = [light(over(back)), light(over([...back, getComputedStyle(element).color]))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const worst = {};
  for (const element of document.querySelectorAll("main *, header *")) {
    const text = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || !element.offsetParent || element.closest("svg, :disabled, select, [aria-pressed=false].chart-button, .visually-hidden")) continue;
    const name = element.className || element.tagName;
    worst[name] = Math.min(worst[name] ?? 99, contrast(element));
  }
  return worst;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(open_page: Any, run_page: Path, scheme: str) -> None:
    page = open_page(run_page, color_scheme=scheme)
    page.locator("#list .option").nth(3).click()
    page.keyboard.press("g")
    worst = page.evaluate(CONTRASTS)
    assert {name for name in worst if "pos-" in name} | {name for name in worst if "neg-" in name}
    assert {name: value for name, value in worst.items() if value < 4.5} == {}


@pytest.mark.parametrize("width", [320, 390, 800, 1100, 1440, 2200])
def test_nothing_is_wider_than_the_window(
    open_page: Any, run_page: Path, tmp_path: Path, width: int
) -> None:
    viewport = {"width": width, "height": 844}
    hostile = page_of(one_turn(list(HOSTILE.values()), prompt="x" * 5000), tmp_path / "p.html")
    for path in (run_page, hostile):
        page = open_page(path, viewport=viewport)
        page.keyboard.press("g")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = page.evaluate(
            """() => [...document.querySelectorAll("main *")]
              .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("svg"))
              .filter((e) => e.offsetParent && !e.closest(".excerpt")) // cut off by its line
              .map((e) => e.className || e.tagName)"""
        )
        assert wide == []


def test_pictures_for_those_who_look(open_page: Any, run_page: Path, tmp_path: Path) -> None:
    for scheme in ("light", "dark"):
        for width in (390, 1440):
            viewport = {"width": width, "height": 900}
            page = open_page(run_page, color_scheme=scheme, viewport=viewport)
            page.keyboard.press("l")
            picture = tmp_path / f"{scheme}-{width}.png"
            page.screenshot(path=picture, full_page=True)
            assert picture.stat().st_size > 20_000


def test_roles_and_names(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, [role=tree], [role=listbox], [role=group], [role=slider]")]
          .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length))
          .filter((e) => e.getAttribute("role") !== "group" || e.tagName !== "UL")
          .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    first = page.get_by_role("treeitem").first
    assert re.fullmatch(
        r"turn 1, completions #1 \+ #1, reward [\d.]+, goes on", first.get_attribute("aria-label")
    )
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    assert dialog.is_visible()
    assert "next joint action" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_single_letters_can_be_switched_off(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    page.locator("#help-open").click()
    page.get_by_label("Single-letter keys").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("n")
    assert page.locator("#reading h3").inner_text() == "Rollout 1, row 3"


# --- texts that attack ----------------------------------------------------------------------------


def test_hostile_texts_are_only_texts(open_page: Any, tmp_path: Path) -> None:
    rollout = one_turn(list(HOSTILE.values()), prompt=HOSTILE["script"])
    page = open_page(page_of(rollout, tmp_path / "p.html"))
    page.keyboard.press("g")
    page.locator("#search").fill("<script>")
    expect(page.locator("#tree .is-hit").first).to_be_visible()
    assert page.evaluate("window.pwned === undefined")
    assert page.locator("script, img, svg").count() == 1  # the page's own script
    assert page.locator("#reading .prompts .prose").inner_text() == HOSTILE["script"]
    texts = (
        page.locator("#reading .column")
        .nth(1)
        .locator(".prose")
        .evaluate_all("all => all.map((e) => e.textContent)")
    )
    shown = dict(zip(HOSTILE, texts, strict=True))
    for name in ("script", "image", "comment", "template", "right-to-left", "emoji", "quotes"):
        assert shown[name] == HOSTILE[name]
    assert shown["overrides"] == "safe RLOgnp.exePDF and LRIisolatedPDI RLMLRMALM end"
    assert shown["controls"] == ("bell␇ nul␀ escape␛[31m backspace␈ return␍\n tab\t c1U+0085 del␡")
    assert shown["invisible"] == "zeroZWSPwidthBOM softSHYhyphen tagsU+E0041U+E0042"
    assert shown["separators"] == "lineLSEPparagraphPSEPend"
    assert shown["surrogates"] == "half U+D83D other U+DC00 end"
    assert shown["empty"] == "empty"
    assert shown["spaces"] == "12 characters of white space"


def test_hostile_names_are_only_names(open_page: Any, tmp_path: Path) -> None:
    """Of agents, metrics, settings and folders."""
    name = HOSTILE["image"]
    node = one_turn(["a"]).levels[0][0]
    own = {name: node.completions["agent_0"], "\u202eb": node.completions["agent_1"]}
    rollout = one_turn(
        ["a"],
        completions=own,
        observations=dict.fromkeys(own, "x"),
        rewards={name: (0.5,), "\u202eb": (1.0,)},
        drafts={name: own[name]},
    )
    run = write_run(tmp_path / "<b>run", {1: Rollout(tuple(own), rollout.levels)})
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 500, "<img src=x onerror=window.pwned=1>": 1}\n')
    (run / "run.yaml").write_text(f"env_id: '{HOSTILE['comment']}'\nalgo: <i>magrpo</i>\n")
    page = open_page(write_view(run))
    page.locator(".chooser select").first.select_option("one:<img src=x onerror=window.pwned=1>")
    assert page.evaluate("window.pwned === undefined")
    assert page.get_by_role("heading", level=1).inner_text() == HOSTILE["comment"]
    assert "<i>magrpo</i>" in page.locator("#facts").inner_text()
    assert page.locator("#reading .agent").all_inner_texts()[-2:] == [name, "RLOb"]


def test_right_to_left_text_keeps_to_itself(open_page: Any, tmp_path: Path) -> None:
    fields = by_letters(ARABIC, lambda i: (i % 9 - 4) / 4)
    page = open_page(page_of(one_turn([ARABIC], **fields), tmp_path / "p.html"))
    body = page.locator("#reading .card .prose").first
    assert body.evaluate("(e) => e.textContent") == ARABIC + "end"  # the mark of its last token
    box = body.bounding_box()
    first = body.locator(".token").first.bounding_box()
    assert first["x"] > box["x"] + box["width"] / 2  # begins at the right
    label = page.locator("#reading .card-title").first.bounding_box()
    assert label["x"] < box["x"] + box["width"] / 2  # what is around it begins at the left


LONGEST_FREEZE = """() => {
  window.longest = 0;
  let last = performance.now();
  const watch = (now) => {
    window.longest = Math.max(window.longest, now - last);
    last = now;
    requestAnimationFrame(watch);
  };
  requestAnimationFrame(watch);
}"""


def test_a_hundred_thousand_characters(open_page: Any, tmp_path: Path) -> None:
    fields = by_letters(LONG, lambda i: (i % 21 - 10) / 10)
    rollout = one_turn([LONG], prompt="y" * 100_000, **fields)
    page = open_page(page_of(rollout, tmp_path / "p.html"))
    body = page.locator("#reading .card .prose").first
    assert body.evaluate("(e) => e.textContent.length") < 4000
    page.evaluate(LONGEST_FREEZE)
    page.locator("#reading .card").first.get_by_role(
        "button", name="Show all 100,000 characters"
    ).click()
    page.locator("#reading .card .prose[data-whole]").wait_for(timeout=60_000)
    assert page.evaluate("window.longest") < 2000  # milliseconds without an answer
    assert body.evaluate("(e) => e.textContent") == LONG + "end"
    assert body.locator(".token").count() == 25_001
    page.keyboard.press("ArrowRight")
    assert "token 1 of 25001" in page.locator("#reading .readout").first.inner_text()
    page.locator("#reading .prompts").get_by_role("button").click()
    page.locator("#reading .prompts .prose[data-whole]").wait_for(timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440


# --- how it is loaded -----------------------------------------------------------------------------


def test_a_browser_that_cannot_unpack_is_helped(
    open_page: Any, run_page: Path, tmp_path: Path
) -> None:
    hostile = page_of(one_turn(list(HOSTILE.values())), tmp_path / "p.html")
    noise = "".join(chr(0x4E00 + (k * 7919) % 20000) for k in range(40_000))
    packed_badly = page_of(one_turn([noise, noise[::-1]]), tmp_path / "noise.html")
    for path in (run_page, hostile, packed_badly):
        pages = [open_page(path), open_page(path, before="delete window.DecompressionStream;")]
        pages[1].evaluate("if ('DecompressionStream' in window) throw new Error('still there')")
        texts = [page.locator("main").inner_text() for page in pages]
        assert texts[0] == texts[1]


def test_the_page_reaches_nothing(browser: Any, run_page: Path) -> None:
    """Its policy stops what a hole in it would let through: other scripts, and every connection."""
    opened = Opened(browser, run_page)
    page = opened.go()
    page.evaluate(
        """() => {
          window.stopped = [];
          addEventListener("securitypolicyviolation", (e) => stopped.push(e.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.pwned = 1";
          document.body.append(script);
          const image = document.createElement("img");
          image.src = "https://example.org/pixel.png";
          document.body.append(image);
          return fetch("https://example.org/").then(() => {}, () => {});
        }"""
    )
    page.wait_for_timeout(500)
    assert page.evaluate("window.pwned === undefined")
    assert set(page.evaluate("window.stopped")) == {"script-src-elem", "img-src", "connect-src"}
    opened.context.close()


def test_a_notebook_shows_the_page_in_a_frame(browser: Any, real_team: Rollout) -> None:
    page = browser.new_page(offline=True)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_content(f"<p>above</p>{view_rollout(real_team)._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(timeout=60_000)
    assert frame.locator("#reading h3").inner_text() == "Rollout 1, row 3"
    assert errors == []
    page.close()


def test_a_run_with_nothing_in_it_says_so(open_page: Any, tmp_path: Path) -> None:
    page = open_page(write_view(tmp_path))
    assert "There is no metrics.jsonl" in page.locator("#notices").inner_text()
    assert page.locator("#loading").inner_text() == "No rollouts were saved yet."
    assert not page.locator("#curves").is_visible()
    for key in "njkhlxgbr":
        page.keyboard.press(key)


def test_a_cut_rollout_says_what_is_missing(open_page: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: drawn_rollout(0, num_generations=2)})
    path = run / "rollouts" / "000001.jsonl"
    path.write_text(path.read_text()[:-200])
    page = open_page(write_view(run))
    assert "rollouts/000001.jsonl ends early" in page.locator("#notices").inner_text()
    page.keyboard.press("j")
    sentence = page.locator(".fate-sentence").inner_text()
    assert sentence == "It went on, and the file ends before its next turn."
    assert "unknown" in page.locator("#reading .numbers").inner_text()
