"""Shapes as annotations: `Float[Tensor, "R W D"]`.

jaxtyping is a development dependency. If it is installed, the tests check every shape in this folder at run time; if not,
the annotations are documentation only.
"""

try:
    from jaxtyping import Bool, Float, Int
except ImportError:

    class _Unchecked:
        def __class_getitem__(cls, item: tuple[type, str]) -> type:
            return item[0]

    Bool = Float = Int = _Unchecked  # type: ignore[assignment]

__all__ = ["Bool", "Float", "Int"]
