"""The pages of a flow that show Batches, workers, dead letters, traces and logs, with flows that really run."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, Route, expect

from harness.dev_plane import LIMIT_S, DevPlane
from scribengin.client.change_models import Rewind
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.client.state_models import Letter

ANSWER_MS = 120_000
HOSTILE = "<img src=x onerror=alert(1)>"
REVERSED = "\u202egnp.exe"
RECORDS = b"".join(
    (
        *(b'{"id": %d, "country": "DE", "amount": "%d.5"}\n' % (n, n) for n in range(10)),
        b'{"id": 100, "country": "FR", "amount": "twelve"}\n',
        json.dumps({"id": 101, "country": HOSTILE, "amount": HOSTILE}).encode() + b"\n",
        json.dumps({"id": 102, "country": "x", "amount": REVERSED}, ensure_ascii=False).encode() + b"\n",
        b'{"id": 103, "country": "\xff\xfe", "amount": "1"}\n',
        b"not JSON\n",
    )
)
ORDERS = {
    "flow.yaml": """\
version: 1
name: orders
defaults: {trace: 1}
sources: {orders: {type: files, path: in, format: json, schema: "id BIGINT, country STRING, amount STRING"}}
steps: {priced: {from: orders, python: "steps:price", schema: "id BIGINT, country STRING, amount DOUBLE"}}
sinks: {kept: {from: priced, type: files, path: out, format: json}}
""",
    "steps.py": """\
from scribengin import record


@record
def price(row):
    return {"id": row["id"], "country": row["country"], "amount": float(row["amount"])}
""",
    "in/a.jsonl": RECORDS,
}
BROKEN = {
    "flow.yaml": """\
version: 1
name: broken
sources: {numbers: {type: files, path: in, format: json, schema: "id BIGINT"}}
steps: {odd: {from: numbers, python: "sums:odd", on_error: fail}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
""",
    "sums.py": """\
from scribengin import record


@record
def odd(row):
    return 1 // (row["id"] - row["id"]) == 1
""",
    "in/a.jsonl": b'{"id": 1}\n',
}
COUNTED = {
    "flow.yaml": """\
version: 1
name: counted
sources: {ticks: {type: sequence, rows: 40, max_rows: 10, watermark: ts 1m}}
steps: {each: {from: ticks, aggregate: {window: {time: ts, size: 1m}, columns: {n: count(*)}}}}
sinks: {kept: {from: each, type: files, path: out, format: json}}
tiers: {near: {steps: [each], resources: {spark: {spark.ui.enabled: "true"}}}}
""",
}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevPlane]:
    plane = DevPlane(tmp_path_factory.mktemp("plane"))
    with plane.up():
        plane.apply("orders", ORDERS)
        plane.apply("broken", BROKEN)
        plane.apply("counted", COUNTED)
        with plane.client() as client:
            look_until(lambda: client.batches("orders").batches, "a Batch of orders", LIMIT_S, 1)
            look_until(lambda: (status := client.flow("broken").status) and status.state == "failed", "broken has failed", LIMIT_S, 1)
        yield plane


@pytest.fixture
def shown(page: Page, plane: DevPlane) -> Callable[[str], Page]:
    """A function: the page at an address of the console, once it has its answers. A planner's process may take long on a busy machine."""
    page.set_default_timeout(ANSWER_MS)
    expect.set_options(timeout=ANSWER_MS)

    def at(address: str) -> Page:
        page.goto(f"{plane.url}/#{address}")
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("[aria-busy]")).to_have_count(0)
        return page

    return at


def letter_of(plane: DevPlane, record: int) -> Letter:
    """The dead letter of the record on that line of the file, counted from zero."""
    with plane.client() as client:
        return next(letter for letter in client.dead_letters("orders") if letter.record == f"orders/a.jsonl+{record}")


