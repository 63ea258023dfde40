"""The other words of the demo corpus: places, names, times, spatial relations, weather, forms of address.

Each table has one line for each word. The functions below the tables read them.
"""

from functools import cache

from scripts.demo_corpus.meaning import Place, Word

# English | its preposition and article | French, its gender and preposition | Chinese, and the end of 在…里 | kinds.
# The English name is a kind, too. A `weekday` place is closed at night and at weekends, a `day` place at night.
# People go to a `regular` place every week and to a `daily` place every day.
PLACES = """
school | at - | école f à | 学校 | goal weekday regular daily
hospital | at the | hôpital m à | 医院 | goal arrival
market | at the | marché m à | 市场 | goal day regular
supermarket | at the | supermarché m à | 超市 | goal regular
park | in the | parc m dans | 公园 里 | goal regular
restaurant | at the | restaurant m à | 餐馆 里 | goal arrival regular leisure
hotel | at the | hôtel m à | 酒店 | goal stay arrival destination
station | at the | gare f à | 火车站 | goal arrival destination
airport | at the | aéroport m à | 机场 | goal arrival destination
library | at the | bibliothèque f à | 图书馆 里 | goal regular leisure
museum | at the | musée m à | 博物馆 | goal day regular leisure
office | at the | bureau m à | 办公室 里 | goal weekday arrival regular daily
bank | at the | banque f à | 银行 | goal weekday
pharmacy | at the | pharmacie f à | 药店 | goal
post office | at the | poste f à | 邮局 | goal weekday
bakery | at the | boulangerie f à | 面包店 | goal regular
beach | on the | plage f sur | 海滩 上 | goal regular leisure
cinema | at the | cinéma m à | 电影院 | goal regular leisure
university | at the | université f à | 大学 | goal weekday regular daily
swimming pool | in the | piscine f dans | 游泳池 里 | goal regular
garden | in the | jardin m dans | 花园 里 | indoors
kitchen | in the | cuisine f dans | 厨房 里 | room indoors
living room | in the | salon m dans | 客厅 里 | room indoors
bathroom | in the | salle_de_bains f dans | 浴室 里 | room
bedroom | in the | chambre f dans | 卧室 里 | room indoors
home | at - | maison f à | 家 里 | stay
"""

CITIES = """
Paris | Paris | 巴黎
London | Londres | 伦敦
Beijing | Pékin | 北京
Shanghai | Shanghai | 上海
Rome | Rome | 罗马
Madrid | Madrid | 马德里
Berlin | Berlin | 柏林
Tokyo | Tokyo | 东京
New York | New York | 纽约
"""

COUNTRIES = """
China | Chine f | 中国
France | France f | 法国
Japan | Japon m | 日本
Canada | Canada m | 加拿大
Italy | Italie f | 意大利
Germany | Allemagne f | 德国
Spain | Espagne f | 西班牙
Mexico | Mexique m | 墨西哥
India | Inde f | 印度
"""

NAMES = """
Paul | Paul | 保罗 |
Anna | Anna | 安娜 | female
Emma | Emma | 艾玛 | female
Lucas | Lucas | 卢卡斯 |
Sophie | Sophie | 苏菲 | female
David | David | 大卫 |
Thomas | Thomas | 托马斯 |
Xiaoming | Xiaoming | 小明 |
Li Na | Li Na | 李娜 | female
Wang Wei | Wang Wei | 王伟 |
"""

# The uses are the tense of the clause, and the distance: near (a day), week, or neither (further away).
TIMES = """
yesterday | hier | 昨天 | past near
last night | hier soir | 昨天晚上 | past near
this morning | ce matin | 今天早上 | past near
last week | la semaine dernière | 上个星期 | past week
last month | le mois dernier | 上个月 | past
last year | l'année dernière | 去年 | past
last Monday | lundi dernier | 上个星期一 | past week
last Saturday | samedi dernier | 上个星期六 | past week
last Sunday | dimanche dernier | 上个星期天 | past week
tomorrow | demain | 明天 | future near
tomorrow morning | demain matin | 明天早上 | future near
tonight | ce soir | 今天晚上 | future near
next week | la semaine prochaine | 下个星期 | future week
next month | le mois prochain | 下个月 | future
next year | l'année prochaine | 明年 | future
next Tuesday | mardi prochain | 下个星期二 | future week
next Friday | vendredi prochain | 下个星期五 | future week
every day | tous les jours | 每天都 | habit
every morning | tous les matins | 每天早上都 | habit
every evening | tous les soirs | 每天晚上都 | habit
every week | toutes les semaines | 每个星期都 | habit
every Sunday | tous les dimanches | 每个星期天都 | habit
every Saturday | tous les samedis | 每个星期六都 | habit
now | maintenant | 现在 | now
today | aujourd'hui | 今天 | present
"""

