"""Pictures of flows: boxes that do not overlap, arrows that go along the stream between them, text and XML that are right for any flow."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from flows import flow, sink, source, step
from hypothesis import given
from hypothesis import strategies as st

from scribengin.plan.flow_graph import graph_as_json
from scribengin.plan.graph_layout import Box, layered
from scribengin.plan.picture import GraphPicture, PictureEdge, PictureNode, as_mermaid, as_svg, as_text, picture_of, width_of
from scribengin.plan.tier_flows import plan_flow
from scribengin.spec.model import Aggregate, Filter, Flow, Merge, Route, Tier

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "a < b && \"c\" > 'd' ]]> é 世 \u2028 <script>"


def routed(**rest: Any) -> Flow:
    return flow(
        source(),
        step("parts", "tweets", Route((("big", "retweets > 5"), ("small", "retweets > 1")), "none")),
        step("few", "parts.big", Filter("id > 1")),
        step("all", "few parts.small", Merge()),
        step("counted", "all", Aggregate((), (("n", "count(*)"),), None)),
        sink("kept", "all"),
        sink("counts", "counted", type_="console"),
        **rest,
    )


def picture(of: Flow, counts: dict[str, Any] | None = None) -> GraphPicture:
    return picture_of(graph_as_json(plan_flow(of)), counts)


COUNTS = {
    "caption": "rows of the last run",
    "nodes": [
        {"node": "tweets", "run": "", "in": 1200, "dropped": 3, "dead": 28, "late": 0, "held": None},
        {"node": "parts", "run": "parts+few", "in": 1169, "dropped": None, "dead": 1, "late": 0, "held": None},
    ],
    "edges": [{"reads": "tweets", "node": "parts", "rows": "1,169"}, {"reads": "parts.small", "node": "all", "rows": "40"}],
}


def test_a_flow_in_characters_names_branches_and_says_what_passed() -> None:
    shown = as_text(picture(routed(), COUNTS))
    assert shown == (Path(__file__).parent / "routed.txt").read_text()


def test_a_flow_for_mermaid_has_each_node_once_and_its_branches() -> None:
    cut = routed(tiers={"near": Tier("near", ("parts",)), "far": Tier("far", ("few", "all", "counted"))})
    assert as_mermaid(picture(cut, COUNTS)).splitlines() == [
        "flowchart LR",
        '  subgraph t_near ["tier near"]',
        '    tweets_(["<b>tweets</b><br>files tweets, json, watermark ts …<br>1,200 in, 3 dropped<br>28 dead"])',
        '    parts_["<b>parts</b><br>route: big: retweets &gt; 5; small: …<br>with few, as one:<br>1,169 in<br>1 dead"]',
        "  end",
        '  subgraph t_far ["tier far"]',
        '    few_["<b>few</b><br>filter: id &gt; 1"]',
        '    all_["<b>all</b><br>union by name"]',
        '    counted_{{"<b>counted</b><br>aggregate: count(*) AS n"}}',
        '    kept_[/"<b>kept</b><br>files out/kept, parquet"/]',
        '    counts_[/"<b>counts</b><br>console"/]',
        "  end",
        '  tweets_ -->|"1,169"| parts_',
        '  parts_ -.->|"big · by parts_big_to_far"| few_',
        "  few_ --> all_",
        '  parts_ -.->|"small · 40 · by parts_small_to_far"| all_',
        "  all_ --> counted_",
        "  all_ --> kept_",
        "  counted_ --> counts_",
    ]


def boxes(root: ElementTree.Element, kind: str) -> dict[str, tuple[float, float, float, float]]:
    """Name → left, top, right, bottom."""
    found = {}
    for index, rect in enumerate(root.iter(f"{SVG}rect")):
        if kind in rect.attrib["class"].split():
            x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            found[str(index)] = (x, y, x + width, y + height)
    return found


def apart(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_svg_has_tiers_as_frames_around_their_own_boxes_and_colours_for_light_and_dark() -> None:
    cut = routed(tiers={"near": Tier("near", ("parts",)), "far": Tier("far", ("few", "all", "counted"))})
    root = ElementTree.fromstring(as_svg(picture(cut, COUNTS)))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"tweets", "tier near", "tier far", "28 dead", "big · by parts_big_to_far", "rows of the last run"} <= set(texts)
    frames, nodes = boxes(root, "frame"), boxes(root, "box")
    assert (len(frames), len(nodes)) == (2, 7)
    near, far = frames.values()
    assert apart(near, far)
    inside = [[box for box in nodes.values() if not apart(frame, box)] for frame in (near, far)]
    assert [len(each) for each in inside] == [2, 5]
    for frame, held in zip((near, far), inside, strict=True):
        assert all(frame[0] < x and frame[1] < y and right < frame[2] and below < frame[3] for x, y, right, below in held)
    assert "prefers-color-scheme: dark" in as_svg(picture(cut))


NAMES = "abcdefgh"
GRAPHS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=14).map(
    lambda pairs: sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
)


@given(GRAPHS, st.lists(st.sampled_from(["", "x", "y", "z"]), min_size=8, max_size=8))
def test_any_graph_can_be_drawn_without_boxes_on_each_other(edges: list[tuple[str, str]], frames: list[str]) -> None:
    # tiers feed each other in one direction: a node's frame is never before that of what it reads
    order = dict(zip(NAMES, sorted(frames), strict=True))
    nodes = tuple(
        PictureNode(name, "step", HOSTILE, (HOSTILE, name * 9)[: ord(name) % 3], "3 dead" * (name > "e"), order[name]) for name in NAMES
    )
    arrows = tuple(PictureEdge(start, end, HOSTILE[: ord(end) % 5], "1,000", "") for start, end in edges)
    drawn = GraphPicture(HOSTILE, nodes, arrows, {name: f"tier {name}" for name in ("x", "y", "z")}, HOSTILE)
    root = ElementTree.fromstring(as_svg(drawn))
    assert all(apart(one, other) for one, other in combinations(boxes(root, "box").values(), 2))
    assert all(apart(one, other) for one, other in combinations(boxes(root, "frame").values(), 2))
    assert len(list(root.iter(f"{SVG}path"))) == len(edges) + 1, "each arrow, and the head of all"
    as_mermaid(drawn)
    text = as_text(drawn)
    assert text.count("▼") == len({end for _, end in edges})
    assert all(len(re.findall(rf"[│╭┌] {name} +│", text)) == 1 for name in NAMES)


@given(GRAPHS)
def test_layers_follow_the_stream_and_arrows_pass_between_boxes(edges: list[tuple[str, str]]) -> None:
    sizes = {name: Box(2 + ord(name) % 3, 3 + ord(name) % 4) for name in NAMES}
    laid = layered(sizes, edges, between=2, bend=1, gap=lambda pieces: 3.0)
    again = layered(sizes, edges, between=2, bend=1, gap=lambda pieces: 3.0)
    assert laid == again
    for start, end in edges:
        assert laid.at[start][0] + sizes[start].along <= laid.at[end][0]
        for along, across in laid.bends[start, end]:
            for name, (x, y) in laid.at.items():
                inside = x < along < x + sizes[name].along and y < across < y + sizes[name].across
                assert not inside


def test_characters_that_take_two_places_leave_their_box_upright() -> None:
    node = PictureNode("talk", "step", "", ("この討論会は面白い", "この討論会は面白い" * 3))
    upper, *inside, lower = as_text(GraphPicture("wide", (node,), (), {})).splitlines()[2:]
    assert {width_of(line) for line in (upper, *inside, lower)} == {len(upper)}
