"""The verbs of the demo corpus: English | French | Chinese | classes of the object | uses.

English: base, irregular past, irregular -ing form, then `+` and the words that follow it ("listen + to").
French: infinitive (`se` if it is reflexive), then `+` and the words that follow it; `conjugation.py` has the forms.
Chinese: {} is the object or the goal, {to} the recipient, ~ the place of 了; after `;` the pattern of the progressive.
The uses, one letter each:

    h n p f   tenses: habitual present, progressive, past, future
    w i       with a modal verb; imperative
    s         a state ("knows"): no progressive
    m l y     the time may be a week away ("last Monday"), a year ("last year"), or always is far ("next year")
    t         may have a duration ("for two hours")
    k d g o   objects may be counted ("three"); are definite; are generic ("likes cats"); belong to the subject
    e c       one person and one object; in company
    x a v     animals may be the subject; children are not; grandparents are not

The "objects" of `ACTIVITIES` are places.
"""

from functools import cache

from scripts.demo_corpus.meaning import Verb

# With an object.
TRANSITIVE = """
eat ate | manger | 吃~{} | edible dish | h n p f w k
eat ate | manger | 吃~{} | food fruits vegetables | h n p f w
eat ate | manger | 喝~{} | broth | h n p f w
drink drank | boire | 喝~{} | drink | h n p w
buy bought | acheter | 买~{} | edible sold vegetables fruits | h n p f w k i m
buy bought | acheter | 买~{} | goods flower gift ticket | p f w k m
buy bought | acheter | 买~{} | dwelling boat truck | p f w y a
read read | lire | 看~{} | read | n p f w i m
write wrote | écrire | 写~{} | mail poem | n p f w k m
write wrote | écrire | 写~{} | book novel | p f w y a
watch | regarder | 看~{} | film | n p f w i m e
look + at | regarder | 看~{} | photo | n p w i
listen + to | écouter | 听~{} | song tale | n p w i
sing sang | chanter | 唱~{} | song | n p f w k i
tell told | raconter | 讲~{} | tale | n p f w
open | ouvrir | 打开~{} | opening box bottle | p w i d
close | fermer | 关上~{} | opening | p w i d
look + for | chercher | 找~{} | small | n p o
find found | trouver | 找到~{} | small | p o m
lose lost | perdre | 弄丢~{} | small | p o l
wash | laver | 洗~{} | clothing car bike truck | n p f w i d
wash | laver | 洗~{} | ware | n p w i d
clean | nettoyer | 打扫~{} | cleaned | n p f w i d m
make made | préparer | 做~{} | made | n p f w k e
repair | réparer | 修~{} | machine vehicle | n p f w d m a v
draw drew | dessiner | 画~{} | animal flower tree boat | n p w k
break broke | casser | 打破~{} | breakable | p m
drive drove | conduire | 开~{} | driven | n p w e a
cross | traverser | 过~{} | crossing | p w
cross | traverser | 穿过~{} | field | p w
visit | visiter | 参观~{} | museum | p f w l
choose chose | choisir | 选~{} | clothing gift film | p w e
use | utiliser | 用~{} | used | n p f w d
borrow | emprunter | 借~{} | lent | p f w m
carry | porter | 搬~{} | moved chair table | n p w d
sell sold | vendre | 卖~{} | car bike sofa bed table television computer camera guitar | p f w o l a
sell sold | vendre | 卖~{} | dwelling boat truck | p f w o y a
see saw | voir | 看见~{} | animal human | p k m
hear heard | entendre | 听见~{} | dog cat bird horse cow baby song | p
answer | répondre + à | 回答~{} | question | p f w i d
understand understood | comprendre | 懂{} | question tale poem | s d
wear wore | porter | 穿~{};穿着{} | clothing | n e
wear wore | porter | 戴~{};戴着{} | accessory | n e
study | étudier | 学习~{} | science | h n p f w m
learn | apprendre | 学~{} | language | n w
teach taught | enseigner | 教{} | science language | s a
speak spoke | parler | 会说{} | language | s
help | aider | 帮助~{} | human kin | p f w i
visit | rendre + visite à | 看望~{} | kin | p f w l
call | appeler | 给{}打~电话 | kin owned | p f w i
chat chatted chatting + with | discuter + avec | 跟{}聊~天 | kin human | n p w
wait + for | attendre | 等~{} | kin owned | n p f w i
meet met | rencontrer | 遇见~{} | human | p l
invite | inviter | 邀请~{} | kin owned | p f w i m
thank | remercier | 感谢~{} | kin human | p w
know knew | connaître | 认识{} | human kin | s
like | aimer + bien | 喜欢{} | edible food fruits vegetables drink pet flower language science land | s g
love | aimer | 爱{} | kin land | s
need | avoir + besoin de | 需要{} | had ware furniture clothing accessory suitcase wallet lamp | s
need | avoir + besoin de | 需要{} | ticket | s k
have had | avoir | 有{} | pet had clothing accessory vehicle dwelling sibling offspring | s k
want | vouloir | 想要{} | drink broth edible dish food | s k
want | vouloir | 想要{} | clothing accessory bag umbrella book bike guitar lamp | s
"""

# With an object and a recipient.
GIVING = """
give gave + to | donner + à | 给~{to}{} | book novel magazine letter flower gift lent photo | p f w k m
buy bought + for | acheter + pour | 给{to}买~{} | flower gift book novel coat shirt sweater accessory bag | p f w k m
write wrote + to | écrire + à | 给{to}写~{} | mail | n p f w k
send sent + to | envoyer + à | 给{to}寄~{} | photo gift book novel magazine dictionary | p f w k
show showed + to | montrer + à | 给{to}看~{} | photo book letter magazine watch phone camera | p f w k
tell told + to | raconter + à | 给{to}讲~{} | tale | n p f w
"""

