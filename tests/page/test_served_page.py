"""The page from a server, under a strict policy: translate, look, force a branch, ablate heads."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser_page import Watched, drawn, expect, watched
from heedful.insight.look import Look, look
from look_models import other_look_model
from stub_server import Stub, stub_server


@pytest.fixture
def server() -> Iterator[Stub]:
    with stub_server() as stub:
        yield stub


def says(page, translation: str) -> None:
    expect(page, "output").to_have_text(translation)


def looking(tab: Watched, server: Stub, view: str = "attention"):
    page = tab.page
    page.goto(f"{server.address}#page=look&from=en&to=de&q=A+dog&view={view}")
    page.wait_for_selector(".sentence")
    return drawn(page)


def test_typing_translates_and_shows_only_the_last_answer(tab: Watched, server: Stub) -> None:
    page = tab.page
    page.goto(server.address)
    page.wait_for_selector("textarea")
    with server.held():
        page.fill("textarea", "first")
        server.wait_for(1)
        page.fill("textarea", "second")
        server.wait_for(2)
    says(page, "dnoces")
    assert drawn(page).inner_text("output") == "dnoces"
    assert [values["q"] for _, values in server.asked] == ["first", "second"]
    assert server.asked[-1] == (
        "/translate",
        {"format": "text", "q": "second", "source": "en", "target": "de", "alternatives": 2},
    )
    expect(page, ".alternatives").to_contain_text("other dnoces")
    expect(page, ".panes").to_contain_text("6 / 500")
    assert tab.hosts == {server.address.split("/")[2]}


def test_many_key_presses_are_one_request(tab: Watched, server: Stub) -> None:
    page = tab.page
    page.goto(server.address)
    page.locator("textarea").evaluate("""async (area) => {
        for (const letter of "A dog.") {  // by the page's own clock: from outside, on a busy machine, keys come slowly
            area.value += letter;
            area.dispatchEvent(new Event("input"));
            await new Promise((done) => setTimeout(done, 15));
        }
    }""")
    says(page, ".god A")
    assert len(server.asked) == 1


def test_swap_and_reload(tab: Watched, server: Stub) -> None:
    page = tab.page
    page.goto(server.address)
    page.fill("textarea", "abc")
    says(page, "cba")
    page.click(".swap")
    says(page, "abc")
    assert server.asked[-1][1]["source"] == "de"
    page.reload()
    says(page, "abc")
    assert page.input_value("textarea") == "cba"


def test_an_error_of_the_server_is_shown(browser, server: Stub) -> None:
    server.broken = True
    with watched(browser) as tab:
        tab.page.goto(server.address)
        tab.page.fill("textarea", "abc")
        tab.page.wait_for_selector("text=Slowdown: 20 per 1 minute")
        tab.complaints.clear()  # the browser reports a status of 429 by itself


def test_look_shows_the_views(tab: Watched, server: Stub) -> None:
    page = tab.page
    page.goto(server.address)
    page.fill("textarea", "A dog.")
    page.wait_for_selector(".alternatives li")
    page.click(".pane-foot .primary")
    page.wait_for_selector(".matrix")
    assert server.asked[-1] == ("/api/v1/look", {"q": "A dog.", "source": "en", "target": "de"})
    page.click("#back")
    page.wait_for_selector(".alternatives li")
    page.click(".alternatives button")
    page.wait_for_selector(".matrix")
    assert server.asked[-1][1]["reference"] == "other .god A"


def test_a_look_with_another_translation_has_a_note(tab: Watched, server: Stub) -> None:
    """As with int8, Look shows another translation: this server reverses a text, its look has a German sentence."""
    page = tab.page
    page.goto(server.address)
    for text, is_other in (("A dog.", True), (".eenhcS nefeit mi tleips dnuH regnuj niE", False)):
        page.fill("textarea", text)
        says(page, text[::-1])
        page.click(".pane-foot .primary")
        page.wait_for_selector(".matrix")
        expect(page, ".sentence .note >> text=differs from the one").to_have_count(int(is_other))
        page.click("#back")


def asked_to_look(server: Stub, **values: object) -> None:
    assert server.asked[-1] == ("/api/v1/look", {"source": "en", "target": "de", **values})


def test_each_line_of_a_text_has_its_own_look(tab: Watched, server: Stub) -> None:
    page = tab.page
    page.goto(server.address)
    page.fill("textarea", "A dog.\nA cat.\nA man.")
    page.wait_for_selector(".alternatives li")
    page.click(".pane-foot .primary")
    expect(page, ".pieces [aria-current=true]").to_have_text("A dog.")
    asked_to_look(server, q="A dog.\nA cat.\nA man.")
    expect(page, ".pieces").to_contain_text("Segment 1 of 3")
    assert page.locator(".pieces button").all_inner_texts() == ["A dog.", "A cat.", "A man."]
    page.click(".pieces button >> nth=2")
    expect(page, ".sentence .source").to_have_text("A man.")
    expect(page, ".pieces [aria-current=true]").to_have_text("A man.")
    asked_to_look(server, q="A man.")
    page.click("#view-beam")
    page.click(".node.pruned >> nth=1")
    page.click("text=Force this branch")
    page.wait_for_selector(".sentence .badge")
    asked_to_look(server, q="A man.", prefix=[800, 701])
    page.reload()
    expect(page, ".sentence .badge").to_have_count(1)
    expect(page, ".pieces [aria-current=true]").to_have_text("A man.")
    asked_to_look(server, q="A man.", prefix=[800, 701])
    page.click("#language")
    expect(page, ".pieces").to_contain_text("第 3 段，共 3 段")
    page.click("#back")
    assert page.input_value("textarea") == "A dog.\nA cat.\nA man."


def test_a_look_at_another_translation_line_by_line(tab: Watched, server: Stub) -> None:
    page = tab.page
    page.goto(server.address)
    page.fill("textarea", "ab\ncd")
    page.wait_for_selector(".alternatives li")
    page.click(".alternatives button")
    expect(page, ".pieces [aria-current=true]").to_have_text("ab")
    asked_to_look(server, q="ab\ncd", reference="other dc\nother ba")
    page.click("#piece-1")
    expect(page, ".pieces [aria-current=true]").to_have_text("cd")
    asked_to_look(server, q="cd", reference="other ba")
    page.click("text=back to the model's own translation")
    page.wait_for_selector(".sentence .badge", state="detached")
    asked_to_look(server, q="cd")


def test_a_segment_has_the_detected_language_of_the_whole_text(tab: Watched, server: Stub) -> None:
    server.heard = {"detectedLanguage": {"language": "de", "confidence": 90}}
    page = tab.page
    page.goto(f"{server.address}#from=auto&to=en")
    page.fill("textarea", "Ein Hund.\nOK.")
    page.wait_for_selector(".alternatives li")
    page.click(".pane-foot .primary")
    page.click("#piece-1")
    expect(page, ".sentence .source").to_have_text("OK.")
    asked_to_look(server, q="OK.", source="de", target="en")
    page.click("#back")
    expect(page, ".pair select >> nth=0").to_have_value("auto")


def test_look_waits_for_the_translation_beside_it(tab: Watched, server: Stub) -> None:
    page = tab.page
    page.goto(server.address)
    page.fill("textarea", "ab")
    says(page, "ba")
    with server.held():
        page.fill("textarea", "cd")
        server.wait_for(2)
        expect(page, ".pane-foot .primary").to_be_disabled()
        expect(page, ".alternatives button").to_be_disabled()
    says(page, "dc")
    expect(page, ".pane-foot .primary").to_be_enabled()


def test_a_branch_is_forced(tab: Watched, server: Stub) -> None:
    page = looking(tab, server, "beam")
    page.click(".node.pruned >> nth=1")
    page.click("text=Force this branch")
    page.wait_for_selector(".sentence .badge")
    assert server.asked[-1][0] == "/api/v1/look"
    assert server.asked[-1][1] == {"q": "A dog", "source": "en", "target": "de", "prefix": [800, 701]}
    page.reload()
    page.wait_for_selector(".sentence .badge")
    assert server.asked[-1] == server.asked[-2]
    page.click("text=back to the model's own translation")
    page.wait_for_selector(".sentence .badge", state="detached")
    assert server.asked[-1][1] == {"q": "A dog", "source": "en", "target": "de"}


@pytest.mark.parametrize("name", ["bart", "bart with BOS"])
def test_a_forced_branch_equals_the_continuation_in_a_file(tab: Watched, server: Stub, name: str) -> None:
    """The branch continues greedily. Targets of one model begin with a forced token, which no prefix contains."""
    found = look(other_look_model(name), "A dog", branches=40)
    server.trace = found.to_values()
    page = looking(tab, server, "beam")
    if name == "bart with BOS":
        page.click("[data-node='1']")
        expect(page, ".facts").to_contain_text("<s>")
        expect(page, "text=Force this branch").to_have_count(0)
    node = [event for event in found.beam.events if event.continuation][-1]
    page.focus(f"[data-node='{node.node}']")
    with page.expect_response("**/api/v1/look"):
        page.click("text=Force this branch")
    forced = look(other_look_model(name), "A dog", beam=1, prefix=server.asked[-1][1]["prefix"])
    assert forced.target.text == node.continuation.text
    assert forced.target.ids[: node.step] == (*branch(found, node.node),)


def branch(found: Look, number: int) -> list[int]:
    """Return the text from the start to a node."""
    events = {event.node: event for event in found.beam.events}
    return [*branch(found, events[number].parent), events[number].id] if number else []


def test_a_look_at_another_translation(tab: Watched, server: Stub) -> None:
    page = looking(tab, server, "output")
    page.fill("form.reference input", "Ein Hund.")
    with page.expect_response("**/api/v1/look"):
        page.keyboard.press("Enter")
    assert server.asked[-1][1] == {"q": "A dog", "source": "en", "target": "de", "reference": "Ein Hund."}


def test_the_back_button_of_the_browser(tab: Watched, server: Stub) -> None:
    page = looking(tab, server)
    page.click("#view-output")
    page.click("#view-beam")
    page.go_back()
    expect(page, "#view-output").to_have_attribute("aria-current", "page")
    page.click("#back")
    page.wait_for_selector("textarea")
    page.go_back()
    page.wait_for_selector(".ribbon")


def test_the_back_button_keeps_a_long_text(tab: Watched, server: Stub) -> None:
    """A text that is too long for the address is kept in the history."""
    server.settings["charLimit"] = 5000
    text = "a long text. " * 200
    page = tab.page
    page.goto(server.address)
    page.fill("textarea", text)
    says(page, text[::-1].strip())
    page.click(".alternatives button")  # a reference as long
    page.wait_for_selector(".sentence .badge")
    sent = server.asked[-1]
    assert sent[1]["q"] == text.strip() and len(sent[1]["reference"]) > 2000
    assert len(page.url) < 2000
    page.reload()
    page.wait_for_selector(".sentence .badge")
    assert server.asked[-1] == sent
    for back in (page.go_back, page.reload):
        back()
        page.wait_for_selector(".alternatives li")
        assert page.input_value("textarea") == text
    page.go_forward()
    page.wait_for_selector(".sentence .badge")
    assert server.asked[-1] == sent


def test_heads_are_ablated_and_words_masked(tab: Watched, server: Stub) -> None:
    page = looking(tab, server, "layers")
    page.click("text=Ablate this head")
    page.click(".chips button >> nth=2")
    page.click("text=Look again")
    page.wait_for_selector(".changed")
    sent = server.asked[-1][1]
    assert sent["without_heads"] == [{"kind": "cross", "layer": 0, "head": 0}]
    assert sent["masked_words"] == [2]
    for words in ("without Cross-attention, layer 1, head 1", "“dog” masked", "90.0 % → 20.0 %"):
        expect(page, ".changed").to_contain_text(words)


ANIMAL = "The animal didn't cross the street because it was too"


def test_the_examples_are_one_click_away(tab: Watched, server: Stub) -> None:
    """The examples open before any translation, and lead to looks at the English sentences about the animal."""
    page = tab.page
    page.goto(f"{server.address}#from=de&to=en")
    page.click("#examples")
    for words in ("Thinking Machines", "112", "÷ 8", "0.8808", "tired", "wide"):
        expect(page, "main").to_contain_text(words)
    assert server.asked == []
    page.reload()
    page.click(".animals button >> nth=1")
    expect(page, ".sentence .source").to_have_text(f"{ANIMAL} wide.")
    asked_to_look(server, q=f"{ANIMAL} wide.")
    expect(page, "h3.title").to_contain_text("Encoder self-attention")
    page.go_back()
    expect(page, "main").to_contain_text("Thinking Machines")
    page.click("#back")
    page.wait_for_selector("textarea")


def test_an_example_can_be_opened_from_another_look(tab: Watched, server: Stub) -> None:
    page = looking(tab, server, "examples")
    page.click(".animals button >> nth=0")
    expect(page, ".sentence .source").to_have_text(f"{ANIMAL} tired.")
    asked_to_look(server, q=f"{ANIMAL} tired.")
    expect(page, "h3.title").to_contain_text("Encoder self-attention")


def test_an_english_example_is_not_sent_as_german(tab: Watched, server: Stub) -> None:
    server.languages = [{"code": "de", "name": "German", "targets": ["fr", "de"]}]
    page = tab.page
    page.goto(f"{server.address}#page=examples")
    page.click(".animals button >> nth=0")
    expect(page, ".animals li >> nth=0").to_contain_text("no model of this server translates from English")
    assert server.asked == []


def test_a_file_keeps_its_lines(tab: Watched, server: Stub, tmp_path: Path) -> None:
    lines = [f"line {i}" for i in range(70)]
    lines[3] = ""
    lines[5] = "a\u2028b"
    file = tmp_path / "text.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    page = tab.page
    page.goto(server.address)
    page.wait_for_selector("textarea")
    with page.expect_download() as download:
        page.set_input_files("input[type=file]", file)
    assert download.value.suggested_filename == "text.de.txt"
    out = Path(download.value.path()).read_text(encoding="utf-8")
    assert out == "\n".join(line[::-1] for line in lines) + "\n"
    expect(page, ".file").to_contain_text("70 lines in, 70 lines out.")
    assert max(len(values["q"]) for _, values in server.asked) <= 32


def put_in(page, tmp_path: Path, text: str) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(text.encode("utf-8"))
    page.set_input_files("input[type=file]", file)


def got(download) -> str:
    return Path(download.value.path()).read_bytes().decode("utf-8")


@pytest.mark.parametrize("text", ["ab\r\n\r\ncd\nef\r\n", "ab\rcd", "ab\r\ncd", "ab\n\n", "ab"])
def test_a_file_keeps_its_line_ends(tab: Watched, server: Stub, tmp_path: Path, text: str) -> None:
    page = tab.page
    page.goto(server.address)
    page.wait_for_selector("textarea")
    with page.expect_download() as download:
        put_in(page, tmp_path, text)
    assert got(download) == re.sub("[a-f]+", lambda word: word[0][::-1], text)


def test_a_part_of_a_file_is_limited_by_characters(tab: Watched, server: Stub, tmp_path: Path) -> None:
    server.settings["charLimit"] = 5000
    page = tab.page
    page.goto(server.address)
    page.wait_for_selector("textarea")
    with page.expect_download() as download:
        put_in(page, tmp_path, "\n".join(["x" * 3000] * 5 + ["y"] * 40))
    assert got(download).count("\n") == 44
    sent = [values["q"] for _, values in server.asked]
    assert sum(map(len, sent)) == 45 and max(map(len, sent)) <= 32
    assert max(sum(map(len, part)) for part in sent) <= 8000


def test_a_line_beyond_the_limit_is_reported_before_any_request(tab: Watched, server: Stub, tmp_path: Path) -> None:
    page = tab.page
    page.goto(server.address)
    page.wait_for_selector("textarea")
    put_in(page, tmp_path, "a\n" + "\N{GRINNING FACE}" * 500 + "\n" + "x" * 501)
    expect(page, ".file").to_contain_text("Line 3 has 501 characters, and this server accepts 500 in one request.")
    assert server.asked == []


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("A dog.\r\nCafé.\r\nA cat.\r\n".encode("latin-1"), 2),
        ("A dog.\rA cat.\rCafé".encode("cp1252"), 3),
        ("A dog.\n".encode("utf-16"), 1),
        ("A dog.\n".encode("utf-16-le"), 1),
    ],
)
def test_a_file_that_is_not_utf_8_is_an_error_message(
    tab: Watched, server: Stub, tmp_path: Path, content: bytes, line: int
) -> None:
    """If the file were read with replacement characters, the output would look complete."""
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    page = tab.page
    page.goto(server.address)
    page.wait_for_selector("textarea")
    page.set_input_files("input[type=file]", file)
    expect(page, ".file").to_contain_text(f"Line {line} of the file is not UTF-8")
    assert server.asked == []
    with page.expect_download() as download:  # the same file, saved again
        file.write_bytes("\N{BYTE ORDER MARK}Café \N{REPLACEMENT CHARACTER}".encode())
        page.set_input_files("input[type=file]", file)
    assert got(download) == "\N{REPLACEMENT CHARACTER} éfaC"


def test_a_request_to_a_busy_server_is_repeated_after_its_time(browser, server: Stub, tmp_path: Path) -> None:
    with watched(browser) as tab:
        page = tab.page
        page.goto(server.address)
        page.wait_for_selector("textarea")
        server.busy = [2, 1]
        with page.expect_download() as download:
            put_in(page, tmp_path, "ab\ncd\n")
            expect(page, ".file").to_contain_text("the server is busy")
            expect(page, ".file").to_contain_text("next attempt in")
            expect(page, "input[type=file]").to_be_disabled()
        assert got(download) == "ba\ndc\n"
        assert [values["q"] for _, values in server.asked] == [["ab", "cd"]] * 3
        tab.complaints.clear()  # the browser reports a status of 503 by itself


def test_finished_lines_are_kept_and_the_work_continues(browser, server: Stub, tmp_path: Path) -> None:
    """The message names the rejected line; the lines before it can be saved, and the work can continue."""
    lines = [f"line {i}" for i in range(70)]
    with watched(browser) as tab:
        page = tab.page
        page.goto(server.address)
        page.wait_for_selector("textarea")
        server.poison = "line 41"
        put_in(page, tmp_path, "\r\n".join(lines))
        stopped = "41 of 70 lines are done; stopped at line 42: Invalid request: no such text"
        expect(page, ".file").to_contain_text(stopped)
        with page.expect_download() as download:
            page.click("text=Save the 41 lines that are done")
        assert download.value.suggested_filename == "text.de.part.txt"
        assert got(download) == "".join(f"{line[::-1]}\r\n" for line in lines[:41])
        page.click("#language")
        expect(page, ".file").to_contain_text("停在第 42 行")
        server.poison = ""
        with page.expect_download() as download:
            page.click("text=继续")
        assert got(download) == "\r\n".join(line[::-1] for line in lines)
        assert server.asked[-1][1]["q"] == lines[41:]
        tab.complaints.clear()  # the browser reports a status of 400 by itself


def test_waiting_can_be_cancelled_and_ends(browser, server: Stub, tmp_path: Path) -> None:
    with watched(browser) as tab:
        page = tab.page
        page.goto(server.address)
        page.wait_for_selector("textarea")
        server.busy = [200]
        put_in(page, tmp_path, "ab\n")
        expect(page, ".file").to_contain_text("next attempt in")
        page.click("text=Cancel")
        expect(page, ".file").to_contain_text("0 of 1 lines are done; stopped at line 1: cancelled")
        assert page.locator(".file-buttons button").all_inner_texts() == ["Continue"]
        server.busy, before = [0] * 20, len(server.asked)
        page.click("text=Continue")
        expect(page, ".file").to_contain_text("stopped at line 1: The queue is full")
        assert len(server.asked) - before == 6
        server.busy = [301]
        page.click("text=Continue")
        server.wait_for(before + 7)
        expect(page, ".file").to_contain_text("stopped at line 1: The queue is full (301 s)")
        tab.complaints.clear()


def test_requests_stay_within_the_limits_of_the_server(tab: Watched, server: Stub, tmp_path: Path) -> None:
    server.settings |= {"textsLimit": 3, "alternativesLimit": 1}
    page = tab.page
    page.goto(server.address)
    page.fill("textarea", "ab")
    says(page, "ba")
    assert server.asked[-1][1]["alternatives"] == 1
    file = tmp_path / "text.txt"
    file.write_text("".join(f"{i}\n" for i in range(8)), encoding="utf-8")
    with page.expect_download():
        page.set_input_files("input[type=file]", file)
    assert [len(values["q"]) for _, values in server.asked[1:]] == [3, 3, 2]
    server.settings |= {"textsLimit": 500, "alternativesLimit": 0}
    page.reload()
    says(page, "ba")
    assert server.asked[-1][1]["alternatives"] == 0
    file.write_text("".join(f"{i}\n" for i in range(33)), encoding="utf-8")
    with page.expect_download():
        page.set_input_files("input[type=file]", file)
    assert [len(values["q"]) for _, values in server.asked[5:]] == [32, 1]


def test_on_a_phone_in_chinese(browser, server: Stub) -> None:
    with watched(browser, width=360, height=740) as tab:
        page = tab.page
        page.goto(f"{server.address}#lang=zh")
        page.fill("textarea", "x" * 300)
        page.wait_for_selector(".alternatives li")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        expect(page, ".pane-foot .primary").to_have_text("查看")
