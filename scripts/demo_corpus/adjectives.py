"""The adjectives of the demo corpus, with the classes of nouns that each may describe."""

from functools import cache
from typing import Literal, cast

from scripts.demo_corpus.meaning import Adjective

# English and its comparative | French ("before" if it precedes the noun, "avoir" if it is used with avoir) | Chinese |
# kind of predicate | noun classes it is used with ("a red car") | noun classes it is a predicate of ("the car is red").
TABLE = """
big bigger | grand before | 大 | 很 | sized carried | animal sized boat plane truck town building field
small smaller | petit before | 小 | 很 | sized bird village | animal sized
beautiful - | beau belle beaux belles bel before | 漂亮 | 很 | pretty clothing dwelling | pretty clothing dwelling
new newer | nouveau nouvelle nouveaux nouvelles nouvel before | 新 | 很 | goods vehicle dwelling issued | -
new newer | neuf neuve neufs neuves | 新 | 很 | - | durable
old older | vieux vieille vieux vieilles vieil before | 旧 | 很 | durable clothing book | durable clothing
old older | vieux vieille vieux vieilles vieil before | 老 | 很 | pet farm | pet farm
young younger | jeune before | 年轻 | 很 | job adult-noun | job adult-noun
tall taller | grand before | 高 | 很 | tree | child-noun adult-noun tree trait
good better | bon bonne bons bonnes before | 好 | 很 | film book novel stay | film song book
interesting - | intéressant | 有意思 | 很 | told lesson question sight | told lesson question sight science
boring - | ennuyeux | 无聊 | 很 | film novel | film lesson tale novel
difficult - | difficile | 难 | 很 | question exam lesson | question exam lesson language science
easy easier | facile | 简单 | 很 | question exam lesson | question exam lesson
long longer | long longue longs longues before | 长 | 很 | mail film tale | film mail river bridge
short shorter | court | 短 | 很 | tale | mail film tale skirt
expensive - | cher | 贵 | 很 | machine clothing vehicle stay | goods vehicle dwelling stay ticket food edible dish drink
heavy heavier | lourd | 重 | 很 | carried | carried furniture
light lighter | léger | 轻 | 很 | carried | carried
clean cleaner | propre | 干净 | 很 | - | clothing ware cleaned town stay
dirty dirtier | sale | 脏 | 很 | - | clothing ware vehicle pet
red - | rouge | 红色 | 是 | coloured flower red-green | coloured flower red-green
blue - | bleu | 蓝色 | 是 | coloured | coloured
green - | vert | 绿色 | 是 | coloured red-green | coloured red-green
black - | noir | 黑色 | 是 | coloured fur | coloured fur
white - | blanc blanche blancs blanches | 白色 | 是 | coloured fur flower | coloured fur flower
yellow - | jaune | 黄色 | 是 | coloured flower | coloured flower
warm warmer | chaud | 暖和 | 很 | warm | warm
hot hotter | chaud | 热 | 很 | hot | hot
cold colder | froid | 凉 | 很 | cold | hot cold
fresh fresher | frais fraîche frais fraîches | 新鲜 | 很 | fresh | fresh
delicious - | délicieux | 好吃 | 很 | - | dish food edible
delicious - | délicieux | 好喝 | 很 | - | broth drink
sweet sweeter | sucré | 甜 | 很 | - | sweet
fast faster | rapide | 快 | 很 | - | carriage horse
slow slower | lent | 慢 | 很 | - | bus train boat truck
comfortable - | confortable | 舒服 | 很 | seat stay | seat stay
broken - | cassé | 坏 | 了 | - | machine bike
open - | ouvert | 开 | 着 | - | opening
closed - | fermé | 关 | 着 | - | opening
empty - | vide | 空 | 是 | - | emptied
famous - | célèbre | 出名 | 很 | public sight | public sight
quiet quieter | calme | 安静 | 很 | calm | calm
noisy noisier | bruyant | 吵 | 很 | - | street stay town square
wide wider | large | 宽 | 很 | street river bridge | street river bridge
dangerous - | dangereux | 危险 | 很 | street river bridge | street river bridge forest wild
tired - | fatigué | 累 | 很 | - | mood animal
happy happier | heureux | 高兴 | 很 | - | mood
sad sadder | triste | 难过 | 很 | - | mood
busy busier | occupé | 忙 | 很 | - | mood
angry angrier | en_colère en_colère en_colère en_colère | 生气 | 很 | - | mood
worried - | inquiet inquiète inquiets inquiètes | 担心 | 很 | - | mood
ill - | malade | 生病 | 了 | - | mood
late later | en_retard en_retard en_retard en_retard | 迟到 | 了 | - | mood
hungry hungrier | faim avoir | 饿 | 很 | - | mood animal
thirsty thirstier | soif avoir | 渴 | 很 | - | mood animal
sleepy sleepier | sommeil avoir | 困 | 很 | - | mood
cold colder | froid avoir | 冷 | 很 | - | mood
hot hotter | chaud avoir | 热 | 很 | - | mood
afraid - | peur avoir | 害怕 | 很 | - | mood
kind kinder | gentil gentille gentils gentilles | 善良 | 很 | - | trait
clever cleverer | intelligent | 聪明 | 很 | child-noun | trait animal
funny funnier | drôle | 幽默 | 很 | - | trait
strong stronger | fort | 强壮 | 很 | - | trait horse elephant tiger
shy shyer | timide | 害羞 | 很 | - | trait
polite - | poli | 有礼貌 | 很 | child-noun | trait
lazy lazier | paresseux | 懒 | 很 | - | trait
French - | français | 法国人 | 是 | - | nation
Chinese - | chinois | 中国人 | 是 | - | nation
Spanish - | espagnol | 西班牙人 | 是 | - | nation
Japanese - | japonais | 日本人 | 是 | - | nation
German - | allemand | 德国人 | 是 | - | nation
"""