OFTEN = """
often | souvent | 常常 | now-and-then
sometimes | parfois | 有时候 | now-and-then
always | toujours | 总是
"""

WEEKDAYS = """
Monday | lundi | 星期一
Tuesday | mardi | 星期二
Wednesday | mercredi | 星期三
Thursday | jeudi | 星期四
Friday | vendredi | 星期五
Saturday | samedi | 星期六
Sunday | dimanche | 星期天
"""

MONTHS = """
January | janvier | 一月
February | février | 二月
March | mars | 三月
April | avril | 四月
May | mai | 五月
June | juin | 六月
July | juillet | 七月
August | août | 八月
September | septembre | 九月
October | octobre | 十月
November | novembre | 十一月
December | décembre | 十二月
"""

SEASONS = """
in spring | au printemps | 春天
in summer | en été | 夏天
in autumn | en automne | 秋天
in winter | en hiver | 冬天
"""

RELATIONS = """
on | sur | 上
under | sous | 下面
in | dans | 里
behind | derrière | 后面
in front of | devant | 前面
next to | à côté de | 旁边
near | près de | 附近
"""

VEHICLES = """
by train | en train | 坐火车
by bus | en bus | 坐公交车
by car | en voiture | 开车
by plane | en avion | 坐飞机
by bike | à vélo | 骑自行车
on foot | à pied | 走路
"""

# The subject is "it" and il. The language files have the forms of the verbs.
WEATHER = """
rain | pleuvoir | 下雨 | verb
snow | neiger | 下雪 | verb
cold | froid | 冷 | quality
hot | chaud | 热 | quality
sunny | du soleil | 晴天 | quality
windy | du vent | 风 | quality
"""

VOCATIVES = """
sir | monsieur | 先生 | polite
madam | madame | 女士 | polite female
children | les enfants | 孩子们 | group
Mum | maman | 妈妈 | friend female
Dad | papa | 爸爸 | friend
"""

LINKS = """
because | parce que | 因为
but | mais | 但是
and | et | -
"""


@cache
def words(table: str) -> tuple[Word, ...]:
    """Read a table whose columns are English | French | Chinese | uses."""
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line]
    return tuple(Word(row[0], row[1], row[2].strip("-"), frozenset(" ".join(row[3:]).split())) for row in rows)


@cache
def words_for(table: str, use: str) -> tuple[Word, ...]:
    """Return the words of a table that have this use."""
    return tuple(word for word in words(table) if use in word.uses)


@cache
def places(kinds: str) -> tuple[Place, ...]:
    """Return the places of any of these kinds; "city" and "country" are kinds, too."""
    names = set(kinds.split())
    return tuple(place for place in _all_places() if names & place.kinds)


@cache
def _all_places() -> tuple[Place, ...]:
    return (
        *(_place(line) for line in PLACES.splitlines() if line),
        *(_city(word) for word in words(CITIES)),
        *(_country(word) for word in words(COUNTRIES)),
    )


def _place(line: str) -> Place:
    en, english, french, chinese, kinds = (cell.strip() for cell in line.split("|"))
    preposition, article = english.split()
    the = "" if article == "-" else "the "
    noun, gender, at = french.split()
    noun = noun.replace("_", " ")
    zh, suffix = (*chinese.split(), "")[:2]
    return Place(
        en=f"{the}{en}",
        en_at=f"{preposition} {the}{en}",
        en_to=en if en == "home" else f"to {the}{en}",
        fr=f"{'le' if gender == 'm' else 'la'} {noun}",
        fr_at=at,
        fr_to="à",
        fr_from="de",
        zh=zh,
        zh_at=zh + suffix,
        kinds=frozenset([*kinds.split(), en.replace(" ", "_")]),
    )


def _city(word: Word) -> Place:
    en, fr, zh = word.en, word.fr, word.zh
    return Place(en, f"in {en}", f"to {en}", fr, "à", "à", "de", zh, zh, frozenset({"city"}))


def _country(word: Word) -> Place:
    """Read a country: a feminine one loses its article after a preposition, en Chine, but au Japon."""
    name, gender = word.fr.split()
    article = "" if gender == "f" else "le "
    at = "en" if gender == "f" else "à"
    return Place(
        word.en,
        f"in {word.en}",
        f"to {word.en}",
        article + name,
        at,
        at,
        "de",
        word.zh,
        word.zh,
        frozenset({"country"}),
    )