@contextmanager
def stopped(plane: DevPlane) -> Iterator[None]:
    """Flow orders is stopped meanwhile."""
    plane.command("stop", "orders")
    try:
        with plane.client() as client:
            look_until(lambda: (status := client.flow("orders").status) and status.state == "stopped", "orders is stopped", LIMIT_S, 1)
        yield
    finally:
        plane.command("resume", "orders")


def test_batches_have_the_numbers_of_the_command(plane: DevPlane, shown: Callable[[str], Page]) -> None:
    said = plane.command("batch", "list", "orders")["batches"][-1]
    page = shown("/flows/orders/batches")
    table = page.get_by_role("region", name="Batches", exact=True)
    cells = table.get_by_role("row").last.get_by_role("cell")
    expect(cells).to_have_text([
        str(said["batch"]), "kept", "main", re.compile(re.escape(said["decided_at"][:19])),
        str(said["rows_in"]), str(said["rows_out"]), str(said["dead"]), "–", "yes",
    ])  # fmt: skip
    bar = page.get_by_role("group", name="Batches of main, kept").get_by_role("link").first
    bar.focus()
    bar.press("Enter")
    panel = page.get_by_role("region", name=f"Batch {said['batch']}", exact=True)
    expect(panel).to_contain_text(re.compile(r"rows in\s*15.*rows out\s*10.*dead letters\s*5", re.DOTALL))
    receipts = panel.get_by_role("region", name="receipts", exact=True)
    expect(receipts.get_by_role("row").nth(1)).to_contain_text(re.compile(r"kept\s*0\s*10"))
    receipts.get_by_text("1 entry").click()
    expect(receipts.locator("pre")).to_contain_text("part-")
    panel.get_by_role("link", name="5").click()
    expect(page.get_by_role("region", name="dead letters", exact=True).get_by_role("row")).to_have_count(6)


def test_a_batch_shows_its_phases_its_state_and_its_watermark(plane: DevPlane, shown: Callable[[str], Page]) -> None:
    with plane.client() as client:
        look_until(lambda: len(client.batches("counted").batches) > 2, "three Batches of counted", LIMIT_S, 1)
    row = next(each for each in plane.command("batch", "list", "counted")["batches"] if each["phases_s"] and each["watermark"])
    page = shown(f"/flows/counted/batches?batch=near:kept:{row['batch']}")
    panel = page.get_by_role("region", name=f"Batch {row['batch']}", exact=True)
    expect(panel).to_contain_text(f"process {row['phases_s']['process']:.3f} s")
    expect(panel).to_contain_text(re.compile(rf"state after it\s*{row['state_rows']} rows"))
    expect(panel).to_contain_text(re.compile(rf"watermark\s*{row['watermark'][:19]}"))
    bars = page.get_by_role("group", name="Batches of near, kept")
    expect(bars.locator("a[aria-current] .p1")).to_have_css("height", re.compile(r"^[1-9]"))
    expect(page.get_by_role("img", name=re.compile("^rows in the state after each Batch"))).to_be_visible()


def test_a_node_shows_its_columns_and_rows_in_and_out(shown: Callable[[str], Page]) -> None:
    page = shown("/flows/orders/node/priced")
    panel = page.get_by_role("region", name="node priced")
    panel.get_by_role("button", name="take a sample").click()
    expect(panel).to_contain_text("13 in, 10 out, 3 dead letters")
    columns = panel.get_by_role("region", name="columns", exact=True).get_by_role("row")
    expect(columns.filter(has_text="amount").get_by_role("cell")).to_have_text(["amount", "STRING", "DOUBLE", "changed"])
    rows = panel.get_by_role("region", name="sample rows", exact=True)
    expect(rows.get_by_role("columnheader")).to_have_text(["outcome", "id", "country", "amount", "→ amount", "reason"])
    expect(rows.get_by_role("row").nth(2).get_by_role("cell")).to_have_text(["kept", "1", "DE", "1.5", "1.5", ""])
    dead = rows.get_by_role("row", name="twelve")
    expect(dead).to_contain_text(re.compile(r"dead letter.*raised: ValueError.*steps\.py:6.*record at", re.DOTALL))
    expect(rows).to_contain_text(HOSTILE)

    page = shown("/flows/orders/node/orders")
    page.get_by_role("button", name="take a sample").click()
    expect(page.get_by_role("region", name="node orders")).to_contain_text("15 in, 13 out, 2 dead letters")