# Names for several noun classes. The classes mood, trait and nation are for predicates of people.
GROUPS = {
    "sized": "pet dwelling vehicle furniture box garden",
    "durable": "furniture machine vehicle",
    "told": "read film tale",
    "issued": "film song magazine email",
}
ALONE = {
    "大": "大",
    "小": "小",
    "新": "新",
    "旧": "旧",
    "老": "老",
    "好": "好",
    "脏": "脏",
    "热": "热",
    "凉": "冰",
    "出名": "著名的",
}


@cache
def adjectives() -> tuple[Adjective, ...]:
    """Return all adjectives in the order of the table."""
    return tuple(_adjective(line) for line in TABLE.splitlines() if line)


@cache
def adjective(english: str) -> Adjective:
    """Return the first adjective with this English form."""
    return next(word for word in adjectives() if word.en == english)


@cache
def attributive(classes: frozenset[str]) -> tuple[Adjective, ...]:
    """Return the adjectives that may be used before or after a noun of these classes: "a red car"."""
    return tuple(adjective for adjective in adjectives() if adjective.describes & classes)


@cache
def predicative(classes: frozenset[str]) -> tuple[Adjective, ...]:
    """Return the adjectives that may follow "is" with a subject of these classes: "the soup is hot"."""
    return tuple(adjective for adjective in adjectives() if adjective.predicates & classes)


def _adjective(line: str) -> Adjective:
    english, french, zh, kind, describes, predicates = (cell.strip() for cell in line.split("|"))
    base, more = (*english.split(), "-")[:2]
    stems = [form.replace("_", " ") for form in french.split() if form not in ("before", "avoir")]
    return Adjective(
        en=base,
        en_more=f"more {base}" if more == "-" else more,
        fr=_french_forms(stems),
        fr_vowel=stems[4] if len(stems) > 4 else "",
        fr_before="before" in french.split(),
        fr_avoir="avoir" in french.split(),
        zh=zh,
        zh_before=_before_noun(zh, kind),
        zh_kind=cast('Literal["很", "是", "了", "着"]', kind),
        describes=_classes(describes),
        predicates=_classes(predicates),
    )


def _classes(names: str) -> frozenset[str]:
    return frozenset(" ".join(GROUPS.get(name, name) for name in names.split()).split())


def _french_forms(stems: list[str]) -> tuple[str, str, str, str]:
    """Return masculine, feminine and both plurals; a regular adjective needs only the masculine."""
    if len(stems) >= 4:
        return stems[0], stems[1], stems[2], stems[3]
    masculine = stems[0]
    if masculine.endswith("eux"):
        return masculine, masculine[:-1] + "se", masculine, masculine[:-1] + "ses"
    if masculine.endswith("er"):
        return masculine, masculine[:-2] + "ère", masculine + "s", masculine[:-2] + "ères"
    feminine = masculine if masculine.endswith("e") else masculine + "e"
    return masculine, feminine, masculine if masculine.endswith(("s", "x")) else masculine + "s", feminine + "s"


def _before_noun(zh: str, kind: str) -> str:
    """Return the Chinese form before a noun: 大 and 漂亮的, but 很长的.

    Most adjectives of one syllable need both 很 and 的; the exceptions are in `ALONE`.
    """
    if zh in ALONE:
        return ALONE[zh]
    if zh.endswith("人"):
        return zh
    return f"很{zh}的" if len(zh) == 1 and kind == "很" else f"{zh}的"
