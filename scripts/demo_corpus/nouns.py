"""The nouns of the demo corpus: English | French and its gender | Chinese and its measure word | classes.

`a/b` gives an irregular plural, `a,b` the form for a woman. Verbs and adjectives name the classes of nouns that they go
with, so that people eat food and read books. "mass" nouns have no plural. Definite "unique" nouns need no 那 in Chinese
(打开门, not 打开那扇门). The English singular of a noun is a class with this noun alone.
"""

from functools import cache

from scripts.demo_corpus.meaning import Noun

TABLE = """
father | père m | 爸爸 位 | kin adult
mother | mère f | 妈妈 位 | kin adult
older brother | grand frère/grands frères m | 哥哥 个 | kin sibling
younger brother | petit frère/petits frères m | 弟弟 个 | kin sibling child
older sister | grande sœur/grandes sœurs f | 姐姐 个 | kin sibling
younger sister | petite sœur/petites sœurs f | 妹妹 个 | kin sibling child
grandfather | grand-père/grands-pères m | 爷爷 位 | kin adult elderly
grandmother | grand-mère/grands-mères f | 奶奶 位 | kin adult elderly
uncle | oncle m | 叔叔 位 | kin adult
aunt | tante f | 阿姨 位 | kin adult
son | fils m | 儿子 个 | kin child offspring
daughter | fille f | 女儿 个 | kin child offspring
wife/wives | femme f | 妻子 位 | adult
husband | mari m | 丈夫 位 | adult
parent | parent m | 父母 位 | parents adult

teacher | professeur,professeure m | 老师 位 | job human
student | étudiant,étudiante m | 学生 个 | job human
doctor | médecin m | 医生 位 | job human
nurse | infirmier,infirmière m | 护士 位 | job human
engineer | ingénieur,ingénieure m | 工程师 位 | job human
cook | cuisinier,cuisinière m | 厨师 位 | job human
lawyer | avocat,avocate m | 律师 位 | job human
journalist | journaliste,journaliste m | 记者 位 | job human
singer | chanteur,chanteuse m | 歌手 位 | job human public
writer | écrivain,écrivaine m | 作家 位 | job human public
farmer | agriculteur,agricultrice m | 农民 位 | job human
police officer | policier,policière m | 警察 位 | job human
baker | boulanger,boulangère m | 面包师 位 | job human
dentist | dentiste,dentiste m | 牙医 位 | job human
friend | ami,amie m | 朋友 个 | human owned
neighbour | voisin,voisine m | 邻居 个 | human owned
colleague | collègue,collègue m | 同事 位 | human owned
man/men | homme m | 男人 个 | human adult-noun
woman/women | femme f | 女人 个 | human adult-noun
boy | garçon m | 男孩 个 | human child-noun
girl | fille f | 女孩 个 | human child-noun
child/children | enfant m | 孩子 个 | human child-noun
baby | bébé m | 婴儿 个 | baby

animal | animal/animaux m | 动物 只 | animal
dog | chien m | 狗 只 | animal pet fur
cat | chat m | 猫 只 | animal pet fur
horse | cheval/chevaux m | 马 匹 | animal farm fur
cow | vache f | 牛 头 | animal farm
rabbit | lapin m | 兔子 只 | animal pet fur
bird | oiseau m | 鸟 只 | animal pretty fur winged
mouse/mice | souris f | 老鼠 只 | animal fur
sheep/sheep | mouton m | 羊 只 | animal farm
pig | cochon m | 猪 头 | animal farm
duck | canard m | 鸭子 只 | animal farm winged
elephant | éléphant m | 大象 头 | animal wild
monkey | singe m | 猴子 只 | animal wild
tiger | tigre m | 老虎 只 | animal wild

apple | pomme f | 苹果 个 | edible fresh red-green sweet sold
orange | orange f | 橙子 个 | edible fresh sweet sold
banana | banane f | 香蕉 根 | edible sweet sold
pear | poire f | 梨 个 | edible fresh sweet sold
tomato/tomatoes | tomate f | 西红柿 个 | edible fresh red-green sold
egg | œuf m | 鸡蛋 个 | edible fresh sold
cake | gâteau m | 蛋糕 个 | dish sweet made
sandwich | sandwich m | 三明治 个 | dish made
pizza | pizza f | 比萨 个 | dish hot made
bread | pain m | 面包 个 | food fresh sold mass
rice | riz m | 米饭 碗 | food hot mass
meat | viande f | 肉 块 | food sold mass
fish | poisson m | 鱼 条 | food fresh sold mass
cheese | fromage m | 奶酪 块 | food sold mass
soup | soupe f | 汤 碗 | broth hot mass
chocolate | chocolat m | 巧克力 块 | food sweet sold mass
beef | bœuf m | 牛肉 块 | food fresh sold mass
chicken | poulet m | 鸡肉 块 | food fresh sold mass
fruit/fruit | fruit m | 水果 个 | fruits fresh sold
vegetable | légume m | 蔬菜 种 | vegetables fresh sold
water | eau f | 水 杯 | drink cold mass
milk | lait m | 牛奶 杯 | drink hot cold fresh sold mass
tea | thé m | 茶 杯 | drink hot cold mass
coffee | café m | 咖啡 杯 | drink hot cold mass
orange juice | jus d'orange m | 橙汁 杯 | drink cold sold mass
wine | vin m | 葡萄酒 杯 | drink wine sold mass
beer | bière f | 啤酒 杯 | drink wine cold sold mass

cup | tasse f | 杯子 个 | ware goods breakable emptied
glass | verre m | 玻璃杯 个 | ware goods breakable emptied
bottle | bouteille f | 瓶子 个 | bottle breakable emptied
plate | assiette f | 盘子 个 | ware goods breakable
bowl | bol m | 碗 个 | ware goods breakable
kilo | kilo m | 公斤 - | measure
piece | morceau m | 块 - | measure

book | livre m | 书 本 | read small goods lent had
novel | roman m | 小说 本 | read goods lent
newspaper | journal/journaux m | 报纸 份 | read paper
magazine | magazine m | 杂志 本 | read small lent
letter | lettre f | 信 封 | read mail small
email | e-mail m | 邮件 封 | read mail
poem | poème m | 诗 首 | read
story | histoire f | 故事 个 | tale
song | chanson f | 歌 首 | song
film | film m | 电影 部 | film
question | question f | 问题 个 | question
exam | examen m | 考试 次 | exam unique
lesson | leçon f | 课 节 | lesson
dictionary | dictionnaire m | 词典 本 | small goods lent had

key | clé f | 钥匙 把 | small
bag | sac m | 包 个 | small goods coloured carried had
suitcase | valise f | 行李箱 个 | small goods coloured carried moved
umbrella | parapluie m | 雨伞 把 | small goods coloured lent had
wallet | portefeuille m | 钱包 个 | small goods
ticket | billet m | 票 张 | small ticket
passport | passeport m | 护照 本 | small
pen | stylo m | 笔 支 | small goods coloured lent had
phone | téléphone m | 手机 部 | small goods machine used lent had
computer | ordinateur m | 电脑 台 | goods machine used lent had
camera | appareil photo/appareils photo m | 相机 台 | small goods machine used lent had
watch | montre f | 手表 块 | small goods machine accessory
lamp | lampe f | 灯 盏 | goods machine
television | télévision f | 电视 台 | goods machine had
guitar | guitare f | 吉他 把 | goods lent had
ball | ballon m | 球 个 | coloured toy
photo | photo f | 照片 张 | photo pretty
picture | tableau m | 画 幅 | photo pretty goods
flower | fleur f | 花 朵 | flower pretty
tree | arbre m | 树 棵 | tree
gift | cadeau m | 礼物 份 | gift
box | boîte f | 盒子 个 | box carried moved emptied

table | table f | 桌子 张 | goods furniture
chair | chaise f | 椅子 把 | goods furniture seat
bed | lit m | 床 张 | goods furniture seat
sofa | canapé m | 沙发 张 | goods furniture seat
door | porte f | 门 扇 | opening unique
window | fenêtre f | 窗户 扇 | opening unique
fridge | réfrigérateur m | 冰箱 台 | machine emptied unique
house | maison f | 房子 座 | dwelling
apartment | appartement m | 公寓 套 | dwelling flat
garden | jardin m | 花园 个 | garden pretty field
room | chambre f | 房间 个 | flat cleaned

car | voiture f | 汽车 辆 | goods vehicle driven coloured carriage
bike | vélo m | 自行车 辆 | goods vehicle coloured lent
bus | bus m | 公交车 辆 | driven carriage unique transport
train | train m | 火车 列 | transport carriage unique
plane | avion m | 飞机 架 | transport carriage unique
boat | bateau m | 船 条 | vehicle carriage
taxi | taxi m | 出租车 辆 | driven
truck | camion m | 卡车 辆 | driven vehicle carriage

coat | manteau m | 大衣 件 | goods clothing coloured warm
shirt | chemise f | 衬衫 件 | goods clothing coloured
dress | robe f | 连衣裙 条 | goods clothing coloured pretty womenswear
skirt | jupe f | 裙子 条 | goods clothing coloured pretty womenswear
sweater | pull m | 毛衣 件 | goods clothing coloured warm
hat | chapeau m | 帽子 顶 | goods accessory coloured small
scarf/scarves | écharpe f | 围巾 条 | goods accessory coloured small

street | rue f | 马路 条 | street crossing unique
river | rivière f | 河 条 | river crossing
bridge | pont m | 桥 座 | bridge crossing
square | place f | 广场 个 | field unique
village | village m | 村子 个 | town calm
city | ville f | 城市 座 | town
museum | musée m | 博物馆 座 | sight building unique
hotel | hôtel m | 酒店 家 | building stay calm unique
restaurant | restaurant m | 餐馆 家 | building stay unique
school | école f | 学校 所 | building unique
bank | banque f | 银行 家 | building unique
station | gare f | 火车站 个 | building unique
hospital | hôpital/hôpitaux m | 医院 家 | building unique
pharmacy | pharmacie f | 药店 家 | building unique
library | bibliothèque f | 图书馆 座 | building calm unique
bakery | boulangerie f | 面包店 家 | building unique
park | parc m | 公园 个 | calm field pretty unique
forest | forêt f | 森林 片 | field
shop | magasin m | 商店 家 | building unique

head | tête f | 头 个 | body
back | dos m | 背 个 | body
stomach | ventre m | 肚子 个 | body
throat | gorge f | 嗓子 个 | body
leg | jambe f | 腿 条 | body
foot/feet | pied m | 脚 只 | body several
arm | bras m | 胳膊 条 | body
hand | main f | 手 只 | body
tooth/teeth | dent f | 牙 颗 | body several

Chinese | chinois m | 中文 - | language mass
English | anglais m | 英语 - | language mass
French | français m | 法语 - | language mass
Spanish | espagnol m | 西班牙语 - | language mass
Japanese | japonais m | 日语 - | language mass
history | histoire f | 历史 - | science mass
physics | physique f | 物理 - | science mass
chemistry | chimie f | 化学 - | science mass
music | musique f | 音乐 - | science mass
machine learning | apprentissage automatique m | 机器学习 - | science mass

China | Chine f | 中国 - | land mass
France | France f | 法国 - | land mass
Japan | Japon m | 日本 - | land mass
Canada | Canada m | 加拿大 - | land mass
Italy | Italie f | 意大利 - | land mass
Germany | Allemagne f | 德国 - | land mass
Spain | Espagne f | 西班牙 - | land mass
Mexico | Mexique m | 墨西哥 - | land mass
India | Inde f | 印度 - | land mass

minute | minute f | 分钟 - | unit
hour | heure f | 小时 个 | unit
day | jour m | 天 - | unit
week | semaine f | 星期 个 | unit
month | mois m | 月 个 | unit
year | an m | 年 - | unit
birthday | anniversaire m | 生日 个 | event
"""


