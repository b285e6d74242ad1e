"""The explorer: pictures of attention, and the web page with its views of a model.

Import `views` by name: it needs torch.
"""

from transduce.translator.picture import PAGE, PICTURES, check_picture_path, draw_attention

__all__ = ["PAGE", "PICTURES", "check_picture_path", "draw_attention"]
