"""Looking into a model: pictures of attention, and the page with its views.

(`views` is imported by name: it needs torch.)
"""

from transduce.translator.picture import PAGE, PICTURES, check_picture_path, draw_attention

__all__ = ["PAGE", "PICTURES", "check_picture_path", "draw_attention"]
