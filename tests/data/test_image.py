"""Every odd kind of image file comes out upright, in 8 bits, grey or colour; or is refused with a reason."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from headway.data.image import LONGEST, decode, fit
from headway.spec.errors import DataError

RED, WHITE = (255, 0, 0), (255, 255, 255)


def save(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def corners() -> Image.Image:
    """Four colours, 16 x 24, that tell every orientation apart."""
    image = Image.new("RGB", (16, 24))
    for box, colour in zip(((0, 0), (8, 0), (0, 12), (8, 12)), ("red", "lime", "blue", "white"), strict=True):
        image.paste(colour, (*box, box[0] + 8, box[1] + 12))
    return image


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(orientation: int) -> None:
    undo = {2: [0], 3: [3], 4: [1], 5: [5], 6: [2], 7: [6], 8: [4]}  # transpositions that turn the upright image into the stored one
    stored = corners()
    for step in undo.get(orientation, []):
        stored = stored.transpose(Image.Transpose(step))
    exif = Image.Exif()
    exif[0x0112] = orientation
    for kind, tolerance in (("PNG", 0), ("JPEG", 60), ("WEBP", 60)):
        out = decode(save(stored, kind, exif=exif.tobytes()))
        error = np.abs(np.asarray(out, int) - np.asarray(corners(), int))
        assert out.size == (16, 24)
        assert np.median(error) <= tolerance / 10
        assert error.mean() <= tolerance


@pytest.mark.filterwarnings("ignore:Corrupt EXIF:UserWarning")  # a run ignores it by a filter of its own
def test_damaged_exif_does_not_matter() -> None:
    assert decode(save(corners(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12")).size == (16, 24)


@pytest.mark.parametrize(
    ("mode", "kind"), [("RGBA", "PNG"), ("LA", "PNG"), ("P", "PNG"), ("RGBA", "GIF"), ("RGBA", "TIFF"), ("RGBA", "WEBP")]
)
def test_transparency_lies_over_white(mode: str, kind: str) -> None:
    image = Image.new("RGBA", (2, 1))
    image.putpixel((0, 0), (0, 0, 0, 0))
    image.putpixel((1, 0), (0, 0, 0, 255))
    data = save(image.convert(mode), kind, **({"lossless": True} if kind == "WEBP" else {}))
    assert np.asarray(decode(data)).tolist() == [[[255] * 3, [0] * 3]]
    assert np.asarray(decode(data, 1)).tolist() == [[255, 0]]


def test_half_transparency_is_mixed() -> None:
    assert decode(save(Image.new("RGBA", (1, 1), (255, 0, 0, 128)))).getpixel((0, 0)) == (255, 127, 127)


def test_transparent_colour_of_an_opaque_mode() -> None:
    assert decode(save(Image.new("RGB", (1, 1), RED), transparency=RED)).getpixel((0, 0)) == WHITE
    assert decode(save(Image.new("L", (1, 1), 9), transparency=9)).getpixel((0, 0)) == WHITE


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_clipped(kind: str) -> None:
    values = np.array([[0, 257, 32896, 65535]], np.uint16)
    data = save(Image.fromarray(values), kind)
    assert np.asarray(decode(data, 1)).tolist() == [[0, 1, 128, 255]]
    assert np.asarray(decode(data, 3))[..., 1].tolist() == [[0, 1, 128, 255]]


@pytest.mark.parametrize(
    ("mode", "kind"), [("1", "PNG"), ("L", "BMP"), ("P", "GIF"), ("CMYK", "JPEG"), ("CMYK", "TIFF"), ("YCbCr", "JPEG")]
)
def test_other_modes(mode: str, kind: str) -> None:
    data = save(Image.new("RGB", (8, 8), "white").convert(mode), kind)
    for channels, want in ((1, (8, 8)), (3, (8, 8, 3))):
        out = np.asarray(decode(data, channels))  # type: ignore[arg-type]
        assert out.shape == want
        assert out.min() >= 254


def test_grey_is_the_luma_of_the_colour() -> None:
    assert decode(save(Image.new("RGB", (1, 1), RED)), 1).getpixel((0, 0)) == 76


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), c) for c in ("red", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    assert decode(save(frames[0], kind, save_all=True, append_images=frames[1:], **options)).getpixel((4, 4)) == RED


def png(width: int, height: int) -> bytes:
    """A PNG header that promises pixels and holds none."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"hello", "the content is not PNG, JPEG, WEBP, BMP, GIF or TIFF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "the content is not PNG"),
        (png(10_000, 10_000), "more than 89 million pixels"),
        (png(60_000, 60_000), "more than 89 million pixels"),
        (png(8, 8), "cannot be decoded"),
        (save(Image.effect_noise((64, 64), 50), "JPEG")[:-200], "cannot be decoded: image file is truncated"),
        (save(Image.effect_noise((64, 64), 50), "PNG")[:900], "cannot be decoded"),
        (save(Image.effect_noise((64, 64), 50), "GIF")[:900], "cannot be decoded"),
        (save(Image.effect_noise((64, 64), 50), "BMP")[:900], "cannot be decoded"),
        (save(Image.effect_noise((64, 64), 50), "WEBP")[:900], "cannot be decoded|content is not"),
        (save(Image.effect_noise((64, 64), 50), "TIFF")[:900], "cannot be decoded|content is not"),
        (save(Image.new("F", (2, 2)), "TIFF"), "32-bit pixels have no fixed range"),
        (save(Image.new("I", (2, 2)), "TIFF"), "32-bit pixels have no fixed range"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        decode(data)


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # what Pillow says of damaged metadata; a run ignores it by a filter of its own
def test_damage_anywhere_never_escapes_as_another_error() -> None:
    """Bytes flipped at 300 places of each format: an image, or a DataError."""
    rng = np.random.default_rng(0)
    for kind in ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"):
        good = np.frombuffer(save(corners(), kind), np.uint8)
        for _ in range(300):
            bad = good.copy()
            bad[rng.integers(len(bad), size=3)] = rng.integers(256, size=3)
            with contextlib.suppress(DataError):
                assert decode(bad.tobytes()).mode == "RGB"


@pytest.mark.parametrize("edges", [(64, 64), (100, 50), (50, 100), (7, 3), (1, 1), (33, 32)])
def test_fit_brings_the_short_edge_to_size(edges: tuple[int, int]) -> None:
    image = Image.new("RGB", edges, RED)
    whole, square = fit(image, 16, square=False), fit(image, 16, square=True)
    assert whole.dtype == square.dtype == np.uint8
    assert square.shape == (3, 16, 16)
    assert min(whole.shape[1:]) == 16
    assert whole.shape[2] / whole.shape[1] == pytest.approx(edges[0] / edges[1], rel=1 / 16)
    assert whole.flags.c_contiguous
    assert (whole[0] == 255).all()
    assert (whole[1:] == 0).all()


def test_the_middle_is_what_is_kept() -> None:
    strip = Image.new("L", (30, 10), 0)
    strip.paste(255, (10, 0, 20, 10))
    assert fit(strip, 10, square=True).min() == 255
    assert fit(strip, 10, square=False).mean() == pytest.approx(255 / 3, abs=1)


def test_a_very_long_image_is_cut_before_it_is_enlarged() -> None:
    assert fit(Image.new("L", (20_000, 1)), 64, square=False).shape == (1, 64, 64 * LONGEST)


def test_shrinking_is_antialiased() -> None:
    """Lines of one pixel become even grey, not stripes."""
    stripes = Image.fromarray(np.tile(np.array([[0], [255]], np.uint8), (64, 128)))
    assert np.ptp(fit(stripes, 16, square=True)[:, 2:-2].astype(int)) <= 12


def test_a_large_jpeg_decoded_small_is_nearly_the_same() -> None:
    x, y = np.meshgrid(np.linspace(0, 6, 512), np.linspace(0, 4, 512))
    data = save(Image.fromarray(((np.sin(x) * np.cos(y) + 1) * 127).astype(np.uint8)), "JPEG", quality=95)
    small, full = decode(data, 1, at_least=64), decode(data, 1)
    assert (small.width, full.width) == (64, 512)
    assert np.abs(fit(small, 32, square=True).astype(int) - fit(full, 32, square=True)).max() <= 3
