"""HTML: texts are translated, all else stays as it was."""

import re

from hypothesis import given
from hypothesis import strategies as st

from heedful.serving.markup import Markup

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


@given(st.text(alphabet="<>/!-=&;'\"ab \npi", max_size=40))
def test_nothing_upsets_it(source):
    markup = Markup(source)
    filled = markup.fill(markup.texts)
    assert Markup(filled).texts == markup.texts or "<" in source
