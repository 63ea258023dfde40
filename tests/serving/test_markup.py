"""HTML: texts are translated, all else stays as it was."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.serving.markup import Markup
from heedful.serving.parts import cut, unescaped

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
    markup = Markup(source)
    return markup.fill([text.upper() for text in markup.texts])


def test_only_texts_are_translated():
    assert shout('<p class="a">One <b>two</b><br>three</p>\n') == '<p class="a">ONE <b>TWO</b><br>THREE</p>\n'


def test_attributes_comments_scripts_and_styles_stay():
    source = "<!DOCTYPE html><!-- x --><style>a > b {}</style><script>let a = '<p>x</p>'</script><IMG ALT='x' >"
    assert shout(source + "y") == source + "Y"


def test_what_must_not_be_translated_is_not():
    assert shout('a<code translate="no">b<i>c</i></code>d') == 'A<code translate="no">b<i>c</i></code>D'
    assert shout('<p translate=no>a<b translate="yes">b</b>c</p>d') == '<p translate=no>a<b translate="yes">B</b>c</p>D'
    assert shout('<span class="x notranslate">a</span>b') == '<span class="x notranslate">a</span>B'
    assert shout('<p>a<span translate="no">b</p>c') == '<p>A<span translate="no">b</p>C'  # left open inside


def test_text_never_becomes_markup():
    source = "a &lt;script&gt;alert(1)&lt;/script&gt; &amp; b"
    assert Markup(source).texts == ["a <script>alert(1)</script> & b"]
    assert Markup(source).fill(["<script>x</script> & y"]) == "&lt;script&gt;x&lt;/script&gt; &amp; y"


def test_blanks_between_tags_are_no_texts():
    assert Markup("<p> \n <b>a</b> </p>").texts == ["a"]
    assert Markup("").texts == [] and Markup("").fill([]) == ""


@given(st.lists(PIECES, max_size=12).map("".join))
def test_tags_in_are_tags_out(source):
    markup = Markup(source)
    assert markup.fill(markup.texts).count("<script>") == source.count("<script>")
    tags = re.compile(r"</?[a-zA-Z][^<>]*>|<!--.*?-->")
    # What is no text is copied, piece by piece, in its order.
    assert tags.findall(markup.fill(["x"] * len(markup.texts))) == tags.findall(source)


@given(st.text(alphabet="<>/!?-[]=&;#x1'\"ab \npi", max_size=40))
def test_nothing_upsets_it(source):
    assert "".join(part.raw for part in cut(source)) == source
    markup = Markup(source)
    filled = markup.fill(markup.texts)
    assert Markup(filled).texts == markup.texts or "<" in source


@pytest.mark.parametrize("source", ["<![<!", "<![1]>", "<![foo[x]]>", "<![ if !IE]>", "<![-] 2</p>", "<?x?>", "</ x>"])
def test_what_is_no_markup_is_a_comment_as_in_browsers(source):
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
def test_it_is_cut_as_browsers_do(source, kinds):
    assert [part.kind for part in cut(source)] == kinds


def test_numbers_of_characters_may_be_as_long_as_they_like():
    assert unescaped("&#" + "0" * 5_000 + "65;&#x" + "0" * 5_000 + "1F600;&#x10FFFD;") == "A\U0001f600\U0010fffd"
    assert unescaped("&#" + "1" * 5_000 + ";&#x" + "f" * 5_000 + ";&#1114112;") == "\ufffd" * 3


@pytest.mark.parametrize(
    "pattern", ["<a ", "<a>", "<a></b>", "<a", "<", "<!", "<!--", "<a b='", "<a =", "<script>", "&#"]
)
def test_time_grows_with_the_length(pattern):
    """Were it with the square, sixteen times as much would take 256 times as long."""

    def seconds(n: int) -> float:
        times = []
        for _ in range(3):
            started = time.process_time()
            Markup(pattern * n)
            times.append(time.process_time() - started)
        return min(times)

    assert seconds(16_000) < 80 * max(seconds(1_000), 0.0005)