def test_a_failing_step_says_in_its_sample_what_fails(shown: Callable[[str], Page]) -> None:
    page = shown("/flows/broken/node/odd")
    page.get_by_role("button", name="take a sample").click()
    rows = page.get_by_role("region", name="sample rows", exact=True)
    expect(rows).to_contain_text(re.compile(r"ZeroDivisionError.*sums\.py:6", re.DOTALL))


def test_a_step_that_spark_runs_has_a_sample_and_sparks_page(shown: Callable[[str], Page]) -> None:
    page = shown("/flows/counted/node/each")
    address = page.get_by_role("link", name="Spark's page of tier near").get_attribute("href")
    assert address is not None
    with urlopen(address, timeout=LIMIT_S) as answer:
        assert (urlsplit(address).hostname, answer.status) == ("127.0.0.1", 200)
    page.get_by_role("button", name="take a sample").click()
    expect(page.get_by_role("region", name="rows from ticks", exact=True).get_by_role("row")).to_have_count(21)
    expect(page.get_by_role("region", name="sample rows", exact=True)).to_contain_text("window_start")


def test_rates_are_drawn_over_time(shown: Callable[[str], Page]) -> None:
    page = shown("/flows/orders/batches")
    expect(page.get_by_role("img", name=re.compile("^rows per second; last: in "))).to_be_visible()
    page.get_by_role("link", name="5 hours").click()
    expect(page.get_by_role("link", name="5 hours")).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("img", name=re.compile("^rows per second"))).to_be_visible()


def test_workers_name_the_line_that_failed(plane: DevPlane, shown: Callable[[str], Page]) -> None:
    with plane.client() as client:
        (attempt,) = client.attempts("broken")
    page = shown("/flows/broken/workers")
    article = page.get_by_role("article", name=attempt["worker"])
    expect(article.locator(".place").first).to_have_text("sums.py:6")
    expect(article).to_contain_text("ZeroDivisionError")
    expect(article).to_contain_text(attempt["remedy"])
    expect(article).to_contain_text(f"process {attempt['pid']}")


def test_a_dead_letter_is_repaired_and_sent_on(plane: DevPlane, shown: Callable[[str], Page]) -> None:
    letter = letter_of(plane, 10)
    page = shown(f"/flows/orders/dead/{letter.key}")
    expect(page.locator(".place")).to_have_text("steps.py:6")
    page.get_by_label("amount").fill("12")
    page.get_by_role("button", name="repair", exact=True).click()
    repair = page.get_by_role("dialog", name="repair")
    expect(repair).to_contain_text(f"scribengin dead-letter edit orders {letter.key} --set amount=12")
    repair.get_by_role("button", name="keep the repair").click()
    repair.get_by_role("button", name="send the repaired one on").click()
    replay = page.get_by_role("dialog", name="replay")
    expect(replay).to_contain_text("Would be replayed: 1 dead letter, 1 of them repaired")
    replay.get_by_role("button", name="replay", exact=True).click()
    expect(replay).to_contain_text("Requested: 1 dead letter, 1 of them repaired")
    replay.get_by_role("button", name="close").last.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_text(re.compile("Its replay is requested|It was replayed"))).to_be_visible()
    expected = {"id": 100, "country": "FR", "amount": 12.0}
    look_until(lambda: expected in plane.rows("orders"), "the repaired row is in the output", LIMIT_S, 0.5)


