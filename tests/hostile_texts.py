"""Two hundred strings that would run, frame or load something wherever text is taken for HTML."""

from itertools import product

FIRE = "window.fired=1"
MARKUP = [
    f"<script>{FIRE}</script>",
    f"<img src=x onerror={FIRE}>",
    f"<svg onload={FIRE}>",
    f"<svg><script>{FIRE}</script></svg>",
    f"<iframe srcdoc='<script>parent.{FIRE}</script>'></iframe>",
    f"<iframe src=javascript:parent.{FIRE}></iframe>",
    f"<body onload={FIRE}>",
    f"<details open ontoggle={FIRE}>x</details>",
    f"<input autofocus onfocus={FIRE}>",
    f"<video><source onerror={FIRE}></video>",
    f"<audio src=x onerror={FIRE}></audio>",
    f"<marquee onstart={FIRE}>x</marquee>",
    f"<a href=javascript:{FIRE}>x</a>",
    f"<form action=javascript:{FIRE}><button>x</button></form>",
    f"<object data=javascript:{FIRE}></object>",
    f"<embed src=javascript:{FIRE}>",
    f"<math><mtext><img src=x onerror={FIRE}></mtext></math>",
    f"<style>@import 'javascript:{FIRE}'</style>",
    f"<base href=javascript:{FIRE}//>",
    f"<meta http-equiv=refresh content='0;url=javascript:{FIRE}'>",
]
ESCAPES = [
    "{}",
    '">{}',
    "'>{}",
    "</script>{}",
    "</textarea>{}",
    "</title>{}",
    "--><!-- -->{}",
    "]]>{}",
    "`${{{}}}`",
    "\\u003c/script>{}",
]
HOSTILE = [escape.format(markup) for escape, markup in product(ESCAPES, MARKUP)]
FORBIDDEN = "img, iframe, object, embed, base, form, video, audio, marquee, math, source, style, meta[http-equiv], a[href^=javascript]"
