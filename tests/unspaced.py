"""Sentences and names in scripts without spaces, put together from small grammars of real words."""

import random

Pairs = list[tuple[str, str]]

# One (English, Japanese, Chinese, Thai) tuple a word. The words are kept to those whose order each grammar below knows.
SUBJECTS = [
    ("I", "私", "我", "ฉัน"),
    ("my father", "父", "我爸爸", "พ่อของฉัน"),
    ("the teacher", "先生", "老师", "ครู"),
    ("that student", "あの学生", "那个学生", "นักเรียนคนนั้น"),
    ("my friend", "友達", "我的朋友", "เพื่อนของฉัน"),
    ("the doctor", "医者", "医生", "หมอ"),
    ("her sister", "彼女の妹", "她妹妹", "น้องสาวของเธอ"),
    ("a tall man", "背の高い男の人", "一个高个子男人", "ผู้ชายตัวสูง"),
]
TIMES = [
    ("today", "今日", "今天", "วันนี้"),
    ("every day", "毎日", "每天", "ทุกวัน"),
    ("yesterday morning", "昨日の朝", "昨天早上", "เมื่อวานตอนเช้า"),
    ("in the evening", "夕方に", "晚上", "ตอนเย็น"),
    ("on Sunday", "日曜日に", "星期天", "วันอาทิตย์"),
]
ACTIONS = [
    ("reads a book", "本を読みます", "看书", "อ่านหนังสือ"),
    ("drinks water", "水を飲みます", "喝水", "ดื่มน้ำ"),
    ("writes a letter", "手紙を書きます", "写信", "เขียนจดหมาย"),
    ("eats breakfast", "朝ご飯を食べます", "吃早饭", "กินอาหารเช้า"),
    ("buys a new car", "新しい車を買います", "买新车", "ซื้อรถใหม่"),
    ("listens to music", "音楽を聞きます", "听音乐", "ฟังเพลง"),
    ("watches a film", "映画を見ます", "看电影", "ดูหนัง"),
    ("cleans the kitchen", "台所を掃除します", "打扫厨房", "ทำความสะอาดห้องครัว"),
]
PLACES = [
    ("at home", "家で", "在家里", "ที่บ้าน"),
    ("at school", "学校で", "在学校", "ที่โรงเรียน"),
    ("in Tokyo", "東京で", "在东京", "ที่โตเกียว"),
    ("in the park", "公園で", "在公园", "ในสวนสาธารณะ"),
    ("in the hospital", "病院で", "在医院", "ในโรงพยาบาล"),
    ("at the station", "駅で", "在车站", "ที่สถานี"),
]
ORDERS = {  # how each language puts the parts together
    "en": "{subject} {action} {place} {time}.",
    "ja": "{subject}は{time}、{place}{action}。",
    "zh": "{subject}{time}{place}{action}，是吗？",
    "th": "{subject}{action}{place}{time}",
}
NAMES = [
    ("Michael", "マイケル"), ("Elizabeth", "エリザベス"), ("Christopher", "クリストファー"), ("Emma", "エマ"), ("Thomas", "トーマス"),
    ("Margaret", "マーガレット"), ("Daniel", "ダニエル"), ("Sophia", "ソフィア"), ("Benjamin", "ベンジャミン"), ("Laura", "ローラ"),
    ("Washington", "ワシントン"), ("Johnson", "ジョンソン"), ("Smith", "スミス"), ("Miller", "ミラー"), ("Lincoln", "リンカーン"),
]  # fmt: skip


def sentences(language: str, count: int = 400, seed: int = 1) -> list[str]:
    """`count` sentences of this language; the same seed gives translations of each other."""
    draw, column = random.Random(seed), list(ORDERS).index(language)
    parts = {"subject": SUBJECTS, "action": ACTIONS, "place": PLACES, "time": TIMES}
    return [
        ORDERS[language].format(**{name: draw.choice(words)[column] for name, words in parts.items()})
        for _ in range(count)
    ]


def translations(source: str, target: str, count: int = 400, seed: int = 1) -> Pairs:
    return list(zip(sentences(source, count, seed), sentences(target, count, seed), strict=True))


def names(count: int = 400, seed: int = 1, full: bool = False) -> Pairs:
    """English names and their katakana; `full`: first and last name."""
    draw = random.Random(seed)
    picked = [draw.sample(NAMES, 2 if full else 1) for _ in range(count)]
    return [(" ".join(n for n, _ in name), "・".join(k for _, k in name)) for name in picked]