def test_bytes_that_are_not_utf_8_are_shown_and_repaired(plane: DevPlane, shown: Callable[[str], Page]) -> None:
    letter = letter_of(plane, 13)
    page = shown(f"/flows/orders/dead/{letter.key}")
    expect(page.locator("pre").first).to_contain_text("22 ff fe 22")
    text = page.get_by_label("text")
    expect(text).to_have_value(r'{"id": 103, "country": "\xff\xfe", "amount": "1"}')
    text.fill(r'{"id": 103, "country": "\xc3\xa9\\u00e9", "amount": "1"}')
    page.get_by_role("button", name="repair", exact=True).click()
    repair = page.get_by_role("dialog", name="repair")
    repair.get_by_role("button", name="keep the repair").click()
    expect(repair).to_contain_text("The repair is kept for query kept")
    repair.get_by_role("button", name="close").last.click()
    expect(page.get_by_text("repaired", exact=True)).to_be_visible()
    expect(page.get_by_label("country")).to_have_value("éé")


def test_a_rewind_shows_what_it_would_read_again(plane: DevPlane, shown: Callable[[str], Page]) -> None:
    page = shown("/flows/orders")
    page.get_by_role("button", name="rewind").click()
    dialog = page.get_by_role("dialog", name="rewind")
    dialog.get_by_role("combobox").select_option("after a Batch")
    dialog.get_by_role("textbox", name="Batch").fill("-1")
    dialog.get_by_label("type orders to confirm").fill("orders")
    expect(dialog.get_by_role("button", name="rewind", exact=True)).to_be_disabled()
    dialog.get_by_role("button", name="show what is read again").click()
    with plane.client() as client:
        says = client.rewind("orders", Rewind(to_batch=-1)).says
    expect(dialog.get_by_role("listitem")).to_have_text(list(says))
    expect(dialog.get_by_role("button", name="rewind", exact=True)).to_be_enabled()
    dialog.get_by_role("textbox", name="Batch").fill("0")
    expect(dialog.get_by_role("button", name="rewind", exact=True)).to_be_disabled()


def test_purge_needs_the_name(plane: DevPlane, shown: Callable[[str], Page]) -> None:
    letter = letter_of(plane, 14)
    with stopped(plane):
        page = shown("/flows/orders/dead?step=orders&reason=malformed")
        page.get_by_role("button", name="purge the selected", exact=True).click()
        purge = page.get_by_role("dialog", name="purge")
        expect(purge).to_contain_text("Would be deleted: 1 dead letter, 1 of them not replayed")
        act = purge.get_by_role("button", name="purge", exact=True)
        expect(act).to_be_disabled()
        purge.get_by_label("to confirm").fill("order")
        expect(act).to_be_disabled()
        purge.get_by_label("to confirm").fill("orders")
        act.click()
        expect(purge).to_contain_text("Deleted: 1 dead letter")
        with plane.client() as client:
            assert letter.key not in {each.key for each in client.dead_letters("orders")}
        purge.get_by_role("button", name="restore purged").click()
        restore = page.get_by_role("dialog", name="restore purged")
        restore.get_by_role("button", name="restore", exact=True).click()
        expect(restore).to_contain_text("Restored: 1 dead letter")
        assert letter_of(plane, 14).key == letter.key


