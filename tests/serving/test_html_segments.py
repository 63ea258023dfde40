"""HTML: texts are translated, everything else is copied."""

import re
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.translation import Translation
from heedful.serving.html_segments import MOST_DEEP, HtmlDocument
from heedful.serving.html_tokenizer import tokenize_html, unescaped

PIECES = st.sampled_from(
    [
        *("<p>", "</p>", '<a href="x?a=1&amp;b=2" title=\'T "q"\'>', "</a>", "<br>", "<br/>", "<B  CLASS=x >", "</B >"),
        *(
            "<!-- a < b -->",
            "<!DOCTYPE html>",
            "<script>if (a<b) {}</script>",
            "<style>p > a {}</style>",
            "\n",
            " ",
            "\t",
        ),
        *("Hello", "you & me", "caf&eacute;", "1 &lt; 2", "<", ">", "&", "</", "<!", '<i translate="no">', "</i>"),
    ]
)


def shout(source: str) -> str:
    markup = HtmlDocument(source)
    return markup.fill([Translation(text.upper()) for text in markup.texts])


def same(markup: HtmlDocument) -> str:
    return markup.fill([Translation(text) for text in markup.texts])


def test_only_texts_are_translated():
    assert shout('<p class="a">One <b>two</b><br>three</p>\n') == '<p class="a">ONE <b>TWO</b><br>THREE</p>\n'


def test_attributes_comments_scripts_and_styles_stay():
    source = "<!DOCTYPE html><!-- x --><style>a > b {}</style><script>let a = '<p>x</p>'</script><IMG ALT='x' >"
    assert shout(source + "y") == source + "Y"


def test_untranslatable_elements_are_copied():
    assert shout('a<code translate="no">b<i>c</i></code>d') == 'A<code translate="no">b<i>c</i></code>D'
    assert shout('<p translate=no>a<b translate="yes">b</b>c</p>d') == '<p translate=no>a<b translate="yes">B</b>c</p>D'
    assert shout('<span class="x notranslate">a</span>b') == '<span class="x notranslate">a</span>B'
    assert shout('<p>a<span translate="no">b</p>c') == '<p>A<span translate="no">b</p>C'  # left open inside


def test_text_never_becomes_markup():
    source = "a &lt;script&gt;alert(1)&lt;/script&gt; &amp; b"
    assert HtmlDocument(source).texts == ["a <script>alert(1)</script> & b"]
    assert (
        HtmlDocument(source).fill([Translation("<script>x</script> & y")]) == "&lt;script&gt;x&lt;/script&gt; &amp; y"
    )


def test_blanks_between_tags_are_no_texts():
    assert HtmlDocument("<p> \n <b>a</b> </p>").texts == ["a"]
    assert HtmlDocument("").texts == [] and HtmlDocument("").fill([]) == ""


@given(st.lists(PIECES, max_size=12).map("".join))
def test_all_tags_are_in_the_result(source):
    markup = HtmlDocument(source)
    assert same(markup) == source
    tags = re.compile(r"</?[a-zA-Z][^<>]*>|<!--.*?-->")
    # What is no text is copied, piece by piece; if it stands within a sentence, to another place.
    filled = markup.fill([Translation("x") for _ in markup.texts])
    assert Counter(tags.findall(filled)) == Counter(tags.findall(source))


@given(st.text(alphabet="<>/!?-[]=&;#x1'\"ab \npi", max_size=40))
def test_any_text_is_tokenized_without_loss(source):
    assert "".join(part.raw for part in tokenize_html(source)) == source
    markup = HtmlDocument(source)
    assert same(markup) == source
    markup.fill([Translation("a b") for _ in markup.texts])


