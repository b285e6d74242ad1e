"""Numbers for messages: a few significant digits, as a person would write them."""


def rounded(number: float, digits: int = 2) -> str:
    """A number with so many significant digits and no exponent: 300 and not 3e+02."""
    nearest = float(f"{number:.{digits}g}")
    if abs(nearest) >= 10 ** (digits - 1):
        return f"{nearest:,.0f}"
    return f"{nearest:.10f}".rstrip("0").rstrip(".")