def test_positions_are_those_of_the_command_and_are_set_while_the_flow_is_stopped(
    plane: DevPlane, shown: Callable[[str], Page], expected_errors: list[str]
) -> None:
    (said,) = plane.command("offsets", "show", "orders")["sources"]
    page = shown("/flows/orders/positions")
    cells = page.get_by_role("region", name="positions").get_by_role("row").last.get_by_role("cell")
    expect(cells.filter(has_not=page.get_by_role("button"))).to_have_text([
        "main", "kept", "orders", str(said["position"]), str(said["logged"]), str(said["batch"]), said["last"] or "–",
    ])  # fmt: skip
    page.get_by_role("button", name="set position of orders in kept").click()
    dialog = page.get_by_role("dialog", name="set the position of orders")
    look = dialog.get_by_role("button", name="show what is read again or skipped")
    expect(look).to_be_disabled()
    dialog.get_by_label("position", exact=True).fill("0")
    expected_errors.append("status of 409")
    look.click()
    expect(dialog.get_by_role("alert")).to_contain_text("not stopped")
    with stopped(plane):
        look.click()
        expect(dialog.get_by_role("listitem")).to_contain_text(f"kept reads orders again from 0 to {said['position']}")
        set_ = dialog.get_by_role("button", name="set the position", exact=True)
        expect(set_).to_be_disabled()
        dialog.get_by_label("to confirm").fill("orders")
        expect(set_).to_be_enabled()
        dialog.get_by_label("position", exact=True).fill("end")
        expect(set_, "what it would do was not shown").to_be_disabled()
        expect(dialog).to_contain_text("scribengin offsets set orders orders end --query kept --yes")
        (plane.folder / "orders" / "in" / "skipped.jsonl").write_bytes(b'{"id": 900}\n')
        look.click()
        expect(dialog.get_by_role("listitem")).to_contain_text("kept skips the entries of orders")
        set_.click()
        expect(dialog.locator(".done")).to_contain_text("has ended: done")
        dialog.get_by_role("button", name="close").last.click()
        (now,) = plane.command("offsets", "show", "orders")["sources"]
        assert now["logged"] > said["logged"]
        page.get_by_role("button", name="again").click()
        expect(cells.nth(4)).to_have_text(str(now["logged"]))
    with plane.client() as client:
        look_until(lambda: client.offsets("orders")[0].position == now["logged"], "the entry is passed", LIMIT_S, 1)
    assert not [row for row in plane.rows("orders") if row["id"] == 900]


def test_trace_draws_the_way_of_a_record(plane: DevPlane, shown: Callable[[str], Page]) -> None:
    page = shown("/flows/orders/trace")
    page.get_by_label("record").fill("orders/a.jsonl+3")
    page.get_by_role("button", name="trace").click()
    way = page.get_by_role("region", name="way of orders/a.jsonl+3").get_by_role("listitem")
    tier = re.compile(r"^tier main 2\d{3}-.*query kept, Batch 0")
    expect(way).to_have_text([re.compile("^source orders"), tier, re.compile("^sink kept")])
    expect(page).to_have_url(re.compile(re.escape(f"record={quote('orders/a.jsonl+3', safe='')}") + "$"))
    with plane.client() as client:
        assert [hop["batch"] for each in client.trace("orders", "orders/a.jsonl+3")["arrivals"] for hop in each["hops"]] == [0]
    dead = shown("/flows/orders/trace?record=orders%2Fa.jsonl%2B11").get_by_role("listitem").filter(has_text="dead letter of priced")
    dead.get_by_role("link", name="open it").click()
    expect(page.get_by_role("region", name="dead letters", exact=True).get_by_role("row")).to_have_count(2)


def test_hostile_records_are_texts(plane: DevPlane, shown: Callable[[str], Page]) -> None:
    hostile, reversed_ = letter_of(plane, 11), letter_of(plane, 12)
    page = shown("/flows/orders/dead")
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    expect(page.get_by_role("region", name="dead letters", exact=True)).to_contain_text(HOSTILE)
    expect(shown(f"/flows/orders/dead/{hostile.key}").locator("pre").first).to_contain_text(HOSTILE)
    expect(shown(f"/flows/orders/trace?record={quote(hostile.record)}").get_by_role("listitem").last).to_contain_text("committed")
    expect(page.locator("main")).to_contain_text(HOSTILE)
    expect(shown(f"/flows/orders/trace?record={quote(HOSTILE)}").locator(".note").first).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0
    shown(f"/flows/orders/dead/{reversed_.key}")
    expect(page.get_by_text(r"\u202egnp.exe", exact=False).first).to_be_visible()
    assert REVERSED not in page.locator("main").inner_text()