@cache
def nouns() -> dict[str, Noun]:
    """Return all nouns by their English singular."""
    all_nouns = [_read(line) for line in TABLE.splitlines() if line]
    return {noun.en: noun for noun in all_nouns}


@cache
def nouns_of(classes: str) -> tuple[Noun, ...]:
    """Return the nouns that belong to any of the classes, in the order of the table."""
    names = set(classes.split())
    return tuple(noun for noun in nouns().values() if names & noun.classes)


def _read(line: str) -> Noun:
    english, french, chinese, classes = (cell.strip() for cell in line.split("|"))
    singular, _, plural = english.partition("/")
    words, gender = french.rsplit(" ", 1)
    man, _, woman = words.partition(",")
    fr, _, fr_plural = man.partition("/")
    zh, measure = chinese.split(" ")
    return Noun(
        en=singular,
        en_plural=plural or english_plural(singular),
        fr=fr,
        fr_plural=fr_plural or french_plural(fr),
        feminine=gender == "f",
        fr_woman=(woman, french_plural(woman)) if woman else None,
        zh=zh,
        measure="" if measure == "-" else measure,
        classes=frozenset([*classes.split(), singular]),
    )


def english_plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def french_plural(word: str) -> str:
    if word.endswith(("s", "x", "z")):
        return word
    return word + ("x" if word.endswith(("eau", "eu")) else "s")
