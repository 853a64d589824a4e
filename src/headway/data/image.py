"""From the bytes of an image file to the pixels of a sample. Everything that is odd about image files is settled here.

Orientation (EXIF) is applied; transparency lies over white; 16-bit grey is scaled to 8 bits, never clipped; palettes, CMYK, 1-bit and
first frames come out as grey or colour. Colour profiles are not applied.
"""

from __future__ import annotations

import io
import warnings
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from headway.spec.errors import DataError

try:
    import PIL
    from PIL import ExifTags, Image, UnidentifiedImageError
except ModuleNotFoundError as error:
    raise DataError("images are read with Pillow, which is not installed", fix="pip install 'headway[train]'") from error

DECODER: Final = f"pillow {PIL.__version__}"
FORMATS: Final = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")  # what the content may be, whatever the name says
MOST_PIXELS: Final = 89_478_485  # Pillow's bound: beyond it a file is a decompression bomb
LONGEST: Final = 16  # the long edge of an uncut sample is at most 16 short ones; the ends of longer images are cut

# Pillow tells of odd metadata and of bombs by warnings: metadata does not matter here, a bomb is refused.
warnings.filterwarnings("ignore", module=r"PIL\.")
warnings.simplefilter("error", Image.DecompressionBombWarning)

_TURNS: Final = {
    2: (Image.Transpose.FLIP_LEFT_RIGHT,),
    3: (Image.Transpose.ROTATE_180,),
    4: (Image.Transpose.FLIP_TOP_BOTTOM,),
    5: (Image.Transpose.TRANSPOSE,),
    6: (Image.Transpose.ROTATE_270,),
    7: (Image.Transpose.TRANSVERSE,),
    8: (Image.Transpose.ROTATE_90,),
}  # EXIF orientation -> what turns it upright


def decode(data: bytes, channels: Literal[1, 3] = 3, *, at_least: int = 0) -> Image.Image:
    """The first frame, upright, in mode L or RGB. Raises DataError that says why the bytes are not a usable image.

    `at_least`: a short edge of that many pixels is enough, so a large JPEG may be decoded at a half, a quarter or an eighth.
    """
    if not data:
        raise DataError("the file is empty")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if at_least:
                image.draft(None, (at_least, at_least))
            image.load()
            turn = _orientation(image)
            plain = _plain(image, "L" if channels == 1 else "RGB")
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError(f"the content is not {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise DataError(f"it has more than {MOST_PIXELS / 1e6:.0f} million pixels") from None
    except Exception as error:  # decoders fail in many ways on broken files: OSError, SyntaxError, struct.error, ...
        raise DataError(f"it cannot be decoded: {str(error) or type(error).__name__}") from error
    for step in turn:
        plain = plain.transpose(step)
    return plain


def fit(image: Image.Image, size: int, *, square: bool) -> NDArray[np.uint8]:
    """`image` with its shorter edge resized to `size` (bicubic, antialiased), [C, H, W]; `square`: its middle only, [C, size, size]."""
    short, longest = min(image.size), (1 if square else LONGEST) * min(image.size)
    width, height = (min(edge, longest) for edge in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    target = tuple(max(size, round(edge * size / short)) for edge in (width, height))
    out = image.resize((target[0], target[1]), Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))
    array: NDArray[np.uint8] = np.asarray(out)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _orientation(image: Image.Image) -> tuple[Image.Transpose, ...]:
    """What turns `image` upright; nothing if its EXIF block cannot be read."""
    try:
        return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1), ())
    except Exception:  # damaged metadata around good pixels; Pillow raises whatever its parser met
        return ()


def _plain(image: Image.Image, mode: Literal["L", "RGB"]) -> Image.Image:
    """`image` in `mode`: transparency over white, 16 bits scaled to 8."""
    if image.mode.startswith("I;16"):
        wide: NDArray[Any] = np.asarray(image).astype(np.uint32)
        image = Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise DataError("32-bit pixels have no fixed range; save it with 8 or 16 bits")
    elif image.has_transparency_data:
        over = image.convert("RGBA")
        image = Image.new("RGBA", over.size, "white")
        image.alpha_composite(over)
    if mode == "L" and image.mode not in ("L", "RGB"):
        image = image.convert("RGB")  # some modes reach grey only through colour
    return image.convert(mode)