@pytest.mark.parametrize("source", ["<![<!", "<![1]>", "<![foo[x]]>", "<![ if !IE]>", "<![-] 2</p>", "<?x?>", "</ x>"])
def test_bogus_comments_are_read_as_in_browsers(source):
    assert shout(f"<p>a{source}") == f"<p>A{source}"


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("<a b='>' c=\">\" d=>x", ["open", "text"]),
        ("<a href=x/>y", ["open", "text"]),  # the slash is of the value
        ("<b/>y<br>", ["point", "text", "point"]),
        ("<!-->a<!--->b<!--c--!>d", ["point", "text", "point", "text", "point", "text"]),
        ("<script>a</b></scripty></SCRIPT >", ["open", "raw", "close"]),
        ("<title>a<b></title>", ["open", "text", "close"]),
        ("<a title='>", ["raw"]),
        ("1 <2 a <b c", ["text"]),
        ("<!-- a", ["point"]),
        ("</>a</", ["point", "text"]),
    ],
)
def test_tokens_equal_those_of_browsers(source, kinds):
    assert [part.kind for part in tokenize_html(source)] == kinds


def test_character_references_of_any_length():
    assert unescaped("&#" + "0" * 5_000 + "65;&#x" + "0" * 5_000 + "1F600;&#x10FFFD;") == "A\U0001f600\U0010fffd"
    assert unescaped("&#" + "1" * 5_000 + ";&#x" + "f" * 5_000 + ";&#1114112;") == "\ufffd" * 3


