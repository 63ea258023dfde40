"""Set phrases with one form in each language: greetings, on the road, at table, at the doctor's.

English | French | Chinese. A phrase on two lines has two translations; both count as right.
"""

from functools import cache

from scripts.demo_corpus.lexicon import words
from scripts.demo_corpus.meaning import SetPhrase

TABLE = """
I love studying. | J'aime étudier. | 我爱学习。
I love studying | J'aime étudier | 我爱学习
I love China. | J'aime la Chine. | 我爱中国。
I love China | J'aime la Chine | 我爱中国
machine learning | apprentissage automatique | 机器学习
thanks | merci | 谢谢
I am a student | je suis étudiant | 我是学生
I am a student. | Je suis étudiant. | 我是学生。
I have eaten. | J'ai mangé. | 我吃饭了。
I have eaten | j'ai mangé | 我吃饭了
Thanks. | Merci. | 谢谢。
Thank you. | Merci. | 谢谢。
Thank you very much. | Merci beaucoup. | 非常感谢。
You're welcome. | De rien. | 不客气。
Hello. | Bonjour. | 你好。
Hello, everyone. | Bonjour à tous. | 大家好。
Good morning. | Bonjour. | 早上好。
Good evening. | Bonsoir. | 晚上好。
Good night. | Bonne nuit. | 晚安。
Goodbye. | Au revoir. | 再见。
See you tomorrow. | À demain. | 明天见。
See you soon. | À bientôt. | 回头见。
How are you? | Comment vas-tu ? | 你好吗？
I'm fine, thanks. | Je vais bien, merci. | 我很好，谢谢。
What is your name? | Comment t'appelles-tu ? | 你叫什么名字？
Nice to meet you. | Enchanté. | 很高兴认识你。
Yes. | Oui. | 是的。
No. | Non. | 不是。
Of course. | Bien sûr. | 当然。
Perhaps. | Peut-être. | 也许吧。
I don't know. | Je ne sais pas. | 我不知道。
I know. | Je sais. | 我知道。
I understand. | Je comprends. | 我明白了。
I don't understand. | Je ne comprends pas. | 我不明白。
Sorry. | Désolé. | 对不起。
It doesn't matter. | Ce n'est pas grave. | 没关系。
No problem. | Pas de problème. | 没问题。
Excuse me. | Excuse-moi. | 打扰一下。
Welcome to China. | Bienvenue en Chine. | 欢迎来到中国。
Welcome to Paris. | Bienvenue à Paris. | 欢迎来到巴黎。
Happy birthday! | Joyeux anniversaire ! | 生日快乐！
Happy New Year! | Bonne année ! | 新年快乐！
Have a good trip! | Bon voyage ! | 一路平安！
Enjoy your meal! | Bon appétit ! | 请慢用！
Congratulations! | Félicitations ! | 恭喜！
Good luck! | Bonne chance ! | 祝你好运！
Cheers! | Santé ! | 干杯！
Be careful! | Fais attention ! | 小心！
Help! | Au secours ! | 救命！
Wait a moment, please. | Attends un moment, s'il te plaît. | 请等一下。
What time is it? | Quelle heure est-il ? | 现在几点？
What day is it today? | Quel jour sommes-nous aujourd'hui ? | 今天星期几？
What is today's date? | Quelle est la date d'aujourd'hui ? | 今天几月几号？
How old are you? | Quel âge as-tu ? | 你多大？
Where are the toilets? | Où sont les toilettes ? | 洗手间在哪儿？
How much is it? | C'est combien ? | 多少钱？
It's too expensive. | C'est trop cher. | 太贵了。
The bill, please. | L'addition, s'il vous plaît. | 请结账。
I need a doctor. | J'ai besoin d'un médecin. | 我需要看医生。
I have a fever. | J'ai de la fièvre. | 我发烧了。
I have a cold. | J'ai un rhume. | 我感冒了。
I'm lost. | Je suis perdu. | 我迷路了。
Turn left. | Tourne à gauche. | 向左转。
Turn right. | Tourne à droite. | 向右转。
Go straight on. | Va tout droit. | 一直走。
Do you speak English? | Est-ce que tu parles anglais ? | 你会说英语吗？
"""


@cache
def set_phrases() -> tuple[SetPhrase, ...]:
    """Return all set phrases."""
    return tuple(SetPhrase(word) for word in words(TABLE))
