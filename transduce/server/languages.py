"""The English names of languages by their codes."""

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
_NAME_OF = dict(entry.strip().split(" ", 1) for entry in _NAMES.split(","))


def name_of(code: str) -> str:
    """The English name of a language, or its code if the name is not known."""
    return _NAME_OF.get(code, code)