@pytest.mark.parametrize(
    "pattern",
    [
        "<a ",
        "<a>",
        "<a></b>",
        "<a",
        "<",
        "<!",
        "<!--",
        "<a b='",
        "<a =",
        "<script>",
        "&#",
        "a<b>",
        "a</b>",
        "a<img>",
        "<b>a</b> ",
    ],
)
def test_time_is_linear(pattern):
    """With quadratic time, eight times the text would take 64 times as long."""

    def seconds(n: int) -> float:
        times = []
        for _ in range(2):
            started = time.process_time()
            markup = HtmlDocument(pattern * n)
            words = Translation(
                "x " * (n // max(1, len(markup.texts))), alignment=((0, 0),), tokens=("x",), source_tokens=("a",)
            )
            markup.fill([words] * len(markup.texts))
            times.append(time.process_time() - started)
        return min(times)

    assert seconds(8_000) < 30 * max(seconds(1_000), 0.0005)


def carried(source: str, translation: str, links: str = "") -> str:
    """Translate a document whose words are tokens; the alignment is "from-to from-to"."""
    markup = HtmlDocument(source)
    assert len(markup.texts) == 1
    tokens = [tuple("▁" + word for word in text.split()) for text in (markup.texts[0], translation)]
    pairs = tuple((int(k), int(j)) for k, j in (link.split("-") for link in links.split()))
    return markup.fill([Translation(translation, source_tokens=tokens[0], tokens=tokens[1], alignment=pairs or None)])


def test_a_sentence_is_translated_as_one():
    source = "<p>The <b>dog</b> runs, and <a href=x>the cat</a> sleeps.</p><li>Two\n  lines</li>a<br>b"
    assert HtmlDocument(source).texts == ["The dog runs, and the cat sleeps.", "Two lines", "a", "b"]
    loud = "<p>THE <b>DOG</b> RUNS, AND <a href=x>THE CAT</a> SLEEPS.</p><li>TWO LINES</li>A<br>B"
    assert shout(source) == loud


def test_tags_enclose_their_aligned_words():
    black = "The <b>black</b> dog <i>runs</i>"
    assert carried(black, "Le chien noir court", "0-0 2-1 1-2 3-3") == "Le chien <b>noir</b> <i>court</i>"
    both = "The <b>black <i>dog</i></b> runs"
    assert carried(both, "Le chien noir court", "0-0 2-1 1-2 3-3") == "Le <b><i>chien</i> noir</b> court"
    assert carried("<b>a</b> <i>b</i>", "x y", "1-0 0-1") == "<i>x</i> <b>y</b>"


def test_a_wrong_alignment_does_not_stretch_an_element():
    assert carried("<b>a b</b> c d e f", "A B C D E F", "0-0 1-1 2-2 3-3 4-4 0-5") == "<b>A B</b> C D E F"
    assert carried("<b>a b</b> c d", "A X B C", "0-0 2-1 1-2 3-3") == "<b>A X B</b> C"  # one word between
    assert carried("<b>a b</b> <i>c</i> d", "A X B C", "0-0 2-1 1-2 3-3") == "<b>A</b> <i>X</i> B C"


def test_an_element_without_aligned_words_stays_at_its_position():
    assert carried("a <b>b</b> c", "A C", "0-0 2-1") == "A <b></b>C"
    assert carried("a <b><i>b</i><img></b> c", "A C", "0-0 2-1") == "A <b><i></i><img></b>C"
    assert carried("a <b>b</b> c", "") == "<b></b>"


def test_images_comments_and_single_tags_keep_their_position():
    assert carried("a <img src=x> b c", "C B A", "2-0 1-1 0-2") == "C <img src=x>B A"
    assert carried("a<!-- x --> b c", "C B A", "2-0 1-1 0-2") == "C B A<!-- x -->"
    assert carried("a</i> b <b>c", "A B C", "0-0 1-1 2-2") == "A</i> B <b>C"
    assert carried("<b>a <img>b</b> c", "X A B", "2-0 0-1 1-2") == "X <b>A <img>B</b>"


def test_without_alignment_words_are_matched_by_order():
    assert carried("a b <b>c d</b>", "A B C D") == "A B <b>C D</b>"
    assert carried("<b>你好</b>，世界", "Hello, <world>") == "<b>Hello,</b> &lt;world&gt;"
    assert carried("<b>Hello</b>, world", "你好，世界") == "<b>你好</b>，世界"


def test_an_untranslatable_element_divides_a_block():
    assert HtmlDocument('<p>ask <span translate="no">@bob</span> now</p>').texts == ["ask ", " now"]
    assert HtmlDocument("<pre>a\n b</pre>a\n b").texts == ["a\n b", "a b"]
    assert HtmlDocument("a\nb").texts == ["a\nb"]  # no tag at all: lines are lines


WORDS = st.lists(st.sampled_from(["a", "b", "dog", "c.", "é", "世界"]), min_size=1, max_size=8).map(" ".join)
TREES = st.recursive(
    st.one_of(WORDS, st.sampled_from(["<img>", " ", "<!-- x -->", "&amp;"])),
    lambda inside: st.tuples(st.sampled_from(["b", "i", "a"]), st.lists(inside, max_size=4).map(" ".join)).map(
        lambda one: f"<{one[0]}>{one[1]}</{one[0]}>"
    ),
    max_leaves=12,
)


@given(st.lists(TREES, min_size=1, max_size=4).map("".join), WORDS, st.data())
def test_any_alignment_keeps_all_tags_closed(source, translation, data):
    markup = HtmlDocument(source)
    translations = []
    for text in markup.texts:
        tokens, source_tokens = tuple(translation.split()), tuple(text.split())
        link = st.tuples(st.integers(0, len(source_tokens) - 1), st.integers(0, len(tokens) - 1))
        links = tuple(data.draw(st.lists(link, max_size=10)))
        translations.append(Translation(translation, tokens=tokens, source_tokens=source_tokens, alignment=links))
    filled = markup.fill(translations)
    parts = [part for part in tokenize_html(filled) if part.kind != "text"]
    assert Counter(part.raw for part in parts) == Counter(
        part.raw for part in tokenize_html(source) if part.kind != "text"
    )
    around = []
    for part in parts:
        if part.kind == "open":
            around.append(part.name)
        elif part.kind == "close":
            assert around.pop() == part.name
    text = "".join(part.raw for part in tokenize_html(filled) if part.kind == "text")
    assert text.split() == " ".join([translation] * len(translations)).split() or len(translations) != 1


def test_elements_nested_too_deeply_begin_a_new_block():
    source = "a " + "<b>" * 1_000 + "b" + "</b>" * 1_000 + " c"
    assert HtmlDocument(source).texts == ["a ", "b c"]
    assert shout(source).count("<b>") == shout(source).count("</b>") == 1_000
    assert len(HtmlDocument("a " + "<b>" * MOST_DEEP + "b" + "</b>" * MOST_DEEP + " c").texts) == 1
