"""Forms with files (multipart/form-data), parsed from a body that is already in memory. Knows no routes.

Names of files are never read: nothing is stored under a name that a client chose.
"""

import email.parser
from dataclasses import dataclass
from email.message import Message

from transduce.server.refusals import Refusal

PARTS = 32
HEADER_BYTES = 4_096  # of a part


@dataclass(frozen=True)
class Form:
    """The fields of a form with all their values, and its only file."""

    fields: dict[str, list[str]]
    file: bytes

    def value(self, name: str, default: str = "") -> str:
        """The value of a field that may be given once."""
        values = self.fields.get(name, [default])
        if len(values) > 1:
            raise Refusal(f"the form has {len(values)} fields named `{name}`; it may have one")
        return values[0]


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


def parse_form(content_type: str, body: bytes) -> Form:
    """The fields and the file of a form; anything but exactly one file, in the field `file`, is refused."""
    parts = [_part(part) for part in _split(body, _boundary(content_type))]
    files = [content for name, content in parts if name == "file"]
    if len(files) != 1:
        raise Refusal(f"the form has {len(files)} fields named `file`; it must have exactly one")
    fields: dict[str, list[str]] = {}
    for name, content in parts:
        if name != "file":
            fields.setdefault(name, []).append(_text(content))
    return Form(fields, files[0])


def _boundary(content_type: str) -> bytes:
    header = Message()
    header["content-type"] = content_type
    boundary = header.get_boundary("")
    if not 1 <= len(boundary) <= 70 or not boundary.isascii():
        raise Refusal("the Content-Type multipart/form-data has no valid boundary")
    return boundary.encode()


def _split(body: bytes, boundary: bytes) -> list[bytes]:
    """The parts between the boundaries."""
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, PARTS + 2)
    if not parts or not parts[-1].startswith(b"--"):
        many = len(parts) > PARTS
        raise Refusal(
            f"the form has more than {PARTS} fields" if many else "the form is incomplete: its end is missing"
        )
    return parts[:-1]


def _part(part: bytes) -> tuple[str, bytes]:
    """The name of a field, and its content."""
    blank, _, rest = part.partition(b"\r\n")
    head, end, content = rest.partition(b"\r\n\r\n")
    if blank.strip() or not end or len(head) > HEADER_BYTES:
        raise Refusal("a field of the form has no valid header")
    header = email.parser.BytesHeaderParser().parsebytes(head)
    name = header.get_param("name", header="content-disposition")
    if header.get_content_disposition() != "form-data" or not isinstance(name, str):
        raise Refusal("a field of the form has no name")
    return name, content


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Refusal("a field of the form is not valid UTF-8") from None