def test_a_viewer_sees_neither_bytes_nor_acts(plane: DevPlane, page: Page, shown: Callable[[str], Page]) -> None:
    letter = letter_of(plane, 11)

    def as_viewer(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"role": "viewer"})

    def withheld(route: Route) -> None:
        answer = route.fetch()
        said = answer.json()
        letters = [each | {"payload": None, "payload_base64": None, "came": ""} for each in said["letters"]]
        route.fulfill(response=answer, json=said | {"letters": letters, "withheld": True})

    page.route("**/v1/session", as_viewer)
    page.route("**/dead-letters?**", withheld)
    shown(f"/flows/orders/dead/{letter.key}")
    expect(page.get_by_text("The bytes of records are shown to operators and above.")).to_be_visible()
    expect(page.get_by_role("heading", name="Repair")).to_have_count(0)
    shown("/flows/orders/dead")
    expect(page.get_by_role("button", name=re.compile("replay|purge|restore"))).to_have_count(0)
    shown("/flows/orders/positions")
    expect(page.get_by_role("button", name=re.compile("set position"))).to_have_count(0)


def test_bytes_and_columns_are_read_back_as_they_were(shown: Callable[[str], Page]) -> None:
    page = shown("/flows/orders/dead")
    given = [
        [0xFF, 0x5C, 0x78, 0x66, 0x66],
        [0xC3, 0xA9, 0xC3],
        [0xED, 0xA0, 0x80, 0x0D, 0x0A],
        [0xF0, 0x9F, 0x98, 0x80, 0xEF, 0xBB, 0xBF],
        list(range(256)),
    ]
    back = page.evaluate(
        """async (given) => {
          const {escaped, unescaped} = await import("./console/lib/record_bytes.js");
          return given.map((bytes) => Array.from(unescaped(escaped(Uint8Array.from(bytes)))));
        }""",
        given,
    )
    assert back == given
    columns = page.evaluate(
        """async (text) => {
          const {columnsOf} = await import("./console/lib/letter_repair.js");
          return [...columnsOf(text)];
        }""",
        '{"id": 12345678901234567890, "name": "12", "deep": {"id": 1.50}, "tags": ["a"], "no": null}',
    )
    assert columns == [["id", "12345678901234567890"], ["name", "12"], ["deep", '{"id":1.50}'], ["tags", '["a"]'], ["no", "null"]]


def test_logs_are_filtered(shown: Callable[[str], Page]) -> None:
    page = shown("/flows/broken/logs")
    lines = page.get_by_label(re.compile("^lines of main: .*run.log"))
    expect(lines).to_contain_text("run started")
    page.get_by_label("filter").fill("zerodivision")
    expect(lines).to_contain_text("ZeroDivisionError")
    expect(lines).not_to_contain_text("run started")


@pytest.mark.parametrize(
    "part", ["batches?batch=main:kept:0", "workers", "dead", "dead/KEY", "trace?record=orders%2Fa.jsonl%2B3", "positions", "logs"]
)
def test_pages_are_accessible(
    part: str, plane: DevPlane, shown: Callable[[str], Page], accessibility_faults: Callable[[Page], list[str]]
) -> None:
    page = shown(f"/flows/orders/{part.replace('KEY', letter_of(plane, 11).key)}")
    assert accessibility_faults(page) == []


def test_the_hosts_page_shows_the_servers_of_zookeeper(shown: Callable[[str], Page]) -> None:
    page = shown("/hosts")
    servers = page.get_by_role("region", name="ZooKeeper servers", exact=True).get_by_role("row")
    expect(servers).to_have_count(2)
    expect(servers.nth(1).get_by_role("cell")).to_have_text([
        re.compile(r"^127\.0\.0\.1:\d+$"), "standalone", re.compile(r"^3\.\d+"), re.compile(r"^\d+$"), "",
    ])  # fmt: skip
    expect(page.get_by_text("The session of this master is connected")).to_be_visible()
