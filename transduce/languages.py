"""Codes of languages: what they look like, and the English names of common languages.

Any code of the right form is accepted, because there are more languages than a list could have. Knows strings only.
"""

import re
from difflib import get_close_matches

_NAMES = """
af Afrikaans,am Amharic,ar Arabic,az Azerbaijani,be Belarusian,bg Bulgarian,bn Bengali,bs Bosnian,ca Catalan,cs Czech,
cy Welsh,da Danish,de German,el Greek,en English,eo Esperanto,es Spanish,et Estonian,eu Basque,fa Persian,fi Finnish,
fr French,ga Irish,gl Galician,gu Gujarati,ha Hausa,he Hebrew,hi Hindi,hr Croatian,hsb Upper Sorbian,hu Hungarian,
hy Armenian,id Indonesian,ig Igbo,is Icelandic,it Italian,ja Japanese,ka Georgian,kk Kazakh,km Khmer,kn Kannada,
ko Korean,ku Kurdish,ky Kyrgyz,la Latin,lb Luxembourgish,lo Lao,lt Lithuanian,lv Latvian,mg Malagasy,mk Macedonian,
ml Malayalam,mn Mongolian,mr Marathi,ms Malay,mt Maltese,my Burmese,nb Norwegian Bokmål,ne Nepali,nl Dutch,
nn Norwegian Nynorsk,no Norwegian,oc Occitan,pa Punjabi,pl Polish,ps Pashto,pt Portuguese,qu Quechua,ro Romanian,
ru Russian,rw Kinyarwanda,sa Sanskrit,si Sinhala,sk Slovak,sl Slovenian,so Somali,sq Albanian,sr Serbian,sv Swedish,
sw Swahili,ta Tamil,te Telugu,tg Tajik,th Thai,tk Turkmen,tl Tagalog,tr Turkish,tt Tatar,uk Ukrainian,ur Urdu,
uz Uzbek,vi Vietnamese,xh Xhosa,yi Yiddish,yo Yoruba,zh Chinese,zu Zulu
"""
# The codes of ISO 639-3 and 639-2 of those that have a code of two letters.
_LONG_CODES = """
af afr,am amh,ar ara,az aze,be bel,bg bul,bn ben,bs bos,ca cat,cs ces cze,cy cym wel,da dan,de deu ger,el ell gre,en eng,eo epo,
es spa,et est,eu eus baq,fa fas per,fi fin,fr fra fre,ga gle,gl glg,gu guj,ha hau,he heb,hi hin,hr hrv,hu hun,hy hye arm,id ind,
ig ibo,is isl ice,it ita,ja jpn,ka kat geo,kk kaz,km khm,kn kan,ko kor,ku kur,ky kir,la lat,lb ltz,lo lao,lt lit,lv lav,mg mlg,
mk mkd mac,ml mal,mn mon,mr mar,ms msa may,mt mlt,my mya bur,nb nob,ne nep,nl nld dut,nn nno,no nor,oc oci,pa pan,pl pol,ps pus,
pt por,qu que,ro ron rum,ru rus,rw kin,sa san,si sin,sk slk slo,sl slv,so som,sq sqi alb,sr srp,sv swe,sw swa,ta tam,te tel,
tg tgk,th tha,tk tuk,tl tgl,tr tur,tt tat,uk ukr,ur urd,uz uzb,vi vie,xh xho,yi yid,yo yor,zh zho chi,zu zul
"""
_SHORT_OF = {long: short for short, *longs in (entry.split() for entry in _LONG_CODES.split(",")) for long in longs}
_NAME_OF = dict(entry.strip().split(" ", 1) for entry in _NAMES.split(","))
_CODE_OF = {name.lower(): code for code, name in _NAME_OF.items()} | {"farsi": "fa", "mandarin": "zh"}
# ISO 639 and BCP 47: de, mlt, zh-Hant, pt_BR, x-klingon
_CODE = re.compile(r"([a-z]{2,3}|x(?=[-_]))([-_][a-z0-9]{1,8})*", re.IGNORECASE)


def name_of(code: str) -> str:
    """The English name of a language, or its code if the name is not known."""
    return _NAME_OF.get(code, code)


def code_of(text: str) -> str:
    """The code of a common language, given its English name or a code such as `de` or `pt-BR`; empty for another text."""
    name = text.strip().lower()
    code = re.split("[-_]", name)[0] if is_code(name) else ""
    return _CODE_OF.get(name) or (code if code in _NAME_OF else "")


def shorter_code(code: str) -> str:
    """The same code with two letters for a language that has such a code: `de-AT` for `deu-AT`, `de` for `de` and `hsb` for `hsb`."""
    language = re.split("[-_]", code)[0]
    return _SHORT_OF.get(language.lower(), language) + code[len(language) :]


def is_code(text: str) -> bool:
    """Whether a text has the form of a language code."""
    return bool(_CODE.fullmatch(text))


def wrong_code(text: str) -> str:
    """Why a text is not a language code, with the code that may be meant; empty for a code."""
    if is_code(text):
        return ""
    close = get_close_matches(re.sub("[-_]", " ", text.lower()), _CODE_OF, n=1, cutoff=0.8)
    advice = f"did you mean {_CODE_OF[close[0]]}?" if close else "write a code such as de, hsb or pt-BR, or x-NAME"
    return f"unknown language code '{text}'; {advice}"
