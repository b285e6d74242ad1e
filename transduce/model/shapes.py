"""Shapes as annotations: `Float[Tensor, "R W D"]`.

jaxtyping is a development dependency. Where it is installed the tests check every shape of this folder at run
time; where it is not, the annotations are what a reader sees and nothing more.
"""

try:
    from jaxtyping import Bool, Float, Int
except ImportError:

    class _Unchecked:
        def __class_getitem__(cls, item: tuple[type, str]) -> type:
            return item[0]

    Bool = Float = Int = _Unchecked  # type: ignore[assignment]

__all__ = ["Bool", "Float", "Int"]