# Without an object: "football" in "play football" belongs to the verb.
ACTIVITIES = """
sleep slept | dormir | 睡觉~ | - | n w x t
work | travailler | 工作~ | school hospital office bank university home | h n p f w t a v
study | étudier | 学习~ | school library university home | h n p f w t
swim swam swimming | nager | 游泳~ | swimming_pool | h n p f w
run ran running | courir | 跑步~ | park beach | h n p f w v
sing sang | chanter | 唱歌~ | home school park | h n p f w
dance | danser | 跳舞~ | home living_room park beach | h n p f w
cook | faire + la cuisine | 做饭~ | home | h n p f w
travel travelled travelling | voyager | 旅行~ | country | p f w y
rest | se reposer | 休息~ | home bedroom garden park beach | n p f w i x t
go went + for a walk | se promener | 散步~ | park beach garden | h p f w c
get got getting + up early | se lever + tôt | 早起~ | - | h p f w
play + football | jouer + au football | 踢足球~ | park beach garden school | h n p f w v c
play + basketball | jouer + au basket | 打篮球~ | park school | h n p f w v c
play + tennis | jouer + au tennis | 打网球~ | park school | h n p f w v c
play + chess | jouer + aux échecs | 下棋~ | home living_room park | h n p f w c
play + the piano | jouer + du piano | 弹钢琴~ | home living_room school | h n p f w
play + the guitar | jouer + de la guitare | 弹吉他~ | home garden park beach | h n p f w
have had + breakfast | prendre + le petit déjeuner | 吃早饭~ | home | h n p f c
have had + lunch | déjeuner | 吃午饭~ | home restaurant | h n p f c
have had + dinner | dîner | 吃晚饭~ | home restaurant | h n p f c
watch + television | regarder + la télévision | 看电视~ | home living_room | h n p f w
listen + to music | écouter + de la musique | 听音乐~ | home bedroom park | h n p f w
listen + to the radio | écouter + la radio | 听广播~ | home kitchen | h n p f w
take took + a shower | prendre + une douche | 洗澡~ | - | h n p f w
go went + shopping | faire + les courses | 去购物~ | - | p f w
take took + the bus | prendre + le bus | 坐公交车~ | - | h p f w
take took + the train | prendre + le train | 坐火车~ | - | p f w
wait + for the bus | attendre + le bus | 等公交车~ | - | n p
cry | pleurer | 哭~ | - | n
laugh | rire | 笑~ | - | n
smoke | fumer | 抽烟~ | - | h n p w i a
"""

# With a goal.
MOTION = """
go went | aller + à | 去~{} | - | h p f w l
arrive | arriver + à | 到~{} | - | p f
come came + back from | revenir + de | 从{}回来~ | - | p f l
come came + from | venir + de | 是从{}来的 | - | s
live | habiter + à | 住在{} | - | s
stay | rester + à | 待在{} | - | p f w
be was being + born | naître + à | 出生在{} | - | p
be was being + born | naître | 出生的 | - | p
"""

# At a fixed time.
SCHEDULE = """
leave left | partir | 出发 | transport | h
start | commencer | 开始 | lesson film exam | h
open | ouvrir | 开门 | museum bank shop pharmacy library bakery | h
close | fermer | 关门 | museum bank shop pharmacy library bakery | h
"""

USES = {
    "h": "habit",
    "n": "now",
    "p": "past",
    "f": "future",
    "w": "modal",
    "i": "order",
    "k": "count",
    "o": "own",
    "s": "state",
    "x": "animal",
    "g": "generic",
    "t": "lasting",
    "m": "week",
    "l": "year",
    "y": "far",
    "d": "definite",
    "e": "single",
    "a": "adult",
    "v": "vigorous",
    "c": "company",
}


@cache
def read_verbs(table: str) -> tuple[Verb, ...]:
    """Return the verbs of one of the tables above."""
    return tuple(_read(line) for line in table.splitlines() if line)


@cache
def verbs_for(table: str, use: str, without: str = "") -> tuple[Verb, ...]:
    """Return the verbs of a table that have the use, except those whose base form is in `without`."""
    return tuple(verb for verb in read_verbs(table) if use in verb.uses and verb.en not in without.split())


@cache
def verbs_named(table: str, names: str) -> tuple[Verb, ...]:
    """Return the verbs of a table with any of these base forms."""
    return tuple(verb for verb in read_verbs(table) if verb.en in names.split())


@cache
def verb(table: str, english: str, tail: str = "") -> Verb:
    """Return the first verb of the table with this base form and tail."""
    return next(act for act in read_verbs(table) if act.en == english and act.en_tail == tail)


def _read(line: str) -> Verb:
    english, french, chinese, objects, uses = (cell.strip() for cell in line.split("|"))
    english, _, tail = (part.strip() for part in english.partition("+"))
    french, _, fr_tail = (part.strip() for part in french.partition("+"))
    base, past, ing = (*english.split(), "", "")[:3]
    pattern, _, now = chinese.partition(";")
    return Verb(
        en=base,
        en_s=_third_person(base),
        en_past=past or _past(base),
        en_ing=ing or _ing(base),
        en_tail=tail,
        fr=french.removeprefix("se "),
        fr_tail=fr_tail,
        fr_reflexive=french.startswith("se "),
        zh=pattern,
        zh_now=now,
        objects=frozenset(objects.split()),
        uses=frozenset(USES[letter] for letter in uses.split()),
    )


def _third_person(verb: str) -> str:
    if verb == "have":
        return "has"
    if verb.endswith(("s", "x", "ch", "sh", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def _past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + "ed"


def _ing(verb: str) -> str:
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + "ing"
